"""A copy of one collection of the cluster, reduced object by object, that keeps itself up to date.

List, then watch from there; whatever ends the watch, list again after a pause that grows with each failure. The watch
is a hint that something changed, the list is the truth, and a full list comes at least every ten minutes. Raw objects
are never kept, and a list is read page by page.

Invariants: once `synced`, `values()` is always a complete list plus the events since; a list under way or a lost server
leaves the former values in place. `changed` is set when a reduced value appears, differs or goes.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Collection
from typing import Final, Generic, TypeVar

from runtime import metrics
from runtime.errors import KubeError
from runtime.kube import Kube, Resource
from runtime.wire import Raw

RESYNC_SECONDS: Final = 600
"""A watch lives this long, less up to a fifth, so that many agents do not list at once."""

FIRST_PAUSE_SECONDS: Final = 0.2
LONGEST_PAUSE_SECONDS: Final = 5.0
"""Short enough to be back soon after the API server is, long enough not to be what keeps it down."""

HEALTHY_WATCH_SECONDS: Final = 30.0
"""A watch that lived this long was no failure; the next pause is the first one again."""

Value = TypeVar("Value")
log = logging.getLogger(__name__)


class Cache(Generic[Value]):
    """The objects of one resource by UID; `reduce` gives the value to keep, or None for an object of no interest.

    It raises ValueError for an object that cannot be read; then the former value stands, because an object that seems
    gone would be taken for ended.
    """

    def __init__(
        self, kube: Kube, resource: Resource, reduce: Callable[[Raw], Value | None], changed: asyncio.Event
    ) -> None:
        self._kube = kube
        self._resource = resource
        self._reduce = reduce
        self._changed = changed
        self._values: dict[str, Value] = {}
        self.synced = asyncio.Event()

    def values(self) -> Collection[Value]:
        """All values now, as a live view."""
        return self._values.values()

    async def run(self) -> None:
        """Follow the collection until cancelled."""
        pause = FIRST_PAUSE_SECONDS
        loop = asyncio.get_running_loop()
        while True:
            started = loop.time()
            try:
                await self._watch(await self._list())
                reason = "the watch ended"
            except KubeError as error:
                reason = str(error)
                metrics.errors.labels(kind=type(error).__name__).inc()
            if loop.time() - started >= HEALTHY_WATCH_SECONDS:
                pause = FIRST_PAUSE_SECONDS
            metrics.relists.labels(resource=self._resource.plural).inc()
            log.info("listing again", extra={"resource": self._resource.plural, "reason": reason, "pause": pause})
            await asyncio.sleep(pause * random.uniform(0.5, 1.0))
            pause = min(pause * 2, LONGEST_PAUSE_SECONDS)

    async def _list(self) -> str:
        fresh: dict[str, Value] = {}
        version = ""
        async for items, version in self._kube.pages(self._resource):  # noqa: B007 the last one counts
            for raw in items:
                self._put(fresh, raw)
        if fresh != self._values or not self.synced.is_set():
            self._values = fresh
            self._changed.set()
        self.synced.set()
        return version

    async def _watch(self, version: str) -> None:
        lifetime = int(RESYNC_SECONDS * random.uniform(0.8, 1.0))
        async for kind, raw in self._kube.watch(self._resource, version, lifetime):
            uid = _uid(raw)
            before = self._values.get(uid)
            if kind == "DELETED":
                self._values.pop(uid, None)
            elif kind in ("ADDED", "MODIFIED"):
                self._put(self._values, raw)
            if self._values.get(uid) != before:
                self._changed.set()

    def _put(self, values: dict[str, Value], raw: Raw) -> None:
        uid = _uid(raw)
        try:
            value = self._reduce(raw)
        except ValueError:
            value = self._values.get(uid)
        if value is None:
            values.pop(uid, None)
        else:
            values[uid] = value


def _uid(raw: Raw) -> str:
    metadata = raw.get("metadata")
    return str(metadata.get("uid")) if isinstance(metadata, dict) else ""
