"""Calendar periods: the day, the week and the month in a time zone that contain a moment, and what follows them.

A day is what the people of the zone call one: 23 or 25 hours where the clock changes. Weeks start on Monday. Moments
are seconds since the epoch. Zones are names of the IANA database, checked where the fleet file is read.

Invariant: the periods of one kind and zone follow each other without gap or overlap.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from functools import lru_cache
from typing import Final, Literal
from zoneinfo import ZoneInfo

PeriodKind = Literal["day", "week", "month"]

DAY_SECONDS: Final = 86_400
LONGEST_CLOCK_CHANGE_SECONDS: Final = 2 * 3_600
"""Antarctica/Troll turns its clock back by two hours, more than any other zone of today's database."""
_LONGEST_DAYS: Final[Mapping[PeriodKind, int]] = {"day": 1, "week": 7, "month": 31}


@dataclass(frozen=True, slots=True)
class Period:
    """A stretch of fleet time that a limit applies to, `end` excluded."""

    start: float
    end: float


def day_of(at: float, zone: str = "UTC") -> Period:
    """The calendar day that contains `at`."""
    return _containing("day", at, zone)


def week_of(at: float, zone: str = "UTC") -> Period:
    """The week from Monday that contains `at`."""
    return _containing("week", at, zone)


def month_of(at: float, zone: str = "UTC") -> Period:
    """The calendar month that contains `at`."""
    return _containing("month", at, zone)


def later_day(at: float, zone: str = "UTC") -> Period:
    """The day after, as long as any: for what is open at `at` it stands for every later day."""
    return _later("day", at, zone)


def later_week(at: float, zone: str = "UTC") -> Period:
    """The week after, as long as any: for what is open at `at` it stands for every later week."""
    return _later("week", at, zone)


def later_month(at: float, zone: str = "UTC") -> Period:
    """The month after, as long as any: for what is open at `at` it stands for every later month."""
    return _later("month", at, zone)


PERIOD_OF: Final[Mapping[PeriodKind, Callable[[float, str], Period]]] = {
    "day": day_of,
    "week": week_of,
    "month": month_of,
}
LATER: Final[Mapping[PeriodKind, Callable[[float, str], Period]]] = {
    "day": later_day,
    "week": later_week,
    "month": later_month,
}


def _containing(kind: PeriodKind, at: float, zone: str) -> Period:
    first = _first(kind, datetime.fromtimestamp(math.floor(at), ZoneInfo(zone)).date())
    period = _period(kind, first, zone)
    if at >= period.end:  # the clock was turned back over midnight: the new day had begun once already
        period = _period(kind, _next(kind, first), zone)
    return period


def _later(kind: PeriodKind, at: float, zone: str) -> Period:
    start = _containing(kind, at, zone).end
    longest = _LONGEST_DAYS[kind] * DAY_SECONDS + (0 if zone == "UTC" else LONGEST_CLOCK_CHANGE_SECONDS)
    return Period(start, start + longest)


@lru_cache(maxsize=4_096)
def _period(kind: PeriodKind, first: date, zone: str) -> Period:
    return Period(_midnight(first, zone), _midnight(_next(kind, first), zone))


def _first(kind: PeriodKind, day: date) -> date:
    if kind == "day":
        return day
    return day - timedelta(days=day.weekday()) if kind == "week" else day.replace(day=1)


def _next(kind: PeriodKind, first: date) -> date:
    if kind == "month":
        return first.replace(year=first.year + first.month // 12, month=first.month % 12 + 1)
    return first + timedelta(days=1 if kind == "day" else 7)


def _midnight(day: date, zone: str) -> float:
    """When the day begins: the first midnight where there are two, the change of the clock where there is none."""
    return datetime(day.year, day.month, day.day, tzinfo=ZoneInfo(zone)).timestamp()
