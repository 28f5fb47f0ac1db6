from __future__ import annotations

from datetime import UTC, datetime
from zoneinfo import ZoneInfo, available_timezones

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from runtime.cost.periods import LATER, PERIOD_OF, Period, PeriodKind, day_of, month_of, week_of

HOUR = 3_600.0
ZONES = sorted(available_timezones() - {"localtime"})
NOW = datetime(2020, 1, 1, tzinfo=UTC).timestamp()
LATEST = datetime(2099, 1, 1, tzinfo=UTC).timestamp()


def at(text: str, zone: str = "UTC") -> float:
    return datetime.fromisoformat(text).replace(tzinfo=ZoneInfo(zone)).timestamp()


@pytest.mark.parametrize(
    ("moment", "start", "end"),
    [
        ("2026-11-21T12:00", "2026-11-01", "2026-12-01"),
        ("2026-12-31T23:59:59", "2026-12-01", "2027-01-01"),
        ("2028-02-29T00:00", "2028-02-01", "2028-03-01"),
        ("2027-01-01T00:00", "2027-01-01", "2027-02-01"),
    ],
)
@pytest.mark.parametrize("zone", ["UTC", "America/New_York", "Pacific/Kiritimati"])
def test_a_month_is_the_calendar_month_of_its_zone(moment: str, start: str, end: str, zone: str) -> None:
    assert month_of(at(moment, zone), zone) == Period(at(start, zone), at(end, zone))


@pytest.mark.parametrize(("moment", "monday"), [("2026-11-22T23:59", "2026-11-16"), ("2027-01-01", "2026-12-28")])
def test_a_week_begins_on_monday(moment: str, monday: str) -> None:
    assert week_of(at(moment)) == Period(at(monday), at(monday) + 7 * 24 * HOUR)


@pytest.mark.parametrize(
    ("moment", "zone", "hours"),
    [
        ("2026-03-29T12:00", "Europe/Berlin", 23),
        ("2026-10-25T12:00", "Europe/Berlin", 25),
        ("2026-10-25T12:00", "UTC", 24),
        ("2026-10-25T12:00", "Antarctica/Troll", 26),
        ("2026-10-04T12:00", "Australia/Lord_Howe", 23.5),
        ("2026-03-08T12:00", "America/Havana", 23),  # there is no midnight: the clock goes from 0:00 to 1:00
        ("2026-11-01T12:00", "America/Havana", 25),  # there are two midnights
    ],
)
def test_a_day_is_as_long_as_the_change_of_the_clock_makes_it(moment: str, zone: str, hours: float) -> None:
    day = day_of(at(moment, zone), zone)
    assert day.end - day.start == hours * HOUR


def test_a_clock_that_is_turned_back_over_midnight_does_not_bring_yesterday_back() -> None:
    # In 2010 the clocks of St John's went from 00:01 back to 23:01, so that midnight came twice.
    first_midnight = at("2010-11-07", "America/St_Johns")
    days = [day_of(first_midnight + minutes * 60, "America/St_Johns") for minutes in (0, 30, 90)]
    assert {day.start for day in days} == {first_midnight}


def test_a_day_that_the_calendar_left_out_holds_no_moment() -> None:
    zone = "Pacific/Apia"  # there was no 30 December 2011
    eve = day_of(at("2011-12-29T12:00", zone), zone)
    assert day_of(eve.end, zone) == Period(eve.end, eve.end + 24 * HOUR)


@settings(max_examples=150)
@given(st.floats(NOW, LATEST), st.sampled_from(ZONES))
def test_periods_contain_their_moment_follow_without_gaps_and_are_never_longer_than_a_later_one(
    moment: float, zone: str
) -> None:
    kinds: tuple[PeriodKind, ...] = ("day", "week", "month")
    for kind in kinds:
        period = PERIOD_OF[kind](moment, zone)
        assert period.start <= moment < period.end
        following, later = PERIOD_OF[kind](period.end, zone), LATER[kind](moment, zone)
        assert following.start == period.end == later.start
        assert following.end <= later.end


@pytest.mark.parametrize(
    ("zone", "eve"), [("Europe/Berlin", "2026-10-24T12:00"), ("Antarctica/Troll", "2026-10-24T12:00")]
)
def test_a_later_period_is_as_long_as_the_longest(zone: str, eve: str) -> None:
    lengths = {kind: later(at(eve, zone), zone) for kind, later in LATER.items()}
    longest_day = day_of(at("2026-10-25T12:00", zone), zone)
    assert lengths["day"].end - lengths["day"].start >= longest_day.end - longest_day.start
    assert lengths["week"].end - lengths["week"].start >= 7 * 24 * HOUR + 2 * HOUR
    assert lengths["month"].end - lengths["month"].start >= 31 * 24 * HOUR + 2 * HOUR
