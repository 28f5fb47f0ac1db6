"""GCP: the metadata server says that a spot VM is preempted, or that its host is about to be maintained.

Two keys are read, each by a source of its own, with a request that the server holds until the key changes. The window
of a preemption is not told, and depends on how the VM was made: 0, 30 or 120 s, so it is a setting.

A host error gives no notice, and neither does what GKE itself does to nodes.

Keys and values: Google Cloud, "Query metadata server for maintenance event notices" and "Spot VMs"; waiting: "View and
query VM metadata". A maintenance that stops the VM is announced 60 s ahead, for VMs with GPUs up to an hour; nobody
says which, so 60 s are reckoned with.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from typing import Final

from runtime.eviction.notice import Certainty, Notice, NoticeKind
from runtime.eviction.sources import FirstSeen, Found, SourceDown
from runtime.eviction.sources.connection import Connection
from runtime.eviction.sources.pace import Pace
from runtime.eviction.sources.parsing import shown

METADATA_URL: Final = "http://metadata.google.internal"

NOTICE_SECONDS: Final = 30.0
"""From the notice to the end of a spot VM that was not made otherwise: what its shutdown may take, at best."""

MAINTENANCE_WINDOW_SECONDS: Final = 60.0

WAIT_SECONDS: Final = 60
"""How long the server holds a request; an answer that did not change costs nothing, and shows that it lives."""

_WAIT_GRACE_SECONDS: Final = 10.0
_REST_SECONDS: Final = 0.05
_IDLE_REST_SECONDS: Final = 1.0  # where nothing changed: a server that does not hold requests is not asked in a loop
_FLAVOR: Final = {"Metadata-Flavor": "Google"}
_ROOT: Final = "/computeMetadata/v1/instance"

Reading = Callable[[str], Found | None]
"""Reads a value; raises ValueError where it is not one of those that are documented."""


class GcpSource:
    """One key of the metadata server."""

    def __init__(
        self,
        name: str,
        key: str,
        reading: Reading,
        connection: Connection,
        now: Callable[[], float],
        known: Iterable[Notice],
        wait_seconds: int,
    ) -> None:
        self.name = name
        self._key = key
        self._reading = reading
        self._connection = connection
        self._now = now
        self._seen = FirstSeen(name, known)
        self._wait_seconds = wait_seconds
        self._etag = ""
        self._changed = False
        self._pace = Pace(_REST_SECONDS)

    def read(self) -> Sequence[Notice]:
        """What is in force: at once the first time and after a failure, then when it changes."""
        self._pace.failed()
        etag, self._etag = self._etag, ""
        query, timeout = "", _WAIT_GRACE_SECONDS
        if etag:
            query = f"?wait_for_change=true&last_etag={etag}&timeout_sec={self._wait_seconds}"
            timeout += self._wait_seconds
        path = f"{_ROOT}/{self._key}"
        response = self._connection.request("GET", path + query, _FLAVOR, timeout=timeout)
        if response.status != 200:
            raise SourceDown(f"GET {path}: {response.status}")
        if response.headers.get("metadata-flavor") != "Google":
            raise SourceDown(f"GET {path}: what answers is not the metadata server of GCP, it sent no Metadata-Flavor")
        try:
            found = self._reading(response.text().strip())
            notices = self._seen.notices([found] if found else [], self._now())
        except ValueError as error:
            raise SourceDown(f"GET {path}: {error}") from error
        tag = response.headers.get("etag", "")
        self._changed = tag not in ("", etag)
        self._etag = tag if tag.isascii() and tag.isalnum() else ""
        self._pace.succeeded()
        return notices

    def rest(self) -> float:
        """Hardly any after a change, since the server holds the next request; longer while it fails."""
        return self._pace.rest() if self._changed else max(_IDLE_REST_SECONDS, self._pace.rest())


def gcp_sources(
    base_url: str | None = None,
    *,
    known: Sequence[Notice] = (),
    notice_seconds: float = NOTICE_SECONDS,
    wait_seconds: int = WAIT_SECONDS,
    now: Callable[[], float] = time.time,
) -> tuple[GcpSource, ...]:
    """The sources of one node, with a connection each; `known` is what the node says already."""

    def preempted(value: str) -> Found | None:
        return read_preempted(value, notice_seconds)

    keys: tuple[tuple[str, str, Reading], ...] = (
        ("gcp-preemption", "preempted", preempted),
        ("gcp-maintenance", "maintenance-event", read_maintenance),
    )
    return tuple(
        GcpSource(name, key, reading, Connection(base_url or METADATA_URL), now, known, wait_seconds)
        for name, key, reading in keys
    )


def read_preempted(value: str, notice_seconds: float) -> Found | None:
    """`TRUE` or `FALSE`."""
    if value == "FALSE":
        return None
    if value != "TRUE":
        raise ValueError(f"{shown(value)}: must be TRUE or FALSE")
    detail = "GCP preempts this spot VM"
    return Found("gcp-preempted", NoticeKind.SPOT, Certainty.CERTAIN, None, notice_seconds, detail)


def read_maintenance(value: str) -> Found | None:
    """`NONE`, `MIGRATE_ON_HOST_MAINTENANCE` or `TERMINATE_ON_HOST_MAINTENANCE`."""
    kind = NoticeKind.MAINTENANCE
    if value == "NONE":
        return None
    if value == "MIGRATE_ON_HOST_MAINTENANCE":
        return Found("gcp-migration", kind, Certainty.LIKELY, None, None, "GCP moves this VM to another host")
    if value == "TERMINATE_ON_HOST_MAINTENANCE":
        detail = "GCP stops this VM to maintain its host"
        return Found("gcp-maintenance", kind, Certainty.CERTAIN, None, MAINTENANCE_WINDOW_SECONDS, detail)
    raise ValueError(f"{shown(value)}: must be NONE, MIGRATE_ON_HOST_MAINTENANCE or TERMINATE_ON_HOST_MAINTENANCE")
