"""When windows are open, above all on the days on which clocks are changed."""

from __future__ import annotations

from datetime import UTC, datetime, time, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stacks.quantities import WeeklyWindow, parse_window

QUARTER = timedelta(minutes=15)
BERLIN = ZoneInfo("Europe/Berlin")

CHANGES = [
    ("Europe/Berlin", datetime(2026, 3, 29, 1, tzinfo=UTC)),
    ("Europe/Berlin", datetime(2026, 10, 25, 1, tzinfo=UTC)),
    ("America/New_York", datetime(2026, 3, 8, 7, tzinfo=UTC)),
    ("America/New_York", datetime(2026, 11, 1, 6, tzinfo=UTC)),
    ("Australia/Lord_Howe", datetime(2026, 4, 4, 15, tzinfo=UTC)),  # half an hour
    ("Australia/Lord_Howe", datetime(2026, 10, 3, 15, 30, tzinfo=UTC)),
    ("America/Havana", datetime(2026, 3, 8, 5, tzinfo=UTC)),  # midnight does not exist
    ("America/Havana", datetime(2026, 11, 1, 5, tzinfo=UTC)),
    ("Africa/Casablanca", datetime(2026, 3, 22, 2, tzinfo=UTC)),
    ("Pacific/Apia", datetime(2011, 12, 30, 10, tzinfo=UTC)),  # a Friday that never was
    ("Asia/Kathmandu", datetime(2026, 1, 1, tzinfo=UTC)),  # no changes, and an offset of 5:45
]


def times() -> st.SearchStrategy[time]:
    return st.builds(time, st.integers(0, 23), st.sampled_from([0, 15, 30, 45]))


def first_open_quarter(window: WeeklyWindow, moment: datetime) -> datetime:
    """The slow and obvious answer; exact, since every boundary and every change of a clock is on a quarter hour."""
    while not window.contains(moment):
        moment += QUARTER
    return moment


@settings(max_examples=50)
@given(
    st.sampled_from(CHANGES),
    st.integers(-3 * 96, 3 * 96),
    st.frozensets(st.integers(1, 7), min_size=1),
    times(),
    times(),
)
def test_the_next_opening_is_the_first_moment_that_is_inside(
    change: tuple[str, datetime], quarters: int, days: frozenset[int], start: time, end: time
) -> None:
    zone, at = change
    if start == end:
        start = end = time()
    window = WeeklyWindow(days, start, end, zone)
    moment = at + quarters * QUARTER
    assert window.next_opening(moment) == first_open_quarter(window, moment)
    assert window.next_opening(moment.astimezone(ZoneInfo(zone))) == window.next_opening(moment)
    assert parse_window(str(window)) == window


@settings(max_examples=50)
@given(
    st.sampled_from(CHANGES),
    st.timedeltas(timedelta(days=-400), timedelta(days=400)),
    st.frozensets(st.integers(1, 7), min_size=1),
    st.floats(0, 1),
)
def test_nothing_between_a_moment_and_the_next_opening_is_inside(
    change: tuple[str, datetime], distance: timedelta, days: frozenset[int], share: float
) -> None:
    window = WeeklyWindow(days, time(22, 10), time(5, 50), change[0])
    moment = change[1] + distance
    opening = window.next_opening(moment)
    assert opening >= moment
    assert window.contains(opening)
    if opening > moment:
        just_before = opening - timedelta(microseconds=1)
        assert not window.contains(just_before)
        assert not window.contains(moment + (just_before - moment) * share)


@pytest.mark.parametrize(
    ("text", "inside", "outside"),
    [
        ("22:00-06:00 UTC", ["2026-01-05T22:00Z", "2026-01-06T05:59Z"], ["2026-01-05T21:59Z", "2026-01-06T06:00Z"]),
        # The window that starts on Friday ends on Saturday; the one of Monday has no Sunday before it.
        ("Mon-Fri 20:00-08:00 UTC", ["2026-01-10T07:59Z", "2026-01-05T20:00Z"], ["2026-01-05T07:00Z", "2026-01-10T20:00Z"]),
        ("Sat-Sun 00:00-24:00 UTC", ["2026-01-10T00:00Z", "2026-01-11T23:59Z"], ["2026-01-09T23:59Z", "2026-01-12T00:00Z"]),
        ("18:00-24:00 UTC", ["2026-01-05T23:59Z"], ["2026-01-06T00:00Z"]),
    ],
)  # fmt: skip
def test_a_window_is_open_from_its_start_to_just_before_its_end(
    text: str, inside: list[str], outside: list[str]
) -> None:
    window = parse_window(text)
    assert all(window.contains(datetime.fromisoformat(moment)) for moment in inside)
    assert not any(window.contains(datetime.fromisoformat(moment)) for moment in outside)


def test_a_night_keeps_its_local_hours_in_summer_and_winter() -> None:
    window = parse_window("22:00-06:00 Europe/Berlin")
    assert window.next_opening(datetime(2026, 1, 10, 12, tzinfo=UTC)) == datetime(2026, 1, 10, 21, tzinfo=UTC)
    assert window.next_opening(datetime(2026, 7, 10, 12, tzinfo=UTC)) == datetime(2026, 7, 10, 20, tzinfo=UTC)


def test_a_start_that_summer_time_skips_moves_to_the_first_moment_that_exists() -> None:
    window = parse_window("Sun 02:30-04:00 Europe/Berlin")
    opening = window.next_opening(datetime(2026, 3, 28, 12, tzinfo=UTC))
    assert opening.astimezone(BERLIN).isoformat() == "2026-03-29T03:00:00+02:00"


def test_a_window_that_summer_time_skips_entirely_opens_a_week_later() -> None:
    window = parse_window("Sun 02:00-03:00 Europe/Berlin")
    opening = window.next_opening(datetime(2026, 3, 28, 12, tzinfo=UTC))
    assert opening.astimezone(BERLIN).isoformat() == "2026-04-05T02:00:00+02:00"


def test_a_window_inside_the_hour_that_comes_twice_opens_twice() -> None:
    window = parse_window("02:15-02:45 Europe/Berlin")
    first = window.next_opening(datetime(2026, 10, 24, 12, tzinfo=UTC))
    second = window.next_opening(first + timedelta(minutes=30))
    assert [moment.astimezone(BERLIN).isoformat() for moment in (first, second)] == [
        "2026-10-25T02:15:00+02:00",
        "2026-10-25T02:15:00+01:00",
    ]


def test_the_next_opening_of_an_open_window_is_now_in_utc() -> None:
    moment = datetime(2026, 1, 5, 23, tzinfo=BERLIN)
    opening = parse_window("22:00-06:00 Europe/Berlin").next_opening(moment)
    assert opening == moment
    assert opening.tzinfo is UTC


def test_a_moment_without_a_time_zone_is_refused() -> None:
    window = parse_window("22:00-06:00 UTC")
    with pytest.raises(ValueError, match="needs a time zone"):
        window.contains(datetime(2026, 1, 5))
    with pytest.raises(ValueError, match="needs a time zone"):
        window.next_opening(datetime(2026, 1, 5))


def test_a_window_without_days_or_length_cannot_be_made() -> None:
    with pytest.raises(ValueError, match="at least one day"):
        WeeklyWindow(frozenset(), time(1), time(2), "UTC")
    with pytest.raises(ValueError, match="same time"):
        WeeklyWindow(frozenset({1}), time(1), time(1), "UTC")
