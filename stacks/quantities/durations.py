"""Lengths of time: `90s`, `4m30s`, `2h`.

Months and years are left out, because their length varies. A duration is whole milliseconds, at most ten years, and
always carries its unit: a bare number could mean seconds as well as minutes.
"""

from __future__ import annotations

import re
from datetime import timedelta
from decimal import Decimal
from typing import Annotated, Final

from pydantic import BeforeValidator, PlainSerializer, WithJsonSchema

from stacks.quantities.text import text_of

_MILLISECONDS: Final = {"d": 86_400_000, "h": 3_600_000, "m": 60_000, "s": 1_000, "ms": 1}
_PART: Final = re.compile(r"([0-9]+(?:\.[0-9]+)?)(ms|d|h|m|s)")
_DURATION: Final = re.compile(rf"(?:{_PART.pattern})+")
_SCHEMA: Final = WithJsonSchema(
    {
        "type": "string",
        "description": "A length of time with its units.",
        "examples": ["90s", "4m30s", "2h"],
        "pattern": r"^\s*([0-9][0-9. ]*([mM][sS]|[dDhHmMsS])\s*)+$",
    }
)
_LONGEST_MILLISECONDS: Final = 3_650 * _MILLISECONDS["d"]
_SHORTEST: Final = timedelta(milliseconds=1)
_HELP: Final = "write it with units d, h, m or s, for example 90s, 4m30s or 2h"


def parse_duration(value: object) -> timedelta:
    """Read `90s`, `4m30s`, `1h 30m`, `2d` or a timedelta.

    Raises:
        ValueError: for a bare number, an unknown unit, a negative or an absurdly long duration.
    """
    if isinstance(value, timedelta):
        return value
    if isinstance(value, bool) or not isinstance(value, str):
        raise ValueError("write a duration with its unit, for example 90s, 4m30s or 2h")
    text = text_of(value, "a duration", "90s, 4m30s or 2h").replace(" ", "").lower()
    if not _DURATION.fullmatch(text):
        raise ValueError(f"not a duration; {_HELP}")
    milliseconds = sum(Decimal(number) * _MILLISECONDS[unit] for number, unit in _PART.findall(text))
    if milliseconds > _LONGEST_MILLISECONDS:
        raise ValueError("longer than ten years; check the unit, for example 90s, 4m30s or 2h")
    return timedelta(milliseconds=round(milliseconds))


def format_duration(value: timedelta) -> str:
    """Write a duration in its canonical form: largest units first, no zero parts, `0s` for none."""
    milliseconds = round(value.total_seconds() * 1000)
    sign, milliseconds = ("-", -milliseconds) if milliseconds < 0 else ("", milliseconds)
    parts = []
    for unit, size in _MILLISECONDS.items():
        count, milliseconds = divmod(milliseconds, size)
        if count:
            parts.append(f"{count}{unit}")
    return sign + ("".join(parts) or "0s")


def _parse_positive(value: object) -> timedelta:
    duration = parse_duration(value)
    if duration < _SHORTEST:
        raise ValueError("must be at least 1ms, for example 500ms, 90s or 2h")
    return duration


Duration = Annotated[
    timedelta, BeforeValidator(parse_duration), PlainSerializer(format_duration, return_type=str), _SCHEMA
]
"""A length of time, zero or more; canonical form `1h30m`."""

PositiveDuration = Annotated[
    timedelta, BeforeValidator(_parse_positive), PlainSerializer(format_duration, return_type=str), _SCHEMA
]
"""A length of time above zero."""
