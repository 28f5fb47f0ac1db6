from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from runtime.cost.budget import Accounts, Shortfall, Standing, hard_budget_applies, summary
from runtime.cost.exposure import Period, at_stake_in, day_of, expected_in, exposure, later_month, month_of, spent_in
from runtime.cost.ledger import Attempt, Books, Opening, close
from stacks.agent_config import AgentConfig
from tests.builders import HOUR, NOON, a_config, a_team, an_opening, some_books

BEFORE_MIDNIGHT = NOON + 11.5 * HOUR
TODAY = day_of(NOON)
TOMORROW = Period(TODAY.end, TODAY.end + 24 * HOUR)


def with_budget(kind: str = "hard", **limits: str) -> AgentConfig:
    return a_config(budget={"kind": kind} | limits)


def fits(config: AgentConfig, opening: Opening, books: Books | None = None, now: float = NOON) -> Shortfall | None:
    return Accounts(books or some_books(), config, now).fits(opening)


def at(text: str) -> float:
    return datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()


@pytest.mark.parametrize(
    ("moment", "start", "end"),
    [
        ("2026-11-21T12:00", "2026-11-01", "2026-12-01"),
        ("2026-12-31T23:59:59", "2026-12-01", "2027-01-01"),
        ("2028-02-29T00:00", "2028-02-01", "2028-03-01"),
        ("2027-01-01T00:00", "2027-01-01", "2027-02-01"),
    ],
)
def test_a_month_is_the_calendar_month_in_utc(moment: str, start: str, end: str) -> None:
    assert month_of(at(moment)) == Period(at(start), at(end))


@settings(max_examples=40)
@given(st.floats(0, 4e9))
def test_periods_contain_their_moment_and_follow_each_other_without_gaps(moment: float) -> None:
    for period_of in (day_of, month_of):
        period = period_of(moment)
        assert period.start <= moment < period.end
        assert period_of(period.end).start == period.end
    assert later_month(moment).start == month_of(moment).end


def test_a_closing_is_paid_by_the_days_it_ran_in() -> None:
    opening = an_opening(opened_at=BEFORE_MIDNIGHT, max_seconds=2 * HOUR)
    closing = close(opening, BEFORE_MIDNIGHT, BEFORE_MIDNIGHT + 2 * HOUR, "finished")
    assert (spent_in(closing, TODAY), spent_in(closing, TOMORROW)) == (Decimal(1), Decimal(3))


def test_an_open_attempt_counts_today_what_is_left_of_today_and_all_of_it_tomorrow() -> None:
    books = some_books(an_opening(opened_at=BEFORE_MIDNIGHT, max_seconds=2 * HOUR))
    today, tomorrow = (exposure(books, period, BEFORE_MIDNIGHT).fleet.committed for period in (TODAY, TOMORROW))
    assert Decimal(1) <= today <= Decimal("1.000001")
    assert tomorrow == Decimal(4)


def test_exposure_is_told_apart_by_team() -> None:
    paid = an_opening("a", attempt=Attempt("a", 1), team="nlp", opened_at=NOON)
    books = some_books(an_opening(), paid, closings=(close(paid, NOON, NOON + 900, "finished"),))
    found = exposure(books, TODAY, NOON + HOUR)
    assert {team: (amounts.spent, amounts.committed) for team, amounts in found.teams.items()} == {
        "vision": (Decimal(0), Decimal(2)),
        "nlp": (Decimal("0.5"), Decimal(0)),
    }
    assert (found.fleet.spent, found.fleet.committed) == (Decimal("0.5"), Decimal(2))


def test_an_attempt_that_outlives_its_expectation_is_expected_to_cost_what_it_has_cost_so_far() -> None:
    opening = an_opening(hard=False, opened_at=NOON)
    assert expected_in(opening, TODAY, NOON + 60) == Decimal(2)
    assert expected_in(opening, TODAY, NOON + 3 * HOUR) == Decimal(6)


