"""Every way an attempt can end, and every line at which the agent can have been killed before it noticed."""

from __future__ import annotations

from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Any

import pytest

from runtime.routing.decide import decide
from runtime.routing.endings import LINGER_SECONDS, UNSEEN_SECONDS
from runtime.routing.snapshot import Stage
from tests.builders import (
    HOUR,
    LOCAL,
    NOON,
    ON_DEMAND,
    SPOT,
    a_config,
    a_job,
    a_snapshot,
    a_snapshot_without_ledger,
    an_opening,
    some_books,
)

OPENING = an_opening(opened_at=NOON, max_seconds=HOUR)
ATTEMPT = OPENING.attempt.reserved_at
STANDING: dict[str, Any] = {"flavor": SPOT, "attempt": ATTEMPT, "reserved_at": NOON - 10, "ever_admitted": True}
AGAIN: dict[str, Any] = {"attempt": ATTEMPT + 500, "reserved_at": NOON + 490, "ever_admitted": True}
NOW = NOON + 2_000


@dataclass(frozen=True)
class Ending:
    started: float
    ended: float
    reason: str


def closing_of(**job: Any) -> Ending | None:
    decision = decide(a_snapshot(a_job(**job), books=some_books(OPENING)), a_config(), NOW, "d-2")
    if not decision.closes:
        return None
    closing = decision.closes[0].closing
    return Ending(closing.started_at - NOON, closing.ended_at - NOON, closing.reason)


@pytest.mark.parametrize(
    "job",
    [
        pytest.param({"stage": Stage.AT_GATE}, id="killed between opening and Ready"),
        pytest.param({"stage": Stage.RUNNING_CLOUD, "ready_at": NOON + 1}, id="running"),
        pytest.param({"stage": Stage.RUNNING_CLOUD}, id="being evicted, its pods still there"),
        pytest.param({"stage": Stage.RECALLING}, id="deactivated by us, quota not yet released"),
        pytest.param({"stage": Stage.STOPPED}, id="deactivated by the user, quota not yet released"),
    ],
)
def test_while_its_reservation_stands_an_attempt_stays_open(job: dict[str, Any]) -> None:
    assert closing_of(**(STANDING | job)) is None


@pytest.mark.parametrize(
    ("job", "ending"),
    [
        pytest.param(
            {**STANDING, "stage": Stage.FINISHED, "ready_at": NOON + 5, "released_quota_at": NOON + 905},
            Ending(5, 905, "finished"),
            id="finished",
        ),
        pytest.param(
            {**STANDING, "stage": Stage.FINISHED, "ready_at": NOON + 5},
            Ending(5, 2_000, "finished"),
            id="finished at an unknown time while the agent was down",
        ),
        pytest.param(
            {**STANDING, "stage": Stage.FINISHED, "released_quota_at": NOON + 905},
            Ending(0, 905, "finished"),
            id="finished while it was being evicted, which took its Ready away",
        ),
        pytest.param(
            {"stage": Stage.RELEASED, "released_quota_at": NOON + 600, "ever_admitted": True},
            Ending(0, 600 + LINGER_SECONDS, "quota released"),
            id="preempted in the cloud, waiting in the twin",
        ),
        pytest.param(
            {"stage": Stage.QUEUED, "released_quota_at": NOON + 600, "ever_admitted": True},
            Ending(0, 600 + LINGER_SECONDS, "quota released"),
            id="recalled after it ran, back in its queue",
        ),
        pytest.param(
            {"stage": Stage.QUEUED, "ever_admitted": True},
            Ending(0, 2_000, "quota released"),
            id="released at an unknown time",
        ),
        pytest.param(
            {"stage": Stage.RELEASED, "released_quota_at": NOON - 1, "ever_admitted": True},
            Ending(0, 0, "never started"),
            id="lost its quota before the attempt was opened",
        ),
        pytest.param(
            {**AGAIN, "stage": Stage.AT_GATE, "flavor": SPOT},
            Ending(0, 490, "reserved anew"),
            id="ran, was evicted, and is at the gate again without a Ready",
        ),
        pytest.param(
            {**AGAIN, "stage": Stage.RUNNING_CLOUD, "flavor": SPOT, "ready_at": NOON + 495},
            Ending(0, 490, "reserved anew"),
            id="runs in a later attempt, whose Ready is not its own",
        ),
        pytest.param(
            {**AGAIN, "stage": Stage.RUNNING_LOCAL, "flavor": LOCAL},
            Ending(0, 490, "reserved anew"),
            id="runs on local GPUs after an eviction",
        ),
        pytest.param(
            {**AGAIN, "stage": Stage.FINISHED, "flavor": LOCAL, "released_quota_at": NOON + 1_500},
            Ending(0, 490, "reserved anew"),
            id="finished on local GPUs while the agent was down",
        ),
        pytest.param(
            {**STANDING, "stage": Stage.AT_GATE, "flavor": ON_DEMAND},
            Ending(0, 0, "reserved anew"),
            id="reserved another flavor within the same second",
        ),
        pytest.param(
            {"stage": Stage.RELEASED, "released_quota_at": NOON + 600, "ever_admitted": False},
            Ending(0, 0, "never started"),
            id="opened, agent killed before Ready, then lost its quota",
        ),
        pytest.param(
            {**AGAIN, "stage": Stage.AT_GATE, "flavor": SPOT, "ever_admitted": False},
            Ending(0, 0, "never started"),
            id="opened, agent killed before Ready, and at the gate anew",
        ),
        pytest.param(
            {"stage": Stage.FINISHED, "ever_admitted": False},
            Ending(0, 0, "never started"),
            id="opened, agent killed before Ready, then cancelled",
        ),
    ],
)
def test_an_attempt_that_is_over_is_closed_from_its_start_to_its_end(job: dict[str, Any], ending: Ending) -> None:
    assert closing_of(**job) == ending


