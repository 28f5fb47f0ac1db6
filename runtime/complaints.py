"""What is odd about Workloads: counted, logged once, and told to the user where the user can mend it."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from runtime import events, metrics
from runtime.events import Event
from runtime.routing.snapshot import Job
from runtime.routing.wishes import BAD_DATA_SIZE, BAD_EXPECTED_RUNTIME, BAD_PROJECT

COMPLAINTS_LIMIT: Final = 10_000
"""Remembered, so that each is logged once; beyond, the memory starts afresh and some are logged twice."""

_FOR_USERS: Final[Mapping[str, Callable[[Job, str], Event]]] = {
    BAD_EXPECTED_RUNTIME: events.bad_expected_runtime,
    BAD_DATA_SIZE: events.bad_data_size,
    BAD_PROJECT: events.several_projects,
}
MOST_TOLD_AT_ONCE: Final = 20
"""A thousand jobs with a wrong annotation must not keep decisions waiting while their users are told."""

_LONGEST_NAME: Final = 253
log = logging.getLogger(__name__)


class Complaints:
    """The memory of what was said already."""

    def __init__(self) -> None:
        self._known: set[tuple[str, str]] = set()
        self._untold: dict[tuple[str, str], str] = {}

    def report(self, reason: str, raw: Mapping[str, Any], message: str) -> None:
        """Called for each Workload that is odd in some way, whenever it is read."""
        metadata = raw.get("metadata")
        named = metadata if isinstance(metadata, dict) else {}
        key = (str(named.get("uid"))[:_LONGEST_NAME], reason)
        metrics.skipped_workloads.labels(reason=reason).inc()
        if key in self._known:
            return
        if len(self._known) >= COMPLAINTS_LIMIT:
            self._known.clear()
            self._untold.clear()
        self._known.add(key)
        log.warning(message, extra={"reason": reason, "workload": str(named.get("name"))[:_LONGEST_NAME]})
        if reason in _FOR_USERS:
            self._untold[key] = message

    def for_users(self, jobs: Iterable[Job]) -> list[Event]:
        """Some of what is to be told to users, each thing once; what is about no job of ours is dropped."""
        if not self._untold:
            return []
        by_uid: dict[str, list[tuple[str, str]]] = {}
        for uid, reason in list(self._untold)[:MOST_TOLD_AT_ONCE]:
            by_uid.setdefault(uid, []).append((reason, self._untold.pop((uid, reason))))
        return [
            _FOR_USERS[reason](job, message) for job in jobs if job.uid in by_uid for reason, message in by_uid[job.uid]
        ]