def test_a_hard_budget_takes_what_fits_exactly_and_refuses_a_cent_more() -> None:
    books = some_books(an_opening(attempt=Attempt("other", 1)))
    assert fits(with_budget(daily="4 USD"), an_opening(), books) is None
    assert fits(with_budget(daily="3.99 USD"), an_opening(), books) == Shortfall(
        "fleet", "day", Decimal("3.99"), Decimal("1.99"), Decimal(2)
    )


def test_a_closed_attempt_counts_what_it_cost_not_what_it_committed() -> None:
    opening = an_opening(attempt=Attempt("other", 1), opened_at=NOON)
    books = some_books(opening, closings=(close(opening, NOON, NOON + 60, "finished"),))
    assert fits(with_budget(daily="2.04 USD"), an_opening(), books) is None


def test_a_team_may_not_spend_the_fleets_remainder_beyond_its_own() -> None:
    config = a_config(budget={"monthly": "1000 USD"}, teams={"vision": a_team("vision", budget={"monthly": "1 USD"})})
    shortfall = fits(config, an_opening())
    assert shortfall is not None
    assert (shortfall.scope, shortfall.period) == ("team vision", "month")


def test_a_jobs_late_start_must_fit_the_next_day_too() -> None:
    opened: dict[str, Any] = {"max_seconds": 2 * HOUR, "opened_at": BEFORE_MIDNIGHT}
    books = some_books(an_opening(attempt=Attempt("other", 1), **opened))
    shortfall = fits(with_budget(daily="5 USD"), an_opening(**opened), books, BEFORE_MIDNIGHT)
    assert shortfall == Shortfall("fleet", "later day", Decimal(5), Decimal(1), Decimal(4))


def test_a_jobs_late_start_must_fit_the_next_month_too() -> None:
    last_minutes = at("2026-11-30T23:30")
    opened: dict[str, Any] = {"max_seconds": 2 * HOUR, "opened_at": last_minutes}
    books = some_books(an_opening(attempt=Attempt("other", 1), **opened))
    shortfall = fits(with_budget(monthly="5 USD"), an_opening(**opened), books, last_minutes)
    assert shortfall == Shortfall("fleet", "later month", Decimal(5), Decimal(1), Decimal(4))


def test_a_closing_never_counts_more_in_a_period_than_was_set_aside_for_it() -> None:
    # A run of 3 s costs 1.5 millionths, rounded up to 2; two thirds of that are more than the exact cost of 2 s.
    opening = an_opening(usd_per_gpu_hour=Decimal("0.0018"), max_seconds=10.0, opened_at=TODAY.end - 2)
    closing = close(opening, TODAY.end - 2, TODAY.end + 1, "finished")
    assert spent_in(closing, TODAY) <= at_stake_in(opening, TODAY, TODAY.end)


def test_what_ends_with_the_month_leaves_the_next_month_whole() -> None:
    opening = an_opening(attempt=Attempt("other", 1), opened_at=NOON)
    books = some_books(opening, closings=(close(opening, NOON, NOON + HOUR, "finished"),))
    config = with_budget(monthly="3 USD")
    assert fits(config, an_opening(), books) is not None
    december = at("2026-12-01")
    assert fits(config, an_opening(opened_at=december), books, december) is None


def test_commitments_of_the_same_decision_add_up() -> None:
    accounts = Accounts(some_books(), with_budget(daily="3 USD"), NOON)
    assert accounts.fits(an_opening()) is None
    accounts.commit(an_opening())
    shortfall = accounts.fits(an_opening())
    assert shortfall is not None
    assert shortfall.left_usd == Decimal(1)


def test_a_soft_budget_refuses_only_once_it_is_used_up() -> None:
    config = with_budget("soft", daily="3 USD")
    first = an_opening(attempt=Attempt("other", 1), hard=False)
    second = an_opening(attempt=Attempt("another", 1), hard=False)
    assert fits(config, an_opening(hard=False), some_books(first)) is None
    assert fits(config, an_opening(hard=False), some_books(first, second)) is not None


