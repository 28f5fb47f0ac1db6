"""How the processes of one job agree, from one function that they all call together.

`agree(value)` waits for every rank and returns the largest value that any of them passed, to all of them: an all-reduce
with max. Nothing else is asked of the training framework, so any means of communication will do. It never gives up on
a rank by itself; what a missing rank means is for the framework's own timeout to say.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

TOKEN_BITS: Final = 48
"""Enough that no two attempts ever draw the same, and exact in every integer and floating-point tensor."""


def _alone(value: int) -> int:
    return value


@dataclass(frozen=True, slots=True)
class Ranks:
    """One process's place among those that train together. `agree` takes and returns integers from 0 to 2^48."""

    rank: int = 0
    world: int = 1
    agree: Callable[[int], int] = _alone

    def __post_init__(self) -> None:
        if not 0 <= self.rank < self.world:
            raise ValueError(f"rank {self.rank} of {self.world}: a rank is from 0 to one less than their number")
        if self.world > 1 and self.agree is _alone:
            raise ValueError(f"{self.world} ranks need a way to agree: pass agree=, see docs/checkpointing.md")

    @property
    def first(self) -> bool:
        """Whether this is rank 0, which alone changes names in the store."""
        return self.rank == 0

    def barrier(self) -> None:
        """Wait for all."""
        self.agree(0)

    def all_well(self, well: bool) -> bool:
        """Whether all ranks are well."""
        return self.agree(0 if well else 1) == 0


ALONE: Final = Ranks()
