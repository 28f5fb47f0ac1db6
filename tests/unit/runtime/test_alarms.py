from __future__ import annotations

from dataclasses import replace
from decimal import Decimal
from typing import Any

import pytest
from prometheus_client import REGISTRY

from runtime.board import STRAY_SECONDS, Board
from runtime.cost.ledger import NEVER_READY, Attempt, Closing
from runtime.cost.standing import summary
from runtime.routing.alarms import (
    INACTIVE_GRACE_SECONDS,
    Alarm,
    AlarmKind,
    CheckState,
    cluster_alarms,
    money_alarms,
    stray_alarms,
)
from runtime.routing.decision import Adopt, Decision
from runtime.routing.snapshot import Stage
from tests.builders import NOON, SPOT, a_config, a_job, a_snapshot, an_opening, some_books

CONFIG = a_config()
FINE = CheckState(exists=True)


def of_cluster(seen: Any = None, *, check: CheckState = FINE, missing: tuple[str, ...] = ()) -> list[tuple[str, str]]:
    found = cluster_alarms(seen or a_snapshot(), CONFIG, NOON, check=check, missing_flavors=missing)
    return [(alarm.kind.value, alarm.subject) for alarm in found]


def test_a_fleet_in_order_raises_no_alarm() -> None:
    assert of_cluster(a_snapshot(a_job(), a_job("b", stage=Stage.FINISHED))) == []
    assert list(money_alarms(summary(some_books(), CONFIG, NOON))) == []


def test_a_check_that_is_gone_or_stays_inactive_is_an_alarm() -> None:
    assert of_cluster(check=CheckState(exists=False)) == [("check-missing", CONFIG.gate)]
    assert of_cluster(check=CheckState(True, INACTIVE_GRACE_SECONDS - 1)) == [], "Kueue takes a moment"
    assert of_cluster(check=CheckState(True, INACTIVE_GRACE_SECONDS + 1)) == [("check-inactive", CONFIG.gate)]


def test_a_fleet_without_cloud_flavors_needs_no_check() -> None:
    local = a_config(burst_order=(), teams={})
    found = cluster_alarms(a_snapshot(), local, NOON, check=CheckState(exists=False), missing_flavors=())
    assert list(found) == []


def test_each_broken_twin_and_each_missing_flavor_is_an_alarm_of_its_own() -> None:
    seen = replace(a_snapshot(), broken_queues=frozenset({"b", "a"}))
    assert of_cluster(seen, missing=(SPOT,)) == [("twin-broken", "a"), ("twin-broken", "b"), ("flavor-missing", SPOT)]


def test_jobs_that_others_move_back_are_one_alarm_for_their_team() -> None:
    seen = a_snapshot(a_job(returns=1), a_job("b", returns=3), a_job("c", stage=Stage.RELEASED, returns=1))
    assert of_cluster(seen) == [("label-reverted", "vision")]


def test_a_flavor_whose_nodes_did_not_come_is_an_alarm_while_it_is_left_alone() -> None:
    def after(seconds: float) -> list[tuple[str, str]]:
        opening = an_opening(attempt=Attempt("job-1", int(NOON) - 7_200), opened_at=NOON - 7_200)
        closing = Closing(opening.attempt, NOON - 7_200, NOON - seconds, Decimal(1), NEVER_READY)
        return of_cluster(a_snapshot(books=some_books(opening, closings=(closing,))))

    assert after(60) == [("nodes-do-not-come", SPOT)]
    assert after(7_000) == []


@pytest.mark.parametrize(("kind", "count"), [("hard", 1), ("soft", 0)])
def test_a_hard_budget_below_what_is_committed_is_an_alarm(kind: str, count: int) -> None:
    config = a_config(budget={"daily": "1 USD", "kind": kind})
    found = list(money_alarms(summary(some_books(an_opening()), config, NOON)))
    assert [(alarm.kind, alarm.subject) for alarm in found] == [(AlarmKind.BUDGET_OVERDRAWN, "fleet day")] * count
    assert all("$1.00" in alarm.text for alarm in found)


def shown(kind: AlarmKind) -> float | None:
    return REGISTRY.get_sample_value("gpufleet_alarms", {"kind": kind.value})


def test_an_alarm_is_logged_when_it_comes_and_when_it_goes(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    board = Board()
    for at in range(3):
        board.show([Alarm(AlarmKind.TWIN_BROKEN, "a", f"for {at} s"), Alarm(AlarmKind.TWIN_BROKEN, "b", "")], at)
        assert shown(AlarmKind.TWIN_BROKEN) == 2
    board.show([Alarm(AlarmKind.TWIN_BROKEN, "b", "")], 3)
    assert shown(AlarmKind.TWIN_BROKEN) == 1
    assert [record.message for record in caplog.records] == ["alarm", "alarm", "alarm ended"]


def test_a_stray_is_shown_for_a_while_although_it_is_mended_at_once() -> None:
    board = Board()
    decision = Decision("d", NOON, adoptions=(Adopt(a_job(), an_opening()),))
    board.show(stray_alarms(decision), 0)
    board.show((), STRAY_SECONDS - 1)
    assert shown(AlarmKind.STRAY) == 1
    board.show((), STRAY_SECONDS + 1)
    assert shown(AlarmKind.STRAY) == 0


def test_a_million_alarms_do_not_fill_the_memory() -> None:
    board = Board()
    board.show((Alarm(AlarmKind.TWIN_BROKEN, str(number), "") for number in range(5_000)), 0)
    assert len(board.standing) == 1_000
