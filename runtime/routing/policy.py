"""How long a job waits for local GPUs before it may go to the cloud.

It knows nothing of money or room: a job whose wait is over may still be held by a budget or a full cloud. The expected
run time is, in this order: what the user wrote on the job, the job's enforced limit where that is shorter than its
class's expectation, the class's expectation. It never exceeds the enforced limit.

Invariant: the answer depends only on the job's class, GPUs and run times, so equal shapes wait equally long.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import timedelta
from typing import assert_never

from runtime.routing.snapshot import Job
from stacks.agent_config import AgentConfig, ClassConfig
from stacks.burst import ComputeWait, ConstantWait, PerGpuWait
from stacks.quantities import format_duration


@dataclass(frozen=True, slots=True)
class ExpectedRuntime:
    """How long a job is expected to run, and who says so."""

    seconds: float
    source: str


@dataclass(frozen=True, slots=True)
class WaitLimit:
    """How long a job waits, and how that came about, for people."""

    seconds: float
    source: str


def class_of(job: Job, config: AgentConfig) -> ClassConfig:
    """The job's class; the default class for a name that the fleet file does not have."""
    return config.classes.get(job.job_class) or config.classes[config.default_class]


def enforced_limit(job: Job) -> float | None:
    """The run time after which Kueue stops the job, in seconds; None if there is none."""
    return job.max_seconds if job.max_seconds is not None and job.max_seconds > 0 else None


def expected_runtime(job: Job, config: AgentConfig) -> ExpectedRuntime:
    """How long the job is expected to run."""
    usual = class_of(job, config).expected_runtime.total_seconds()
    seconds = _expected_seconds(job, usual)
    if seconds == enforced_limit(job) and seconds != job.expected_seconds:
        return ExpectedRuntime(seconds, "its run time limit")
    return ExpectedRuntime(seconds, "its annotation" if seconds == job.expected_seconds else "its class")


def _expected_seconds(job: Job, usual: float) -> float:
    told = job.expected_seconds
    seconds = told if told is not None and told > 0 else usual
    limit = job.max_seconds
    return limit if limit is not None and 0 < limit < seconds else seconds


def wait_limit(job: Job, config: AgentConfig) -> WaitLimit:
    """How long the job waits: the policy's wait within the policy's bounds, and never longer than its class allows."""
    return WaitRule(config).limit(job)


class WaitRule:
    """The policy of one fleet, with its durations read once, to be asked about many jobs."""

    def __init__(self, config: AgentConfig) -> None:
        self._config = config
        policy = config.policy
        self._constant = self._per_gpu = self._per_gpu_second = 0.0
        self._bounds: tuple[timedelta, timedelta] | None = None
        if isinstance(policy, ConstantWait):
            self._constant = policy.wait.total_seconds()
        elif isinstance(policy, PerGpuWait):
            self._per_gpu, self._bounds = policy.wait_per_gpu.total_seconds(), policy.bounds
        elif isinstance(policy, ComputeWait):
            self._per_gpu_second = policy.wait_per_gpu_hour.total_seconds() / 3_600
            self._bounds = policy.bounds
        else:
            assert_never(policy)
        self._shortest = self._bounds[0].total_seconds() if self._bounds else 0.0
        self._longest = self._bounds[1].total_seconds() if self._bounds else math.inf
        self._limits: dict[tuple[str, int, float | None, float | None], WaitLimit] = {}
        self._classes = {
            name: (
                settings.max_wait.total_seconds() if settings.max_wait else math.inf,
                settings.expected_runtime.total_seconds(),
            )
            for name, settings in config.classes.items()
        }

    def seconds(self, job: Job) -> float:
        """How long the job waits."""
        classes = self._classes
        longest, usual = classes.get(job.job_class) or classes[self._config.default_class]
        return min(longest, max(self._shortest, min(self._longest, self._asked(job, usual))))

    def _asked(self, job: Job, usual: float) -> float:
        """What the policy asks for before any bound."""
        if self._per_gpu_second:
            return self._per_gpu_second * job.gpus * _expected_seconds(job, usual)
        return self._constant + self._per_gpu * job.gpus

    def limit(self, job: Job) -> WaitLimit:
        """How long the job waits, with the policy, the numbers and the bounds that made it so."""
        shape = (job.job_class, job.gpus, job.expected_seconds, job.max_seconds)
        if (known := self._limits.get(shape)) is None:
            known = self._limits[shape] = self._limit(job)
        return known

    def _limit(self, job: Job) -> WaitLimit:
        job_class = class_of(job, self._config)
        asked = self._asked(job, job_class.expected_runtime.total_seconds())
        source = self._source(job)
        bounded = max(self._shortest, min(self._longest, asked))
        if self._bounds is not None and asked != bounded:
            source += (
                f"; at least {format_duration(self._bounds[0])}"
                if asked < bounded
                else f"; at most {format_duration(self._bounds[1])}"
            )
        longest = job_class.max_wait
        if longest is not None and longest.total_seconds() < bounded:
            return WaitLimit(longest.total_seconds(), f"{source}; at most {format_duration(longest)} for its class")
        return WaitLimit(bounded, source)

    def _source(self, job: Job) -> str:
        kind = self._config.policy.kind
        if kind == "constant":
            return kind
        if kind == "per-gpu":
            return f"{kind}: {count_gpus(job.gpus)}"
        expected = expected_runtime(job, self._config)
        run_time = format_duration(timedelta(seconds=round(expected.seconds)))
        return f"{kind}: {count_gpus(job.gpus)} x {run_time} expected from {expected.source}"


def count_gpus(gpus: int) -> str:
    """`1 GPU`, `4 GPUs`."""
    return f"{gpus} GPU" if gpus == 1 else f"{gpus} GPUs"
