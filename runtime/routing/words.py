"""Facts of a verdict as phrases: durations, amounts of money, numbers of GPUs, times of day.

People edit annotations, so every fact may be missing or of any kind; each still gets a phrase.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Final

from runtime.routing.policy import count_gpus
from runtime.routing.verdict import Facts
from stacks.quantities import format_duration, format_usd

UNKNOWN: Final = "an unknown"
"""Stands for a fact that the verdict does not carry."""

_LATEST_TIME: Final = 253_402_300_799  # the end of the year 9999, the last that a date can have


def is_odd(value: object) -> bool:
    """Whether a value is no fact: not a string, and not a number that JSON and people can read."""
    if isinstance(value, str):
        return False
    return isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value)


class Words:
    """Reads facts as phrases, whatever the facts are."""

    def __init__(self, facts: Facts) -> None:
        self._facts: Mapping[str, object] = facts

    def has(self, name: str) -> bool:
        """Whether the verdict carries the fact."""
        return name in self._facts

    def text(self, name: str) -> str:
        """The fact as it stands."""
        value = self._facts.get(name)
        return UNKNOWN if value is None else str(value)

    def _number(self, name: str) -> float | None:
        value = self._facts.get(name)
        return None if isinstance(value, str) or is_odd(value) else float(str(value))

    def duration(self, name: str) -> str:
        """A length of time."""
        seconds = self._number(name)
        if seconds is None or abs(seconds) > timedelta.max.total_seconds() / 2:
            return f"{UNKNOWN} time"
        # Seconds stop mattering to a reader after an hour.
        grain = 60 if abs(seconds) >= 3_600 else 1
        return format_duration(timedelta(seconds=round(seconds / grain) * grain))

    def usd(self, name: str) -> str:
        """An amount of money."""
        amount = self._number(name)
        return f"{UNKNOWN} amount" if amount is None or abs(amount) > 1e15 else format_usd(Decimal(str(amount)))

    def gpus(self, name: str = "gpus") -> str:
        """A number of GPUs."""
        number = self._number(name)
        return f"{UNKNOWN} number of GPUs" if number is None else count_gpus(int(number))

    def moment(self, name: str) -> str:
        """A fleet time, in UTC."""
        seconds = self._number(name)
        if seconds is None or not 0 <= seconds <= _LATEST_TIME:
            return f"{UNKNOWN} time"
        return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%d %H:%M} UTC"
