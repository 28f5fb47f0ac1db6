"""The cluster, as far as the agent and the command line touch it: the only importer of the Kubernetes client.

Reads are runtime.api's; writes are one method for each thing the agent may change, so that its rights can be read off
this file. Connection, certificates and tokens are lightkube's. Nothing here retries, caches or decides.

Every error that leaves this module is a runtime.errors.KubeError, but for a SettingsError of `connect`.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import httpx2
from lightkube.config.client_adapter import AsyncClient, ConnectionParams
from lightkube.config.kubeconfig import SERVICE_ACCOUNT, KubeConfig
from lightkube.core.exceptions import ConfigError

from runtime.api import REQUEST_TIMEOUT, Api
from runtime.clock import format_time
from runtime.errors import SettingsError
from runtime.resource import (
    ADMISSION_CHECKS,
    CLUSTER_QUEUES,
    CONFIG_MAPS,
    EVENTS,
    JOBS,
    LEASES,
    LOCAL_QUEUES,
    NAMESPACES,
    NODES,
    PODS,
    RESOURCE_FLAVORS,
    WORKLOADS,
    Resource,
    job_resource,
)
from runtime.wire import Raw
from stacks.labels import (
    AGENT_NAME,
    CLEARED_ANNOTATION,
    EVICTION_ANNOTATION,
    MOVE_ANNOTATION,
    QUEUE_LABEL,
    RECALL_ANNOTATION,
    RELAYOUT_ANNOTATION,
    VERDICT_ANNOTATION,
)

__all__ = [
    "ADMISSION_CHECKS",
    "CLUSTER_QUEUES",
    "CONFIG_MAPS",
    "EVENTS",
    "JOBS",
    "LEASES",
    "LOCAL_QUEUES",
    "NAMESPACES",
    "NODES",
    "PODS",
    "REQUEST_TIMEOUT",
    "RESOURCE_FLAVORS",
    "WORKLOADS",
    "Kube",
    "Resource",
    "connect",
    "job_resource",
]

_MESSAGE_LIMIT: Final = 32_768
"""Most characters of an AdmissionCheck state's message (Kueue v1beta2)."""


