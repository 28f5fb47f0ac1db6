"""What one job went through in a drill, put together from looks at it.

Pure. Moments of the eviction itself are those of the marker on the Workload, by the agent's clock; that a job runs
again is taken from the looks, so it is as exact as they are frequent. The moments told are those of the first eviction;
what was lost is the sum over all of them.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from enum import StrEnum

from runtime.eviction.view import Marker, Phase
from runtime.routing.snapshot import QUEUED_STAGES, Job, Stage


class Outcome(StrEnum):
    """How a job stands."""

    UNTOUCHED = "untouched"
    """It was neither asked nor stopped yet, and runs."""

    ASKED = "asked"
    STOPPED = "stopped"
    QUEUED = "queued"
    """Sent on, and not running yet."""

    RUNNING = "running"
    """It runs again, or ran on after a warning."""

    FINISHED = "finished"
    FAILED = "failed"
    GONE = "gone"
    """Its Workload is not there any more."""


LOST = (Outcome.STOPPED, Outcome.FAILED, Outcome.GONE)
"""How no job may stand when a drill is over."""

MISSED = (Outcome.UNTOUCHED, Outcome.ASKED)
"""How a job stands whose node went, or would have gone, while nobody moved it."""

OVER = (Outcome.FINISHED, Outcome.FAILED, Outcome.GONE)


@dataclass(frozen=True, slots=True)
class Look:
    """One look at a job: None where its Workload is gone. `running` says that pods with all of its GPUs run."""

    at: float
    job: Job | None
    running: bool
    failed: bool = False


@dataclass
class Tale:
    """One job. `failed_before` counts failed pods as its Job does, None where its kind counts none."""

    job: Job
    nodes: tuple[str, ...]
    certain: bool
    failed_before: int | None = None
    failed_after: int | None = None
    outcome: Outcome = Outcome.UNTOUCHED
    flavor_after: str | None = None
    asked_at: float | None = None
    answered_at: float | None = None
    stopped_at: float | None = None
    gone_at: float | None = None
    requeued_at: float | None = None
    running_at: float | None = None
    noticed_at: float | None = None
    _losses: dict[int, Marker] = field(default_factory=dict)

    @property
    def attempts(self) -> int:
        """How often it was stopped in this drill."""
        return max((number for number in self._losses), default=self._attempts_before) - self._attempts_before

    @property
    def lost_gpu_seconds(self) -> float:
        """What it has to compute again; a loss that was not in the ledger when the next came is part of that one."""
        last = max(self._losses, default=0)
        return sum(
            marker.lost_gpu_seconds for number, marker in self._losses.items() if marker.accounted or number == last
        )

    @property
    def settled(self) -> bool:
        """Whether nothing more is to happen to it."""
        return self.outcome in (*OVER, Outcome.RUNNING)

    @property
    def _attempts_before(self) -> int:
        return 0 if self.job.eviction is None else self.job.eviction.attempts

    def see(self, look: Look, notices: Collection[str], nodes: Collection[str]) -> None:
        """Take in one look; `notices` and `nodes` are those of the drill."""
        job = look.job
        if job is not None and self._is_of_drill(job.eviction, notices, nodes):
            self._take_in(job.eviction)
        self.outcome = self._outcome(look)
        if job is not None and job.flavor is not None and self.outcome is not Outcome.UNTOUCHED:
            self.flavor_after = job.flavor
        if self.outcome is not Outcome.RUNNING:
            self.running_at = None  # stopped once more
        elif self.running_at is None:
            self.running_at = look.at

    def _is_of_drill(self, marker: Marker | None, notices: Collection[str], nodes: Collection[str]) -> bool:
        if marker is None or marker == self.job.eviction:
            return False
        meant = marker.notice in notices or bool(set(marker.nodes) & set(nodes))
        return meant and (marker.phase is not Phase.DONE or marker.attempts > self._attempts_before)

    def _take_in(self, marker: Marker | None) -> None:
        if marker is None:
            return
        if marker.phase is not Phase.ASKED:
            self._losses[marker.attempts] = marker
        if len(self._losses) > 1:
            return  # the moments are those of the first eviction
        for name in ("noticed_at", "asked_at", "stopped_at", "gone_at", "requeued_at"):
            if getattr(self, name) is None:
                setattr(self, name, getattr(marker, name))
        if self.answered_at is None and marker.answer_at is not None and marker.asked_at is not None:
            self.answered_at = max(marker.answer_at, marker.asked_at)

    def _outcome(self, look: Look) -> Outcome:
        job = look.job
        if job is None:
            # A job that ended well is often cleaned away at once.
            return self.outcome if self.outcome is Outcome.FINISHED else Outcome.GONE
        if job.stage is Stage.FINISHED:
            return Outcome.FAILED if look.failed else Outcome.FINISHED
        if job.stage in (Stage.EVICTED, Stage.STOPPED):
            return Outcome.STOPPED
        if job.stage in (*QUEUED_STAGES, Stage.AT_GATE):
            return Outcome.QUEUED
        if self._losses:
            return Outcome.RUNNING if look.running else Outcome.QUEUED
        if self.asked_at is None:
            return Outcome.UNTOUCHED
        return Outcome.ASKED if self.certain else Outcome.RUNNING
