"""What the agent measures of its own work, by comparing what it sees now with what it saw a moment before.

Counted are job starts alone, each once: on another flavor than sent to, before an older equal, how long after the job
might leave, and how far from its first forecast. A restarted agent does not count what started before it looked, so
nothing is counted twice; what started while nobody looked is not counted.

Invariant: what is remembered is of jobs that the last snapshot had.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Final

from runtime import metrics
from runtime.routing.decision import Decision
from runtime.routing.snapshot import WAITING_STAGES, Job, Stage
from runtime.routing.verdict import Code
from runtime.simulation.told import Forecast
from stacks.agent_config import AgentConfig

_WAITING: Final = frozenset(WAITING_STAGES) - {Stage.RECALLING, Stage.EVICTED}
"""A job on its way back to a queue neither starts nor could have started."""
_RUNNING: Final = frozenset({Stage.RUNNING_LOCAL, Stage.RUNNING_CLOUD})
_ON_ITS_WAY: Final = frozenset({None, Code.WAITING, Code.RELEASED, Code.CLEARED})
"""Verdicts under which nothing but its wait keeps a job."""

RACE_SECONDS: Final = 2.0
"""Real seconds within which two jobs count as having come at once: Kueue stamps whole seconds, and requeues in
batches of one."""

_Shape = tuple[str, str, int, int, str | None]


class Measures:
    """Remembers what is needed of the last snapshot."""

    def __init__(self) -> None:
        self._waiting: dict[str, Job] = {}
        self._eligible_at: dict[str, float] = {}
        self._starting: set[str] = set()
        self._foreseen: dict[str, float] = {}

    def decided(self, decision: Decision) -> None:
        """Look at a decision: since when jobs may leave, and which were cleared although they would fit locally."""
        for release in decision.releases:
            earliest = release.verdict.facts.get("earliest_at")
            kept_by_wait = release.job.verdict_code in _ON_ITS_WAY and isinstance(earliest, int | float)
            at = min(float(earliest), decision.decided_at) if kept_by_wait and earliest else decision.decided_at
            self._eligible_at.setdefault(release.job.uid, at)
        for clear in decision.clears:
            if clear.verdict.facts.get("local_room"):
                metrics.cloud_starts_with_local_room.labels(team=clear.job.team).inc()

    def forecast(self, forecasts: Mapping[str, Forecast]) -> None:
        """Keep the first start that each job was told."""
        for uid, told in forecasts.items():
            if told.start_at is not None:
                self._foreseen.setdefault(uid, told.start_at)

    def observe(self, jobs: Iterable[Job], config: AgentConfig) -> None:
        """Count what started since the last snapshot."""
        waiting: dict[str, Job] = {}
        started: list[Job] = []
        looked_for: list[Job] = []
        for job in jobs:
            if job.stage in _WAITING:
                waiting[job.uid] = job
            elif job.uid in self._waiting and job.stage in _RUNNING:
                started.append(job)
            elif job.uid in self._starting:
                looked_for.append(job)
        for job in started:
            self._count_start(job)
        self._count_inversions(started, waiting.values(), config)
        self._count_delays(started, looked_for)
        self._waiting = waiting
        self._eligible_at = {
            uid: at for uid, at in self._eligible_at.items() if uid in waiting or uid in self._starting
        }
        self._foreseen = {uid: at for uid, at in self._foreseen.items() if uid in waiting}

    def _count_start(self, job: Job) -> None:
        if job.stage is Stage.RUNNING_CLOUD and job.target is not None and job.flavor != job.target:
            metrics.misroutes.labels(team=job.team, flavor=job.target).inc()
        if (foreseen := self._foreseen.get(job.uid)) is not None and job.ready_at is not None:
            metrics.forecast_error_seconds.observe(abs(foreseen - job.ready_at))

    def _count_inversions(self, started: list[Job], waiting: Iterable[Job], config: AgentConfig) -> None:
        if not started:
            return
        older: dict[_Shape, list[Job]] = defaultdict(list)
        for job in waiting:
            if job.reserved_at is None:
                older[_shape(job)].append(job)
        race = RACE_SECONDS * config.replay_speed
        for job in started:
            if any(_overtaken(other, job, race) for other in older.get(_shape(job), ())):
                place = "local" if job.stage is Stage.RUNNING_LOCAL else "cloud"
                metrics.fifo_inversions.labels(team=job.team, place=place).inc()

    def _count_delays(self, started: Iterable[Job], looked_for: Iterable[Job]) -> None:
        """Pods become ready later than Kueue admits the job; a job that ends before they were seen to counts too."""
        still: set[str] = set()
        for job in (*started, *looked_for):
            if job.uid not in self._eligible_at:
                continue
            if job.stage is Stage.RUNNING_CLOUD and job.pods_ready_at is None:
                still.add(job.uid)
            elif job.stage is not Stage.RUNNING_LOCAL and (at := job.pods_ready_at or job.ready_at) is not None:
                delay = max(0.0, at - self._eligible_at[job.uid])
                metrics.eligible_to_running_seconds.labels(team=job.team).observe(delay)
        self._starting = still


def _shape(job: Job) -> _Shape:
    return job.team, job.job_class, job.priority, job.gpus, job.gpu


def _overtaken(older: Job, job: Job, race: float) -> bool:
    """Whether the older job waited all the while that the younger one did, and could have started in its place."""
    could = job.stage is Stage.RUNNING_LOCAL or older.target == job.target
    reserved_at = job.reserved_at if job.reserved_at is not None else job.created_at
    return could and older.created_at + race < job.created_at and older.waits_since + race < reserved_at
