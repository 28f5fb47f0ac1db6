from __future__ import annotations

from dataclasses import replace
from decimal import Decimal
from typing import Any

import pytest

from runtime.cost.ledger import Attempt, close
from runtime.routing.decision import Decision
from runtime.routing.gate import GATE_PATIENCE_SECONDS
from runtime.routing.release import PROMISE_SECONDS
from runtime.routing.snapshot import Stage
from runtime.routing.verdict import Code
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
    a_snapshot_without_ledger,
    a_team,
    an_opening,
    some_books,
)
from tests.unit.runtime.decisions import decided, held, running

HARD = {"daily": "100 USD"}
FLAVORS = {
    LOCAL: a_flavor("onprem", 16, "0"),
    SPOT: a_flavor("spot", 16, "2"),
    ON_DEMAND: a_flavor("on-demand", 8, "4"),
}


def released(decision: Decision) -> list[str]:
    return [release.job.uid for release in decision.releases]


def test_a_job_that_has_only_come_is_not_told_that_it_waits() -> None:
    assert held(decided(a_snapshot(a_job(created_at=NOON - 1), a_job("older", created_at=NOON - 3)))) == {
        "older": Code.WAITING
    }


def test_a_job_that_waited_long_enough_is_released() -> None:
    decision = decided(a_snapshot(a_job()))
    assert released(decision) == ["job-1"]
    assert decision.releases[0].verdict.facts == {
        "waited_s": 3_600,
        "limit_s": 1_800,
        "limit_source": "constant",
        "earliest_at": NOON - 1_800,
        "target": SPOT,
    }


def test_a_job_is_released_at_the_very_second_its_wait_ends() -> None:
    assert released(decided(a_snapshot(a_job(created_at=NOON - 1_800)))) == ["job-1"]
    assert held(decided(a_snapshot(a_job(created_at=NOON - 1_799)))) == {"job-1": Code.WAITING}


def test_a_verdict_that_stands_already_is_not_listed_again() -> None:
    assert decided(a_snapshot(a_job(created_at=NOON, verdict_code="waiting"))).holds == ()


def test_a_class_that_stays_local_is_held_however_long_it_waits() -> None:
    assert held(decided(a_snapshot(a_job(job_class="p2", created_at=0.0)))) == {"job-1": Code.CLASS_STAYS_LOCAL}


def test_a_job_larger_than_every_flavor_is_too_large() -> None:
    config = a_config(
        flavors=FLAVORS | {LOCAL: a_flavor("onprem", 32, "0")}, teams={"vision": a_team("vision", quota={LOCAL: 32})}
    )
    assert held(decided(a_snapshot(a_job(gpus=17)), config)) == {"job-1": Code.TOO_LARGE}


def test_while_the_ledger_is_down_nobody_is_released() -> None:
    assert held(decided(a_snapshot_without_ledger(a_job()))) == {"job-1": Code.LEDGER_DOWN}


def test_under_a_hard_budget_a_job_without_a_limit_stays_local() -> None:
    assert held(decided(a_snapshot(a_job(max_seconds=None)), a_config(budget=HARD))) == {"job-1": Code.NO_RUNTIME_LIMIT}


def test_under_a_soft_budget_a_job_without_a_limit_may_go() -> None:
    assert released(decided(a_snapshot(a_job(max_seconds=None)), a_config(budget=HARD | {"kind": "soft"}))) == ["job-1"]


def test_a_team_at_its_limit_waits_while_another_goes() -> None:
    config = a_config(teams={"vision": a_team("vision", max_burst_gpus=4), "nlp": a_team("nlp")})
    jobs = (
        running("running", gpus=1),
        a_job_at_the_gate("gate", gpus=1),
        a_job("promised", stage=Stage.RELEASED, verdict_code="released", gpus=1),
        a_job("two", gpus=2),
        a_job("other", gpus=2, team="nlp", namespace="nlp"),
        a_job("one", gpus=1, created_at=NOON - 2_000),
    )
    decision = decided(a_snapshot(*jobs), config)
    assert released(decision) == ["other", "one"]
    assert decision.holds[0].verdict.facts == {"team": "vision", "gpus": 2, "held_gpus": 3, "limit_gpus": 4}


