"""Azure: scheduled events say that a spot VM is evicted, or that a VM is deleted, restarted, moved or paused.

An event reaches every VM of a scale set, so what does not name this VM is left out. A pause of some seconds (`Freeze`)
ends nothing that runs, and only counts as likely. Nothing is acknowledged here unasked: Azure takes an acknowledgement
as the word to begin, on all VMs that the event names, and every second until NotBefore is the job's. So a notice also
says how many there are.

Fields and times: Microsoft, "Scheduled Events for Linux VMs"; the VM's own name: "Azure Instance Metadata Service".
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

from runtime.eviction.notice import Certainty, Notice, NoticeKind
from runtime.eviction.sources import FirstSeen, Found, SourceDown
from runtime.eviction.sources.connection import Connection
from runtime.eviction.sources.pace import Pace
from runtime.eviction.sources.parsing import as_list, as_object, parse_object, parse_time, shown

METADATA_URL: Final = "http://169.254.169.254"

INTERVAL_SECONDS: Final = 1.0
"""Azure asks for one reading a second."""

FIRST_TIMEOUT_SECONDS: Final = 120.0
"""The first reading turns the service on for the VM, which may take two minutes."""

PREEMPT_WINDOW_SECONDS: Final = 30.0
"""A spot VM has at least 30 s from its notice, and hardly more."""

_EVENTS_PATH: Final = "/metadata/scheduledevents?api-version=2020-07-01"
_NAME_PATH: Final = "/metadata/instance/compute/name?api-version=2021-02-01&format=text"
_HEADER: Final = {"Metadata": "true"}
_TIMEOUT_SECONDS: Final = 5.0
_PREFIX: Final = "azure-"  # an EventId is a GUID, or a number for spot VMs
_LONGEST_NAME: Final = 128  # names of VMs have at most 64 characters

_KINDS: Final[Mapping[str, tuple[NoticeKind, Certainty, float | None]]] = {
    "Preempt": (NoticeKind.SPOT, Certainty.CERTAIN, PREEMPT_WINDOW_SECONDS),
    "Terminate": (NoticeKind.SCALE_IN, Certainty.CERTAIN, None),
    "Reboot": (NoticeKind.MAINTENANCE, Certainty.CERTAIN, None),
    "Redeploy": (NoticeKind.MAINTENANCE, Certainty.CERTAIN, None),
}
_ONLY_LIKELY: Final = (NoticeKind.MAINTENANCE, Certainty.LIKELY, None)
"""Freeze, and whatever Azure may think of next: it must not hide the events that are known."""

_IN_FORCE: Final = ("Scheduled", "Started")


class AzureSource:
    """The scheduled events of one VM."""

    name = "azure"

    def __init__(
        self,
        base_url: str | None = None,
        *,
        known: Sequence[Notice] = (),
        now: Callable[[], float] = time.time,
    ) -> None:
        self._base_url = base_url or METADATA_URL
        self._connection = Connection(self._base_url)
        self._now = now
        self._seen = FirstSeen(self.name, known)
        self._pace = Pace(INTERVAL_SECONDS)
        self._vm = ""
        self._timeout = FIRST_TIMEOUT_SECONDS

    def read(self) -> Sequence[Notice]:
        """The events that name this VM, and have not ended."""
        self._pace.failed()
        if not self._vm:
            self._vm = self._own_name()
        response = self._connection.request("GET", _EVENTS_PATH, _HEADER, timeout=self._timeout)
        if response.status != 200:
            raise SourceDown(f"GET {_EVENTS_PATH}: {response.status}")
        now = self._now()
        try:
            notices = self._seen.notices(read_events(response.text(), self._vm, now), now)
        except ValueError as error:
            raise SourceDown(f"GET {_EVENTS_PATH}: {error}") from error
        self._timeout = _TIMEOUT_SECONDS
        self._pace.succeeded()
        return notices

    def rest(self) -> float:
        """A second, or longer while it fails."""
        return self._pace.rest()

    def acknowledge(self, notice: Notice) -> None:
        """Tell Azure that it may begin; on a connection of its own, since another thread reads.

        Raises:
            SourceDown: when Azure was not told, or refused, as it does for an event that began or is gone.
        """
        body = json.dumps({"StartRequests": [{"EventId": notice.id.removeprefix(_PREFIX)}]}).encode()
        connection = Connection(self._base_url)
        try:
            response = connection.request("POST", _EVENTS_PATH, _HEADER, body, timeout=_TIMEOUT_SECONDS)
        finally:
            connection.close()
        if response.status != 200:
            raise SourceDown(f"POST {_EVENTS_PATH} for {notice.id}: {response.status} {shown(response.text())}")

    def _own_name(self) -> str:
        response = self._connection.request("GET", _NAME_PATH, _HEADER, timeout=_TIMEOUT_SECONDS)
        name = response.text().strip()
        if response.status != 200 or not name or not name.isprintable() or len(name) > _LONGEST_NAME:
            raise SourceDown(f"GET {_NAME_PATH}: {response.status} {shown(name)}; without its name no event is its own")
        return name


def read_events(text: str, vm: str, now: float) -> Iterable[Found]:
    """`{"Events": [{EventId, EventType, EventStatus, Resources, NotBefore, Description}]}`."""
    for event in map(as_object, as_list(parse_object(text).get("Events"))):
        named = {str(resource).casefold() for resource in as_list(event.get("Resources"))}
        if vm.casefold() in named and event.get("EventStatus") in _IN_FORCE:
            yield _found(event, now)._replace(machines=len(named))


def _found(event: Mapping[str, Any], now: float) -> Found:
    type_, id_ = str(event.get("EventType")), f"{_PREFIX}{event.get('EventId')}"
    kind, certainty, window = _KINDS.get(type_, _ONLY_LIKELY)
    detail = f"{type_}: {event.get('Description', '')}"
    if certainty is Certainty.LIKELY:
        return Found(id_, kind, certainty, detail=detail)
    if event["EventStatus"] == "Started":  # its NotBefore is empty: it is under way
        return Found(id_, kind, certainty, now, 0.0, detail)
    return Found(id_, kind, certainty, parse_time(event.get("NotBefore")), window, detail)
