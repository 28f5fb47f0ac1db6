"""Where a job is sent: markets, models, broken twins, nodes that do not come; changes of flavor, and ways back."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from runtime.cost.ledger import NEVER_READY, Attempt, close
from runtime.routing.decision import Decision, SetQueue
from runtime.routing.gate import LOCAL_FREE_SECONDS
from runtime.routing.history import Ran, history_of
from runtime.routing.release import (
    GO_ROUND_SECONDS,
    KEPT_LOCAL_SECONDS,
    MOST_RETURNS,
    RETARGET_SECONDS,
    RETURN_PAUSE_SECONDS,
    STARVING_SECONDS,
    SYNC_SECONDS,
)
from runtime.routing.snapshot import Job, Stage
from runtime.routing.targets import COOLING_SECONDS
from runtime.routing.verdict import Code
from stacks.agent_config import AgentConfig
from stacks.labels import burst_queue
from tests.builders import (
    HOUR,
    LOCAL,
    NOON,
    ON_DEMAND,
    SPOT,
    a_config,
    a_flavor,
    a_job,
    a_job_at_the_gate,
    a_snapshot,
    a_team,
    an_opening,
    some_books,
)
from tests.unit.runtime.decisions import decided, held, running

CLASS: dict[str, Any] = {"burst": "allowed", "expected_runtime": "1h"}


def sent(decision: Decision) -> dict[str, str]:
    return {release.job.uid: release.target for release in decision.releases}


def causes(decision: Decision) -> dict[str, object]:
    return {recall.job.uid: recall.verdict.facts["cause"] for recall in decision.recalls}


def a_class(**changes: Any) -> AgentConfig:
    return a_config(classes={"p1": CLASS | changes}, default_class="p1")


def released(uid: str = "job-1", ago: float = 1.0, **changes: Any) -> Job:
    values = {"stage": Stage.RELEASED, "verdict_code": "released", "verdict_at": NOON - ago} | changes
    return a_job(uid, **values)


def test_a_job_goes_to_the_first_flavor_in_order_that_has_room() -> None:
    assert sent(decided(a_snapshot(a_job("a", gpus=10), a_job("b", gpus=8), a_job("c", gpus=4)))) == {
        "a": SPOT,
        "b": ON_DEMAND,
        "c": SPOT,
    }


def test_a_job_goes_to_a_dearer_flavor_only_if_the_budget_can_pay_it() -> None:
    paid = an_opening("full", attempt=Attempt("full", 1), gpus=16)
    snapshot = a_snapshot(running("full", gpus=16), a_job(gpus=2), books=some_books(paid))
    assert sent(decided(snapshot, a_config(budget={"daily": "40 USD"}))) == {"job-1": ON_DEMAND}
    assert held(decided(snapshot, a_config(budget={"daily": "39 USD"}))) == {"job-1": Code.BUDGET}


def test_a_class_is_sent_only_to_its_markets() -> None:
    assert sent(decided(a_snapshot(a_job()), a_class(markets=["onprem", "on-demand"]))) == {"job-1": ON_DEMAND}
    assert held(decided(a_snapshot(a_job()), a_class(markets=["onprem", "reserved"]))) == {"job-1": Code.NO_MARKET}


def test_a_job_at_the_gate_of_a_market_that_its_class_no_longer_allows_goes_back() -> None:
    config = a_class(markets=["onprem", "on-demand"])
    assert causes(decided(a_snapshot(a_job_at_the_gate()), config)) == {"job-1": "no-market"}


def test_a_job_that_insists_on_a_model_goes_where_it_is() -> None:
    flavors = {
        LOCAL: a_flavor("onprem", 16, "0"),
        SPOT: a_flavor("spot", 16, "2", gpu="a100"),
        ON_DEMAND: a_flavor("on-demand", 8, "4"),
    }
    config = a_config(flavors=flavors)
    assert sent(decided(a_snapshot(a_job("a", gpu="a100"), a_job("b", gpu="h100")), config)) == {
        "a": SPOT,
        "b": ON_DEMAND,
    }


def test_a_job_that_local_gpus_can_never_hold_leaves_at_once() -> None:
    decision = decided(a_snapshot(a_job(gpus=12, created_at=NOON), a_job("own", gpus=8, created_at=NOON - 2)),
                       a_config(teams={"vision": a_team("vision", borrow={LOCAL: 0})}))  # fmt: skip
    assert sent(decision) == {"job-1": SPOT}
    assert decision.releases[0].verdict.facts["limit_source"] == "local GPUs can never hold it"
    assert held(decision) == {"own": Code.WAITING}


def test_local_nodes_that_are_gone_hold_nothing() -> None:
    snapshot = replace(a_snapshot(a_job(gpus=4, created_at=NOON)), capacity={LOCAL: 2})
    assert sent(decided(snapshot)) == {"job-1": SPOT}


@pytest.mark.parametrize(
    ("job", "cause"),
    [
        ({"gpus": 40}, "too-large"),
        ({"gpus": 40, "job_class": "p2"}, "class-stays-local"),
        ({"gpu": "b200"}, "no-market"),
    ],
)
def test_a_job_that_fits_nowhere_is_refused_at_once_with_the_reason(job: dict[str, Any], cause: str) -> None:
    decision = decided(a_snapshot(a_job(created_at=NOON, **job)))
    assert held(decision) == {"job-1": Code.NEVER_FITS}
    assert decision.holds[0].verdict.facts["cause"] == cause


def test_a_policy_of_the_class_goes_before_the_teams_and_the_fleets() -> None:
    teams = {"vision": a_team("vision", policy={"kind": "constant", "wait": "2h"})}
    job = a_snapshot(a_job(created_at=NOON - HOUR))
    assert held(decided(job, a_config(teams=teams))) == {"job-1": Code.WAITING}
    classes = {"p1": CLASS | {"policy": {"kind": "always"}}}
    assert sent(decided(job, a_config(teams=teams, classes=classes))) == {"job-1": SPOT}


def test_a_team_whose_policy_is_never_stays_local_whatever_its_class_says() -> None:
    teams = {"vision": a_team("vision", policy={"kind": "never"})}
    classes = {"p1": CLASS | {"policy": {"kind": "always"}}}
    assert held(decided(a_snapshot(a_job()), a_config(teams=teams, classes=classes))) == {"job-1": Code.POLICY_NEVER}


def test_the_expected_run_time_comes_from_the_jobs_of_that_name_before() -> None:
    policy = {"kind": "compute-wait", "wait_per_gpu_hour": "1h", "bounds": ["0s", "10h"]}
    runs = [Ran(f"r-{n}", "vision", f"train-{n}", "p1", 600.0 + n, NOON - n) for n in range(5)]
    job = a_job(owner_name="train-99", created_at=NOON - 900, max_seconds=None)
    config = a_config(policy=policy)
    assert held(decided(a_snapshot(job), config)) == {"job-1": Code.WAITING}
    decision = decided(replace(a_snapshot(job), history=history_of(runs)), config)
    assert decision.releases[0].verdict.facts["limit_source"] == (
        "compute-wait: 1 GPU x 10m2s expected from the median of 5 runs of train"
    )


def test_a_class_outside_its_window_waits_until_it_opens() -> None:
    config = a_class(window="22:00-06:00 UTC")
    decision = decided(a_snapshot(a_job("new"), a_job_at_the_gate("gate"), released("sent")), config)
    assert held(decision) == {"new": Code.WINDOW}
    assert decision.holds[0].verdict.facts["opens_at"] == NOON + 10 * HOUR
    assert causes(decision) == {"gate": "window", "sent": "window"}
    assert sent(decided(a_snapshot(a_job()), config, NOON + 10 * HOUR)) == {"job-1": SPOT}


def test_queues_of_windows_are_held_and_let_go_once() -> None:
    team = a_team("vision", window_queues={"p1": "vision-window-p1"})
    config = a_config(classes={"p1": CLASS | {"window": "22:00-06:00 UTC"}}, teams={"vision": team})
    open_at, held_now = NOON + 11 * HOUR, frozenset({"vision-window-p1"})
    assert decided(a_snapshot(), config).queues == (SetQueue("vision", "vision-window-p1", True),)
    assert decided(replace(a_snapshot(), held_queues=held_now), config).queues == ()
    assert decided(a_snapshot(), config, open_at).queues == ()
    opened = decided(replace(a_snapshot(), held_queues=held_now), config, open_at).queues
    assert opened == (SetQueue("vision", "vision-window-p1", False),)


def test_data_that_takes_too_long_to_copy_keeps_a_job_local() -> None:
    config = a_config(data={"bandwidth": "1 Gbps", "max_staging": "10m", "usd_per_gb": "0.02"})
    decision = decided(a_snapshot(a_job("much", data_bytes=10**12), a_job("little", data_bytes=10**10)), config)
    assert (held(decision), sent(decision)) == ({"much": Code.DATA}, {"little": SPOT})


def test_what_crosses_a_link_is_paid_for_with_the_job() -> None:
    config = a_config(data={"bandwidth": "1 Gbps", "max_staging": "10m", "usd_per_gb": "0.02"})
    [clear] = decided(a_snapshot(a_job_at_the_gate(data_bytes=50 * 10**9)), config).clears
    assert (str(clear.opening.fixed_usd), str(clear.opening.committed_usd)) == ("1.000000", "3.000000")
    assert clear.opening.expected_seconds == HOUR


def test_a_job_that_stood_at_the_gate_over_midnight_is_paid_by_the_new_day() -> None:
    midnight = NOON + 12 * HOUR
    job = a_job_at_the_gate(reserved_at=midnight - 10, attempt=int(midnight) - 10)
    [clear] = decided(a_snapshot(job), a_config(budget={"daily": "9 USD"}), midnight + 5).clears
    assert clear.opening.opened_at == midnight
    [clear] = decided(a_snapshot(job), a_config(budget={"daily": "9 USD"}), midnight - 5).clears
    assert clear.opening.opened_at == midnight - 10


@pytest.mark.parametrize(
    ("job", "code"), [({"project": "typo"}, Code.PROJECT), ({"project": "nlp-only"}, Code.PROJECT), ({}, None)]
)
def test_a_project_must_be_in_the_file_and_open_to_the_team(job: dict[str, Any], code: Code | None) -> None:
    budget = {"budget": {"monthly": "9 USD"}}
    config = a_config(projects={"demo": budget, "nlp-only": budget | {"teams": ["nlp"]}})
    assert held(decided(a_snapshot(a_job(**job)), config)) == ({"job-1": code} if code else {})


def test_a_project_without_money_holds_its_jobs_and_no_others() -> None:
    config = a_config(projects={"demo": {"budget": {"monthly": "1 USD"}}})
    decision = decided(a_snapshot(a_job("demo", project="demo"), a_job("free")), config)
    assert (held(decision), sent(decision)) == ({"demo": Code.BUDGET}, {"free": SPOT})
    assert decision.holds[0].verdict.facts["scope"] == "project demo"


def test_a_broken_twin_is_passed_over_and_what_waits_in_it_comes_back() -> None:
    broken = frozenset({burst_queue("vision", SPOT)})
    snapshot = replace(a_snapshot(a_job("new"), released("sent")), broken_queues=broken)
    assert sent(decided(snapshot)) == {"new": ON_DEMAND, "sent": ON_DEMAND}
    both = broken | {burst_queue("vision", ON_DEMAND)}
    decision = decided(replace(snapshot, broken_queues=both))
    assert (held(decision), causes(decision)) == ({"new": Code.TWIN_DOWN}, {"sent": "twin-down"})


def test_a_flavor_whose_nodes_do_not_come_is_left_alone_for_a_while() -> None:
    gone = close(an_opening("gone"), NOON - 60, NOON - 5, NEVER_READY)
    books = some_books(an_opening("gone"), closings=(gone,))
    snapshot = a_snapshot(a_job("new"), released("sent"), a_job_at_the_gate("gate"), books=books)
    decision = decided(snapshot)
    assert sent(decision) == {"new": ON_DEMAND, "sent": ON_DEMAND}
    assert causes(decision) == {"gate": "nodes-do-not-come"}
    later = decided(a_snapshot(a_job("new"), books=books), now=NOON + COOLING_SECONDS)
    assert sent(later) == {"new": SPOT}


def test_a_released_job_that_gets_no_quota_changes_to_a_flavor_with_room() -> None:
    full = running("full", gpus=16)
    assert sent(decided(a_snapshot(full, released(ago=RETARGET_SECONDS)))) == {}
    decision = decided(a_snapshot(full, released(ago=RETARGET_SECONDS + 1)))
    assert sent(decision) == {"job-1": ON_DEMAND}
    assert decision.releases[0].verdict.facts["from"] == SPOT


def test_a_job_that_no_flavor_takes_does_not_go_round_each_minute() -> None:
    second = released(target=ON_DEMAND, ago=RETARGET_SECONDS + 1)
    assert sent(decided(a_snapshot(second))) == {}
    assert sent(decided(a_snapshot(released(target=ON_DEMAND, ago=GO_ROUND_SECONDS + 1)))) == {"job-1": SPOT}


def test_a_released_job_whose_twin_is_down_comes_back_where_no_other_flavor_has_room() -> None:
    full = running("full", flavor=ON_DEMAND, gpus=8)
    down = replace(a_snapshot(released(), full), broken_queues=frozenset({burst_queue("vision", SPOT)}))
    assert causes(decided(down)) == {"job-1": "cloud-full"}
    assert sent(decided(replace(down, jobs=(released(),)))) == {"job-1": ON_DEMAND}


def test_a_change_of_flavor_forgets_no_return() -> None:
    full = running("full", gpus=16)
    [release] = decided(a_snapshot(full, released(ago=RETARGET_SECONDS + 1, returns=2))).releases
    assert release.verdict.facts["returns"] == 2


def test_a_promise_does_not_outlive_a_clock_that_was_set_back() -> None:
    ahead = released("ahead", gpus=16, verdict_at=NOON + 9 * HOUR)
    assert sent(decided(a_snapshot(ahead, a_job("next", gpus=16)))) == {"next": SPOT}


def test_what_a_job_on_its_way_was_promised_is_given_to_nobody_else() -> None:
    away = a_job("away", gpus=16, verdict_code="released", verdict_at=NOON - 1)
    assert sent(decided(a_snapshot(away, a_job("next", gpus=16)))) == {}


def test_gpus_on_a_flavor_that_left_the_fleet_still_count_for_their_team() -> None:
    config = a_config(teams={"vision": a_team("vision", max_burst_gpus=8)})
    decision = decided(a_snapshot(running("old", flavor="gone", gpus=8), a_job()), config)
    assert held(decision) == {"job-1": Code.TEAM_LIMIT}


def test_pods_of_one_team_that_never_start_keep_no_other_team_out_of_a_flavor() -> None:
    openings = [an_opening(team, team=team) for team in ("vision", "nlp")]
    gone = [close(opening, NOON - 60, NOON - 5, NEVER_READY) for opening in openings]
    jobs = [a_job("v"), a_job("n", team="nlp")]
    one = a_snapshot(*jobs, books=some_books(openings[0], closings=(gone[0],)))
    assert sent(decided(one)) == {"v": ON_DEMAND, "n": SPOT}
    both = a_snapshot(*jobs, books=some_books(*openings, closings=tuple(gone)))
    assert sent(decided(both)) == {"v": ON_DEMAND, "n": ON_DEMAND}


def test_a_released_job_whose_class_may_not_leave_any_more_comes_back() -> None:
    assert causes(decided(a_snapshot(released(job_class="p2")))) == {"job-1": "class-stays-local"}
    assert causes(decided(a_snapshot(released(team="gone")))) == {"job-1": "not-in-fleet"}


@pytest.mark.parametrize(
    "job", [released(), a_job_at_the_gate(), running("job-1", target=SPOT)], ids=["pending", "at the gate", "running"]
)
def test_an_administrator_can_have_a_job_out_of_the_cloud(job: Job) -> None:
    books = some_books(an_opening(attempt=replace(an_opening().attempt, reserved_at=1)))
    decision = decided(a_snapshot(replace(job, recall_reason="licence"), books=books))
    assert causes(decision) == {"job-1": "asked"}
    assert decision.clears == ()


def test_a_job_at_the_gate_goes_back_when_local_gpus_became_free_meanwhile() -> None:
    ended = a_job("ended", stage=Stage.FINISHED, flavor=LOCAL, released_quota_at=NOON - 2)
    gate = a_job_at_the_gate(gpus=4, created_at=NOON - HOUR / 2 - LOCAL_FREE_SECONDS)
    assert causes(decided(a_snapshot(gate, ended))) == {"job-1": "local-free"}
    before = replace(ended, released_quota_at=NOON - 60)
    assert [clear.job.uid for clear in decided(a_snapshot(gate, before)).clears] == ["job-1"]
    taker = a_job("taker", gpus=8, created_at=NOON - 9)
    assert [clear.job.uid for clear in decided(a_snapshot(gate, ended, taker)).clears] == ["job-1"]


def test_a_job_that_free_local_gpus_do_not_help_is_not_taken_back_from_the_gate_for_ever() -> None:
    ended = a_job("ended", stage=Stage.FINISHED, flavor=LOCAL, released_quota_at=NOON - 2)
    gate = a_job_at_the_gate(gpus=4, created_at=NOON - HOUR / 2 - LOCAL_FREE_SECONDS - 1)
    [clear] = decided(a_snapshot(gate, ended)).clears
    assert clear.verdict.facts["local_room"] == 1


def test_a_cloud_start_that_a_free_local_gpu_would_have_spared_is_marked() -> None:
    [clear] = decided(a_snapshot(a_job_at_the_gate())).clears
    assert clear.verdict.facts["local_room"] == 1
    busy = [a_job(team, team=team, stage=Stage.RUNNING_LOCAL, flavor=LOCAL, gpus=8) for team in ("vision", "nlp")]
    [clear] = decided(a_snapshot(a_job_at_the_gate(), *busy)).clears
    assert "local_room" not in clear.verdict.facts


@pytest.mark.parametrize("stage", [Stage.QUEUED, Stage.RELEASED])
def test_a_recall_that_was_cut_off_is_taken_up_again(stage: Stage) -> None:
    assert causes(decided(a_snapshot(a_job(stage=stage, recall_reason="licence")))) == {"job-1": "asked"}


def test_a_job_that_an_administrator_took_out_stays_local_for_a_while() -> None:
    kept = a_job(verdict_code="kept-local", verdict_at=NOON - KEPT_LOCAL_SECONDS + 1)
    decision = decided(a_snapshot(kept))
    assert (decision.releases, decision.holds) == ((), ())
    assert sent(decided(a_snapshot(kept), now=NOON + 1)) == {"job-1": SPOT}


def test_that_it_waits_anew_or_its_window_closes_does_not_let_it_forget_the_administrator() -> None:
    ran = a_job(verdict_code="kept-local", verdict_at=NOON - 60, waiting_since=NOON - 60)
    assert decided(a_snapshot(ran)).holds == ()
    never = a_job(verdict_code="kept-local", verdict_at=NOON - 60, job_class="p2")
    assert decided(a_snapshot(never)).holds == ()


def test_a_release_that_was_cut_off_before_its_mark_is_marked() -> None:
    decision = decided(a_snapshot(released(verdict_code="waiting")))
    assert sent(decision) == {"job-1": SPOT}


def test_kueue_gets_some_seconds_to_follow_a_label() -> None:
    decision = decided(a_snapshot(a_job(verdict_code="released", verdict_at=NOON - 1)))
    assert (decision.releases, decision.holds) == ((), ())


def test_a_job_that_somebody_takes_back_each_time_is_left_alone_for_a_while() -> None:
    back = a_job(verdict_code="released", verdict_at=NOON - SYNC_SECONDS)
    decision = decided(a_snapshot(back))
    assert decision.releases[0].verdict.facts["returns"] == 1
    often = replace(back, returns=MOST_RETURNS)
    assert held(decided(a_snapshot(often))) == {"job-1": Code.TAKEN_BACK}
    told = replace(often, verdict_code="taken-back", verdict_at=NOON - RETURN_PAUSE_SECONDS + 1)
    assert decided(a_snapshot(told)).releases == ()
    decision = decided(a_snapshot(replace(told, verdict_at=NOON - RETURN_PAUSE_SECONDS)))
    assert decision.releases[0].verdict.facts["returns"] == MOST_RETURNS


def test_a_large_job_that_starved_is_no_longer_passed_by_small_ones() -> None:
    busy = running("busy", gpus=8)
    small = a_job("small", gpus=4, created_at=NOON - HOUR + 60)
    large = a_job("large", gpus=16, created_at=NOON - HOUR + 30)
    assert sent(decided(a_snapshot(busy, large, small))) == {"small": SPOT}
    starved = replace(large, created_at=NOON - HOUR / 2 - STARVING_SECONDS - 1)
    assert sent(decided(a_snapshot(busy, starved, small))) == {"small": ON_DEMAND}


def test_a_preempted_job_waits_anew_and_its_run_time_is_no_wait() -> None:
    job = a_job(created_at=NOON - 5 * HOUR, waiting_since=NOON - 60)
    assert held(decided(a_snapshot(job))) == {"job-1": Code.WAITING}


def test_a_clock_that_was_set_back_gives_no_negative_wait() -> None:
    decision = decided(a_snapshot(a_job(created_at=NOON + HOUR)))
    assert decision.holds[0].verdict.facts["waited_s"] == 0


def test_a_flavor_that_is_too_dear_does_not_hide_a_cheaper_one_from_the_next_job() -> None:
    flavors = {
        LOCAL: a_flavor("onprem", 16, "0"),
        SPOT: a_flavor("spot", 16, "9"),
        ON_DEMAND: a_flavor("on-demand", 8, "1"),
    }
    decision = decided(a_snapshot(a_job("a"), a_job("b")), a_config(flavors=flavors, budget={"daily": "2 USD"}))
    assert sent(decision) == {"a": ON_DEMAND, "b": ON_DEMAND}
