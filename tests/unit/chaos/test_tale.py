from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from infra.chaos.tale import Look, Outcome, Tale
from runtime.eviction.notice import NoticeKind
from runtime.eviction.view import Marker, Phase
from runtime.routing.snapshot import Job, Stage
from tests.builders import NOON, SPOT, a_job

IDS, NODES = {"drill-1-node-0"}, {"node-0"}


def a_marker(phase: Phase, **changes: Any) -> Marker:
    values: dict[str, Any] = {"asked_at": NOON + 1, "noticed_at": NOON} | changes
    return Marker("drill-1-node-0", NoticeKind.SPOT, ("node-0",), phase, **values)


def a_running_job(**changes: Any) -> Job:
    return a_job(stage=Stage.RUNNING_CLOUD, flavor=SPOT, **changes)


def told(*looks: Look, certain: bool = True, job: Job | None = None) -> Tale:
    tale = Tale(job or a_running_job(), ("node-0",), certain)
    for look in looks:
        tale.see(look, IDS, NODES)
    return tale


STOPPED = a_marker(Phase.STOPPED, stopped_at=NOON + 9, answer_at=NOON + 8, attempts=1)
GONE = replace(STOPPED, gone_at=NOON + 12, lost_gpu_seconds=8.0, accounted=True)
DONE = replace(GONE, phase=Phase.DONE, requeued_at=NOON + 13)


def test_an_eviction_is_told_with_the_moments_of_the_marker_and_ends_when_the_job_runs_again() -> None:
    tale = told(
        Look(NOON + 2, a_running_job(eviction=a_marker(Phase.ASKED)), False),
        Look(NOON + 9, a_job(stage=Stage.EVICTED, eviction=STOPPED), False),
        Look(NOON + 14, a_job(stage=Stage.RELEASED, eviction=DONE), False),
        Look(NOON + 20, a_running_job(eviction=DONE), True),
        Look(NOON + 21, a_running_job(eviction=DONE), True),
    )

    assert (tale.asked_at, tale.answered_at, tale.stopped_at) == (NOON + 1, NOON + 8, NOON + 9)
    assert (tale.gone_at, tale.requeued_at, tale.running_at) == (NOON + 12, NOON + 13, NOON + 20)
    assert (tale.attempts, tale.lost_gpu_seconds) == (1, 8.0)
    assert (tale.outcome, tale.settled, tale.flavor_after) == (Outcome.RUNNING, True, SPOT)


@pytest.mark.parametrize(
    ("look", "outcome"),
    [
        (Look(NOON, a_running_job(), True), Outcome.UNTOUCHED),
        (Look(NOON, a_running_job(eviction=a_marker(Phase.ASKED)), True), Outcome.ASKED),
        (Look(NOON, a_job(stage=Stage.EVICTED, eviction=STOPPED), False), Outcome.STOPPED),
        (Look(NOON, a_job(stage=Stage.STOPPED), False), Outcome.STOPPED),
        (Look(NOON, a_job(stage=Stage.QUEUED, eviction=DONE), False), Outcome.QUEUED),
        (Look(NOON, a_job(stage=Stage.AT_GATE, eviction=DONE), False), Outcome.QUEUED),
        (Look(NOON, a_running_job(eviction=DONE), False), Outcome.QUEUED),
        (Look(NOON, a_job(stage=Stage.FINISHED), False), Outcome.FINISHED),
        (Look(NOON, a_job(stage=Stage.FINISHED), False, failed=True), Outcome.FAILED),
        (Look(NOON, None, False), Outcome.GONE),
    ],
)
def test_how_a_job_stands(look: Look, outcome: Outcome) -> None:
    assert told(look).outcome is outcome


def test_a_job_that_was_only_warned_runs_on() -> None:
    warned = a_running_job(eviction=a_marker(Phase.ASKED, certain=False))

    assert told(Look(NOON, warned, False), certain=False).outcome is Outcome.RUNNING


def test_a_job_that_finished_and_was_cleaned_away_is_not_lost() -> None:
    tale = told(Look(NOON, a_job(stage=Stage.FINISHED), False), Look(NOON + 1, None, False))

    assert tale.outcome is Outcome.FINISHED


def test_what_an_earlier_eviction_left_is_not_of_this_drill() -> None:
    before = a_running_job(eviction=DONE)

    tale = told(Look(NOON + 50, before, True), job=before)

    assert (tale.outcome, tale.attempts, tale.lost_gpu_seconds) == (Outcome.UNTOUCHED, 0, 0.0)


def test_a_marker_of_another_notice_on_other_nodes_is_not_of_this_drill() -> None:
    other = replace(STOPPED, notice="i-7", nodes=("node-7",))

    tale = told(Look(NOON, a_job(stage=Stage.EVICTED, eviction=other), False))

    assert (tale.attempts, tale.stopped_at) == (0, None)


def test_a_job_that_is_hit_twice_tells_the_first_eviction_and_loses_the_sum() -> None:
    again = replace(DONE, attempts=2, stopped_at=NOON + 40, lost_gpu_seconds=3.0, accounted=False)

    tale = told(
        Look(NOON + 20, a_running_job(eviction=DONE), True), Look(NOON + 50, a_running_job(eviction=again), True)
    )

    assert (tale.stopped_at, tale.attempts, tale.lost_gpu_seconds) == (NOON + 9, 2, 11.0)


def test_a_loss_that_went_into_the_next_one_counts_once() -> None:
    owed = replace(DONE, accounted=False)
    again = replace(DONE, attempts=2, lost_gpu_seconds=11.0, accounted=True)

    tale = told(
        Look(NOON + 20, a_running_job(eviction=owed), True), Look(NOON + 50, a_running_job(eviction=again), True)
    )

    assert tale.lost_gpu_seconds == 11.0