class Kube(Api):
    """One connection to one cluster. Use `connect()`; close with `aclose()` or `async with`."""

    def __init__(self, client: httpx2.AsyncClient, field_manager: str = AGENT_NAME) -> None:
        # The client reads its token anew from time to time, and says in its own way that it cannot.
        super().__init__(client, field_manager, ConfigError)

    async def set_queue(self, resource: Resource, namespace: str, name: str, queue: str) -> None:
        """Move a job of any kind to another LocalQueue of its namespace, by its label alone."""
        await self.merge(resource, namespace, name, {"metadata": {"labels": {QUEUE_LABEL: queue}}})

    async def hold_local_queue(self, namespace: str, name: str, held: bool) -> None:
        """Let no job of a LocalQueue start, or let them start again; what runs goes on."""
        await self.merge(LOCAL_QUEUES, namespace, name, {"spec": {"stopPolicy": "Hold" if held else "None"}})

    async def patch_config_map(self, namespace: str, name: str, data: Mapping[str, str | None]) -> None:
        """Set these entries of a ConfigMap, and remove those whose text is None."""
        await self.merge(CONFIG_MAPS, namespace, name, {"data": dict(data)})

    async def patch_workload(
        self,
        namespace: str,
        name: str,
        *,
        verdict: str | None = None,
        clear_marks: bool = False,
        clear_move: bool = False,
        eviction: str | None = None,
        resource_version: str | None = None,
        uid: str | None = None,
        queue: str | None = None,
        active: bool | None = None,
    ) -> Raw:
        """Change, in one patch, a Workload's verdict annotation, its queue, whether it is active, and its eviction.

        `clear_marks` takes away what an administrator wished, and the verdict unless another is given; `clear_move`
        the wish for a move alone.
        `eviction` is the marker of one; an empty text takes it away. Returns the Workload as it is now.

        Raises:
            Conflict: when a resource version is given and the Workload has changed since, or a UID and it is another.
        """
        spec = {name: value for name, value in (("queueName", queue), ("active", active)) if value is not None}
        body: Raw = {"spec": spec} if spec else {}
        metadata: Raw = {"resourceVersion": resource_version} if resource_version else {}
        if uid is not None:
            metadata["uid"] = uid
        if verdict is not None or clear_marks:
            wishes = dict.fromkeys((RECALL_ANNOTATION, MOVE_ANNOTATION)) if clear_marks else {}
            metadata["annotations"] = {VERDICT_ANNOTATION: verdict, **wishes}
        if clear_move:
            metadata["annotations"] = {**metadata.get("annotations", {}), MOVE_ANNOTATION: None}
        if eviction is not None:
            metadata["annotations"] = {**metadata.get("annotations", {}), EVICTION_ANNOTATION: eviction or None}
        if metadata:
            body["metadata"] = metadata
        return await self.merge(WORKLOADS, namespace, name, body)

    async def annotate_pod(self, namespace: str, name: str, uid: str, annotation: str, text: str) -> None:
        """Set one annotation of exactly this pod.

        Raises:
            Conflict: when another pod has the name by now.
        """
        body: Raw = {"metadata": {"uid": uid, "annotations": {annotation: text}}}
        await self.merge(PODS, namespace, name, body)

    async def evict_pod(self, namespace: str, name: str, uid: str) -> None:
        """Evict exactly this pod, as its disruption budgets allow.

        Raises:
            Conflict: when another pod has the name by now.
            Unreachable: while a disruption budget does not allow it.
        """
        body: Raw = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": name, "namespace": namespace},
            "deleteOptions": {"preconditions": {"uid": uid}},
        }
        await self.send("POST", PODS.path(namespace, name, "eviction"), body=body)

    async def mark_cleared(self, node: str, text: str | None) -> None:
        """Say on a Node for which notices nothing of ours is left there; None takes it back."""
        await self.merge(NODES, None, node, {"metadata": {"annotations": {CLEARED_ANNOTATION: text}}})

    async def change_layout(
        self,
        node: str,
        resource_version: str,
        *,
        record: str | None,
        taints: Sequence[Raw],
        labels: Mapping[str, str | None],
    ) -> None:
        """Write, in one patch, how far the change of a node's layout is, its taints, and the labels that change.

        Raises:
            Conflict: when the node has changed since it was read.
        """
        metadata: Raw = {"resourceVersion": resource_version, "annotations": {RELAYOUT_ANNOTATION: record}}
        if labels:
            metadata["labels"] = dict(labels)
        await self.merge(NODES, None, node, {"metadata": metadata, "spec": {"taints": list(taints) or None}})

    async def answer_gate(
        self,
        namespace: str,
        name: str,
        *,
        check: str,
        message: str,
        resource_version: str,
        now: float,
        condition: Raw | None = None,
    ) -> None:
        """Answer our check of a Workload with Ready, if the Workload has not changed since it was read.

        The condition for people goes along: each write of a Workload's status costs the API server more than all else
        that a release needs.

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
        status: Raw = {"admissionChecks": [entry]} | ({"conditions": [condition]} if condition else {})
        await self.apply(WORKLOADS, namespace, name, status, resource_version)

    async def write_condition(self, namespace: str, name: str, condition: Raw) -> None:
        """Set one condition of a Workload, and leave everything else of its status alone.

        Server-side apply takes away what the same manager applied before and leaves out now, so this has a manager of
        its own: under that of `answer_gate` either would remove what the other wrote.
        """
        manager = f"{self._field_manager}-verdict"
        await self.apply(WORKLOADS, namespace, name, {"conditions": [condition]}, None, manager)

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
        await self.apply(ADMISSION_CHECKS, None, name, {"conditions": [condition]}, None)

    async def create_lease(self, namespace: str, body: Raw) -> Raw:
        """Create a Lease; Conflict when somebody was faster."""
        return await self.send("POST", LEASES.path(namespace), body=body)

    async def replace_lease(self, namespace: str, name: str, body: Raw) -> Raw:
        """Replace a Lease that has not changed since it was read."""
        return await self.send("PUT", LEASES.path(namespace, name), body=body)

    async def create_event(self, namespace: str, body: Raw) -> None:
        """Write an Event (events.k8s.io/v1)."""
        await self.send("POST", EVENTS.path(namespace), body=body)


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
