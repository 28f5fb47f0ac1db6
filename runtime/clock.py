"""Time, given to whoever needs it: real time, fleet time, and the way between them.

Fleet time passes `speed` times as fast as real time, counted from an origin that every start of the agent reads from
the cluster, so that a restarted agent lives in the same fleet time. With speed 1 both are one. Nothing here waits;
waiting is always in real time, on the event loop's clock.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime


@dataclass(frozen=True, slots=True)
class Clock:
    """Fleet time = origin + (real − origin) × speed; all times are seconds since the epoch."""

    origin: float = 0.0
    speed: float = 1.0
    real_now: Callable[[], float] = time.time

    def now(self) -> float:
        """The present, in fleet time."""
        return self.to_fleet(self.real_now())

    def to_fleet(self, real: float) -> float:
        """Turn a real time into fleet time."""
        return real if self.speed == 1 else self.origin + (real - self.origin) * self.speed

    def to_real(self, fleet: float) -> float:
        """Turn a fleet time into real time."""
        return fleet if self.speed == 1 else self.origin + (fleet - self.origin) / self.speed

    def duration_to_fleet(self, real_seconds: float) -> float:
        """Turn a length of real time into one of fleet time."""
        return real_seconds * self.speed


def parse_time(text: str) -> float:
    """Read an RFC 3339 time, as Kubernetes writes it, into seconds since the epoch.

    Raises:
        ValueError: when it is not a time, or says no offset.
    """
    moment = datetime.fromisoformat(text)
    if moment.tzinfo is None:
        raise ValueError(f"{text!r} has no offset from UTC; Kubernetes writes times like 2026-11-21T08:00:00Z")
    return moment.timestamp()


def format_time(real: float) -> str:
    """Write whole seconds since the epoch the way Kubernetes writes a Time."""
    return datetime.fromtimestamp(int(real), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def format_micro_time(real: float) -> str:
    """Write seconds since the epoch the way Kubernetes writes a MicroTime."""
    return datetime.fromtimestamp(real, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
