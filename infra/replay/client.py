"""What the replay asks of a cluster, and how the embedded control plane's client answers it without blocking."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final, Protocol, TypeVar

from infra.local.kubeclient import KubeClient

Manifest = dict[str, Any]
Answer = TypeVar("Answer")

PARALLEL_REQUESTS: Final = 8
"""Requests under way at once; one API server on two cores answers no faster with more."""


class Client(Protocol):
    """The two calls a replay needs. Both raise infra.local.errors.KubeError when the server refuses or is away."""

    async def create(self, manifest: Manifest) -> Manifest:
        """Create an object; status 409 where it exists."""

    async def list(self, api_version: str, kind: str, label_selector: str = "") -> list[Manifest]:
        """All objects of a kind, in all namespaces."""


class ThreadedClient:
    """Runs a synchronous KubeClient on threads of its own; close it, or use it in an `async with` block."""

    def __init__(self, client: KubeClient) -> None:
        self._client = client
        self._threads = ThreadPoolExecutor(PARALLEL_REQUESTS, thread_name_prefix="replay")

    async def __aenter__(self) -> ThreadedClient:
        return self

    async def __aexit__(self, *_: object) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def create(self, manifest: Manifest) -> Manifest:
        """Create an object; status 409 where it exists."""
        return await self._run(lambda: self._client.create(manifest))

    async def list(self, api_version: str, kind: str, label_selector: str = "") -> list[Manifest]:
        """All objects of a kind, in all namespaces."""
        items, _ = await self._run(lambda: self._client.list(api_version, kind, label_selector=label_selector))
        return items

    async def _run(self, call: Callable[[], Answer]) -> Answer:
        return await asyncio.get_running_loop().run_in_executor(self._threads, call)
