from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from runtime.cost.ledger import Attempt, Books, Closing, Opening, close
from runtime.cost.losses import Loss
from runtime.cost.periods import Period
from runtime.cost.reliability import Reliability, added_up, reliability
from tests.builders import HOUR, LOCAL, NOON, ON_DEMAND, an_opening
from tests.unit.runtime.losses import a_loss

ALWAYS = Period(-math.inf, math.inf)
KEY = ("vision", "p1")


def opened(uid: str = "job-1", at: float = NOON, **changes: Any) -> Opening:
    return an_opening(attempt=Attempt(uid, int(at)), job=uid, opened_at=at, **changes)


def ended(opening: Opening, seconds: float = 60, reason: str = "finished") -> Closing:
    return close(opening, opening.opened_at, opening.opened_at + seconds, reason)


def books(*openings: Opening, closings: tuple[Closing, ...] = (), losses: tuple[Loss, ...] = ()) -> Books:
    return Books(
        {one.attempt: one for one in openings},
        {one.attempt: one for one in closings},
        losses={one.key: one for one in losses},
    )


def test_nothing_has_no_rows() -> None:
    assert reliability(books(), ALWAYS) == {}
    assert added_up([]).success_rate is None
    assert added_up([]).answered_share is None
    assert added_up([]).attempts_per_job is None


def test_a_job_that_was_evicted_once_and_then_finished() -> None:
    first, second = opened(), opened(at=NOON + HOUR)
    closings = (ended(first, 620, "quota released"), ended(second))
    [(key, found)] = reliability(
        books(first, second, closings=closings, losses=(a_loss(stopped_at=NOON + 600),)), ALWAYS
    ).items()
    assert key == KEY
    assert found == Reliability(
        jobs=1, attempts=2, evictions=1, answered=1, resumed=1, lost_gpu_seconds=180, finished=1, failed=0
    )
    assert (found.attempts_per_job, found.success_rate, found.lost_gpu_hours) == (2, 1, 0.05)


def test_a_local_run_that_was_evicted_is_an_attempt_of_its_own() -> None:
    later = opened(at=NOON + HOUR)
    found = reliability(books(later, losses=(a_loss(flavor=LOCAL),)), ALWAYS)[KEY]
    assert (found.jobs, found.attempts, found.resumed) == (1, 2, 1)


def test_a_loss_belongs_to_the_attempt_that_was_open_on_its_flavor_when_the_job_was_stopped() -> None:
    other = opened(at=NOON - HOUR, flavor=ON_DEMAND)
    over = opened(at=NOON - 2 * HOUR)
    found = reliability(books(other, over, closings=(ended(over),), losses=(a_loss(),)), ALWAYS)[KEY]
    assert found.attempts == 3


def test_a_job_is_resumed_by_its_next_eviction_and_by_what_the_cluster_says() -> None:
    lost = (a_loss(), a_loss(number=2, stopped_at=NOON + HOUR))
    assert reliability(books(losses=lost), ALWAYS)[KEY].resumed == 1
    assert reliability(books(losses=lost), ALWAYS, {"job-1": NOON + 60})[KEY].resumed == 1
    assert reliability(books(losses=lost), ALWAYS, {"job-1": NOON + 2 * HOUR})[KEY].resumed == 2
    assert reliability(books(losses=lost), ALWAYS, {"job-2": NOON + 2 * HOUR})[KEY].resumed == 1


@pytest.mark.parametrize("reason", ["never started", "pods never ready"])
def test_an_attempt_that_never_ran_is_none_and_resumes_nothing(reason: str) -> None:
    first, second = opened(at=NOON - HOUR), opened(at=NOON + HOUR)
    found = reliability(books(first, second, closings=(ended(second, 0, reason),), losses=(a_loss(),)), ALWAYS)[KEY]
    assert (found.attempts, found.resumed) == (1, 0)


def test_only_jobs_that_ended_by_themselves_succeed_or_fail() -> None:
    openings = [opened(uid) for uid in "abcde"]
    reasons = ["finished", "finished", "failed", "workload deleted", "quota released"]
    closings = tuple(ended(one, reason=reason) for one, reason in zip(openings, reasons, strict=True))
    found = reliability(books(*openings, closings=closings), ALWAYS)[KEY]
    assert (found.finished, found.failed) == (2, 1)
    assert found.success_rate == pytest.approx(2 / 3)


def test_each_number_counts_in_the_period_in_which_it_came_about() -> None:
    opening = opened()
    whole = books(opening, closings=(ended(opening, 2 * HOUR),), losses=(a_loss(stopped_at=NOON + HOUR),))
    before, between, after = (
        reliability(whole, Period(NOON + start, NOON + end)).get(KEY, Reliability())
        for start, end in ((0, HOUR), (HOUR, 2 * HOUR), (2 * HOUR, 3 * HOUR))
    )
    assert before == Reliability(jobs=1, attempts=1)
    assert between == Reliability(evictions=1, answered=1, lost_gpu_seconds=180)
    assert after == Reliability(finished=1)
    assert reliability(whole, Period(NOON + 3 * HOUR, math.inf)) == {}


def test_teams_and_classes_are_kept_apart() -> None:
    lost = (a_loss(), a_loss("b", team="nlp"), a_loss("c", job_class="p0"))
    assert list(reliability(books(losses=lost), ALWAYS)) == [("nlp", "p1"), ("vision", "p0"), ("vision", "p1")]


UIDS = st.sampled_from(["a", "b", "c"])
MOMENTS = st.integers(0, 50).map(lambda hours: NOON + hours * 600.0)
OPENINGS = st.builds(opened, UIDS, MOMENTS)
LOSSES = st.builds(
    lambda uid, number, at, flavor: replace(a_loss(uid, number, stopped_at=at), flavor=flavor),
    UIDS,
    st.integers(1, 3),
    MOMENTS,
    st.sampled_from([LOCAL, ON_DEMAND]),
)


@given(st.lists(OPENINGS, max_size=6), st.lists(LOSSES, max_size=6), MOMENTS)
@settings(max_examples=60)
def test_two_periods_that_meet_count_what_both_together_do_and_no_share_is_above_one(
    openings: list[Opening], losses: list[Loss], cut: float
) -> None:
    closings = tuple({one.attempt: ended(one, 900) for one in openings}.values())
    whole = books(*openings, closings=closings, losses=tuple(losses))
    found = added_up(reliability(whole, ALWAYS).values())
    parts = [added_up(reliability(whole, one).values()) for one in (Period(-math.inf, cut), Period(cut, math.inf))]
    both = added_up(parts)
    assert replace(both, jobs=found.jobs) == found
    assert max(part.jobs for part in parts) <= found.jobs <= both.jobs
    assert found.resumed <= found.evictions == len(whole.losses)
    assert found.jobs <= found.attempts
    assert found.success_rate in (None, 1)