def test_a_job_waits_while_the_cloud_has_no_room_for_it() -> None:
    decision = decided(a_snapshot(running("a", gpus=10), running("b", gpus=4, flavor=ON_DEMAND), a_job("c", gpus=7)))
    assert held(decision) == {"c": Code.CLOUD_FULL}
    assert decision.holds[0].verdict.facts == {"gpus": 7, "free_gpus": 6}


def test_room_promised_to_released_jobs_is_not_given_twice() -> None:
    promised = a_job("promised", stage=Stage.RELEASED, verdict_code="released", gpus=16)
    jobs = [promised, a_job("big", gpus=9), a_job("small", gpus=8)]
    assert released(decided(a_snapshot(*jobs))) == ["small"]


def test_a_job_that_runs_on_local_gpus_takes_no_cloud_room() -> None:
    local = running("local", stage=Stage.RUNNING_LOCAL, flavor="h100-onprem", gpus=16)
    assert released(decided(a_snapshot(local, a_job(gpus=16)))) == ["job-1"]


def test_releases_of_one_decision_share_the_budget() -> None:
    decision = decided(a_snapshot(a_job("a"), a_job("b"), a_job("c")), a_config(budget={"daily": "5 USD"}))
    assert (released(decision), held(decision)) == (["a", "b"], {"c": Code.BUDGET})
    assert decision.holds[0].verdict.facts == {
        "scope": "fleet",
        "period": "day",
        "limit_usd": 5.0,
        "left_usd": 1.0,
        "needed_usd": 2.0,
    }


def test_a_release_is_charged_the_price_of_the_flavor_it_is_released_to() -> None:
    config = a_config(budget={"daily": "16 USD"})
    assert released(decided(a_snapshot(a_job(gpus=8)), config)) == ["job-1"]
    spot_is_full = running("full", gpus=16)
    assert held(decided(a_snapshot(spot_is_full, a_job(gpus=8)), config)) == {"job-1": Code.BUDGET}


def test_money_promised_to_released_jobs_is_not_given_twice() -> None:
    jobs = (a_job("promised", stage=Stage.RELEASED), a_job("next"))
    assert held(decided(a_snapshot(*jobs), a_config(budget={"daily": "3 USD"}))) == {"next": Code.BUDGET}


def test_higher_priority_goes_first_then_the_older_then_the_smaller_uid() -> None:
    jobs = (
        a_job("d", created_at=NOON - 3_000),
        a_job("c", created_at=NOON - 3_000),
        a_job("b", created_at=NOON - 4_000),
        a_job("a", created_at=NOON - 2_000, priority=5),
    )
    assert released(decided(a_snapshot(*jobs))) == ["a", "b", "c", "d"]


def test_a_job_of_a_team_outside_the_fleet_file_is_never_released() -> None:
    assert released(decided(a_snapshot(a_job(team="gone")))) == []


def test_a_job_at_the_gate_is_cleared_at_the_price_of_its_flavor() -> None:
    job = a_job_at_the_gate(gpus=2, flavor=ON_DEMAND)
    assert job.reserved_at is not None
    decision = decided(a_snapshot(job), a_config(budget=HARD))
    assert [clear.opening for clear in decision.clears] == [
        an_opening(
            gpus=2,
            flavor=ON_DEMAND,
            usd_per_gpu_hour=Decimal(4),
            opened_at=job.reserved_at,
            decision_id="d-2",
            job="job-1",
        )
    ]
    assert decision.clears[0].verdict.facts["committed_usd"] == 8.0


def test_without_a_hard_budget_the_expected_cost_is_committed() -> None:
    job = a_job_at_the_gate(expected_seconds=HOUR / 4)
    opening = decided(a_snapshot(job), a_config(budget=HARD | {"kind": "soft"})).clears[0].opening
    assert (opening.hard, opening.committed_usd, opening.max_seconds) == (False, Decimal("0.5"), HOUR)


def test_an_attempt_opened_before_a_crash_is_cleared_again_without_paying_twice() -> None:
    config = a_config(budget={"daily": "2 USD"})
    decision = decided(a_snapshot(a_job_at_the_gate(), books=some_books(an_opening())), config)
    assert [clear.opening for clear in decision.clears] == [an_opening()]
    assert (decision.closes, decision.recalls) == ((), ())


def test_an_attempt_that_was_closed_is_never_cleared_again() -> None:
    closing = close(an_opening(), NOON, NOON, "quota released")
    decision = decided(a_snapshot(a_job_at_the_gate(), books=some_books(an_opening(), closings=(closing,))))
    assert decision.clears == ()
    assert decision.recalls[0].verdict.facts == {"cause": "attempt-closed"}


