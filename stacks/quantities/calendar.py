"""Times of day, days of the week and time zones: `08:00`, `Mon-Fri`, `Europe/Berlin`.

Seconds, dates and fixed offsets are left out: windows and schedules are kept by people, who think in local time.
YAML 1.1 reads an unquoted 22:00 as 1320 (base sixty), which is turned back here.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import time
from functools import cache
from typing import Annotated, Final
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError, available_timezones

from pydantic import PlainSerializer, PlainValidator, WithJsonSchema

from stacks.quantities.text import text_of, text_schema
from stacks.suggest import did_you_mean

_TIME: Final = re.compile(r"([0-9]{1,2}):([0-9]{2})")
_MINUTES_OF_DAY: Final = 24 * 60
_DAY_NAMES: Final = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
_SHORT_NAMES: Final = tuple(name[:3] for name in _DAY_NAMES)
EVERY_DAY: Final = frozenset(range(1, 8))
"""ISO weekdays: Monday is 1, Sunday is 7."""
_DAY_WORDS: Final = {"daily": EVERY_DAY, "weekdays": frozenset(range(1, 6)), "weekends": frozenset({6, 7})}
_DAYS_HELP: Final = "write them like Mon-Fri, Sat,Sun or daily"
_ZONE: Final = re.compile(r"[A-Za-z0-9_+-]+(?:/[A-Za-z0-9_+-]+)*")
_ABBREVIATIONS: Final = frozenset(  # keys of the database that look like zones of today and are relics
    {"CET", "MET", "EET", "WET", "EST", "MST", "HST", "EST5EDT", "CST6CDT", "MST7MDT", "PST8PDT"}
)
_NOT_PLACES: Final = re.compile(r"(localtime|Factory|posixrules|posix/.*|right/.*)", re.IGNORECASE)
_ZONE_HELP: Final = "name a place, for example Europe/Berlin, or UTC"


def parse_time_of_day(value: object) -> time:
    """Read `08:00`, `8:00`, or the minutes that YAML makes of an unquoted time.

    Raises:
        ValueError: for text of another form, a time past 23:59, and a number that may mean hours.
    """
    if isinstance(value, time) and not (value.second or value.microsecond or value.tzinfo):
        return value
    if isinstance(value, int) and not isinstance(value, bool):
        if value == 0 or 60 <= value < _MINUTES_OF_DAY:
            return time(*divmod(value, 60))
        raise ValueError('a bare number can mean hours or minutes; write the time in quotes, for example "08:00"')
    match = _TIME.fullmatch(text_of(value, "a time of day", "08:00"))
    if not match:
        raise ValueError("not a time of day; write hours and minutes from 00:00 to 23:59, for example 08:00")
    hours, minutes = int(match.group(1)), int(match.group(2))
    if hours > 23 or minutes > 59:
        raise ValueError("a time of day is from 00:00 to 23:59, for example 08:00")
    return time(hours, minutes)


def format_time_of_day(value: time) -> str:
    """Write a time of day in its canonical form, for example `08:00`."""
    return f"{value:%H:%M}"


def parse_days(value: object) -> frozenset[int]:
    """Read `Mon-Fri`, `Sat,Sun`, `Mon,Wed-Fri`, `daily`, or a list of such; the result is ISO weekdays.

    Raises:
        ValueError: for an unknown day, naming the nearest, and for no day at all.
    """
    if isinstance(value, frozenset):
        if not value or not all(isinstance(day, int) and day in EVERY_DAY for day in value):
            raise ValueError(f"days are ISO weekdays 1 to 7; {_DAYS_HELP}")
        return frozenset(int(day) for day in value)
    texts = value if isinstance(value, list) else [value]
    parts = [part for text in texts for part in text_of(text, "days", "Mon-Fri").replace("–", "-").split(",")]
    days = frozenset(day for part in parts for day in _days_of(part.strip()))
    if not days:
        raise ValueError(f"names no day; {_DAYS_HELP}")
    return days


def _days_of(part: str) -> Iterable[int]:
    if part.lower() in _DAY_WORDS:
        return _DAY_WORDS[part.lower()]
    first, dash, last = part.partition("-")
    start = _weekday(first.strip())
    return days_between(start, _weekday(last.strip())) if dash else (start,)


def days_between(first: int, last: int) -> Iterable[int]:
    """The ISO weekdays from one to another, over Sunday where needed."""
    return ((first - 1 + step) % 7 + 1 for step in range((last - first) % 7 + 1))


def _weekday(text: str) -> int:
    for number, name in enumerate(_DAY_NAMES, start=1):
        if len(text) >= len(_SHORT_NAMES[0]) and name.lower().startswith(text.lower()):
            return number
    raise ValueError(f"{text!r} is no day{did_you_mean(text, _SHORT_NAMES)}; {_DAYS_HELP}")


def format_days(value: Iterable[int]) -> str:
    """Write days in their canonical form, in the order of the week, for example `Mon-Fri` or `Mon,Sat-Sun`."""
    if (days := frozenset(value)) == EVERY_DAY:
        return "daily"
    runs: list[list[int]] = []
    for day in sorted(days):
        if runs and runs[-1][-1] == day - 1:
            runs[-1].append(day)
        else:
            runs.append([day])
    ends = [(_SHORT_NAMES[run[0] - 1], _SHORT_NAMES[run[-1] - 1]) for run in runs]
    return ",".join(first if first == last else f"{first}-{last}" for first, last in ends)


@cache
def _known_zones() -> dict[str, str]:
    return {key.lower(): key for key in available_timezones() - _ABBREVIATIONS if not _NOT_PLACES.fullmatch(key)}


def parse_time_zone(value: object) -> str:
    """Check the name of a time zone in the IANA database, for example `Europe/Berlin` or `UTC`.

    Raises:
        ValueError: for an abbreviation or offset (neither knows summer time), an unknown name, or a machine without
            the database.
    """
    text = text_of(value, "a time zone", "Europe/Berlin")
    if text.upper() in _ABBREVIATIONS or re.match(r"(UTC|GMT)?[+-][0-9]", text):
        raise ValueError(f"{text[:20]} says nothing about summer time; {_ZONE_HELP}")
    if _ZONE.fullmatch(text) and not _NOT_PLACES.fullmatch(text) and _loads(text):
        return text
    known = _known_zones()
    if not known:
        raise ValueError("no time zone database on this machine; install the Python package tzdata")
    if text.lower() not in known:
        raise ValueError(f"no such time zone{did_you_mean(text, known.values())}; {_ZONE_HELP}")
    return known[text.lower()]


def _loads(key: str) -> bool:
    """Whether the exact key is in the database; much faster than listing it. It falls back on the package tzdata."""
    try:
        ZoneInfo(key)
    except (ZoneInfoNotFoundError, ValueError, OSError):  # OSError: the key names a folder
        return False
    return key != key.lower()  # a file system without case would load europe/berlin


TimeOfDay = Annotated[
    time,
    PlainValidator(parse_time_of_day),
    PlainSerializer(format_time_of_day, return_type=str),
    WithJsonSchema(
        {
            "type": ["string", "integer"],
            "description": "A time of day, 24 hours.",
            "examples": ["08:00", "22:30"],
            "minimum": 0,
            "exclusiveMaximum": _MINUTES_OF_DAY,
            "pattern": r"^\s*([01]?[0-9]|2[0-3]):[0-5][0-9]\s*$",
        }
    ),
]
"""A local time of day to the minute; canonical form `08:00`."""

Days = Annotated[
    frozenset[int],
    PlainValidator(parse_days),
    PlainSerializer(format_days, return_type=str),
    WithJsonSchema(
        {
            "type": ["string", "array"],
            "description": "Days of the week.",
            "examples": ["Mon-Fri", "Sat,Sun", "daily"],
            "pattern": r"^[A-Za-z,\s–-]+$",
            "items": {"type": "string"},
            "minItems": 1,
        }
    ),
]
"""Days of the week as ISO weekdays; canonical form `Mon-Fri`."""

TimeZone = Annotated[
    str,
    PlainValidator(parse_time_zone),
    text_schema("A time zone of the IANA database.", ["Europe/Berlin", "America/New_York", "UTC"], r"^[^:]+$"),
]
"""The key of a time zone, for zoneinfo."""
