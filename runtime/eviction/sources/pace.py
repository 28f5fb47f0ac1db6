"""How often a source is read: its interval, and a longer one while it fails.

It does not wait itself. The longest rest is short, because a notice of two minutes may stand behind the failure.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Final

LONGEST_REST_SECONDS: Final = 5.0
"""AWS asks to read its notice every 5 s; a source that is down is tried about as often."""

_FIRST_REST_SECONDS: Final = 0.25  # where the interval is nothing, as with a long poll
_GROWTH: Final = 2.0
_MOST_DOUBLINGS: Final = 16  # far beyond the longest rest, and far from what a float can hold
_JITTER: Final = 0.2


class Pace:
    """Counts failures in a row."""

    def __init__(self, interval_seconds: float, uniform: Callable[[float, float], float] = random.uniform) -> None:
        self._interval = interval_seconds
        self._uniform = uniform
        self._failures = 0

    def succeeded(self) -> None:
        """Go back to the interval."""
        self._failures = 0

    def failed(self) -> None:
        """Rest longer; called before each reading, and taken back by `succeeded`, so that no way out is forgotten."""
        self._failures += 1

    def rest(self) -> float:
        """Seconds to the next reading, a little more or less each time, so that nodes do not ask in step."""
        seconds = self._interval
        if self._failures:
            grown = max(seconds, _FIRST_REST_SECONDS) * _GROWTH ** min(self._failures, _MOST_DOUBLINGS)
            seconds = min(grown, max(seconds, LONGEST_REST_SECONDS))
        return seconds * self._uniform(1.0 - _JITTER, 1.0 + _JITTER)
