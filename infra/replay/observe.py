"""What a replay looks like at one moment, for the live table: queues, GPUs, money and the last decisions.

Pure: it is given Workloads and the ledger, and adds up. Waits and times are in fleet time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Final

from infra.replay.workload import Workload
from runtime.clock import Clock
from runtime.cost.budget import ScopeSummary, summary
from runtime.cost.ledger import Books
from stacks.agent_config import agent_config
from stacks.fleet import Fleet

_MOST_DECISIONS: Final = 6


@dataclass(frozen=True, slots=True)
class Money:
    """What a budget's month has spent and committed; `limit` is None where there is none."""

    spent: Decimal
    committed: Decimal
    limit: Decimal | None


@dataclass(frozen=True, slots=True)
class TeamView:
    """One team. Waits are of the jobs in its queues (oldest) and of those that were admitted (mean)."""

    name: str
    queued: int
    at_gate: int
    local_gpus: int
    cloud_gpus: int
    finished: int
    oldest_wait_seconds: float | None
    mean_wait_seconds: float | None
    money: Money


@dataclass(frozen=True, slots=True)
class Decided:
    """The last verdict on a job."""

    at: float
    namespace: str
    job: str
    code: str
    text: str


@dataclass(frozen=True, slots=True)
class View:
    """The whole fleet. `flavors` has GPUs in use and in all, `at` is fleet time."""

    at: float
    teams: tuple[TeamView, ...]
    flavors: Mapping[str, tuple[int, int]]
    money: Money
    decisions: tuple[Decided, ...]

    @property
    def finished(self) -> int:
        """Jobs that ended."""
        return sum(team.finished for team in self.teams)


def view_of(workloads: Sequence[Workload], books: Books, fleet: Fleet, clock: Clock, real_now: float) -> View:
    """Add up one moment."""
    flavors = fleet.flavors
    now = clock.to_fleet(real_now)
    standing = summary(books, agent_config(fleet), now)
    used = dict.fromkeys(flavors, 0)
    for one in workloads:
        if one.flavor in used and holds_quota(one):
            used[one.flavor] += one.gpus
    cloud = {name for name, flavor in flavors.items() if flavor.cloud}
    teams = tuple(
        _team(
            name, [one for one in workloads if one.namespace == (team.namespace or name)], cloud, money, clock, real_now
        )
        for name, team in fleet.teams.items()
        for money in [_money(standing.teams[name])]
    )
    decided = [
        Decided(one.verdict.at, one.namespace, one.job or one.name, one.verdict.code.value, one.verdict.text)
        for one in workloads
        if one.verdict is not None
    ]
    return View(
        at=now,
        teams=teams,
        flavors={name: (used[name], flavor.gpus) for name, flavor in flavors.items()},
        money=_money(standing.fleet),
        decisions=tuple(sorted(decided, key=lambda one: -one.at)[:_MOST_DECISIONS]),
    )


def holds_quota(one: Workload) -> bool:
    """Whether a Workload holds quota now. Kueue gives that of an inactive one to others at once."""
    return one.reserved_at is not None and one.finished_at is None and one.active


def _team(name: str, own: list[Workload], cloud: set[str], money: Money, clock: Clock, real_now: float) -> TeamView:
    queued = [one for one in own if one.reserved_at is None and one.finished_at is None and one.active]
    holding = [one for one in own if holds_quota(one)]
    running = [one for one in holding if one.admitted_at is not None]
    waits = [max(0.0, one.admitted_at - one.created_at) for one in own if one.admitted_at is not None]
    oldest = max((max(0.0, real_now - one.created_at) for one in queued), default=None)
    return TeamView(
        name=name,
        queued=len(queued),
        at_gate=len(holding) - len(running),
        local_gpus=sum(one.gpus for one in running if one.flavor not in cloud),
        cloud_gpus=sum(one.gpus for one in running if one.flavor in cloud),
        finished=sum(one.finished_at is not None for one in own),
        oldest_wait_seconds=None if oldest is None else clock.duration_to_fleet(oldest),
        mean_wait_seconds=clock.duration_to_fleet(sum(waits) / len(waits)) if waits else None,
        money=money,
    )


def _money(scope: ScopeSummary) -> Money:
    return Money(scope.month.spent, scope.month.committed, scope.month.limit)
