"""Where jobs go whose nodes were taken away."""

from __future__ import annotations

from typing import Any

import pytest

from runtime.eviction.notice import NoticeKind
from runtime.eviction.view import Marker, Phase
from runtime.routing.decision import Decision
from runtime.routing.explain import sentence
from runtime.routing.snapshot import Job, Stage
from runtime.routing.verdict import Code
from stacks.labels import burst_queue
from tests.builders import HOUR, LOCAL, NOON, ON_DEMAND, SPOT, a_config, a_flavor, a_job, a_snapshot, a_team
from tests.unit.runtime.decisions import decided

OTHER_SPOT = "a100-aws-spot"


def an_evicted_job(uid: str = "job-1", lost: str = SPOT, losses: int = 1, **changes: Any) -> Job:
    """A job that ran on cloud nodes until ten seconds ago; nothing is left of it."""
    marker = Marker(
        "n-1", NoticeKind.SPOT, ("node-1",), Phase.STOPPED, stopped_at=NOON - 10, gone_at=NOON, flavor=lost,
        attempts=losses,
    )  # fmt: skip
    values: dict[str, Any] = {"stage": Stage.EVICTED, "eviction": marker, "created_at": NOON - HOUR, "target": lost}
    return a_job(uid, **(values | changes))


def sent_on(decision: Decision) -> dict[str, str | None]:
    return {one.job.uid: one.target for one in decision.requeues}


def test_a_job_whose_spot_nodes_went_goes_on_in_the_cloud_at_once() -> None:
    decision = decided(a_snapshot(an_evicted_job(waiting_since=NOON - 10)))
    assert sent_on(decision) == {"job-1": SPOT}
    [requeue] = decision.requeues
    assert requeue.verdict.code is Code.RELEASED
    assert "spot-interruption" in sentence(requeue.verdict)


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param({"gone_at": None}, id="its pods are still there"),
        pytest.param({"flavor": SPOT}, id="it still holds quota"),
    ],
)
def test_it_waits_until_nothing_is_left_of_it(changes: dict[str, Any]) -> None:
    job = an_evicted_job()
    marker = job.eviction
    assert marker is not None
    if "gone_at" in changes:
        job = an_evicted_job(eviction=Marker(marker.notice, marker.kind, marker.nodes, Phase.STOPPED, flavor=SPOT))
    else:
        job = an_evicted_job(flavor=SPOT, reserved_at=NOON - 100, attempt=int(NOON) - 100)
    assert sent_on(decided(a_snapshot(job))) == {}


def test_another_flavor_of_the_market_is_tried_before_the_lost_one_and_before_a_dearer_market() -> None:
    flavors = {
        LOCAL: a_flavor("onprem", 16, "0"),
        SPOT: a_flavor("spot", 16, "2"),
        OTHER_SPOT: a_flavor("spot", 16, "2"),
        ON_DEMAND: a_flavor("on-demand", 8, "4"),
    }
    order = (SPOT, OTHER_SPOT, ON_DEMAND)
    twins = {flavor: burst_queue("vision", flavor) for flavor in order}
    config = a_config(flavors=flavors, burst_order=order, teams={"vision": a_team("vision", burst_queues=twins)})
    assert sent_on(decided(a_snapshot(an_evicted_job()), config)) == {"job-1": OTHER_SPOT}
    assert sent_on(decided(a_snapshot(an_evicted_job(lost=OTHER_SPOT)), config)) == {"job-1": SPOT}


@pytest.mark.parametrize(("losses", "target"), [(2, SPOT), (3, ON_DEMAND), (9, ON_DEMAND)])
def test_after_too_many_losses_on_demand_comes_first(losses: int, target: str) -> None:
    config = a_config(eviction={"on_demand_after": 3})
    assert sent_on(decided(a_snapshot(an_evicted_job(losses=losses)), config)) == {"job-1": target}


def test_on_demand_after_zero_losses_means_never() -> None:
    assert sent_on(decided(a_snapshot(an_evicted_job(losses=100)))) == {"job-1": SPOT}


def test_a_job_that_ran_on_local_gpus_goes_back_to_its_own_queue() -> None:
    decision = decided(a_snapshot(an_evicted_job(lost=LOCAL, target=None)))
    assert sent_on(decision) == {"job-1": None}
    assert decision.requeues[0].verdict.code is Code.REQUEUED


def test_a_job_that_may_not_leave_any_more_goes_back_with_the_reason() -> None:
    config = a_config(budget={"daily": "0.50 USD"})
    decision = decided(a_snapshot(an_evicted_job()), config)
    assert sent_on(decision) == {"job-1": None}
    assert decision.requeues[0].verdict.facts["cause"] == Code.BUDGET.value
    assert "break the budget" in sentence(decision.requeues[0].verdict)


def test_a_job_that_an_administrator_wants_local_goes_back() -> None:
    assert sent_on(decided(a_snapshot(an_evicted_job(recall_reason="maintenance")))) == {"job-1": None}


def test_what_it_held_is_its_own_before_new_jobs_ask_for_it() -> None:
    flavors = {LOCAL: a_flavor("onprem", 16, "0"), SPOT: a_flavor("spot", 8, "2")}
    config = a_config(flavors=flavors, burst_order=(SPOT,))
    new = a_job("new", gpus=8, priority=1_000)
    decision = decided(a_snapshot(new, an_evicted_job(gpus=8)), config)
    assert sent_on(decision) == {"job-1": SPOT}
    assert decision.releases == ()
    assert [hold.verdict.code for hold in decision.holds] == [Code.CLOUD_FULL]


def test_what_it_will_have_is_kept_for_it_while_its_pods_still_end() -> None:
    flavors = {LOCAL: a_flavor("onprem", 16, "0"), SPOT: a_flavor("spot", 8, "2")}
    config = a_config(flavors=flavors, burst_order=(SPOT,))
    ending = Marker("n-1", NoticeKind.SPOT, ("node-1",), Phase.STOPPED, stopped_at=NOON - 1, flavor=SPOT, attempts=1)
    younger = a_job("new", gpus=8, created_at=NOON - HOUR / 2)
    decision = decided(a_snapshot(younger, an_evicted_job(gpus=8, eviction=ending)), config)
    assert (sent_on(decision), decision.releases) == ({}, ())
    assert [hold.verdict.code for hold in decision.holds] == [Code.CLOUD_FULL]
