"""What a drill has shown: each job's times, and whether any was lost.

`detected`, `stopped`, `gone`, `requeued` and `running` are seconds since the notice, `saved` is since the job was
asked. All are real seconds, also where fleet time runs faster.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

from infra.chaos.drill import NodeTale
from infra.chaos.tale import LOST, MISSED, Tale
from infra.chaos.terms import DrillTerms

STAGES: Final = ("detected", "saved", "stopped", "gone", "requeued", "running")
_DIGITS: Final = 3  # as exact as the markers are written


@dataclass(frozen=True, slots=True)
class JobReport:
    """One job. `backoff_spent` are the pods that its Job counts as failed since the drill began, None where unknown."""

    job: str
    workload: str
    team: str
    job_class: str
    gpus: int
    nodes: tuple[str, ...]
    outcome: str
    detected: float | None
    saved: float | None
    stopped: float | None
    gone: float | None
    requeued: float | None
    running: float | None
    evictions: int
    lost_gpu_seconds: float
    backoff_spent: int | None
    flavor: str | None
    flavor_after: str | None


@dataclass(frozen=True, slots=True)
class DrillReport:
    """One drill. `lost` and `missed` name jobs: those that did not come through, and those that nobody moved."""

    run: str
    terms: DrillTerms
    nodes: Sequence[dict[str, Any]]
    jobs: Sequence[JobReport]
    lost: Sequence[str]
    missed: Sequence[str]

    @property
    def passed(self) -> bool:
        """Whether the drill shows what it is to show."""
        return not self.lost and not self.missed

    @property
    def lost_gpu_seconds(self) -> float:
        """Over all jobs."""
        return round(sum(job.lost_gpu_seconds for job in self.jobs), _DIGITS)

    def spread(self) -> dict[str, tuple[float, float] | None]:
        """Median and maximum of each time, None where no job has it."""
        found = {}
        for stage in STAGES:
            values = [value for job in self.jobs if (value := getattr(job, stage)) is not None]
            found[stage] = (round(statistics.median(values), _DIGITS), max(values)) if values else None
        return found

    def to_dict(self) -> dict[str, Any]:
        """The report for a program."""
        spread = {
            stage: None if value is None else {"median": value[0], "max": value[1]}
            for stage, value in self.spread().items()
        }
        return {
            "run": self.run,
            "passed": self.passed,
            **asdict(self.terms),
            "machines": list(self.nodes),
            "jobs": [asdict(job) for job in self.jobs],
            "seconds": spread,
            "lost_gpu_seconds": self.lost_gpu_seconds,
            "jobs_lost": len(self.lost),
            "lost": list(self.lost),
            "missed": list(self.missed),
        }


def report(run: str, terms: DrillTerms, nodes: Sequence[NodeTale], tales: Sequence[Tale]) -> DrillReport:
    """Put the report together."""
    noticed = {node.target.name: node.noticed_at for node in nodes if node.noticed_at is not None}
    jobs = [_job(tale, noticed) for tale in tales]
    lost = [job.job for job, tale in zip(jobs, tales, strict=True) if tale.outcome in LOST]
    missed = [job.job for job, tale in zip(jobs, tales, strict=True) if tale.outcome in MISSED]
    return DrillReport(run, terms, [_node(node) for node in nodes], jobs, lost, missed)


def _job(tale: Tale, noticed: dict[str, float]) -> JobReport:
    told = [noticed[name] for name in tale.nodes if name in noticed]
    first = min(told, default=None)
    spent = None
    if tale.failed_before is not None and tale.failed_after is not None:
        spent = tale.failed_after - tale.failed_before
    return JobReport(
        job=f"{tale.job.namespace}/{tale.job.owner_name}",
        workload=f"{tale.job.namespace}/{tale.job.name}",
        team=tale.job.team,
        job_class=tale.job.job_class,
        gpus=tale.job.gpus,
        nodes=tale.nodes,
        outcome=tale.outcome.value,
        detected=_between(first, tale.stopped_at if tale.asked_at is None else tale.asked_at),
        saved=_between(tale.asked_at, tale.answered_at),
        stopped=_between(first, tale.stopped_at),
        gone=_between(first, tale.gone_at),
        requeued=_between(first, tale.requeued_at),
        running=_between(first, tale.running_at if tale.attempts else None),
        evictions=tale.attempts,
        lost_gpu_seconds=round(tale.lost_gpu_seconds, _DIGITS),
        backoff_spent=spent,
        flavor=tale.job.flavor,
        flavor_after=tale.flavor_after,
    )


def _between(start: float | None, end: float | None) -> float | None:
    """Seconds, never less than none: two clocks may differ by a little."""
    return None if start is None or end is None else round(max(0.0, end - start), _DIGITS)


def _node(node: NodeTale) -> dict[str, Any]:
    return {
        "name": node.target.name,
        "notice": node.notice,
        "gpu_pods": node.target.gpu_pods,
        "noticed_at": node.noticed_at,
        "deadline": node.deadline,
        "lost_at": node.lost_at,
        "returned_at": node.returned_at,
    }
