"""What `evictions` and `explain` say of jobs whose nodes went: in a table by class, and as the story of one job.

Nothing is reckoned anew here; every number is the ledger's (runtime.cost.reliability says what each means), but since
when a job runs again, which is the cluster's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from infra.commands.columns import columns
from runtime.clock import format_time
from runtime.cost.entries import loss_to_dict
from runtime.cost.ledger import SECONDS_PER_HOUR
from runtime.cost.losses import Loss
from runtime.cost.reliability import Reliability, added_up
from runtime.eviction.view import Marker
from runtime.routing.snapshot import Job, Stage
from stacks.quantities import format_duration

MOST_TOLD: Final = 5
"""Evictions of one job that are told one by one, the last ones."""

_MOST_NODES_NAMED: Final = 3
_MINUTE: Final = 60
_RUNNING: Final = frozenset({Stage.RUNNING_LOCAL, Stage.RUNNING_CLOUD})
_COUNTS: Final = ("JOBS", "ATTEMPTS", "PER-JOB", "EVICTIONS", "ANSWERED", "RESUMED", "LOST-GPU-HOURS", "SUCCESS")


@dataclass(frozen=True, slots=True)
class Evicted:
    """The evictions of one job: in a sentence, and as they stand in the ledger, as far as that can be read."""

    sentence: str
    losses: tuple[Loss, ...] = ()


NEVER_EVICTED: Final = Evicted("")


def table(found: Mapping[tuple[str, str], Reliability]) -> list[str]:
    """A line for each class, and one for all where there are several."""
    rows = by_class(found)
    cells = [_cells(name, row) for name, row in rows.items()]
    if len(rows) > 1:
        cells.append(_cells("all", added_up(rows.values())))
    return columns(["CLASS", *_COUNTS], cells)


def by_class(found: Mapping[tuple[str, str], Reliability]) -> dict[str, Reliability]:
    """The rows of all teams added up, by class."""
    names = sorted({job_class for _, job_class in found})
    return {name: added_up(row for (_, job_class), row in found.items() if job_class == name) for name in names}


def row_of(found: Reliability) -> dict[str, Any]:
    """What is known of some jobs, for a program."""
    return {
        "jobs": found.jobs,
        "attempts": found.attempts,
        "attempts_per_job": found.attempts_per_job,
        "evictions": found.evictions,
        "answered": found.answered,
        "answered_share": found.answered_share,
        "resumed": found.resumed,
        "lost_gpu_hours": round(found.lost_gpu_hours, 6),
        "finished": found.finished,
        "failed": found.failed,
        "success_rate": found.success_rate,
    }


def runs_since(job: Job) -> float | None:
    """Since when a job runs that runs now; None for any other."""
    if job.stage not in _RUNNING:
        return None
    return next((at for at in (job.pods_ready_at, job.ready_at, job.reserved_at) if at is not None), None)


def story(losses: Sequence[Loss], running_at: float | None) -> str:
    """The evictions of one job in a sentence, the last ones in full; `losses` in their order."""
    told = losses[-MOST_TOLD:]
    last = losses[-1]
    parts = [_told(loss) for loss in told]
    if running_at is not None and running_at >= last.stopped_at:
        parts[-1] += f", running again after {_length(running_at - last.stopped_at)}"
    which = f", the last {len(told)}" if len(told) < len(losses) else ""
    total = f"; {_gpu_time(sum(loss.lost_gpu_seconds for loss in losses))} lost in all" if len(losses) > 1 else ""
    return f"evicted {_times(len(losses))}{which}: {'; '.join(parts)}{total}"


def marked(marker: Marker, why: str) -> str:
    """What the Workload itself says of its evictions; `why` says why that is all."""
    return f"evicted {_times(marker.attempts)}, last for {_cause(marker.kind, marker.nodes)}; {why}"


def losses_row(losses: Sequence[Loss]) -> list[dict[str, Any]]:
    """The evictions of one job for a program, with moments in words."""
    moments = ("noticed_at", "stopped_at", "gone_at", "checkpoint_at")
    return [
        loss_to_dict(loss) | {name: format_time(at) for name in moments if (at := getattr(loss, name)) is not None}
        for loss in losses
    ]


def _cells(name: str, found: Reliability) -> list[object]:
    per_job = found.attempts_per_job
    return [
        name,
        found.jobs,
        found.attempts,
        None if per_job is None else f"{per_job:.2f}",
        found.evictions,
        _percent(found.answered_share),
        found.resumed,
        f"{found.lost_gpu_hours:.2f}",
        _percent(found.success_rate),
    ]


def _told(loss: Loss) -> str:
    at = datetime.fromtimestamp(loss.noticed_at, UTC).strftime("%Y-%m-%d %H:%M")
    lost = f"{_gpu_time(loss.lost_gpu_seconds)} lost" if loss.lost_gpu_seconds > 0 else "nothing lost"
    return f"{at} {_cause(loss.kind, loss.nodes)}, {_checkpoint(loss)}, {lost}"


def _cause(kind: str, nodes: Sequence[str]) -> str:
    named, more = ", ".join(nodes[:_MOST_NODES_NAMED]), len(nodes) - _MOST_NODES_NAMED
    if not named:
        return kind.replace("-", " ")
    rest = f" and {more:,} more" if more > 0 else ""
    return f"{kind.replace('-', ' ')} of node{'' if len(nodes) == 1 else 's'} {named}{rest}"


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count:,} times"


def _checkpoint(loss: Loss) -> str:
    if loss.checkpoint_at is None:
        return "no checkpoint known"
    step = "" if loss.step is None else f" at step {loss.step}"
    if loss.answered:
        return f"checkpoint{step} after {_length(loss.checkpoint_at - loss.noticed_at)}"
    return f"no answer, last checkpoint{step} {_length(loss.stopped_at - loss.checkpoint_at)} before it was stopped"


def _length(seconds: float) -> str:
    return f"{max(0, round(seconds))} s" if seconds < _MINUTE else format_duration(timedelta(seconds=round(seconds)))


def _gpu_time(gpu_seconds: float) -> str:
    if gpu_seconds < _MINUTE:
        return f"{gpu_seconds:.0f} GPU-seconds"
    if gpu_seconds < SECONDS_PER_HOUR:
        return f"{gpu_seconds / _MINUTE:.0f} GPU-minutes"
    return f"{gpu_seconds / SECONDS_PER_HOUR:,.1f} GPU-hours"


def _percent(share: float | None) -> str | None:
    return None if share is None else f"{share:.0%}"
