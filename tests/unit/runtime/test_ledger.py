from __future__ import annotations

import json
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from runtime.cost.entries import EntryError, closing_from_dict, closing_to_dict, opening_from_dict, opening_to_dict
from runtime.cost.ledger import MICRO_USD, Attempt, Closing, Opening, close, cost_usd
from tests.builders import HOUR, NOON, an_opening

prices = st.decimals(min_value=0, max_value=200, places=4)
durations = st.floats(min_value=0, max_value=1e7)


def test_eight_gpus_for_half_an_hour_cost_four_gpu_hours() -> None:
    assert cost_usd(Decimal("12.50"), 8, 1_800) == Decimal("50")


def test_a_cost_is_rounded_up_to_a_millionth_of_a_dollar() -> None:
    assert cost_usd(Decimal("0.01"), 1, 1) == Decimal("0.000003")


@pytest.mark.parametrize(("gpus", "seconds"), [(0, 60.0), (1, 0.0), (1, -5.0)])
def test_no_gpus_and_no_time_cost_nothing(gpus: int, seconds: float) -> None:
    assert cost_usd(Decimal(5), gpus, seconds) == 0


@settings(max_examples=40)
@given(prices, st.integers(1, 512), durations)
def test_a_cost_is_never_below_the_exact_one_nor_a_quantum_above_it(price: Decimal, gpus: int, seconds: float) -> None:
    exact = price * gpus * Decimal(seconds) / 3_600
    assert Decimal("-1e-18") <= cost_usd(price, gpus, seconds) - exact <= MICRO_USD


def test_a_job_that_ended_early_pays_only_for_its_time() -> None:
    closing = close(an_opening(opened_at=NOON), NOON + 60, NOON + 960, "finished")
    assert closing == Closing(an_opening().attempt, NOON + 60, NOON + 960, Decimal("0.5"), "finished")


def test_an_end_noticed_late_costs_no_more_than_was_committed_under_a_hard_budget() -> None:
    assert close(an_opening(), NOON, NOON + 9 * HOUR, "finished").usd == Decimal(2)


def test_a_job_that_outruns_its_expectation_pays_for_all_of_it_under_a_soft_budget() -> None:
    assert close(an_opening(hard=False), NOON, NOON + 9 * HOUR, "finished").usd == Decimal(18)


def test_a_start_before_the_opening_counts_from_the_opening() -> None:
    closing = close(an_opening(opened_at=NOON), NOON - 500, NOON + 900, "finished")
    assert (closing.started_at, closing.usd) == (NOON, Decimal("0.5"))


def test_an_end_before_the_start_costs_nothing() -> None:
    closing = close(an_opening(opened_at=NOON), NOON + 5, NOON - 100, "quota released")
    assert (closing.started_at, closing.ended_at, closing.usd) == (NOON + 5, NOON + 5, Decimal(0))


@settings(max_examples=40)
@given(prices, st.integers(1, 64), st.floats(1, 1e6), st.floats(-1e6, 1e6), st.floats(-1e6, 1e6))
def test_a_ceiling_is_never_exceeded(price: Decimal, gpus: int, longest: float, start: float, end: float) -> None:
    opening = an_opening(usd_per_gpu_hour=price, gpus=gpus, max_seconds=longest)
    assert 0 <= close(opening, NOON + start, NOON + end, "finished").usd <= opening.committed_usd


@settings(max_examples=40)
@given(prices, st.integers(0, 64), durations, st.booleans(), st.text(max_size=20))
def test_an_opening_reads_back_as_it_was_written(
    price: Decimal, gpus: int, longest: float, hard: bool, name: str
) -> None:
    opening = an_opening(usd_per_gpu_hour=price, gpus=gpus, max_seconds=longest, hard=hard, job=name)
    assert opening_from_dict(json.loads(json.dumps(opening_to_dict(opening)))) == opening


def test_a_closing_reads_back_as_it_was_written() -> None:
    closing = close(an_opening(), NOON, NOON + 7.25, "quota released")
    assert closing_from_dict(json.loads(json.dumps(closing_to_dict(closing)))) == closing