def test_a_soft_team_under_a_hard_fleet_counts_expected_cost_while_the_fleet_counts_ceilings() -> None:
    config = a_config(
        budget={"monthly": "100 USD"},
        teams={"vision": a_team("vision", budget={"monthly": "5 USD", "kind": "soft"})},
    )
    running = an_opening(attempt=Attempt("other", 1), max_seconds=40 * HOUR)
    assert fits(config, an_opening(max_seconds=10 * HOUR), some_books(running)) is None
    shortfall = fits(config, an_opening(max_seconds=11 * HOUR), some_books(running))
    assert shortfall is not None
    assert shortfall.scope == "fleet"


def test_a_budget_of_nothing_lets_nothing_through() -> None:
    assert fits(with_budget(daily="0 USD"), an_opening()) is not None
    assert fits(with_budget("soft", daily="0 USD"), an_opening()) is not None


def test_without_a_budget_everything_fits() -> None:
    assert fits(a_config(), an_opening(gpus=10_000)) is None


@pytest.mark.parametrize(
    ("fleet", "team", "hard"),
    [
        (None, None, False),
        ({"daily": "1 USD"}, None, True),
        (None, {"daily": "1 USD"}, True),
        ({"daily": "1 USD", "kind": "soft"}, {"daily": "1 USD", "kind": "soft"}, False),
        ({"daily": "1 USD", "kind": "soft"}, {"daily": "1 USD"}, True),
    ],
)
def test_one_hard_budget_is_enough_to_ask_for_a_ceiling(
    fleet: dict[str, Any] | None, team: dict[str, Any] | None, hard: bool
) -> None:
    config = a_config(budget=fleet, teams={"vision": a_team("vision", budget=team)})
    assert hard_budget_applies(config, "vision") is hard


def test_a_summary_says_spent_committed_left_and_overshoot() -> None:
    paid = an_opening(attempt=Attempt("paid", 1), opened_at=NOON - HOUR)
    books = some_books(an_opening(), paid, closings=(close(paid, NOON - HOUR, NOON, "finished"),))
    config = a_config(
        budget={"daily": "10 USD"},
        teams={"vision": a_team("vision", budget={"monthly": "3 USD", "kind": "soft"}), "nlp": a_team("nlp")},
    )
    found = summary(books, config, NOON)
    two = Decimal(2)
    assert found.fleet.day == Standing(two, two, Decimal(10), Decimal(6), Decimal(0))
    assert found.fleet.month == Standing(two, two, None, None, None)
    assert found.teams["vision"].month == Standing(two, two, Decimal(3), Decimal(0), Decimal(1))
    assert found.teams["nlp"].kind is None
    assert found.teams["nlp"].day.spent == 0


def test_a_summary_shows_the_bill_of_a_team_that_left_the_fleet_file() -> None:
    assert summary(some_books(an_opening(team="gone")), a_config(), NOON).teams["gone"].day.committed == 2


def _moments(drawn: list[float], start: float) -> list[float]:
    moments = [start]
    for step in drawn:
        moments.append(moments[-1] + step)
    return moments


@settings(max_examples=40)
@given(st.lists(st.tuples(st.floats(0, 1), st.floats(0.1, 40)), min_size=1, max_size=8))
def test_the_days_of_a_run_add_up_to_its_cost(runs: list[tuple[float, float]]) -> None:
    for offset, hours in runs:
        opening = an_opening(opened_at=NOON, max_seconds=50 * HOUR)
        closing = close(opening, NOON + offset * HOUR, NOON + (offset + hours) * HOUR, "finished")
        days = _moments([24 * HOUR] * 4, TODAY.start)
        total = sum(spent_in(closing, Period(start, end)) for start, end in pairwise(days))
        assert abs(total - closing.usd) < Decimal("1e-15")
