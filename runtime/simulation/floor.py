"""Where every job of a run stands: who waits, who holds which GPUs, and until when.

It carries out what Kueue and the agent do to jobs, and decides neither. Jobs on local GPUs are kept as a number by team
and flavor, since nothing that is decided depends on which they are.

Invariant: a job holds quota exactly from its reservation to its end or its recall.
"""

from __future__ import annotations

import heapq
import math
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Final

from runtime.routing.history import History
from runtime.routing.policy import enforced_limit, expected_runtime
from runtime.routing.snapshot import WAITING_STAGES, Job, Snapshot, Stage
from runtime.routing.verdict import Code
from runtime.simulation.quota import Quota
from stacks.agent_config import AgentConfig

_HOLDING: Final = (Stage.RUNNING_LOCAL, Stage.RUNNING_CLOUD)
_OVER: Final = (Stage.FINISHED, Stage.STOPPED)
_REMEMBERED: Final = (Code.RELEASED, Code.KEPT_LOCAL)
"""Codes by which `decide` judges."""


@dataclass(frozen=True, slots=True)
class Start:
    """When and where a job starts."""

    at: float
    flavor: str


class Floor:
    """The jobs of one run. `jobs` has those that are not on local GPUs; `starts` those that have started so far."""

    def __init__(self, snapshot: Snapshot, config: AgentConfig, now: float, near: Collection[str]) -> None:
        self.jobs: dict[str, Job] = {}
        self.starts: dict[str, Start] = {}
        self.quota = Quota(config, snapshot.capacity)
        self._config = config
        self._history: History = snapshot.history
        self._on_local: dict[tuple[str, str], int] = defaultdict(int)
        self._ends: list[tuple[float, str, int, Job]] = []
        self._begun = 0
        for job in sorted(snapshot.jobs, key=order):
            if job.stage in _HOLDING and job.flavor is not None:
                self.quota.take(job.team, job.flavor, job.gpus)
                self._run(job, self._end_of(job, now))
            elif job.uid in near or job.stage in _OVER:
                self._join(job, now)

    @property
    def next_end(self) -> float:
        """When the next job ends; never, where none runs."""
        return self._ends[0][0] if self._ends else math.inf

    def waiting(self) -> Iterator[Job]:
        """Jobs that have yet to start."""
        return (job for job in self.jobs.values() if job.stage in WAITING_STAGES)

    def on_local(self) -> Mapping[tuple[str, str], int]:
        """GPUs in use by team and local flavor."""
        return {key: gpus for key, gpus in self._on_local.items() if gpus}

    def end_until(self, moment: float) -> bool:
        """Let jobs end; whether one of them was in the cloud."""
        in_cloud = False
        while self.next_end <= moment:
            _, uid, _, job = heapq.heappop(self._ends)
            if job.flavor is None or (job.stage is Stage.RUNNING_CLOUD and self.jobs.get(uid) is not job):
                continue  # it was recalled meanwhile
            self.quota.take(job.team, job.flavor, -job.gpus)
            if job.stage is Stage.RUNNING_LOCAL:
                self._on_local[job.team, job.flavor] -= job.gpus
            else:
                in_cloud = True
                self.jobs[uid] = replace(job, stage=Stage.FINISHED, released_quota_at=moment)
        return in_cloud

    def reserve(self, job: Job, flavor: str, moment: float) -> None:
        """Kueue gives the job quota: it starts on local GPUs, or comes to the gate."""
        self.quota.take(job.team, flavor, job.gpus)
        job = replace(job, flavor=flavor, reserved_at=moment)
        if self._config.flavors[flavor].cloud:
            self.jobs[job.uid] = replace(job, stage=Stage.AT_GATE, attempt=int(moment), verdict_code=None)
        else:
            self._start(replace(job, stage=Stage.RUNNING_LOCAL), flavor, moment)

    def clear(self, job: Job, flavor: str, moment: float) -> None:
        """The gate lets the job pass."""
        self._start(
            replace(job, stage=Stage.RUNNING_CLOUD, ready_at=moment, ever_admitted=True, verdict_code=None),
            flavor,
            moment,
        )

    def release(self, job: Job, target: str, moment: float) -> None:
        """The job moves to the twin of a cloud flavor."""
        self.jobs[job.uid] = replace(
            job,
            stage=Stage.RELEASED,
            target=target,
            queue=self._config.teams[job.team].burst_queues[target],
            verdict_code=Code.RELEASED.value,
            verdict_at=moment,
        )

    def recall(self, job: Job, moment: float) -> None:
        """The job goes back to its team's queue, and gives back what it holds."""
        if job.uid not in self.jobs:
            return
        if job.flavor is not None:
            self.quota.take(job.team, job.flavor, -job.gpus)
        self.jobs[job.uid] = self._back(job, moment)

    def forget_the_ended(self) -> None:
        """Drop jobs that are over, once the ledger knows."""
        self.jobs = {uid: job for uid, job in self.jobs.items() if job.stage not in _OVER}

    def _join(self, job: Job, now: float) -> None:
        if job.stage in (Stage.RECALLING, Stage.EVICTED):
            job = self._back(job, now)
        elif job.stage in (Stage.QUEUED, Stage.AT_GATE) and job.verdict_code not in _REMEMBERED:
            job = replace(job, verdict_code=None)  # `decide` lists a hold only where its code is new
        if job.stage is Stage.AT_GATE and job.flavor is not None:
            self.quota.take(job.team, job.flavor, job.gpus)
        self.jobs[job.uid] = job

    def _back(self, job: Job, moment: float) -> Job:
        """The job in its team's queue again; a wish for its recall is fulfilled by that."""
        team = self._config.teams.get(job.team)
        return replace(
            job,
            stage=Stage.QUEUED,
            queue=team.queue if team is not None else job.queue,
            target=None,
            flavor=None,
            attempt=None,
            reserved_at=None,
            ready_at=None,
            verdict_code=None,
            waiting_since=moment if job.stage in _HOLDING else job.waiting_since,
            recall_reason=None,
        )

    def _start(self, job: Job, flavor: str, moment: float) -> None:
        self.starts.setdefault(job.uid, Start(moment, flavor))
        self._run(job, moment + expected_runtime(job, self._config, self._history).seconds)

    def _run(self, job: Job, end: float) -> None:
        self._begun += 1  # one job may begin twice in a moment, and jobs have no order
        heapq.heappush(self._ends, (end, job.uid, self._begun, job))
        if job.stage is Stage.RUNNING_LOCAL and job.flavor is not None:
            self._on_local[job.team, job.flavor] += job.gpus
            self.jobs.pop(job.uid, None)
        else:
            self.jobs[job.uid] = job

    def _end_of(self, job: Job, now: float) -> float:
        """When a running job is expected to end.

        One that has run for longer than expected is expected to run as long again: the median remaining life time of a
        process equals its age (Harchol-Balter and Downey, Exploiting process lifetime distributions for dynamic load
        balancing, 1997). Kueue stops it at its limit.
        """
        started = next((at for at in (job.ready_at, job.reserved_at) if at is not None), now)
        expected = started + expected_runtime(job, self._config, self._history).seconds
        if expected > now:
            return expected
        limit = enforced_limit(job)
        return max(now, min(now + (now - started), math.inf if limit is None else started + limit))


def order(job: Job) -> tuple[int, float, str]:
    """As Kueue tries jobs: by priority, then the older first."""
    return -job.priority, job.created_at, job.uid
