"""What a drill is asked to do."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from infra.local.errors import LocalError
from runtime.eviction.notice import Certainty, NoticeKind

SOURCE: Final = "drill"
"""The source of every notice of a drill, by which it is told from real ones."""

MOST_NODES: Final = 50
"""Nodes of one drill: what it must remember of each is kept in one ConfigMap, which holds 1 MiB."""

LONGEST_NOTICE_SECONDS: Final = 3_600.0
"""No provider gives a spot machine more, and a drill holds its nodes for as long."""


class ChaosError(LocalError):
    """The drill cannot be run, or its traces cannot be removed."""


class DrillKind(StrEnum):
    """What the nodes are said to face."""

    SPOT = "spot"
    REBALANCE = "rebalance"
    MAINTENANCE = "maintenance"

    @property
    def notice(self) -> NoticeKind:
        """The kind of its notices."""
        return {
            DrillKind.SPOT: NoticeKind.SPOT,
            DrillKind.REBALANCE: NoticeKind.REBALANCE,
            DrillKind.MAINTENANCE: NoticeKind.MAINTENANCE,
        }[self]

    @property
    def certainty(self) -> Certainty:
        """Whether the nodes go: a recommendation to rebalance is only a warning."""
        return Certainty.LIKELY if self is DrillKind.REBALANCE else Certainty.CERTAIN


@dataclass(frozen=True, slots=True)
class DrillTerms:
    """One drill; all times are real seconds.

    A node is told `every_seconds` after the one before it, goes `notice_seconds` later, and is back `away_seconds`
    after that. Jobs have `patience_seconds` from then on to run again. `lose_nodes` says that machines which are not
    simulated are lost, too.
    """

    pool: str
    nodes: int
    kind: DrillKind
    notice_seconds: float
    every_seconds: float
    away_seconds: float
    patience_seconds: float
    seed: int
    lose_nodes: bool = False

    @property
    def certain(self) -> bool:
        """Whether the nodes go."""
        return self.kind.certainty is Certainty.CERTAIN
