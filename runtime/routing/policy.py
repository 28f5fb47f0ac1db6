"""How long a job waits for local GPUs before it may go to the cloud.

It knows nothing of money or room: a job whose wait is over may still be held by a budget or a full cloud. The expected
run time is, in this order: what the user wrote on the job, the job's enforced limit where that is shorter than its
class's expectation, the class's expectation. It never exceeds the enforced limit.

Invariant: the answer depends only on the job's class, GPUs and run times, so equal shapes wait equally long.
"""

from __future__ import annotations

import math
from collections.abc import Hashable
from dataclasses import dataclass
from datetime import timedelta
from typing import NamedTuple, assert_never

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
    return _expected(job, class_of(job, config).expected_runtime.total_seconds())


def _expected(job: Job, usual: float) -> ExpectedRuntime:
    seconds = expected_seconds(job, usual)
    if seconds == enforced_limit(job) and seconds != job.expected_seconds:
        return ExpectedRuntime(seconds, "its run time limit")
    return ExpectedRuntime(seconds, "its annotation" if seconds == job.expected_seconds else "its class")


def expected_seconds(job: Job, usual: float) -> float:
    """How long the job is expected to run, where jobs of its class usually run `usual` seconds."""
    told = job.expected_seconds
    seconds = told if told is not None and told > 0 else usual
    limit = job.max_seconds
    return limit if limit is not None and 0 < limit < seconds else seconds


def wait_limit(job: Job, config: AgentConfig) -> WaitLimit:
    """How long the job waits: the policy's wait within the policy's bounds, and never longer than its class allows."""
    return WaitRule(config).limit(job)


class _ClassTerms(NamedTuple):
    """What a class says about waiting; `at_most` ends the sentence that says so."""

    usual_seconds: float
    longest_seconds: float
    at_most: str

    @classmethod
    def of(cls, settings: ClassConfig) -> _ClassTerms:
        usual = settings.expected_runtime.total_seconds()
        if settings.max_wait is None:
            return cls(usual, math.inf, "")
        at_most = f"; at most {format_duration(settings.max_wait)} for its class"
        return cls(usual, settings.max_wait.total_seconds(), at_most)


class WaitRule:
    """The policy of one fleet, with its durations read once, to be asked about many jobs."""

    def __init__(self, config: AgentConfig) -> None:
        policy = config.policy
        self._kind = policy.kind
        self._constant = self._per_gpu = self._per_gpu_second = 0.0
        bounds: tuple[timedelta, timedelta] | None = None
        if isinstance(policy, ConstantWait):
            self._constant = policy.wait.total_seconds()
        elif isinstance(policy, PerGpuWait):
            self._per_gpu, bounds = policy.wait_per_gpu.total_seconds(), policy.bounds
        elif isinstance(policy, ComputeWait):
            self._per_gpu_second = policy.wait_per_gpu_hour.total_seconds() / 3_600
            bounds = policy.bounds
        else:
            assert_never(policy)
        self._shortest, self._longest = 0.0, math.inf
        self._at_least = self._at_most = ""
        if bounds is not None:
            self._shortest, self._longest = (bound.total_seconds() for bound in bounds)
            self._at_least, self._at_most = (
                f"; at {word} {format_duration(bound)}" for word, bound in zip(("least", "most"), bounds, strict=True)
            )
        self._limits: dict[Hashable, WaitLimit] = {}
        self._classes = {name: _ClassTerms.of(settings) for name, settings in config.classes.items()}
        self._default_class = self._classes[config.default_class]

    def seconds(self, job: Job) -> float:
        """How long the job waits."""
        terms = self._classes.get(job.job_class, self._default_class)
        asked = self._asked(job, terms.usual_seconds)
        return min(terms.longest_seconds, max(self._shortest, min(self._longest, asked)))

    def _asked(self, job: Job, usual: float) -> float:
        """What the policy asks for before any bound."""
        if self._per_gpu_second:
            return self._per_gpu_second * job.gpus * expected_seconds(job, usual)
        return self._constant + self._per_gpu * job.gpus

    def limit(self, job: Job) -> WaitLimit:
        """How long the job waits, with the policy, the numbers and the bounds that made it so."""
        shape: Hashable = (job.job_class, job.gpus)
        if self._per_gpu_second:
            shape = (shape, job.expected_seconds, job.max_seconds)
        if (known := self._limits.get(shape)) is None:
            known = self._limits[shape] = self._limit(job)
        return known

    def _limit(self, job: Job) -> WaitLimit:
        terms = self._classes.get(job.job_class, self._default_class)
        asked = self._asked(job, terms.usual_seconds)
        source = self._source(job, terms.usual_seconds)
        bounded = max(self._shortest, min(self._longest, asked))
        if asked != bounded:
            source += self._at_least if asked < bounded else self._at_most
        if terms.longest_seconds < bounded:
            return WaitLimit(terms.longest_seconds, source + terms.at_most)
        return WaitLimit(bounded, source)

    def _source(self, job: Job, usual: float) -> str:
        if self._kind == "constant":
            return self._kind
        if self._kind == "per-gpu":
            return f"{self._kind}: {count_gpus(job.gpus)}"
        expected = _expected(job, usual)
        run_time = format_duration(timedelta(seconds=round(expected.seconds)))
        return f"{self._kind}: {count_gpus(job.gpus)} x {run_time} expected from {expected.source}"


def count_gpus(gpus: int) -> str:
    """`1 GPU`, `4 GPUs`."""
    return f"{gpus} GPU" if gpus == 1 else f"{gpus} GPUs"
