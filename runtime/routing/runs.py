"""Remembers how long finished jobs ran, also after their Workloads are gone, and sums it up as a History.

The memory is this process's own: a restarted agent begins with the finished Workloads that are still in the cluster.
Losing it makes estimates coarser and nothing worse.

Invariants: at most `REMEMBERED` runs are kept, the latest; the same finished job counts once.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from runtime.routing.history import NO_HISTORY, History, Ran, history_of
from runtime.routing.snapshot import Job, Stage

REMEMBERED: Final = 5_000
"""Fifty runs of each of a hundred stems; a few MB."""

REFRESH_SECONDS: Final = 30.0
"""Real seconds for which a History serves; what one more run changes in an estimate can wait so long."""


class Runs:
    """The memory; `history` is the only way in and out."""

    def __init__(self) -> None:
        self._runs: dict[str, Ran] = {}
        self._history = NO_HISTORY
        self._due_at = float("-inf")

    def history(self, jobs: Iterable[Job], monotonic: float) -> History:
        """What is known of run times; looks at the jobs at most every REFRESH_SECONDS of a clock that never jumps."""
        if monotonic < self._due_at:
            return self._history
        self._due_at = monotonic + REFRESH_SECONDS
        found = {job.uid: run for job in jobs if (run := _run(job)) is not None and job.uid not in self._runs}
        if found:
            self._runs |= found
            if len(self._runs) > REMEMBERED:
                latest = sorted(self._runs.values(), key=lambda run: (-run.ended_at, run.uid))[:REMEMBERED]
                self._runs = {run.uid: run for run in latest}
            self._history = history_of(self._runs.values())
        return self._history


def _run(job: Job) -> Ran | None:
    if job.stage is not Stage.FINISHED or job.ran_seconds is None or job.released_quota_at is None:
        return None
    return Ran(job.uid, job.team, job.owner_name, job.job_class, job.ran_seconds, job.released_quota_at)
