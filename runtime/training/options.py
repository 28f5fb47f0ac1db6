"""What a session is told once, and when it is time to save again."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final

RETRY_SECONDS: Final = 60.0
"""After a save that failed, unless it would be time sooner."""


@dataclass(frozen=True, slots=True)
class Options:
    """How often to save, and where requests and answers go. A time or a number of steps may be None: never."""

    every_seconds: float | None = 600.0
    every_steps: int | None = None
    agree_every: int = 1
    request_file: Path | None = None
    termination_log: Path | None = None
    metrics_file: Path | None = None
    hook_port: int | None = None

    def __post_init__(self) -> None:
        for name in ("every_seconds", "every_steps", "agree_every"):
            value = getattr(self, name)
            if value is not None and not value > 0:
                raise ValueError(f"{name} is {value}: it must be more than 0")


class Timetable:
    """When the next save is due. By the monotonic clock, so that setting the machine's clock changes nothing."""

    def __init__(self, options: Options) -> None:
        self._every_seconds = math.inf if options.every_seconds is None else options.every_seconds
        self._every_steps = math.inf if options.every_steps is None else options.every_steps
        self.saved(0)

    def saved(self, done: int) -> None:
        """Count from now, and from this step."""
        self._saved_at = time.monotonic()
        self._due_at = self._saved_at + self._every_seconds
        self.due_step = done + self._every_steps

    def failed(self, done: int) -> None:
        """Try again soon, but not at every step."""
        self._due_at = time.monotonic() + min(RETRY_SECONDS, self._every_seconds)
        self.due_step = done + self._every_steps

    def due(self, done: int, now: float) -> bool:
        """Whether it is time to save."""
        return now >= self._due_at or done >= self.due_step

    def age(self) -> float:
        """Seconds since the last save."""
        return max(0.0, time.monotonic() - self._saved_at)
