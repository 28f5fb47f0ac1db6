"""A copy of one collection of the cluster, reduced object by object, that keeps itself up to date.

List, then watch from there; whatever ends the watch, list again after a pause that grows with each failure. The watch
is a hint that something changed, the list is the truth, and a full list comes at least every ten minutes, so a lost
event costs minutes and never more. Raw objects are never kept, and a list is read page by page.

Events that come twice or in the wrong order change nothing: an event whose resource version is not above that of the
object we hold, or of one that was deleted since the last list, is dropped. Comparing versions is promised by Kubernetes
since 1.35 (KEP-5504: decimal numbers that grow within a resource), and was so before, because they are etcd's revision.
A version that is no number cannot be compared; then the event counts, as the next list would put it right.

Invariants: once `synced`, `values()` is always a complete list plus the events since; a list under way or a lost server
leaves the former values in place. `changed` is set when a reduced value appears, differs or goes. `run` ends only by
being cancelled.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

from runtime import metrics
from runtime.errors import Forbidden, KubeError, NotFound, Unreachable
from runtime.kube import Kube, Resource
from runtime.wire import Raw

RESYNC_SECONDS: Final = 600
"""A watch lives this long, less up to a fifth, so that many agents do not list at once."""

FIRST_PAUSE_SECONDS: Final = 0.2
LONGEST_PAUSE_SECONDS: Final = 5.0
"""Short enough to be back soon after the API server is, long enough not to be what keeps it down."""

DENIED_PAUSE_SECONDS: Final = 30.0
"""For a right or a kind that is missing: somebody has to install something."""

HEALTHY_WATCH_SECONDS: Final = 30.0
"""A watch that lived this long was no failure; the next pause is the first one again."""

TOMBSTONES_LIMIT: Final = 50_000
"""Versions of deleted objects kept until the next list; more deletions within ten minutes force a list."""

Value = TypeVar("Value")
log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Source:
    """Which objects to follow: a resource, and what narrows it on the server's side."""

    resource: Resource
    namespace: str | None = None
    labels: str | None = None
    fields: str | None = None


class _TooManyTombstones(KubeError):
    """Raised to list again, which needs no tombstones."""


class Cache(Generic[Value]):
    """The objects of one source by UID; `reduce` gives the value to keep, or None for an object of no interest.

    It raises ValueError for an object that cannot be read; then the former value stands, because an object that seems
    gone would be taken for ended.
    """

    def __init__(
        self, kube: Kube, source: Resource | Source, reduce: Callable[[Raw], Value | None], changed: asyncio.Event
    ) -> None:
        self._kube = kube
        self._source = source if isinstance(source, Source) else Source(source)
        self._reduce = reduce
        self._changed = changed
        self._values: dict[str, Value] = {}
        self._versions: dict[str, int] = {}
        self._tombstones: dict[str, int] = {}
        self._complained = ""
        self.synced = asyncio.Event()
        self.tried = asyncio.Event()
        """Set once a list succeeded or failed: a source that nobody lets us read is not waited for."""

    def values(self) -> Collection[Value]:
        """All values now, as a live view."""
        return self._values.values()

    async def run(self) -> None:
        """Follow the collection until cancelled."""
        pause = FIRST_PAUSE_SECONDS
        loop = asyncio.get_running_loop()
        while True:
            started = loop.time()
            error: Exception | None = None
            try:
                await self._watch(await self._list())
            except KubeError as failure:
                error = failure
            except Exception as failure:
                # A top-level guard: one odd object must not end the agent, which would read it again when restarted.
                log.exception("following a collection failed", extra={"resource": self._source.resource.plural})
                error = failure
            self.tried.set()
            if loop.time() - started >= HEALTHY_WATCH_SECONDS:
                pause = FIRST_PAUSE_SECONDS
            denied = isinstance(error, Forbidden | NotFound)
            wanted = error.retry_after if isinstance(error, Unreachable) and error.retry_after else 0.0
            self._note(error, pause)
            await asyncio.sleep(max(pause * random.uniform(0.5, 1.0), wanted * random.uniform(1.0, 1.25)))
            pause = min(pause * 2, DENIED_PAUSE_SECONDS if denied else LONGEST_PAUSE_SECONDS)

    def _note(self, error: Exception | None, pause: float) -> None:
        resource = self._source.resource.plural
        metrics.relists.labels(resource=resource).inc()
        reason = "the watch ended" if error is None else str(error)
        if error is not None:
            metrics.errors.labels(kind=type(error).__name__).inc()
        news = error is not None and reason != self._complained
        self._complained = "" if error is None else reason
        level = logging.WARNING if news else logging.DEBUG
        log.log(level, "listing again", extra={"resource": resource, "reason": reason, "pause": pause})

    async def _list(self) -> str:
        fresh: dict[str, Value] = {}
        versions: dict[str, int] = {}
        version, source = "", self._source
        pages = self._kube.pages(source.resource, source.namespace, source.labels, source.fields)
        async for items, version in pages:  # noqa: B007 the last one counts
            for raw in items if isinstance(items, list) else ():
                if uid := _uid(raw):
                    self._put(fresh, versions, uid, raw)
        self._tombstones.clear()
        self._versions = versions
        if fresh != self._values or not self.synced.is_set():
            self._values = fresh
            self._changed.set()
        self.synced.set()
        self.tried.set()
        self._complained = ""
        return version

    async def _watch(self, version: str) -> None:
        lifetime, source = int(RESYNC_SECONDS * random.uniform(0.8, 1.0)), self._source
        events = self._kube.watch(source.resource, version, lifetime, source.namespace, source.labels, source.fields)
        async for kind, raw in events:
            uid = _uid(raw)
            if not uid or kind not in ("ADDED", "MODIFIED", "DELETED") or self._is_old(uid, raw, kind):
                continue
            before = self._values.get(uid)
            if kind == "DELETED":
                self._values.pop(uid, None)
                self._versions.pop(uid, None)
            else:
                self._put(self._values, self._versions, uid, raw)
            if uid not in self._values:
                self._bury(uid, raw, before)
            if self._values.get(uid) != before:
                self._changed.set()

    def _put(self, values: dict[str, Value], versions: dict[str, int], uid: str, raw: Raw) -> None:
        try:
            value = self._reduce(raw)
        except ValueError:
            value = self._values.get(uid)
        if value is None:
            values.pop(uid, None)
            versions.pop(uid, None)
        else:
            values[uid] = value
            if (version := _version(raw)) is not None:
                versions[uid] = version

    def _is_old(self, uid: str, raw: Raw, kind: str) -> bool:
        held = self._versions.get(uid)
        known = self._tombstones.get(uid) if held is None else held
        version = _version(raw)
        # The end of an object may carry its last version; to believe it twice does no harm.
        return known is not None and version is not None and version < known + (kind != "DELETED")

    def _bury(self, uid: str, raw: Raw, before: Value | None) -> None:
        """Remember that an object went, so that an older event does not bring it back."""
        version = _version(raw)
        if version is None or (before is None and uid not in self._tombstones):
            return
        self._tombstones[uid] = version
        if len(self._tombstones) > TOMBSTONES_LIMIT:
            raise _TooManyTombstones("more deletions than are remembered")


def _uid(raw: object) -> str:
    metadata = raw.get("metadata") if isinstance(raw, dict) else None
    uid = metadata.get("uid") if isinstance(metadata, dict) else None
    return uid if isinstance(uid, str) else ""


def _version(raw: Raw) -> int | None:
    text = raw["metadata"].get("resourceVersion")
    return int(text) if isinstance(text, str) and text.isascii() and text.isdigit() and len(text) <= 20 else None
