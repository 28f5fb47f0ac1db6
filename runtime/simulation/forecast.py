"""When each waiting job is expected to start, and where: its place in its team's queue, and a run forward from now.

Only the jobs nearest to the front of their team's queue are run forward, so that the work is bounded whatever waits;
those behind them are left out of the run as if they came later. A forecast is no promise: it knows no job that is yet
to be submitted, and takes run times as they are expected.

Invariants: every job that waits has a forecast, with a start or with a reason why there is none; equal snapshots give
equal forecasts, in whatever order their jobs come.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Final

from runtime.routing.snapshot import QUEUED_STAGES, WAITING_STAGES, Job, Snapshot
from runtime.simulation.floor import order
from runtime.simulation.run import MOST_STEPS, Run
from runtime.simulation.told import BEYOND_HORIZON, FAR_BACK, Forecast
from stacks.agent_config import AgentConfig

__all__ = ["MOST_JOBS", "Forecast", "forecast", "positions"]

MOST_JOBS: Final = 300
"""Jobs that are run forward, over all teams: people ask about the front of a queue, and so many take half a second."""


def forecast(
    snapshot: Snapshot, config: AgentConfig, now: float, *, most_jobs: int = MOST_JOBS, most_steps: int = MOST_STEPS
) -> Mapping[str, Forecast]:
    """Run the queue forward and say of each waiting job, by its UID, when and where it starts.

    Args:
        snapshot: what the agent sees; its jobs may come in any order.
        config: the fleet, as the agent was told.
        now: fleet time, seconds since the epoch.
        most_jobs: how many waiting jobs are run forward, the first of every team before the second of any.
        most_steps: how many moments at which something happens are looked at.
    """
    places = positions(snapshot.jobs)
    waiting = [job for job in snapshot.jobs if job.stage in WAITING_STAGES]
    waiting.sort(key=lambda job: (places.get(job.uid, 0), job.team, job.uid))
    near = frozenset(job.uid for job in waiting[:most_jobs])
    run = Run(snapshot, config, now, near)
    run.forward(most_steps)
    return {job.uid: _told(run, job.uid, places.get(job.uid), near=job.uid in near) for job in waiting}


def positions(jobs: Iterable[Job]) -> dict[str, int]:
    """Places from 1 in each team's queue, by UID: by priority, then the older first, as Kueue tries them."""
    places: dict[str, int] = {}
    counts: dict[str, int] = defaultdict(int)
    for job in sorted(jobs, key=order):
        if job.stage in QUEUED_STAGES:
            counts[job.team] += 1
            places[job.uid] = counts[job.team]
    return places


def _told(run: Run, uid: str, position: int | None, *, near: bool) -> Forecast:
    if not near:
        return Forecast(position, reason=FAR_BACK)
    reason, scope = run.reasons.get(uid, ("", ""))
    if (start := run.starts.get(uid)) is not None:
        return Forecast(position, start.at, start.flavor, reason, scope)
    return Forecast(position, reason=reason or BEYOND_HORIZON, scope=scope)
