"""Which running jobs may leave for the flavor on which an administrator wants them, and what becomes of the others."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from runtime.cost.ledger import Attempt
from runtime.eviction.notice import NoticeKind
from runtime.eviction.view import Marker, Phase
from runtime.eviction.wish import MoveWish
from runtime.routing.decision import Decision
from runtime.routing.explain import sentence
from runtime.routing.snapshot import Job, Stage
from runtime.routing.verdict import Code
from stacks.agent_config import AgentConfig
from tests.builders import (
    HOUR,
    LOCAL,
    NOON,
    ON_DEMAND,
    SPOT,
    a_config,
    a_flavor,
    a_job,
    a_snapshot,
    a_snapshot_without_ledger,
    a_team,
    an_opening,
    some_books,
)
from tests.unit.runtime.decisions import decided, running

WISH = MoveWish("move-1", "on-demand", NOON - 10, NOON + 600)
MAY = frozenset({("job-1", "move-1")})
BOTH: dict[str, Any] = {"budget": {"daily": "6 USD"}}
"""Money for one GPU-hour of spot and one of on-demand."""


def wanted(uid: str = "job-1", **changes: Any) -> Job:
    """A job that runs on a spot GPU, is let run an hour at most, and should go on on demand."""
    return running(uid, **({"move": WISH, "verdict_code": "cleared", "target": SPOT} | changes))


def books_of(*uids: str) -> Any:
    return some_books(*(an_opening(uid, attempt=Attempt(uid, 1), job=uid) for uid in uids))


def judged(*jobs: Job, config: AgentConfig | None = None) -> Decision:
    return decided(a_snapshot(*jobs, books=books_of(*(job.uid for job in jobs if job.flavor == SPOT))), config)


def told(decision: Decision) -> dict[str, tuple[Code, object, bool]]:
    return {one.job.uid: (one.verdict.code, one.verdict.facts.get("cause"), one.over) for one in decision.moves}


@pytest.mark.parametrize("to", ["on-demand", ON_DEMAND, ""])
def test_a_job_may_leave_for_a_market_a_flavor_or_any_other_that_is_free(to: str) -> None:
    decision = judged(wanted(move=replace(WISH, to=to)))
    assert decision.may_leave == MAY
    [move] = decision.moves
    assert (move.verdict.code, move.verdict.facts["target"], move.over) == (Code.MOVING, ON_DEMAND, False)
    assert sentence(move.verdict) == "goes on on h100-on-demand as soon as it has saved: an administrator moves it"


def test_what_was_said_is_not_said_again_and_the_job_may_still_leave() -> None:
    decision = judged(wanted(verdict_code=Code.MOVING.value))
    assert (decision.may_leave, decision.moves) == (MAY, ())


def test_a_job_runs_on_while_what_is_wanted_is_taken() -> None:
    taken = running("other", flavor=ON_DEMAND, gpus=8)
    decision = judged(taken, wanted())
    assert decision.may_leave == frozenset()
    assert told(decision) == {"job-1": (Code.MOVE_WAITS, "cloud-full", False)}
    assert "no cloud flavor has 1 GPU free" in sentence(decision.moves[0].verdict)


def test_a_job_runs_on_while_no_budget_has_room_for_both_attempts() -> None:
    decision = judged(wanted(), config=a_config(budget={"daily": "5 USD"}))
    assert told(decision) == {"job-1": (Code.MOVE_WAITS, "budget", False)}
    assert judged(wanted(), config=a_config(**BOTH)).may_leave == MAY


def test_a_new_cause_is_told_and_the_same_one_is_not() -> None:
    config = a_config(budget={"daily": "5 USD"})
    waits = wanted(verdict_code=Code.MOVE_WAITS.value, move=replace(WISH, told="cloud-full"))
    assert told(judged(waits, config=config)) == {"job-1": (Code.MOVE_WAITS, "budget", False)}
    assert judged(replace(waits, move=replace(WISH, told="budget")), config=config).moves == ()


def test_what_it_will_have_is_kept_from_new_jobs() -> None:
    flavors = {
        LOCAL: a_flavor("onprem", 16, "0"),
        SPOT: a_flavor("spot", 8, "2"),
        ON_DEMAND: a_flavor("on-demand", 8, "4"),
    }
    config = a_config(flavors=flavors)
    decision = judged(wanted(gpus=8), a_job("new", gpus=8), config=config)
    assert decision.may_leave == MAY
    assert decision.releases == ()
    assert [hold.verdict.code for hold in decision.holds] == [Code.CLOUD_FULL]


def test_two_jobs_are_not_moved_onto_the_same_room() -> None:
    decision = judged(wanted("a", gpus=8), wanted("b", gpus=8))
    assert decision.may_leave == {("a", "move-1")}


def test_a_team_at_its_limit_may_move_what_it_has() -> None:
    config = a_config(teams={"vision": a_team("vision", max_burst_gpus=4)})
    assert judged(wanted(gpus=4), config=config).may_leave == MAY
    decision = judged(wanted(gpus=4), a_job("new"), config=config)
    assert [hold.verdict.code for hold in decision.holds] == [Code.TEAM_LIMIT]


def test_without_a_ledger_nothing_moves() -> None:
    decision = decided(a_snapshot_without_ledger(wanted()))
    assert told(decision) == {"job-1": (Code.MOVE_WAITS, "ledger-down", False)}


@pytest.mark.parametrize(
    ("changes", "cause", "said"),
    [
        ({"move": replace(WISH, until=NOON)}, "expired", "the time for it is over"),
        ({"move": replace(WISH, to="spot")}, "there-already", "it runs there already"),
        ({"move": replace(WISH, to="reserved")}, "no-such-target", "no cloud flavor or market of that name"),
        ({"move": replace(WISH, to=LOCAL)}, "no-such-target", "no cloud flavor"),
        ({"move": MoveWish("unreadable", "", 0, 0, problem="it is no JSON object")}, "unreadable", "no JSON object"),
        ({"stage": Stage.RUNNING_LOCAL, "flavor": LOCAL}, "runs-locally", "it runs on local GPUs"),
        ({"job_class": "p2"}, "class-stays-local", "class p2 never goes to the cloud"),
        ({"gpus": 9, "pod_gpus": 9}, "too-large", "it asks for 9 GPUs, and the largest cloud flavor has 8"),
    ],
)
def test_what_cannot_be_is_refused_for_good_and_says_why(changes: dict[str, Any], cause: str, said: str) -> None:
    decision = judged(wanted(**changes))
    assert decision.may_leave == frozenset()
    assert told(decision) == {"job-1": (Code.MOVE_REFUSED, cause, True)}
    text = sentence(decision.moves[0].verdict)
    assert said in text
    assert text.endswith("it runs on where it is")


def test_a_job_that_nothing_stops_is_not_moved_under_a_hard_budget() -> None:
    decision = judged(wanted(max_seconds=None), config=a_config(budget={"daily": "900 USD"}))
    assert told(decision) == {"job-1": (Code.MOVE_REFUSED, "no-runtime-limit", True)}


def test_a_fleet_with_one_cloud_flavor_has_no_other() -> None:
    flavors = {LOCAL: a_flavor("onprem", 16, "0"), SPOT: a_flavor("spot", 16, "2")}
    config = a_config(flavors=flavors, burst_order=(SPOT,))
    assert told(judged(wanted(move=replace(WISH, to="")), config=config)) == {
        "job-1": (Code.MOVE_REFUSED, "no-other", True)
    }


def test_a_job_whose_window_is_closed_waits_for_it() -> None:
    classes = {"p1": {"burst": "allowed", "expected_runtime": "1h", "window": "22:00-06:00 UTC"}}
    config = a_config(classes=classes, default_class="p1")
    assert told(judged(wanted(), config=config)) == {"job-1": (Code.MOVE_WAITS, "window", False)}


def test_a_twin_that_is_down_is_waited_for() -> None:
    snapshot = replace(
        a_snapshot(wanted(), books=books_of("job-1")), broken_queues=frozenset({f"vision-burst-{ON_DEMAND}"})
    )
    assert told(decided(snapshot)) == {"job-1": (Code.MOVE_WAITS, "twin-down", False)}


@pytest.mark.parametrize("stage", [Stage.QUEUED, Stage.RELEASED])
def test_a_job_that_waits_keeps_its_wish_until_that_is_over(stage: Stage) -> None:
    job = a_job(move=WISH, stage=stage, verdict_code="released", verdict_at=NOON, created_at=NOON - 5)
    assert decided(a_snapshot(job)).moves == ()
    over = replace(job, move=replace(WISH, until=NOON))
    assert told(decided(a_snapshot(over))) == {"job-1": (Code.MOVE_REFUSED, "expired", True)}


@pytest.mark.parametrize("stage", [Stage.STOPPED, Stage.FINISHED, Stage.RECALLING])
def test_a_job_that_was_stopped_by_others_or_has_ended_is_left_alone(stage: Stage) -> None:
    assert decided(a_snapshot(a_job(move=replace(WISH, until=NOON), stage=stage))).moves == ()


@pytest.mark.parametrize("code", [Code.MOVING, Code.MOVE_WAITS])
def test_what_was_said_of_a_wish_that_somebody_took_back_is_not_left_standing(code: Code) -> None:
    job = wanted(move=None, verdict_code=code.value)
    decision = judged(job)
    assert (decision.may_leave, told(decision)) == (frozenset(), {"job-1": (Code.MOVE_REFUSED, "withdrawn", False)})
    assert "the wish was taken back; it runs on" in sentence(decision.moves[0].verdict)
    assert judged(replace(job, verdict_code=Code.MOVE_REFUSED.value)).moves == ()


def test_a_recall_comes_first() -> None:
    decision = judged(wanted(recall_reason="costs"))
    assert (decision.may_leave, decision.moves) == (frozenset(), ())
    assert [recall.job.uid for recall in decision.recalls] == ["job-1"]


# Once it is stopped


def a_stopped_job(kind: NoticeKind = NoticeKind.MOVE, **changes: Any) -> Job:
    marker = Marker(
        "move-1", kind, (), Phase.STOPPED, stopped_at=NOON - 10, gone_at=NOON, flavor=SPOT, attempts=1, planned=1
    )
    values: dict[str, Any] = {
        "stage": Stage.EVICTED,
        "eviction": marker,
        "created_at": NOON - HOUR,
        "target": SPOT,
        "move": WISH,
    }
    return a_job(**(values | changes))


def test_a_stopped_job_goes_where_it_is_wanted_and_the_wish_is_over() -> None:
    [requeue] = decided(a_snapshot(a_stopped_job())).requeues
    assert (requeue.target, requeue.moved, requeue.verdict.code) == (ON_DEMAND, True, Code.RELEASED)
    assert sentence(requeue.verdict) == "may use GPUs of h100-on-demand at once: it is moved from h100-spot"


def test_a_stopped_job_goes_elsewhere_if_what_was_wanted_is_gone_by_then() -> None:
    taken = running("other", flavor=ON_DEMAND, gpus=8)
    [requeue] = decided(a_snapshot(a_stopped_job(), taken, books=books_of("other"))).requeues
    assert (requeue.target, requeue.moved) == (SPOT, True)
    assert "(on-demand was not free any more)" in sentence(requeue.verdict)


def test_what_a_stopped_job_will_have_is_kept_while_it_holds_its_quota() -> None:
    stopped = a_stopped_job(flavor=SPOT, attempt=1, reserved_at=NOON - 100, gpus=8)
    marker = stopped.eviction
    assert marker is not None
    stopped = replace(stopped, eviction=replace(marker, gone_at=None))
    flavors = {
        LOCAL: a_flavor("onprem", 16, "0"),
        SPOT: a_flavor("spot", 8, "2"),
        ON_DEMAND: a_flavor("on-demand", 8, "4"),
    }
    decision = decided(a_snapshot(stopped, a_job("new", gpus=8), books=books_of("job-1")), a_config(flavors=flavors))
    assert (decision.requeues, decision.releases) == ((), ())


def test_a_job_that_lost_its_node_before_it_was_moved_goes_where_it_is_wanted() -> None:
    [requeue] = decided(a_snapshot(a_stopped_job(NoticeKind.SPOT))).requeues
    assert (requeue.target, requeue.moved) == (ON_DEMAND, True)


def test_a_wish_that_a_lost_node_could_not_fulfil_stays() -> None:
    taken = running("other", flavor=ON_DEMAND, gpus=8)
    [requeue] = decided(a_snapshot(a_stopped_job(NoticeKind.SPOT), taken, books=books_of("other"))).requeues
    assert (requeue.target, requeue.moved) == (SPOT, False)


def test_moves_and_preemptions_do_not_count_as_losses_of_nodes() -> None:
    marker = a_stopped_job().eviction
    assert marker is not None
    job = a_stopped_job(
        NoticeKind.SPOT, move=None, eviction=replace(marker, attempts=5, planned=3, kind=NoticeKind.SPOT)
    )
    config = a_config(eviction={"on_demand_after": 3})
    assert [one.target for one in decided(a_snapshot(job), config).requeues] == [SPOT]
