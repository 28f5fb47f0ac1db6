"""Requests to the API server: lists, watches and patches of any kind of object, as plain dictionaries.

Requests and watches are made here and not by the client's own watch loop, because that raises out of a refused
reconnect, and because objects that are reduced at once need no typed copy. What may be written is runtime.kube's
business. Nothing here retries, caches or decides.

Every error that leaves this module is a runtime.errors.KubeError.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping
from typing import Final, Self

import httpx2

from runtime.resource import ADMISSION_CHECKS, WORKLOADS, Resource
from runtime.wire import Raw, lines, raise_refusal, to_event, to_object, wrapped

PAGE_SIZE: Final = 250
"""Objects in one page of a list: about 1 MB of Workloads, half of client-go's, because reading a page stops the loop
on which the lease is renewed, and all of its objects are in memory at once."""

REQUEST_TIMEOUT: Final = httpx2.Timeout(10.0)
WATCH_SILENCE_SECONDS: Final = 150.0
"""A watch is dead after this long without a line; the API server sends a bookmark about once a minute."""

_MERGE: Final = "application/merge-patch+json"
_APPLY: Final = "application/apply-patch+yaml"


class Api:
    """One connection to one API server; the errors `also` count as no answer."""

    def __init__(self, client: httpx2.AsyncClient, field_manager: str, *also: type[Exception]) -> None:
        self._client = client
        self._field_manager = field_manager
        self._also = also

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Close every connection."""
        await self._client.aclose()

    async def get(self, resource: Resource, name: str, namespace: str | None = None) -> Raw:
        """Read one object."""
        return await self.send("GET", resource.path(namespace, name))

    async def pages(
        self, resource: Resource, namespace: str | None = None, labels: str | None = None, fields: str | None = None
    ) -> AsyncIterator[tuple[list[Raw], str]]:
        """List a collection page by page; each page comes with the resource version of the whole list."""
        params = {"limit": str(PAGE_SIZE)} | _selectors(labels, fields)
        while True:
            page = await self.send("GET", resource.path(namespace), params=params)
            metadata = page.get("metadata") or {}
            yield page.get("items") or [], str(metadata.get("resourceVersion", ""))
            if not metadata.get("continue"):
                return
            params["continue"] = metadata["continue"]

    async def list(
        self, resource: Resource, namespace: str | None = None, labels: str | None = None, fields: str | None = None
    ) -> list[Raw]:
        """List a whole collection; for collections that may be large, read `pages`."""
        return [item async for items, _ in self.pages(resource, namespace, labels, fields) for item in items]

    async def watch(
        self,
        resource: Resource,
        version: str,
        lifetime_seconds: int,
        namespace: str | None = None,
        labels: str | None = None,
        fields: str | None = None,
    ) -> AsyncIterator[tuple[str, Raw]]:
        """Follow a collection from a resource version: (ADDED | MODIFIED | DELETED | BOOKMARK, object).

        It ends after `lifetime_seconds`, or earlier when the server likes.
        """
        params = {
            "watch": "true",
            "allowWatchBookmarks": "true",
            "resourceVersion": version,
            "timeoutSeconds": str(lifetime_seconds),
            **_selectors(labels, fields),
        }
        timeout = httpx2.Timeout(REQUEST_TIMEOUT.connect, read=WATCH_SILENCE_SECONDS)
        async with (
            wrapped(f"watching {resource.plural}", *self._also),
            self._client.stream("GET", resource.path(namespace), params=params, timeout=timeout) as response,
        ):
            if response.is_error:
                await response.aread()
                raise_refusal(response, f"watching {resource.plural}")
            async for line in lines(response):
                yield to_event(line, f"watching {resource.plural}")

    async def merge(self, resource: Resource, namespace: str | None, name: str, body: Raw) -> Raw:
        """Merge a patch into one object; returns the object as it is now."""
        return await self.send("PATCH", resource.path(namespace, name), body=body, content_type=_MERGE)

    async def apply(
        self,
        resource: Resource,
        namespace: str | None,
        name: str,
        status: Raw,
        resource_version: str | None,
        manager: str | None = None,
    ) -> None:
        """Apply a part of one object's status, which `manager` owns from now on, whoever owned it before."""
        kind = {WORKLOADS: "Workload", ADMISSION_CHECKS: "AdmissionCheck"}[resource]
        metadata = {"name": name} | ({"namespace": namespace} if namespace else {})
        metadata |= {"resourceVersion": resource_version} if resource_version else {}
        body = {"apiVersion": resource.version, "kind": kind, "metadata": metadata, "status": status}
        path = resource.path(namespace, name, "status")
        params = {"force": "true"} | ({"fieldManager": manager} if manager else {})
        await self.send("PATCH", path, body=body, content_type=_APPLY, params=params)

    async def send(
        self,
        method: str,
        path: str,
        *,
        body: Raw | None = None,
        params: Mapping[str, str] | None = None,
        content_type: str = "application/json",
    ) -> Raw:
        """Make one request; returns the object that the server answers with."""
        parameters = ({"fieldManager": self._field_manager} if body is not None else {}) | dict(params or {})
        content = None if body is None else json.dumps(body)
        async with wrapped(f"{method} {path}", *self._also):
            response = await self._client.request(
                method, path, params=parameters, content=content, headers={"Content-Type": content_type}
            )
            if response.is_error:
                raise_refusal(response, f"{method} {path}")
            return to_object(response.content)


def _selectors(labels: str | None, fields: str | None) -> dict[str, str]:
    return {name: text for name, text in (("labelSelector", labels), ("fieldSelector", fields)) if text}
