"""What a plan makes of jobs that Kueue preempts: their cost is noted once, and nothing else happens to them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from runtime.eviction.notice import Certainty, Notice, NoticeKind
from runtime.eviction.sequence import plan
from runtime.eviction.steps import Account, Mark
from runtime.eviction.view import Answer, HeldWorkload, Marker, NodeView, Phase, PodView, View
from tests.builders import NOON, SPOT

AT = NOON - 5
OPEN = Marker(
    f"preemption-{AT:.0f}", NoticeKind.PREEMPTION, (), Phase.DONE, stopped_at=AT, works_since=NOON - 600, flavor=SPOT,
    attempts=1, planned=1,
)  # fmt: skip
ACCOUNTED = replace(OPEN, gone_at=NOON - 4, accounted=True)


def held(**changes: Any) -> HeldWorkload:
    """A job of two GPUs that ran since ten minutes until Kueue preempted it five seconds ago."""
    values: dict[str, Any] = {
        "uid": "u-1", "namespace": "vision", "name": "job-1", "team": "vision", "job_class": "p1", "gpus": 2,
        "active": True, "holds_quota": True, "finished": False, "started_at": NOON - 600, "marker": None,
        "last_checkpoint_at": None, "flavor": SPOT, "preempted_at": AT,
    }  # fmt: skip
    return HeldWorkload(**(values | changes))


def a_pod(**changes: Any) -> PodView:
    pod = PodView("p-1", "vision", "train-0", "n1", 2, "job-1", True, 30.0, "", None, "", False, leaving=True)
    return replace(pod, **changes)


def planned(workload: HeldWorkload, *pods: PodView, notices: tuple[Notice, ...] = ()) -> list[Any]:
    node = NodeView("n1", notices, present=True, ready=True, flavor=SPOT)
    return list(plan(View({"n1": node}, pods, [workload]), NOON))


def test_a_preemption_is_written_down_at_once_while_it_is_known_since_when_the_job_ran() -> None:
    assert planned(held(), a_pod()) == [Mark(held(), OPEN)]


def test_it_waits_for_the_last_words_of_the_pods() -> None:
    assert planned(held(marker=OPEN), a_pod()) == []
    assert planned(held(marker=OPEN, holds_quota=False), a_pod()) == []


def test_its_cost_is_what_ran_since_the_last_checkpoint_that_anybody_knows_of() -> None:
    [step] = planned(held(marker=OPEN, holds_quota=False))
    assert isinstance(step, Account)
    assert (step.lost_gpu_seconds, step.marker.accounted, step.marker.gone_at) == (2 * 595, True, NOON)
    saved = a_pod(ended=True, answer=Answer("", 7, "s3://b/7", AT - 15))
    [step] = planned(held(marker=OPEN, holds_quota=False), saved)
    assert (step.lost_gpu_seconds, step.marker.step) == (2 * 15, 7)


def test_a_job_that_saved_after_it_was_told_to_end_has_lost_nothing() -> None:
    saved = a_pod(ended=True, answer=Answer("", 7, "s3://b/7", AT + 3))
    [step] = planned(held(marker=OPEN, holds_quota=False), saved)
    assert step.lost_gpu_seconds == 0


def test_nothing_is_left_to_do_once_it_is_accounted() -> None:
    assert planned(held(marker=ACCOUNTED, holds_quota=False)) == []


def test_the_next_preemption_is_another_one_with_the_next_number() -> None:
    later = replace(ACCOUNTED, stopped_at=AT - 900, notice="preemption-1")
    [step] = planned(held(marker=later))
    assert (step.marker.attempts, step.marker.planned, step.marker.stopped_at) == (2, 2, AT)


def test_what_the_one_before_cost_is_owed_where_it_could_not_be_accounted() -> None:
    former = Marker("n", NoticeKind.SPOT, ("n9",), Phase.DONE, stopped_at=AT - 900, gone_at=AT - 890,
                    requeued_at=AT - 880, attempts=1, lost_gpu_seconds=70.0)  # fmt: skip
    [step] = planned(held(marker=former))
    assert (step.marker.attempts, step.marker.owed_gpu_seconds, step.marker.planned) == (2, 70.0, 1)


@pytest.mark.parametrize("runs_again", [{"preempted_at": None}, {"preempted_at": NOON, "holds_quota": True}])
def test_one_that_runs_again_already_is_accounted_before_anything_else(runs_again: dict[str, Any]) -> None:
    [step] = planned(held(marker=OPEN, **runs_again), a_pod(leaving=False))
    assert isinstance(step, Account)
    assert step.marker.attempts == 1


def test_one_that_has_finished_meanwhile_is_accounted() -> None:
    [step] = planned(held(marker=OPEN, finished=True))
    assert isinstance(step, Account)


def test_a_job_under_notice_that_is_preempted_is_not_stopped_as_well() -> None:
    notice = Notice("spot-1", NoticeKind.SPOT, "aws", Certainty.CERTAIN, NOON - 10, NOON + 10)
    [step] = planned(held(), a_pod(), notices=(notice,))
    assert step == Mark(held(), OPEN)
    assert planned(held(marker=OPEN), a_pod(), notices=(notice,)) == []


def test_a_job_that_had_been_asked_keeps_what_it_answered() -> None:
    asked = Marker(
        "spot-1", NoticeKind.SPOT, ("n1",), Phase.ASKED, request="spot-1", asked_at=NOON - 20, noticed_at=NOON - 21
    )
    [step] = planned(held(marker=asked), a_pod(answer=Answer("spot-1", 9, "s3://b/9", NOON - 8)))
    marker = step.marker
    assert (marker.kind, marker.phase, marker.request, marker.step) == (NoticeKind.PREEMPTION, Phase.DONE, "spot-1", 9)


def test_a_stop_of_ours_is_not_counted_again_as_a_preemption() -> None:
    ours = Marker("spot-1", NoticeKind.SPOT, ("n1",), Phase.DONE, stopped_at=AT - 1, gone_at=NOON - 2, requeued_at=NOON - 1,
                  attempts=1, accounted=True)  # fmt: skip
    assert planned(held(marker=ours, holds_quota=False)) == []
    stopped = replace(ours, phase=Phase.STOPPED, requeued_at=None, accounted=True)
    assert planned(held(marker=stopped, active=False, holds_quota=False)) == []


def test_what_nobody_knows_the_beginning_of_costs_nothing_and_counts() -> None:
    [step] = planned(held(started_at=None, holds_quota=False, flavor=""))
    assert step.marker.attempts == 1
    [step] = planned(held(started_at=None, holds_quota=False, flavor="", marker=step.marker))
    assert (type(step), step.lost_gpu_seconds) == (Account, 0.0)
