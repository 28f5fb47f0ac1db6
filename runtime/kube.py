"""The cluster, as far as the agent and the command line touch it: the only importer of the Kubernetes client.

Reads give plain dictionaries as the API server sent them; writes are one method for each thing the agent may change,
so that its rights can be read off this file. Connection, certificates and tokens are lightkube's; requests and watches
are made here, because its watch loop raises out of a refused reconnect, and because objects that are reduced at once
need no typed copy. Nothing here retries, caches or decides.

Every error that leaves this module is a runtime.errors.KubeError.
"""

from __future__ import annotations

import json
import os
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import quote

import httpx2
from lightkube.config.client_adapter import AsyncClient, ConnectionParams
from lightkube.config.kubeconfig import SERVICE_ACCOUNT, KubeConfig
from lightkube.core.exceptions import ConfigError

from runtime.clock import format_time
from runtime.errors import SettingsError
from runtime.wire import Raw, lines, raise_refusal, to_event, to_object, wrapped
from stacks.labels import AGENT_NAME, QUEUE_LABEL, VERDICT_ANNOTATION

PAGE_SIZE: Final = 500
"""Objects in one page of a list: about 2 MB of Workloads, the same as client-go's pager."""

REQUEST_TIMEOUT: Final = httpx2.Timeout(10.0)
WATCH_SILENCE_SECONDS: Final = 150.0
"""A watch is dead after this long without a line; the API server sends a bookmark about once a minute."""

_MERGE: Final = "application/merge-patch+json"
_APPLY: Final = "application/apply-patch+yaml"
_MESSAGE_LIMIT: Final = 32_768
"""Most characters of an AdmissionCheck state's message (Kueue v1beta2)."""


@dataclass(frozen=True, slots=True)
class Resource:
    """Where a kind of object lives: `batch/v1` `jobs`, or `v1` `namespaces`."""

    version: str
    plural: str

    def path(self, namespace: str | None = None, name: str | None = None, subresource: str | None = None) -> str:
        """The URL path of one object, or of the collection where `name` is None."""
        parts = ["apis" if "/" in self.version else "api", *self.version.split("/")]
        if namespace is not None:
            parts += ["namespaces", namespace]
        parts += [part for part in (self.plural, name, subresource) if part is not None]
        return "/" + "/".join(quote(part, safe="") for part in parts)


NAMESPACES: Final = Resource("v1", "namespaces")
JOBS: Final = Resource("batch/v1", "jobs")
WORKLOADS: Final = Resource("kueue.x-k8s.io/v1beta2", "workloads")
ADMISSION_CHECKS: Final = Resource("kueue.x-k8s.io/v1beta2", "admissionchecks")
LEASES: Final = Resource("coordination.k8s.io/v1", "leases")
EVENTS: Final = Resource("events.k8s.io/v1", "events")


