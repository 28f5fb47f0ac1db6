"""What `gpufleet chaos` tells people: what a drill will do, and what it has shown."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import timedelta

from infra.chaos.nodes import Target
from infra.chaos.planning import Plan
from infra.chaos.report import STAGES, DrillReport, JobReport
from infra.chaos.terms import DrillTerms
from infra.commands.columns import ABSENT, columns
from stacks.quantities import format_duration

_HEADING = ["JOB", "GPUS", *(stage.upper() for stage in STAGES), "LOST-GPU-S", "EVICTED", "RETRIES", "OUTCOME"]


def plan_lines(plan: Plan) -> Iterator[str]:
    """Say what the drill will do, before it does."""
    terms, targets, workloads = plan.terms, plan.targets, plan.workloads
    notice = _duration(terms.notice_seconds)
    yield (
        f"drill: {terms.kind.value} notice of {notice} for {len(targets)} node{'s'[: len(targets) != 1]} of pool "
        f"{terms.pool}{_in_turn(terms, targets)} (seed {terms.seed})"
    )
    for target in targets:
        cordoned = ", cordoned by somebody else, which stays" if target.cordoned else ""
        yield f"  {target.name}: {target.gpu_pods} running GPU pod{'s'[: target.gpu_pods != 1]}{cordoned}"
    yield f"  Workloads concerned: {len(workloads)}" + (f" ({', '.join(workloads)})" if workloads else "")
    if not terms.certain:
        yield f"  a warning only: jobs are asked to save and run on; it is taken back after {notice}"
    elif plan.loses:
        away = _duration(terms.away_seconds)
        yield f"  at the deadline each Node and its pods are deleted; it comes back {away} later"
    else:
        yield f"  the machines stay; the notice is taken back {_duration(terms.away_seconds)} after the deadline"


def report_lines(report: DrillReport) -> Iterator[str]:
    """The table of jobs, and what it comes to."""
    yield from columns(_HEADING, [_cells(job) for job in report.jobs])
    spread = report.spread()
    yield "seconds, median / maximum: " + "; ".join(
        f"{stage} {value[0]:.1f} / {value[1]:.1f}" for stage, value in spread.items() if value is not None
    )
    yield "SAVED is since the job was asked, every other time since the notice; all are real seconds"
    yield (
        f"drill {report.run}: {len(report.jobs)} jobs, {len(report.lost)} lost, {report.lost_gpu_seconds:,.1f} "
        "GPU-seconds to compute again"
    )


def trouble_lines(report: DrillReport) -> Iterator[str]:
    """What went wrong, and where to look."""
    for name in report.lost:
        yield f"{name} is lost: gpufleet explain {name}"
    if report.missed:
        yield (
            f"nobody moved {', '.join(report.missed)}: does the agent run and lead, without dry_run "
            "(kubectl get pods -n gpufleet-system)?"
        )


def _cells(job: JobReport) -> list[object]:
    times = [getattr(job, stage) for stage in STAGES]
    shown = [ABSENT if value is None else f"{value:.1f}" for value in times]
    return [
        *(job.job, job.gpus),
        *shown,
        *(f"{job.lost_gpu_seconds:.1f}", job.evictions, job.backoff_spent, job.outcome),
    ]


def _in_turn(terms: DrillTerms, targets: Sequence[Target]) -> str:
    if len(targets) < 2:
        return ""
    return f", one every {_duration(terms.every_seconds)}" if terms.every_seconds else ", all at once"


def _duration(seconds: float) -> str:
    return format_duration(timedelta(seconds=seconds))
