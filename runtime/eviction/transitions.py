"""The marker of an eviction from its beginning to its end: what each step writes on the Workload.

Nothing here decides whether a step is taken. A job's count of losses goes up with each stop and never down, so it names
each loss; what was lost and could not be accounted yet goes into the next loss.

Invariant: `attempts` never goes down, and `gone_at` is set exactly once for each stop.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from runtime.eviction.losses import lost_gpu_seconds, with_answers, works_since
from runtime.eviction.marker import marker_to_json
from runtime.eviction.notice import NoticeKind
from runtime.eviction.threats import Threat
from runtime.eviction.timing import EvictionTerms
from runtime.eviction.view import HeldWorkload, Marker, Phase, PodView

CLOCK_GRAIN_SECONDS: Final = 0.5
"""Kueue's times are whole seconds; what differs by less is the same moment, read twice."""


def begun(former: Marker | None, threat: Threat, now: float) -> Marker:
    """The first marker of an eviction, with the record of former losses."""
    notice = threat.notice
    marker = Marker(notice.id, notice.kind, threat.nodes, Phase.ASKED, deadline=threat.deadline)
    return _asked_anew(_with_former_losses(marker, former), threat, now)


def merged(marker: Marker, threat: Threat, answered: bool, now: float, terms: EvictionTerms) -> Marker:
    """The marker of an eviction under way, with all that bears on the job now.

    A deadline once known moves only forward while its notice is in force: a second look at a clock that is behind would
    move it back. A warning that became certain is asked about once more, unless the first request is still fresh.
    """
    was_certain = marker.certain
    known = [threat.deadline, marker.deadline if was_certain and marker.notice in threat.ids else None]
    marker = replace(
        marker,
        notice=threat.notice.id,
        kind=threat.notice.kind,
        nodes=tuple(sorted({*marker.nodes, *threat.nodes})),
        deadline=min((deadline for deadline in known if deadline is not None), default=None),
        certain=threat.certain,
    )
    if marker.request and (not threat.certain or was_certain):
        return marker
    age = math.inf if marker.asked_at is None else now - marker.asked_at
    fresh = terms.reserve_seconds if answered else terms.renew_seconds
    if marker.request and 0 <= age <= fresh:
        return replace(marker, noticed_at=threat.notice.noticed_at)
    return _asked_anew(marker, threat, now)


def stopped(workload: HeldWorkload, marker: Marker, pods: Sequence[PodView], now: float) -> Marker:
    """The marker to write in the patch that makes the job inactive."""
    marker = replace(
        marker,
        phase=Phase.STOPPED,
        stopped_at=now,
        works_since=works_since(workload, now),
        flavor=workload.flavor,
        attempts=marker.attempts + 1,
        planned=marker.planned + (marker.kind is NoticeKind.MOVE),
        accounted=False,
    )
    return with_answers(marker, pods, now)


def preempted(workload: HeldWorkload, at: float, pods: Sequence[PodView], now: float) -> Marker:
    """The record of a preemption by Kueue, which stops the job and puts it into its queue again by itself.

    It is in phase DONE from the beginning, since nothing is left for us to do; it waits for the end of the pods only to
    hear what they saved. A job that was under notice had been asked, and may have answered.
    """
    former = workload.marker
    name = f"{NoticeKind.PREEMPTION}-{int(at)}"
    if former is None or former.phase is not Phase.ASKED:
        former = _with_former_losses(Marker(name, NoticeKind.PREEMPTION, (), Phase.DONE), former)
    marker = replace(
        former,
        notice=name,
        kind=NoticeKind.PREEMPTION,
        phase=Phase.DONE,
        deadline=None,
        stopped_at=at,
        works_since=works_since(workload, at),
        flavor=workload.flavor,
        attempts=former.attempts + 1,
        planned=former.planned + 1,
        accounted=False,
    )
    return with_answers(marker, pods, now)


def is_preemption_open(marker: Marker | None) -> bool:
    """Whether a preemption is recorded and its cost is not known yet."""
    if marker is None or marker.kind is not NoticeKind.PREEMPTION:
        return False
    return marker.phase is Phase.DONE and marker.gone_at is None


def is_recorded(marker: Marker | None, preempted_at: float) -> bool:
    """Whether the marker is of this preemption, or of a stop of ours that came as late: one run is lost only once."""
    if marker is None or marker.stopped_at is None:
        return False
    sent_on = None if marker.kind is NoticeKind.PREEMPTION else marker.requeued_at
    return preempted_at <= (marker.stopped_at if sent_on is None else sent_on) + CLOCK_GRAIN_SECONDS


def unasked(marker: Marker) -> Marker:
    """The marker of a job that is stopped without having been asked."""
    return replace(marker, request="", asked_at=None)


def settled(workload: HeldWorkload, marker: Marker, pods: Sequence[PodView], now: float) -> Marker:
    """The marker of a stopped job of which nothing is left, with what it lost."""
    marker = with_answers(marker, pods, now)
    return replace(marker, gone_at=now, lost_gpu_seconds=lost_gpu_seconds(workload, marker))


def crossed_out(marker: Marker) -> Marker | None:
    """What stays of an eviction that did not come about: the record of former losses, if there were any."""
    if not marker.attempts:
        return None
    return replace(marker, phase=Phase.DONE, lost_gpu_seconds=marker.owed_gpu_seconds, owed_gpu_seconds=0.0)


def same(marker: Marker, former: Marker) -> bool:
    """Whether two markers are the same as they are written, which is to the millisecond."""
    return marker == former or marker_to_json(marker) == marker_to_json(former)


def _with_former_losses(marker: Marker, former: Marker | None) -> Marker:
    if former is None:
        return marker
    owed = 0.0 if former.accounted else former.owed_gpu_seconds + former.lost_gpu_seconds
    return replace(
        marker,
        flavor=former.flavor,
        attempts=former.attempts,
        planned=former.planned,
        owed_gpu_seconds=owed,
        accounted=former.accounted,
    )


def _asked_anew(marker: Marker, threat: Threat, now: float) -> Marker:
    return replace(
        marker,
        request=f"{threat.notice.kind}-{int(now * 1_000)}",
        asked_at=now,
        noticed_at=threat.notice.noticed_at,
        certain=threat.certain,
    )