def test_a_job_that_breaks_the_budget_does_not_pass_the_gate() -> None:
    decision = decided(a_snapshot(a_job_at_the_gate(gpus=2)), a_config(budget={"daily": "3 USD"}))
    assert decision.clears == ()
    verdict = decision.recalls[0].verdict
    assert (verdict.code, verdict.facts["cause"], verdict.facts["scope"]) == (Code.RECALLED, "budget", "fleet")


@pytest.mark.parametrize(
    ("job", "cause"),
    [
        ({"max_seconds": None}, "no-runtime-limit"),
        ({"job_class": "p2"}, "class-stays-local"),
        ({"gpus": 9}, "team-limit"),
        ({"flavor": "gone"}, "not-in-fleet"),
        ({"target": ON_DEMAND}, "misrouted"),
        ({"team": "gone"}, "not-in-fleet"),
    ],
)
def test_what_may_not_burst_any_more_goes_back_from_the_gate(job: dict[str, Any], cause: str) -> None:
    config = a_config(budget=HARD, teams={"vision": a_team("vision", max_burst_gpus=8)})
    decision = decided(a_snapshot(a_job_at_the_gate(**job)), config)
    assert [recall.verdict.facts["cause"] for recall in decision.recalls] == [cause]
    assert decision.clears == ()


def test_of_two_jobs_at_the_gate_the_older_gets_the_last_money() -> None:
    jobs = (a_job_at_the_gate("young", created_at=NOON - 10), a_job_at_the_gate("old"))
    decision = decided(a_snapshot(*jobs), a_config(budget={"daily": "2 USD"}))
    assert [clear.job.uid for clear in decision.clears] == ["old"]
    assert [recall.job.uid for recall in decision.recalls] == ["young"]


@pytest.mark.parametrize("speed", [1.0, 60.0])
def test_the_gate_waits_for_the_ledger_in_real_time_and_then_gives_the_job_back(speed: float) -> None:
    config = a_config(replay_speed=speed)
    snapshot = a_snapshot_without_ledger(a_job_at_the_gate(reserved_at=NOON))
    patience = GATE_PATIENCE_SECONDS * speed
    assert held(decided(snapshot, config, NOON + patience)) == {"job-1": Code.LEDGER_DOWN}
    late = decided(snapshot, config, NOON + patience + 1)
    assert [recall.verdict.facts["cause"] for recall in late.recalls] == ["ledger-down"]
    assert (late.clears, late.closes) == ((), ())


def test_a_job_whose_reservation_cannot_be_named_is_left_alone() -> None:
    decision = decided(a_snapshot(a_job_at_the_gate(attempt=None)))
    assert (decision.clears, decision.recalls, decision.holds) == ((), (), ())


def test_a_recall_goes_on_until_the_job_is_back() -> None:
    decision = decided(a_snapshot(a_job(stage=Stage.RECALLING, verdict_code="recalled")))
    assert [recall.job.uid for recall in decision.recalls] == ["job-1"]


@pytest.mark.parametrize("stage", [Stage.STOPPED, Stage.RUNNING_LOCAL, Stage.RUNNING_CLOUD, Stage.FINISHED])
def test_what_is_stopped_running_or_finished_is_left_alone(stage: Stage) -> None:
    decision = decided(a_snapshot(a_job(stage=stage)))
    assert decision == Decision(id="d-2", decided_at=NOON)


def test_money_freed_by_a_closing_counts_only_once_the_ledger_has_it() -> None:
    books = some_books(an_opening("gone", attempt=Attempt("gone", 1), gpus=50))
    config = a_config(budget=HARD)
    decision = decided(a_snapshot(a_job(), books=books), config)
    assert (len(decision.closes), held(decision)) == (1, {"job-1": Code.BUDGET})
    closed = replace(books, closings={close_.closing.attempt: close_.closing for close_ in decision.closes})
    assert released(decided(a_snapshot(a_job(), books=closed), config)) == ["job-1"]


def test_a_fleet_without_jobs_decides_nothing() -> None:
    assert decided(a_snapshot()) == Decision(id="d-2", decided_at=NOON)


