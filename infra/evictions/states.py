"""What there is in a replay of evictions: nodes, jobs, and the books of where GPU-time went. Values only."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Protocol

from infra.evictions.nodes import NodeLife


class State(Enum):
    """What a job does with the nodes that it has."""

    WAITING = auto()
    LOADING = auto()
    TRAINING = auto()
    SAVING = auto()
    HUNG = auto()
    """A node is gone, and the others wait for it."""

    ENDING = auto()
    """Told to end; it will be killed."""


@dataclass(slots=True)
class Books:
    """GPU-seconds."""

    useful: float = 0.0
    lost: float = 0.0
    """Trained, and trained again."""

    held: float = 0.0
    """Nodes that a job had while it did not train: it started, saved, hung or ended."""

    idle: float = 0.0
    """Nodes without a job."""


@dataclass(slots=True)
class SimNode:
    """A node that is there, or was."""

    number: int
    life: NodeLife
    notice_at: float | None
    present: bool = True
    noticed: bool = False
    job: SimJob | None = None
    free_since: float = 0.0


@dataclass(slots=True)
class SimJob:
    """A job without an end. `unsaved` is what it trained since its last checkpoint, in GPU-seconds."""

    number: int
    state: State = State.WAITING
    nodes: list[SimNode] = field(default_factory=list)
    since: float = 0.0
    until: float = 0.0
    turn: int = 0
    unsaved: float = 0.0
    checkpoint_at: float | None = None
    placed_at: float | None = None
    asked: Callable[[], None] | None = None
    """To be called when the save that somebody asked for is done; None where nobody did."""

    leaving: bool = False
    killed_at: float = 0.0
    runs: int = 0
    former: tuple[SimNode, ...] = ()
    """Where its last run was."""


class Way(Protocol):
    """A way of dealing with evictions."""

    cordons: bool
    """Whether new jobs are kept away from nodes under notice."""

    def noticed(self, node: SimNode) -> None:
        """The node is under notice from now on."""

    def lost(self, job: SimJob) -> None:
        """A node of the job has gone; until somebody ends it, the job hangs."""

    def ended(self, job: SimJob) -> None:
        """The job's pods are gone; somebody must queue it again."""
