from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from itertools import pairwise
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from runtime.cost.budget import Accounts, Reached, Shortfall, Standing, reached, summary
from runtime.cost.exposure import at_stake_in, expected_in, exposure, spent_in
from runtime.cost.ledger import NEVER_STARTED, Attempt, Books, Opening, TopUp, close
from runtime.cost.periods import Period, day_of, month_of, week_of
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


def test_a_closing_is_paid_by_the_days_it_ran_in() -> None:
    opening = an_opening(opened_at=BEFORE_MIDNIGHT, max_seconds=2 * HOUR)
    closing = close(opening, BEFORE_MIDNIGHT, BEFORE_MIDNIGHT + 2 * HOUR, "finished")
    assert (spent_in(opening, closing, TODAY), spent_in(opening, closing, TOMORROW)) == (Decimal(1), Decimal(3))


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
    assert spent_in(opening, closing, TODAY) <= at_stake_in(opening, TODAY, TODAY.end)


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


def test_a_summary_says_spent_committed_left_and_overshoot() -> None:
    paid = an_opening(attempt=Attempt("paid", 1), opened_at=NOON - HOUR)
    books = some_books(an_opening(), paid, closings=(close(paid, NOON - HOUR, NOON, "finished"),))
    config = a_config(
        budget={"daily": "10 USD"},
        teams={"vision": a_team("vision", budget={"monthly": "3 USD", "kind": "soft"}), "nlp": a_team("nlp")},
    )
    found = summary(books, config, NOON)
    two = Decimal(2)
    none = Decimal(0)
    assert found.fleet.day == Standing(TODAY, two, two, Decimal(10), none, Decimal(6), none)
    assert found.fleet.week == Standing(week_of(NOON), two, two, None, none, None, None)
    assert found.teams["vision"].month == Standing(month_of(NOON), two, two, Decimal(3), none, none, Decimal(1))
    assert found.teams["vision"].month.overdrawn
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
        total = sum(spent_in(opening, closing, Period(start, end)) for start, end in pairwise(days))
        assert abs(total - closing.usd) < Decimal("1e-15")


PROJECT = {"budget": {"weekly": "3 USD"}}


def a_top_up(scope: str = "fleet", usd: int = 5, granted_at: float = NOON, lasts: float = HOUR) -> TopUp:
    return TopUp("t-1", scope, Decimal(usd), "deadline", "ada", granted_at, granted_at + lasts)


def with_top_up(top_up: TopUp, *openings: Opening) -> Books:
    return Books({one.attempt: one for one in openings}, {}, {top_up.id: top_up})


def test_a_project_may_not_spend_what_fleet_and_team_have_left_beyond_its_own() -> None:
    config = a_config(budget={"monthly": "1000 USD"}, projects={"llm": PROJECT})
    running = some_books(an_opening(attempt=Attempt("other", 1), project="llm"))
    assert fits(config, an_opening(project="llm"), running) == Shortfall(
        "project llm", "week", Decimal(3), Decimal(1), Decimal(2)
    )
    assert fits(config, an_opening(), running) is None


def test_a_project_that_nobody_defined_only_has_a_bill() -> None:
    books = some_books(an_opening(project="gone"))
    assert fits(a_config(), an_opening(project="gone"), books) is None
    assert summary(books, a_config(), NOON).projects["gone"].week.committed == 2


def test_a_week_begins_on_monday_in_the_budgets_own_zone() -> None:
    # Sunday 2026-11-22 23:30 UTC is Monday in Berlin.
    late = at("2026-11-22T23:30")
    paid = an_opening(attempt=Attempt("paid", 1), opened_at=NOON)
    books = some_books(paid, closings=(close(paid, NOON, NOON + HOUR, "finished"),))
    opening = an_opening(opened_at=late)
    assert fits(with_budget(weekly="3 USD"), opening, books, late) is not None
    assert fits(with_budget(weekly="3 USD", time_zone="Europe/Berlin"), opening, books, late) is None


def test_each_budget_counts_days_of_its_own_zone() -> None:
    config = a_config(
        budget={"daily": "3 USD"},
        teams={"vision": a_team("vision", budget={"daily": "3 USD", "time_zone": "Pacific/Kiritimati"})},
    )
    # 11:00 UTC is the 22nd in Kiritimati, whose day began an hour ago.
    now = at("2026-11-21T11:00")
    paid = an_opening(attempt=Attempt("paid", 1), opened_at=now - 3 * HOUR)
    books = some_books(paid, closings=(close(paid, now - 3 * HOUR, now - 2 * HOUR, "finished"),))
    shortfall = fits(config, an_opening(opened_at=now), books, now)
    assert shortfall is not None
    assert shortfall.scope == "fleet"
    found = summary(books, config, now)
    assert (found.fleet.day.spent, found.teams["vision"].day.spent) == (Decimal(2), Decimal(0))


def test_a_fixed_cost_is_paid_once_by_the_period_of_the_opening() -> None:
    opening = an_opening(opened_at=BEFORE_MIDNIGHT, fixed_usd=Decimal(7), committed_usd=Decimal(9))
    assert at_stake_in(opening, TODAY, BEFORE_MIDNIGHT) == Decimal("8.000001")
    assert at_stake_in(opening, TOMORROW, BEFORE_MIDNIGHT) == Decimal(2)
    closing = close(opening, BEFORE_MIDNIGHT, BEFORE_MIDNIGHT + HOUR, "finished")
    assert closing.usd == Decimal(9)
    assert (spent_in(opening, closing, TODAY), spent_in(opening, closing, TOMORROW)) == (Decimal(8), Decimal(1))