def test_under_a_soft_budget_each_refused_job_is_told_what_it_would_cost_itself() -> None:
    config = a_config(budget={"monthly": 2, "kind": "soft"})
    spent = an_opening("spent", hard=False, expected_seconds=9 * HOUR)
    jobs = [a_job(uid, expected_seconds=hours * HOUR, max_seconds=9 * HOUR) for uid, hours in (("a", 1), ("b", 2))]
    holds = decided(a_snapshot(*jobs, books=some_books(spent)), config).holds
    assert [hold.verdict.facts["needed_usd"] for hold in holds] == [2, 4]


def test_under_hard_budgets_each_refused_job_is_told_the_price_of_its_own_limit() -> None:
    config = a_config(budget={"monthly": 1})
    jobs = [a_job(uid, expected_seconds=60, max_seconds=hours * HOUR) for uid, hours in (("a", 1), ("b", 2))]
    holds = decided(a_snapshot(*jobs), config).holds
    assert [hold.verdict.facts["needed_usd"] for hold in holds] == [2, 4]


def test_a_refused_job_is_told_the_room_that_is_free_when_its_turn_comes() -> None:
    sizes = {"takes-9-spot": 9, "refused": 10, "takes-2-spot": 2, "refused-later": 10}
    jobs = [
        a_job(uid, gpus=gpus, created_at=NOON - HOUR + place, expected_seconds=60 + place)
        for place, (uid, gpus) in enumerate(sizes.items())
    ]
    decision = decided(a_snapshot(*jobs))
    assert released(decision) == ["takes-9-spot", "takes-2-spot"]
    assert [hold.verdict.facts["free_gpus"] for hold in decision.holds] == [7, 5]


def test_holds_at_the_gate_and_in_the_queues_are_listed_in_one_order() -> None:
    jobs = [
        a_job("young", created_at=NOON - HOUR),
        a_job_at_the_gate("middle", created_at=NOON - 2 * HOUR),
        a_job("old", created_at=NOON - 3 * HOUR),
    ]
    holds = decided(a_snapshot_without_ledger(*jobs)).holds
    assert [hold.job.uid for hold in holds] == ["old", "middle", "young"]


def test_a_cloud_job_that_the_ledger_does_not_know_is_written_into_it_and_counts_at_once() -> None:
    config = a_config(budget={"daily": "2 USD"})
    stray = a_job("stray", stage=Stage.RUNNING_CLOUD, flavor=SPOT, attempt=7, reserved_at=NOON - 60, ready_at=NOON - 59)
    decision = decided(a_snapshot(stray, a_job_at_the_gate("next")), config)
    assert [(one.job.uid, one.opening.attempt.reserved_at) for one in decision.adoptions] == [("stray", 7)]
    assert decision.clears == ()
    assert [recall.verdict.facts["cause"] for recall in decision.recalls] == ["budget"]
    books = some_books(*(one.opening for one in decision.adoptions))
    assert decided(a_snapshot(stray, books=books), config).adoptions == ()


@pytest.mark.parametrize("change", [{"max_seconds": 100 * HOUR}, {"gpus": 2}, {"flavor": ON_DEMAND}])
def test_money_committed_for_another_shape_does_not_open_the_gate(change: dict[str, Any]) -> None:
    config = a_config(budget={"daily": "900 USD"})
    decision = decided(a_snapshot(a_job_at_the_gate(**change), books=some_books(an_opening())), config)
    assert decision.clears == ()
    assert [recall.verdict.facts["cause"] for recall in decision.recalls] == ["not-as-paid"]


def test_a_pod_larger_than_any_cloud_node_stays_local() -> None:
    decision = decided(a_snapshot(a_job(gpus=16, pod_gpus=16)), a_config())
    [hold] = decision.holds
    assert (hold.verdict.code, hold.verdict.facts["cause"], hold.verdict.facts["node_gpus"]) == (
        Code.NEVER_FITS,
        "too-large",
        8,
    )


def test_a_released_job_that_kueue_cannot_place_keeps_nothing_from_others_for_ever() -> None:
    stuck = a_job(
        "stuck", gpus=16, stage=Stage.RELEASED, verdict_code="released", verdict_at=NOON - PROMISE_SECONDS - 1
    )
    fresh = a_job("fresh", gpus=16, stage=Stage.RELEASED, verdict_code="released", verdict_at=NOON - 1)
    waiting = a_job("waiting", gpus=16)
    assert [one.job.uid for one in decided(a_snapshot(stuck, waiting), a_config()).releases] == ["waiting"]
    assert decided(a_snapshot(fresh, waiting), a_config()).releases == ()