class Kube:
    """One connection to one cluster. Use `connect()`; close with `aclose()` or `async with`."""

    def __init__(self, client: httpx2.AsyncClient, field_manager: str = AGENT_NAME) -> None:
        self._client = client
        self._field_manager = field_manager

    async def __aenter__(self) -> Kube:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Close every connection."""
        await self._client.aclose()

    async def get(self, resource: Resource, name: str, namespace: str | None = None) -> Raw:
        """Read one object."""
        return await self._send("GET", resource.path(namespace, name))

    async def pages(
        self, resource: Resource, namespace: str | None = None, labels: str | None = None
    ) -> AsyncIterator[tuple[list[Raw], str]]:
        """List a collection page by page; each page comes with the resource version of the whole list."""
        params = {"limit": str(PAGE_SIZE)} | ({"labelSelector": labels} if labels else {})
        while True:
            page = await self._send("GET", resource.path(namespace), params=params)
            metadata = page.get("metadata") or {}
            yield page.get("items") or [], str(metadata.get("resourceVersion", ""))
            if not metadata.get("continue"):
                return
            params["continue"] = metadata["continue"]

    async def list(self, resource: Resource, namespace: str | None = None, labels: str | None = None) -> list[Raw]:
        """List a whole collection; for collections that may be large, read `pages`."""
        return [item async for items, _ in self.pages(resource, namespace, labels) for item in items]

    async def watch(self, resource: Resource, version: str, lifetime_seconds: int) -> AsyncIterator[tuple[str, Raw]]:
        """Follow a collection from a resource version: (ADDED | MODIFIED | DELETED | BOOKMARK, object).

        It ends after `lifetime_seconds`, or earlier when the server likes.
        """
        params = {
            "watch": "true",
            "allowWatchBookmarks": "true",
            "resourceVersion": version,
            "timeoutSeconds": str(lifetime_seconds),
        }
        timeout = httpx2.Timeout(REQUEST_TIMEOUT.connect, read=WATCH_SILENCE_SECONDS)
        async with (
            wrapped(f"watching {resource.plural}", ConfigError),
            self._client.stream("GET", resource.path(), params=params, timeout=timeout) as response,
        ):
            if response.is_error:
                await response.aread()
                raise_refusal(response, f"watching {resource.plural}")
            async for line in lines(response):
                yield to_event(line, f"watching {resource.plural}")

    async def set_job_queue(self, namespace: str, name: str, queue: str) -> None:
        """Move a Job to another LocalQueue of its namespace, by its label alone."""
        await self._merge(JOBS.path(namespace, name), {"metadata": {"labels": {QUEUE_LABEL: queue}}})

    async def patch_workload(
        self,
        namespace: str,
        name: str,
        *,
        verdict: str | None = None,
        clear_verdict: bool = False,
        resource_version: str | None = None,
        **spec: str | bool,
    ) -> None:
        """Change, in one patch, a Workload's verdict annotation and of its spec `active` and `queueName`.

        Raises:
            Conflict: when a resource version is given and the Workload has changed since.
        """
        body: Raw = {"spec": spec} if spec else {}
        metadata: Raw = {"resourceVersion": resource_version} if resource_version else {}
        if verdict is not None or clear_verdict:
            metadata["annotations"] = {VERDICT_ANNOTATION: verdict}
        if metadata:
            body["metadata"] = metadata
        await self._merge(WORKLOADS.path(namespace, name), body)

    async def answer_gate(
        self, namespace: str, name: str, *, check: str, message: str, resource_version: str, now: float
    ) -> None:
        """Answer our check of a Workload with Ready, if the Workload has not changed since it was read.

        Server-side apply, because the list of checks has other writers and a merge patch would replace it.

        Raises:
            Conflict: when it changed; read it again.
        """
        entry = {
            "name": check,
            "state": "Ready",
            "message": message[:_MESSAGE_LIMIT],
            "lastTransitionTime": format_time(now),
        }
        await self._apply(WORKLOADS, namespace, name, {"admissionChecks": [entry]}, resource_version)

    async def activate_check(self, name: str, generation: int, now: float) -> None:
        """Tell Kueue that somebody answers this AdmissionCheck. There is no way back on purpose: a check that is not
        active stops its whole queue.
        """  # noqa: D205
        condition = {
            "type": "Active",
            "status": "True",
            "reason": "AgentReady",
            "message": "the gpufleet agent answers this check",
            "observedGeneration": generation,
            "lastTransitionTime": format_time(now),
        }
        await self._apply(ADMISSION_CHECKS, None, name, {"conditions": [condition]}, None)

    async def create_lease(self, namespace: str, body: Raw) -> Raw:
        """Create a Lease; Conflict when somebody was faster."""
        return await self._send("POST", LEASES.path(namespace), body=body)

    async def replace_lease(self, namespace: str, name: str, body: Raw) -> Raw:
        """Replace a Lease that has not changed since it was read."""
        return await self._send("PUT", LEASES.path(namespace, name), body=body)

    async def create_event(self, namespace: str, body: Raw) -> None:
        """Write an Event (events.k8s.io/v1)."""
        await self._send("POST", EVENTS.path(namespace), body=body)

    async def _merge(self, path: str, body: Raw) -> None:
        await self._send("PATCH", path, body=body, content_type=_MERGE)

    async def _apply(
        self, resource: Resource, namespace: str | None, name: str, status: Raw, resource_version: str | None
    ) -> None:
        kind = {WORKLOADS: "Workload", ADMISSION_CHECKS: "AdmissionCheck"}[resource]
        metadata = {"name": name} | ({"namespace": namespace} if namespace else {})
        metadata |= {"resourceVersion": resource_version} if resource_version else {}
        body = {"apiVersion": resource.version, "kind": kind, "metadata": metadata, "status": status}
        path = resource.path(namespace, name, "status")
        await self._send("PATCH", path, body=body, content_type=_APPLY, params={"force": "true"})

    async def _send(
        self,
        method: str,
        path: str,
        *,
        body: Raw | None = None,
        params: Mapping[str, str] | None = None,
        content_type: str = "application/json",
    ) -> Raw:
        parameters = dict(params or {}) | ({"fieldManager": self._field_manager} if body is not None else {})
        content = None if body is None else json.dumps(body)
        async with wrapped(f"{method} {path}", ConfigError):
            response = await self._client.request(
                method, path, params=parameters, content=content, headers={"Content-Type": content_type}
            )
            if response.is_error:
                raise_refusal(response, f"{method} {path}")
            return to_object(response.content)


def connect(environment: Mapping[str, str] = os.environ) -> Kube:
    """Connect with the pod's service account, or, outside a cluster, with KUBECONFIG.

    GPUFLEET_SERVICE_ACCOUNT_DIR names another directory with token, ca.crt and namespace.

    Raises:
        SettingsError: when neither is there or usable.
    """
    account = Path(environment.get("GPUFLEET_SERVICE_ACCOUNT_DIR", SERVICE_ACCOUNT))
    try:
        if "KUBERNETES_SERVICE_HOST" in environment and (account / "token").exists():
            config = KubeConfig.from_service_account(account).get()
        else:
            config = KubeConfig.from_file(environment.get("KUBECONFIG", "~/.kube/config")).get()
        if config is None or config.user is None:
            raise ConfigError("the current context names no user")
        return Kube(AsyncClient(config, ConnectionParams(timeout=REQUEST_TIMEOUT)))
    except (ConfigError, OSError, KeyError, TypeError, ValueError) as error:
        raise SettingsError(
            f"no usable connection to a cluster: {error}; run in a pod with a service account, or set KUBECONFIG"
        ) from error
