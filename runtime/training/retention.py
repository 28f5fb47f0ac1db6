"""Which checkpoints stay: pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Retention:
    """The last `last` checkpoints stay, and every one whose step is a multiple of `every`.

    At least two, so that one that turns out to be torn leaves another.
    """

    last: int = 3
    every: int | None = None

    def __post_init__(self) -> None:
        if self.last < 2:
            raise ValueError(f"keep_last is {self.last}: at least 2, so that a torn checkpoint leaves another")
        if self.every is not None and self.every < 1:
            raise ValueError(f"keep_every is {self.every}: a number of steps, or None to keep only the last ones")

    def superfluous(self, steps: Iterable[int]) -> list[int]:
        """Those of `steps` that may go, oldest first."""
        ordered = sorted(set(steps))
        return [step for step in ordered[: -self.last] if self.every is None or step % self.every]