@pytest.mark.parametrize(
    "job",
    [
        pytest.param({"stage": Stage.QUEUED, "ever_admitted": False}, id="in its queue"),
        pytest.param({"stage": Stage.RELEASED, "released_quota_at": NOON - 90, "ever_admitted": True}, id="evicted"),
        pytest.param({**STANDING, "stage": Stage.RUNNING_LOCAL, "flavor": LOCAL, "attempt": 1}, id="running before"),
    ],
)
def test_a_replica_that_saw_nothing_lately_ends_no_attempt_that_it_has_not_seen_begin(job: dict[str, Any]) -> None:
    def closes(now: float) -> int:
        return len(decide(a_snapshot(a_job(**job), books=some_books(OPENING)), a_config(), now, "d-2").closes)

    assert closes(NOON + UNSEEN_SECONDS - 1) == 0
    assert closes(NOON + UNSEEN_SECONDS) == 1


def test_data_that_was_never_copied_costs_nothing() -> None:
    with_data = replace(OPENING, fixed_usd=Decimal(1), committed_usd=OPENING.committed_usd + 1)
    lost = a_job(stage=Stage.RELEASED, released_quota_at=NOON - 1, ever_admitted=True)
    decision = decide(a_snapshot(lost, books=some_books(with_data)), a_config(), NOW, "d-2")
    assert decision.closes[0].closing.usd == 0


def test_an_attempt_whose_workload_is_gone_is_charged_until_now() -> None:
    decision = decide(a_snapshot(books=some_books(OPENING)), a_config(), NOW, "d-2")
    closing = decision.closes[0].closing
    assert (closing.started_at, closing.ended_at, closing.reason) == (NOON, NOW, "workload deleted")


def test_an_attempt_whose_workload_is_long_gone_costs_no_more_than_it_committed() -> None:
    decision = decide(a_snapshot(books=some_books(OPENING)), a_config(), NOON + 90 * HOUR, "d-2")
    assert decision.closes[0].closing.usd == OPENING.committed_usd


def test_a_new_workload_of_the_same_job_does_not_keep_the_old_attempt_open() -> None:
    other = a_job("another-uid", **(STANDING | {"stage": Stage.RUNNING_CLOUD}))
    decision = decide(a_snapshot(other, books=some_books(OPENING)), a_config(), NOW, "d-2")
    assert [close.closing.attempt for close in decision.closes] == [OPENING.attempt]


def test_a_closed_attempt_is_not_closed_again() -> None:
    first = decide(a_snapshot(books=some_books(OPENING)), a_config(), NOW, "d-2")
    closed = some_books(OPENING, closings=(first.closes[0].closing,))
    assert decide(a_snapshot(books=closed), a_config(), NOW + 5, "d-3").closes == ()


def test_while_the_ledger_is_down_nothing_is_closed() -> None:
    assert decide(a_snapshot_without_ledger(), a_config(), NOW, "d-2").closes == ()
