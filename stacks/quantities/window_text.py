"""Windows of time: `22:00-06:00 Europe/Berlin`, `Sat-Sun 00:00-24:00 UTC`, `0 22 * * Mon-Fri for 8h Europe/Berlin`.

Of cron only what repeats every week at one time of day is read; steps, lists of hours, days of the month and months
have no window of one start and one end, and are refused with that reason. Both forms become the same `WeeklyWindow`.
"""

from __future__ import annotations

import re
from datetime import datetime, time, timedelta
from typing import Annotated, Final

from pydantic import PlainSerializer, PlainValidator

from stacks.quantities.calendar import EVERY_DAY, days_between, parse_days, parse_time_of_day, parse_time_zone
from stacks.quantities.durations import parse_duration
from stacks.quantities.text import text_of, text_schema
from stacks.quantities.windows import WeeklyWindow

_EXAMPLE: Final = "Mon-Fri 22:00-06:00 Europe/Berlin"
_CRON_EXAMPLE: Final = "0 22 * * Mon-Fri for 8h Europe/Berlin"
_WINDOW: Final = re.compile(
    r"([A-Za-z][A-Za-z, -]*\s)?\s*([0-9]{1,2}:[0-9]{2})\s*-\s*([0-9]{1,2}:[0-9]{2})(?:\s+(\S+))?"
)
_CRON: Final = re.compile(r"(?:[0-9*@/,?-]\S*\s+){2}\S.*|@.*")
_CRON_DAYS: Final = re.compile(r"[0-7](?:-[0-7])?")
_CRON_WORDS: Final = 8  # five fields, `for`, duration, time zone
_MINUTE: Final = timedelta(minutes=1)
_DAY: Final = timedelta(days=1)


def parse_window(value: object) -> WeeklyWindow:
    """Read a window of time in either of its forms.

    Raises:
        ValueError: for text of another form, a wrong part of it, and a cron expression that is no weekly window.
    """
    if isinstance(value, WeeklyWindow):
        return value
    text = text_of(value, "a window of time", _EXAMPLE).replace("–", "-")
    match = _WINDOW.fullmatch(text)
    if not match:
        if _CRON.fullmatch(text):
            return _parse_cron(text.split())
        raise ValueError(f"not a window of time; write days, start, end and time zone, for example {_EXAMPLE}")
    days, start, end, zone = match.groups()
    if not zone:
        raise ValueError(f"the time zone is missing; name it at the end, for example {_EXAMPLE}")
    return WeeklyWindow(
        parse_days(days) if days else EVERY_DAY,
        parse_time_of_day(start),
        time() if end == "24:00" else parse_time_of_day(end),
        parse_time_zone(zone),
    )


def _parse_cron(words: list[str]) -> WeeklyWindow:
    if len(words) != _CRON_WORDS or words[5].lower() != "for":
        raise ValueError(
            "a cron expression starts a window but does not end it; write five fields, `for`, how long, and the "
            f"time zone, for example {_CRON_EXAMPLE}"
        )
    minute, hour, day_of_month, month, weekdays, _, length, zone = words
    if not (_is_number(minute) and _is_number(hour)):
        raise ValueError(f"minute and hour of a cron window must be one number each, for example {_CRON_EXAMPLE}")
    if (day_of_month, month) != ("*", "*"):
        raise ValueError(f"a window repeats every week: day of month and month must be *, for example {_CRON_EXAMPLE}")
    start = parse_time_of_day(f"{hour}:{int(minute):02d}")
    return WeeklyWindow(_cron_days(weekdays), start, _end(start, parse_duration(length)), parse_time_zone(zone))


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= 2


def _end(start: time, length: timedelta) -> time:
    if length < _MINUTE or length > _DAY or length % _MINUTE:
        raise ValueError(f"a window lasts whole minutes, from 1m to 24h, for example {_CRON_EXAMPLE}")
    return (datetime.combine(datetime.min, start) + length).time()


def _cron_days(text: str) -> frozenset[int]:
    """Weekdays as cron numbers them: 0 and 7 are Sunday."""
    if text == "*":
        return EVERY_DAY
    if "/" in text or "#" in text or "?" in text:
        raise ValueError(f"weekdays of a cron window are a list or a range of days, for example {_CRON_EXAMPLE}")
    days: set[int] = set()
    for part in text.split(","):
        if _CRON_DAYS.fullmatch(part):
            first, last = int(part[0]) or 7, int(part[-1]) or 7
            days.update(EVERY_DAY if part == "0-7" else days_between(first, last))
        else:
            days |= parse_days(part)
    return frozenset(days)


Window = Annotated[
    WeeklyWindow,
    PlainValidator(parse_window),
    PlainSerializer(str, return_type=str),
    text_schema(
        "A part of the week in local time: days on which it starts (daily if none), start, end, time zone; "
        "or a cron expression with a length.",
        ["22:00-06:00 Europe/Berlin", "Sat-Sun 00:00-24:00 UTC", "0 22 * * Mon-Fri for 8h Europe/Berlin"],
        r"^\s*([A-Za-z][A-Za-z,\s–-]*\s)?\s*[0-9]{1,2}:[0-9]{2}\s*[–-]\s*[0-9]{1,2}:[0-9]{2}\s+\S+\s*$"
        r"|^\s*[0-9]{1,2}\s+[0-9]{1,2}\s+\*\s+\*\s+\S+\s+[Ff][Oo][Rr]\s+\S+\s+\S+\s*$",
    ),
]
"""A window of time; canonical form `Mon-Fri 22:00-06:00 Europe/Berlin`."""