def test_a_ceiling_clips_time_and_fixed_cost_together_and_a_job_that_never_started_is_free() -> None:
    opening = an_opening(fixed_usd=Decimal(7), committed_usd=Decimal(9))
    assert close(opening, NOON, NOON + 9 * HOUR, "finished").usd == Decimal(9)
    assert close(opening, NOON, NOON, NEVER_STARTED).usd == 0


def test_a_top_up_adds_to_the_running_periods_until_it_expires() -> None:
    config = with_budget(daily="3 USD")
    paid = an_opening(attempt=Attempt("paid", 1), opened_at=NOON - HOUR)
    closing = close(paid, NOON - HOUR, NOON, "finished")

    def books(top_up: TopUp) -> Books:
        return Books({paid.attempt: paid}, {paid.attempt: closing}, {top_up.id: top_up})

    assert fits(config, an_opening(), books(a_top_up())) is None
    assert fits(config, an_opening(), books(a_top_up("team vision"))) is not None
    assert fits(config, an_opening(), books(a_top_up()), NOON + HOUR) is not None
    assert fits(config, an_opening(), books(a_top_up(granted_at=NOON - 24 * HOUR, lasts=48 * HOUR))) is not None
    standing = summary(books(a_top_up()), config, NOON).fleet.day
    assert (standing.limit, standing.topped_up, standing.left) == (Decimal(3), Decimal(5), Decimal(6))


def test_a_top_up_never_counts_for_later_periods() -> None:
    shortfall = fits(with_budget(daily="3 USD"), an_opening(max_seconds=2 * HOUR), with_top_up(a_top_up()))
    assert shortfall is not None
    assert shortfall.period == "later day"


def test_a_budget_lowered_below_what_is_spent_lets_nothing_new_through_and_says_so() -> None:
    books = some_books(an_opening(attempt=Attempt("other", 1)))
    config = with_budget(daily="1 USD")
    shortfall = fits(config, an_opening(gpus=1), books)
    assert shortfall is not None
    assert shortfall.left_usd == 0
    standing = summary(books, config, NOON).fleet.day
    assert (standing.overdrawn, standing.left, standing.overshoot) == (True, Decimal(0), Decimal(1))


def test_attempts_of_a_budget_that_was_soft_count_what_they_have_run_once_it_is_hard() -> None:
    books = some_books(an_opening(attempt=Attempt("old", 1), hard=False, opened_at=NOON))
    config = with_budget(daily="10 USD")
    assert summary(books, config, NOON + HOUR).fleet.day.committed == Decimal(2)
    assert summary(books, config, NOON + 4 * HOUR).fleet.day.committed == Decimal(8)
    assert fits(config, an_opening(opened_at=NOON + 4 * HOUR, max_seconds=2 * HOUR), books, NOON + 4 * HOUR) is not None


def test_the_tightest_budget_is_the_running_period_with_the_least_left() -> None:
    config = a_config(
        budget={"daily": "100 USD", "monthly": "1000 USD"},
        teams={"vision": a_team("vision", budget={"weekly": "9 USD"})},
    )
    found = Accounts(some_books(), config, NOON).tightest(an_opening())
    assert found == Shortfall("team vision", "week", Decimal(9), Decimal(9), Decimal(2))
    assert Accounts(some_books(), a_config(), NOON).tightest(an_opening()) is None


def test_an_opening_may_not_be_older_than_the_running_periods() -> None:
    config = a_config(
        budget={"monthly": "100 USD"},
        teams={"vision": a_team("vision", budget={"daily": "9 USD", "time_zone": "Asia/Tokyo"})},
    )
    accounts = Accounts(some_books(), config, NOON)
    assert accounts.earliest_opening("vision") == at("2026-11-20T15:00")
    assert accounts.earliest_opening("nlp") == at("2026-11-01")


def test_thresholds_are_reached_by_spent_and_committed_money() -> None:
    config = a_config(budget={"daily": "4 USD", "weekly": "100 USD"}, projects={"llm": PROJECT})
    found = reached(summary(some_books(an_opening(project="llm")), config, NOON), config)
    two = Decimal(2)
    assert found == (
        Reached("fleet", "day", TODAY.start, 0.5, two, Decimal(4)),
        Reached("project llm", "week", week_of(NOON).start, 0.5, two, Decimal(3)),
    )
    assert reached(summary(some_books(), with_budget(daily="0 USD"), NOON), with_budget(daily="0 USD")) == ()


def test_a_clock_that_was_set_back_does_not_hide_what_was_opened() -> None:
    opening = an_opening(opened_at=NOON + 13 * HOUR)
    assert at_stake_in(opening, TODAY, NOON) == Decimal(2)
    assert at_stake_in(opening, TOMORROW, NOON) == Decimal(2)


def test_an_absurd_amount_does_not_break_the_sums() -> None:
    books = some_books(an_opening(committed_usd=Decimal("1e20"), max_seconds=3e10))
    assert summary(books, with_budget(daily="1 USD"), NOON).fleet.day.overdrawn
