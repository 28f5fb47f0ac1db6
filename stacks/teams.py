"""Teams: who may use how much of what is there, and how much money they may spend beyond it."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from stacks.labels import BURST_INFIX, SYSTEM_NAMESPACE, WINDOW_INFIX
from stacks.model import Model
from stacks.policies import WaitPolicy
from stacks.quantities import GpuCount, KubeName, Percentage, TimeZone, Usd

_SYSTEM_NAMESPACES = frozenset({"default", "kueue-system", SYSTEM_NAMESPACE})


class Budget(Model):
    """What may be spent on cloud GPUs in a calendar day, week and month of the budget's own time zone."""

    monthly: Usd | None = None
    """Most that may be spent in a calendar month. Default: no monthly limit."""

    weekly: Usd | None = None
    """Most that may be spent in a calendar week, Monday to Sunday. Default: no weekly limit."""

    daily: Usd | None = None
    """Most that may be spent in a calendar day. Default: no daily limit."""

    time_zone: TimeZone = "UTC"
    """Where days, weeks and months begin, e.g. `Europe/Berlin`."""

    thresholds: Annotated[tuple[Percentage, ...], Field(max_length=10)] = (0.5, 0.8, 1.0)
    """Shares of each limit, ascending, ten at most, at which an event is written and a metric turns 1.
    Default: 50%, 80%, 100%."""

    kind: Literal["hard", "soft"] = "hard"
    """`hard`: commits the ceiling price for a job's enforced longest run time before it starts, so that committed and
    spent together never exceed the limit; a job without `kueue.x-k8s.io/max-exec-time-seconds` stays local.
    `soft`: commits the expected cost, and reports an overshoot instead of preventing it.
    Both count GPU-hours at the pool's ceiling price. A cloud bills whole nodes, from boot to release: where jobs are
    smaller than a node and nobody shares it, the invoice is larger."""

    @model_validator(mode="after")
    def _some_limit(self) -> Self:
        if self.monthly is None and self.weekly is None and self.daily is None:
            raise ValueError(
                "a budget needs monthly, weekly or daily (e.g. monthly: 20000 USD); leave it out for no limit"
            )
        return self

    @model_validator(mode="after")
    def _thresholds_ascend(self) -> Self:
        if list(self.thresholds) != sorted(set(self.thresholds)) or 0 in self.thresholds:
            raise ValueError("thresholds: must ascend from above 0%, each once, e.g. [50%, 80%, 100%]")
        return self


class FleetBudget(Budget):
    """The budget of the whole fleet; a team's budget applies beneath it."""

    when_exhausted: Literal["local-only"] = "local-only"
    """What happens when it is used up: no new job goes to the cloud; what runs there is left alone."""


class Project(Model):
    """A piece of work with money of its own, within a team or across teams.

    A job says so with the pod template label `gpufleet.dev/project`. The budgets of fleet, team and project all apply.
    """

    budget: Budget
    """What the project may spend on cloud GPUs."""

    teams: Annotated[tuple[KubeName, ...], Field(min_length=1)] | None = None
    """Teams whose jobs may name it. Default: every team."""


class Team(Model):
    """One team: a namespace, a queue, a share of the local GPUs and a budget for the cloud."""

    namespace: KubeName | None = None
    """Namespace of the team's jobs. Default: the team's name."""

    quota: dict[str, GpuCount]
    """GPUs of each local flavor that are the team's own; other teams' borrowed jobs give way."""

    borrow: dict[str, GpuCount] = Field(default_factory=dict)
    """Most GPUs of a flavor the team may use beyond its quota while others leave them idle. Default: no limit."""

    lend: dict[str, GpuCount] = Field(default_factory=dict)
    """Most of its own idle GPUs of a flavor that the team lends. Default: all."""

    weight: Annotated[float, Field(strict=True, gt=0, le=1_000)] = 1.0
    """Share against other teams when several borrow the same idle GPUs. Takes effect where fair sharing is switched on
    in Kueue's own configuration."""

    max_burst_gpus: GpuCount | None = None
    """Most cloud GPUs that the team may hold at once. Default: the pools' own limits."""

    policy: WaitPolicy | None = None
    """How long the team's jobs wait, where their class has no policy of its own. `{kind: never}` keeps the team local
    whatever a class says. Default: the fleet's `burst.policy`."""

    budget: Budget | None = None
    """What the team may spend on cloud GPUs. Default: only the fleet's budget limits it."""

    @model_validator(mode="after")
    def _borrow_and_lend_match_quota(self) -> Self:
        for flavor, lent in self.lend.items():
            if lent > self.quota.get(flavor, 0):
                raise ValueError(
                    f"lend.{flavor}: {lent} is more than the quota of {self.quota.get(flavor, 0)}; lend at most that"
                )
        return self


def is_of_the_system(namespace: str) -> bool:
    """Whether a namespace is Kubernetes', Kueue's or our own."""
    return namespace.startswith("kube-") or namespace in _SYSTEM_NAMESPACES


def check_team_name(name: str, team: Team) -> None:
    """Raise ValueError when the team's objects could not be named, or would fall into a namespace of the system."""
    namespace = team.namespace or name
    if is_of_the_system(namespace):
        raise ValueError(f"namespace {namespace} belongs to the system; give the team one of its own")
    for infix in (BURST_INFIX, WINDOW_INFIX):
        if infix in f"{name}-":
            raise ValueError(f"a name may not contain '{infix}' or end with '{infix[:-1]}', which name queues of ours")