def test_a_written_entry_carries_its_version_and_amounts_as_text() -> None:
    written = opening_to_dict(an_opening(usd_per_gpu_hour=Decimal("1e2")))
    assert (written["v"], written["usd_per_gpu_hour"], written["workload_uid"]) == (2, "100", "job-1")


def test_a_whole_number_of_seconds_reads_as_a_float() -> None:
    assert opening_from_dict(opening_to_dict(an_opening()) | {"max_seconds": 3_600}).max_seconds == HOUR


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"v": 3}, "version 3 is not 1 or 2"),
        ({"v": None}, "version None"),
        ({"gpus": -1}, r"gpus must be a whole number, zero or more \(got -1\)"),
        ({"gpus": True}, "gpus must be a whole number"),
        ({"gpus": 1.5}, "gpus must be a whole number"),
        ({"hard": 1}, "hard must be true or false"),
        ({"team": None}, "team must be text"),
        ({"committed_usd": 2}, "committed_usd must be text"),
        ({"committed_usd": "a lot"}, "committed_usd must be an amount as text"),
        ({"committed_usd": "NaN"}, "committed_usd must be a finite amount"),
        ({"committed_usd": "-1"}, "committed_usd must be a finite amount"),
        ({"opened_at": float("nan")}, "opened_at must be a finite number"),
        ({"opened_at": 10**400}, "opened_at must be a finite number"),
        ({"opened_at": "now"}, "opened_at must be a number of seconds"),
        ({"opened_at": 1e12}, "from zero to the year 3000"),
        ({"gpus": 10**12}, "gpus must be at most"),
        ({"committed_usd": "1e99"}, "committed_usd must be a finite amount"),
        ({"committed_usd": "0." + "0" * 99}, "committed_usd must be a finite amount"),
        ({"fixed_usd": "3"}, "fixed_usd 3 is more than committed_usd 2"),
        ({"v": 1}, "missing or unknown fields fixed_usd, project"),
        ({"v": True}, "version True"),
        ({"v": [2]}, "version"),
        ({"colour": "red"}, "missing or unknown fields colour"),
    ],
)
def test_an_impossible_entry_is_refused_by_the_name_of_its_field(change: dict[str, Any], said: str) -> None:
    with pytest.raises(EntryError, match=said):
        opening_from_dict(opening_to_dict(an_opening()) | change)


@pytest.mark.parametrize("entry", [None, [], "text", 7, {}])
def test_what_is_no_entry_at_all_is_refused(entry: object) -> None:
    with pytest.raises(EntryError):
        closing_from_dict(entry)


@pytest.mark.parametrize("field", [name for name in opening_to_dict(an_opening()) if name != "v"])
def test_no_field_may_be_missing(field: str) -> None:
    entry = opening_to_dict(an_opening())
    del entry[field]
    with pytest.raises(EntryError, match=field):
        opening_from_dict(entry)


def test_a_closing_is_not_an_opening() -> None:
    with pytest.raises(EntryError, match="opening: missing or unknown fields"):
        opening_from_dict(closing_to_dict(close(an_opening(), NOON, NOON, "finished")))


def test_attempts_of_one_workload_differ_by_the_second_of_their_reservation() -> None:
    openings: list[Opening] = [an_opening(attempt=Attempt("job-1", second)) for second in (1, 2)]
    assert openings[0].attempt != openings[1].attempt


def test_an_entry_of_version_1_reads_as_one_of_no_project_and_no_fixed_cost() -> None:
    written = opening_to_dict(an_opening()) | {"v": 1}
    old = {name: value for name, value in written.items() if name not in {"project", "fixed_usd"}}
    assert opening_from_dict(old) == an_opening()
    assert closing_from_dict(closing_to_dict(close(an_opening(), NOON, NOON, "x")) | {"v": 1}).usd == 0


def test_a_closing_that_ends_before_it_starts_is_refused() -> None:
    entry = closing_to_dict(close(an_opening(), NOON, NOON + 60, "finished")) | {"ended_at": NOON - 60}
    with pytest.raises(EntryError, match="is before started_at"):
        closing_from_dict(entry)
