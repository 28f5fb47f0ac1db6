"""How long a job waits for local GPUs before it may go to the cloud, and how long it is expected to run.

It knows nothing of money or room: a job whose wait is over may still be held by a budget or a full cloud. A job's
policy is its class's, else its team's, else the fleet's; a team whose policy is `never` stays local whatever a class
says. A class's `max_wait` bounds any of them from above.

The expected run time is, in this order: what the user wrote on the job; what such jobs took before
(runtime.routing.history); what its class usually takes. It never exceeds the enforced limit.

Invariant: the answer depends only on the job's team, class, name, GPUs and run times and on the history, so equal
shapes wait equally long.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import timedelta
from typing import Final, NamedTuple, assert_never

from runtime.routing.history import NO_HISTORY, History
from runtime.routing.snapshot import Job
from stacks.agent_config import AgentConfig, ClassConfig, DataConfig
from stacks.policies import AlwaysBurst, ComputeWait, ConstantWait, NeverBurst, PerGpuWait, WaitPolicy
from stacks.quantities import format_duration

_BITS: Final = 8


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


def policy_of(team: str, settings: ClassConfig, config: AgentConfig) -> WaitPolicy:
    """The policy that applies to a team's jobs of a class."""
    known = config.teams.get(team)
    own = known.policy if known is not None else None
    if isinstance(own, NeverBurst):
        return own
    return settings.policy or own or config.policy


def enforced_limit(job: Job) -> float | None:
    """The run time after which Kueue stops the job, in seconds; None if there is none."""
    return job.max_seconds if job.max_seconds is not None and job.max_seconds > 0 else None


def staging_seconds(job: Job, data: DataConfig | None) -> float:
    """How long the job's data takes to cross the link; nothing where it has none, or it is there already."""
    return 0.0 if data is None else job.data_bytes * _BITS / data.bandwidth


def expected_runtime(job: Job, config: AgentConfig, history: History = NO_HISTORY) -> ExpectedRuntime:
    """How long the job is expected to run."""
    return _expected(job, class_of(job, config).expected_runtime.total_seconds(), history)


def _expected(job: Job, usual: float, history: History) -> ExpectedRuntime:
    told = job.expected_seconds
    if told is not None and told > 0:
        found = ExpectedRuntime(told, "its annotation")
    elif (estimate := history.estimate(job.team, job.owner_name, job.job_class)) is not None:
        found = ExpectedRuntime(estimate.seconds, estimate.source)
    else:
        found = ExpectedRuntime(usual, "its class")
    limit = enforced_limit(job)
    return found if limit is None or found.seconds <= limit else ExpectedRuntime(limit, "its run time limit")


class _Terms(NamedTuple):
    """What a team's jobs of a class wait by: seconds = constant + GPUs × per_gpu + GPU-seconds × per_gpu_second."""

    kind: str
    constant: float
    per_gpu: float
    per_gpu_second: float
    bounds: tuple[timedelta, timedelta] | None
    shortest: float
    longest: float
    class_limit: timedelta | None
    usual_seconds: float

    @classmethod
    def of(cls, policy: WaitPolicy, settings: ClassConfig) -> _Terms:
        constant = per_gpu = per_gpu_second = 0.0
        bounds: tuple[timedelta, timedelta] | None = None
        match policy:
            case ConstantWait():
                constant = policy.wait.total_seconds()
            case PerGpuWait():
                per_gpu, bounds = policy.wait_per_gpu.total_seconds(), policy.bounds
            case ComputeWait():
                per_gpu_second, bounds = policy.wait_per_gpu_hour.total_seconds() / 3_600, policy.bounds
            case NeverBurst():
                constant = math.inf
            case AlwaysBurst():
                pass
            case _:
                assert_never(policy)
        shortest, longest = (bound.total_seconds() for bound in bounds) if bounds else (0.0, math.inf)
        usual = settings.expected_runtime.total_seconds()
        # A class's longest wait does not open what never opens.
        limit = None if math.isinf(constant) else settings.max_wait
        return cls(policy.kind, constant, per_gpu, per_gpu_second, bounds, shortest, longest, limit, usual)


class WaitRule:
    """The policies of one fleet, with their durations read once, to be asked about many jobs."""

    def __init__(self, config: AgentConfig, history: History = NO_HISTORY) -> None:
        self._config = config
        self._history = history
        self._knows_runs = bool(history.by_stem or history.by_class)
        self._terms: dict[tuple[str, str], _Terms] = {}

    def never(self, job: Job) -> bool:
        """Whether the job's policy keeps it local."""
        return self._terms_of(job).kind == "never"

    def expected(self, job: Job) -> ExpectedRuntime:
        """How long the job is expected to run."""
        return _expected(job, self._terms_of(job).usual_seconds, self._history)

    def seconds(self, job: Job) -> float:
        """How long the job waits; infinite where its policy is never."""
        terms = self._terms_of(job)
        bounded = max(terms.shortest, min(terms.longest, self._asked(terms, job)))
        return bounded if terms.class_limit is None else min(bounded, terms.class_limit.total_seconds())

    def limit(self, job: Job) -> WaitLimit:
        """How long the job waits, with the policy, the numbers and the bounds that made it so."""
        terms = self._terms_of(job)
        asked = self._asked(terms, job)
        bounded = max(terms.shortest, min(terms.longest, asked))
        source = self._source(terms, job)
        if terms.bounds is not None and asked != bounded:
            word, bound = ("least", terms.bounds[0]) if asked < bounded else ("most", terms.bounds[1])
            source += f"; at {word} {format_duration(bound)}"
        if terms.class_limit is not None and terms.class_limit.total_seconds() < bounded:
            bounded = terms.class_limit.total_seconds()
            source += f"; at most {format_duration(terms.class_limit)} for its class"
        return WaitLimit(bounded, source)

    def _terms_of(self, job: Job) -> _Terms:
        key = (job.team, job.job_class)
        if (terms := self._terms.get(key)) is None:
            settings = class_of(job, self._config)
            terms = self._terms[key] = _Terms.of(policy_of(job.team, settings, self._config), settings)
        return terms

    def _asked(self, terms: _Terms, job: Job) -> float:
        """What the policy asks for before any bound."""
        if terms.per_gpu_second:
            return terms.per_gpu_second * job.gpus * self._expected_seconds(terms, job)
        return terms.constant + terms.per_gpu * job.gpus

    def _expected_seconds(self, terms: _Terms, job: Job) -> float:
        """As `expected`, for the usual case without a source to name: thousands of jobs are asked about."""
        told, limit = job.expected_seconds, job.max_seconds
        if told is None or told <= 0:
            return self.expected(job).seconds if self._knows_runs else _least(terms.usual_seconds, limit)
        return _least(told, limit)

    def _source(self, terms: _Terms, job: Job) -> str:
        if terms.per_gpu:
            return f"{terms.kind}: {count_gpus(job.gpus)}"
        if not terms.per_gpu_second:
            return terms.kind
        expected = self.expected(job)
        run_time = format_duration(timedelta(seconds=round(expected.seconds)))
        return f"{terms.kind}: {count_gpus(job.gpus)} x {run_time} expected from {expected.source}"


def _least(seconds: float, limit: float | None) -> float:
    return limit if limit is not None and 0 < limit < seconds else seconds


def count_gpus(gpus: int) -> str:
    """`1 GPU`, `4 GPUs`."""
    return f"{gpus} GPU" if gpus == 1 else f"{gpus} GPUs"
