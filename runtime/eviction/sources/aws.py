"""AWS: the instance metadata service says that a spot instance is taken back, or that an instance is to be stopped.

Four things are asked, each by a source of its own: the action on a spot instance, the recommendation to rebalance,
scheduled events, and the lifecycle state that an Auto Scaling group wants.

A path that answers 404 has nothing to say, which is the normal case; what it said before is taken back only once it
has answered so twice in a row, some time apart. Interruptions and recommendations have no id: while one stands, it is
the one that is read. A scheduled event weeks ahead is kept back until `lead_seconds` before it, so that its node works
until then.

Fields and paths: AWS, "Instance metadata categories", "Spot Instance interruption notices", "Scheduled events for your
instances"; aws-node-termination-handler, pkg/ec2metadata.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from typing import Final

from runtime.eviction.notice import Certainty, Notice, NoticeKind
from runtime.eviction.sources import SPOT_WINDOW_SECONDS, FirstSeen, Found, SourceDown
from runtime.eviction.sources.connection import Connection
from runtime.eviction.sources.imds import METADATA_URL, Imds
from runtime.eviction.sources.pace import Pace
from runtime.eviction.sources.parsing import as_list, as_object, parse_json, parse_object, parse_time, shown

SPOT_SECONDS: Final = 0.5
"""AWS says to look every 5 s; of the two minutes that a notice gives, that alone would cost 4 %."""

OTHER_SECONDS: Final = 5.0

SCALE_IN_WINDOW_SECONDS: Final = 120.0
"""How long a lifecycle hook holds the instance, IMDS does not say; taken to be as long as a spot notice."""

LEAD_SECONDS: Final = 3_600.0
"""How long before a scheduled event its node takes no more jobs."""

WITHDRAWN_SECONDS: Final = 2.0
"""How far apart two answers 404 must be to take a notice back. Too late, a node stays cordoned a little longer; too
early, because a service or a proxy has just started, jobs are let onto a node that goes."""

_SPOT_PATH: Final = "/latest/meta-data/spot/instance-action"
_REBALANCE_PATH: Final = "/latest/meta-data/events/recommendations/rebalance"
_SCHEDULED_PATH: Final = "/latest/meta-data/events/maintenance/scheduled"
_LIFECYCLE_PATH: Final = "/latest/meta-data/autoscaling/target-lifecycle-state"

_SPOT_ACTIONS: Final = ("terminate", "stop", "hibernate")
_LEAVING: Final = ("Terminated", "Warmed:Terminated", "Warmed:Stopped", "Warmed:Hibernated")
_STAYING: Final = ("InService", "Standby", "Detached", "Warmed:Running", "Pending")
_INTERRUPTING: Final = ("instance-stop", "instance-retirement", "instance-reboot", "system-reboot")
"""Codes of events that end what runs; system-maintenance, on network or power, may."""

_WITHOUT_ID: Final = (NoticeKind.SPOT, NoticeKind.REBALANCE)


Reading = Callable[[str, float], Iterable[Found]]
"""Reads the text of a path at a time; raises ValueError where it is not what AWS documents."""


class AwsSource:
    """One path of the metadata service."""

    def __init__(
        self,
        name: str,
        path: str,
        reading: Reading,
        interval_seconds: float,
        imds: Imds,
        connection: Connection,
        now: Callable[[], float],
        monotonic: Callable[[], float],
        known: Iterable[Notice],
    ) -> None:
        self.name = name
        self._path = path
        self._reading = reading
        self._imds = imds
        self._connection = connection
        self._now = now
        self._monotonic = monotonic
        self._standing = tuple(notice for notice in known if notice.source == name)
        self._missing_since: float | None = None
        self._seen = FirstSeen(name, self._standing)
        self._pace = Pace(interval_seconds)

    def read(self) -> Sequence[Notice]:
        """What is in force; nothing at all where the path is not there."""
        self._pace.failed()
        missing_since, self._missing_since = self._missing_since, None
        response = self._imds.get(self._connection, self._path)
        if response.status not in (200, 404):
            raise SourceDown(f"GET {self._path}: {response.status}")
        if response.status == 404 and self._standing:
            self._missing_since = self._monotonic() if missing_since is None else missing_since
            if self._monotonic() - self._missing_since < WITHDRAWN_SECONDS:
                self._pace.succeeded()
                return self._standing
        now = self._now()
        try:
            found = self._reading(response.text(), now) if response.status == 200 else ()
            self._standing = self._seen.notices(map(self._recognized, found), now)
        except ValueError as error:
            raise SourceDown(f"GET {self._path}: {error}") from error
        self._pace.succeeded()
        return self._standing

    def rest(self) -> float:
        """Its interval, or longer while it fails."""
        return self._pace.rest()

    def _recognized(self, found: Found) -> Found:
        """As the notice that stands already, where it says the same, if at another time; the earliest deadline holds.

        amazon-ec2-metadata-mock counts its times from each request, so that every reading of one event differs.
        """
        for notice in self._standing if found.kind in _WITHOUT_ID else ():
            if notice.detail == found.detail:
                deadlines = [at for at in (notice.deadline, found.deadline) if at is not None]
                return found._replace(id=notice.id, deadline=min(deadlines, default=None))
        return found


def aws_sources(
    base_url: str | None = None,
    *,
    known: Sequence[Notice] = (),
    lead_seconds: float = LEAD_SECONDS,
    now: Callable[[], float] = time.time,
    monotonic: Callable[[], float] = time.monotonic,
) -> tuple[AwsSource, ...]:
    """The sources of one node, with one session and a connection each; `known` is what the node says already."""
    imds = Imds(monotonic)

    def scheduled(text: str, at: float) -> Iterable[Found]:
        return read_scheduled(text, at, lead_seconds)

    paths: tuple[tuple[str, str, Reading, float], ...] = (
        ("aws-spot", _SPOT_PATH, read_spot, SPOT_SECONDS),
        ("aws-rebalance", _REBALANCE_PATH, read_rebalance, OTHER_SECONDS),
        ("aws-maintenance", _SCHEDULED_PATH, scheduled, OTHER_SECONDS),
        ("aws-lifecycle", _LIFECYCLE_PATH, read_lifecycle, OTHER_SECONDS),
    )
    return tuple(
        AwsSource(name, path, reading, interval, imds, Connection(base_url or METADATA_URL), now, monotonic, known)
        for name, path, reading, interval in paths
    )


def read_spot(text: str, now: float) -> Iterable[Found]:
    """`{"action": "terminate", "time": "2026-11-21T08:00:00Z"}`; one that hibernates begins at once."""
    entry = parse_object(text)
    action = entry.get("action")
    if action not in _SPOT_ACTIONS:
        raise ValueError(f"action {shown(action)}: must be one of {', '.join(_SPOT_ACTIONS)}")
    ends_at = parse_time(entry.get("time"))
    window = 0.0 if action == "hibernate" else SPOT_WINDOW_SECONDS
    detail = f"AWS will {action} this spot instance"
    yield Found(f"aws-spot-{int(ends_at)}", NoticeKind.SPOT, Certainty.CERTAIN, ends_at, window, detail)


def read_rebalance(text: str, now: float) -> Iterable[Found]:
    """`{"noticeTime": "2026-11-21T08:00:00Z"}`."""
    noticed = parse_time(parse_object(text).get("noticeTime"))
    detail = "AWS recommends to leave this spot instance"
    yield Found(f"aws-rebalance-{int(noticed)}", NoticeKind.REBALANCE, Certainty.LIKELY, None, None, detail)


def read_lifecycle(text: str, now: float) -> Iterable[Found]:
    """The state that the Auto Scaling group wants, as one word."""
    state = text.strip()
    if state in _LEAVING:
        detail = f"the Auto Scaling group wants this instance {state}"
        yield Found("aws-lifecycle", NoticeKind.SCALE_IN, Certainty.CERTAIN, None, SCALE_IN_WINDOW_SECONDS, detail)
    elif state not in _STAYING:
        raise ValueError(f"lifecycle state {shown(state)}: must be one of {', '.join((*_STAYING, *_LEAVING))}")


def read_scheduled(text: str, now: float, lead_seconds: float = LEAD_SECONDS) -> Iterable[Found]:
    """A list of `{EventId, Code, State, NotBefore, NotAfter, Description}`; those that are active, and near."""
    for entry in map(as_object, as_list(parse_json(text))):
        if entry.get("State") != "active":
            continue
        begins_at, code = parse_time(entry.get("NotBefore")), str(entry.get("Code"))
        over = entry.get("NotAfter") and parse_time(entry["NotAfter"]) < now
        if over or begins_at - now > lead_seconds:
            continue
        certainty = Certainty.CERTAIN if code in _INTERRUPTING else Certainty.LIKELY
        detail = f"{code}: {entry.get('Description', '')}"
        yield Found(f"aws-{entry.get('EventId')}", NoticeKind.MAINTENANCE, certainty, begins_at, None, detail)
