"""What a decision consists of: actions, carried out in this order of kinds, each safe to repeat."""

from __future__ import annotations

from dataclasses import dataclass

from runtime.cost.ledger import Closing, Opening
from runtime.routing.snapshot import Job
from runtime.routing.verdict import Verdict


@dataclass(frozen=True, slots=True)
class Close:
    """Record the end of an attempt.

    `vanished` is set when no Workload of the attempt was seen. One may be there that is no longer the fleet's,
    and run on, so the end is recorded only after the API server has confirmed that it is gone.
    """

    closing: Closing
    vanished: Opening | None = None


@dataclass(frozen=True, slots=True)
class Adopt:
    """Write a running cloud job into the ledger that is not in it."""

    job: Job
    opening: Opening


@dataclass(frozen=True, slots=True)
class Clear:
    """Commit the money, then answer the gate Ready. An attempt opened earlier is cleared again without paying again."""

    job: Job
    opening: Opening
    verdict: Verdict


@dataclass(frozen=True, slots=True)
class Recall:
    """Take the job back to its team's queue: the next of the steps that its state asks for."""

    job: Job
    verdict: Verdict


@dataclass(frozen=True, slots=True)
class Requeue:
    """Put a job whose nodes were taken away into a queue again: the twin of a cloud flavor, or else its own.

    `moved` says that an administrator's wish for another flavor is over with that.
    """

    job: Job
    verdict: Verdict
    target: str | None
    moved: bool = False


@dataclass(frozen=True, slots=True)
class Move:
    """Say of a job that somebody wants elsewhere whether it goes; `over` takes the wish away. The job runs on."""

    job: Job
    verdict: Verdict
    over: bool = False


@dataclass(frozen=True, slots=True)
class Release:
    """Let the job use one cloud flavor: move it to the twin of that flavor, from its team's queue or another twin."""

    job: Job
    verdict: Verdict
    target: str


@dataclass(frozen=True, slots=True)
class Hold:
    """Leave the job where it is, and say why. Only holds whose code changed are listed."""

    job: Job
    verdict: Verdict


@dataclass(frozen=True, slots=True)
class SetQueue:
    """Hold the LocalQueue of a class outside its window, or let it go."""

    namespace: str
    queue: str
    held: bool


@dataclass(frozen=True, slots=True)
class Decision:
    """Everything to be done now, decided from one snapshot at `decided_at` (fleet time).

    `may_leave` has the running jobs for which what they are moved to is set aside: UID, and id of the wish.
    """

    id: str
    decided_at: float
    closes: tuple[Close, ...] = ()
    adoptions: tuple[Adopt, ...] = ()
    clears: tuple[Clear, ...] = ()
    recalls: tuple[Recall, ...] = ()
    requeues: tuple[Requeue, ...] = ()
    releases: tuple[Release, ...] = ()
    holds: tuple[Hold, ...] = ()
    queues: tuple[SetQueue, ...] = ()
    moves: tuple[Move, ...] = ()
    may_leave: frozenset[tuple[str, str]] = frozenset()
