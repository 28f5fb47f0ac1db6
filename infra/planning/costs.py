"""What the GPUs of a fleet cost in a month: the rented ones at least and at most, and the owned ones in any case.

It is arithmetic on the file's own prices, which are ceilings, and no forecast: no job is simulated (`gpufleet replay`
does), and what is not rented by the GPU-hour is left out (`NOT_INCLUDED`). What the company owns is never added to what
it rents: one is an expense that no setting changes, the other is a bill.

Invariants: lowest ≤ highest, of each pool and in total; a budget only ever lowers the highest.
"""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from typing import Final

from stacks.flavors import flavor_name
from stacks.fleet import Fleet
from stacks.pools import CloudPool, GkePool, NodeGroupPool, Pool
from stacks.teams import Budget

HOURS_PER_MONTH: Final = 730
"""Hours of a month, for prices: the 8,760 of a year by twelve, as the clouds' calculators count."""

_LONGEST_MONTH_DAYS: Final = 31
_MOST_WEEKS_OF_A_MONTH: Final = 6
"""Calendar weeks that a month has days of, e.g. one of 31 days that begins on a Sunday."""

NOT_INCLUDED: Final = (
    "storage",
    "data transfer and egress",
    "links",
    "control planes",
    "nodes without GPUs",
    "GPUs of a node that no job uses",
    "licences",
    "taxes",
)
"""What a cloud bills beside GPU-hours."""

_NO_MONEY: Final = Decimal(0)


@dataclass(frozen=True, slots=True)
class PoolCost:
    """A pool's month in US dollars."""

    pool: str
    market: str | None
    """How it is rented; None where it is owned."""

    gpus: int
    """Most GPUs at any time."""

    usd_per_gpu_hour: Decimal
    lowest: Decimal
    """The nodes that are always there."""

    highest: Decimal
    """All its GPUs in every hour."""


@dataclass(frozen=True, slots=True)
class Limit:
    """A budget for GPU-hours of the cloud, counted at ceiling prices."""

    team: str | None
    """None for the whole fleet's, and for a project's."""

    project: str | None
    """None for the whole fleet's, and for a team's."""

    hard: bool
    """Whether it prevents an overshoot; a soft one reports it."""

    monthly: Decimal | None
    weekly: Decimal | None
    daily: Decimal | None

    @property
    def month(self) -> Decimal:
        """The most that it lets through in a calendar month."""
        days = None if self.daily is None else self.daily * _LONGEST_MONTH_DAYS
        weeks = None if self.weekly is None else self.weekly * _MOST_WEEKS_OF_A_MONTH
        return min(most for most in (self.monthly, weeks, days) if most is not None)


@dataclass(frozen=True, slots=True)
class Costs:
    """A fleet's month."""

    owned: tuple[PoolCost, ...]
    rented: tuple[PoolCost, ...]
    limits: tuple[Limit, ...]

    lowest: Decimal
    """Of the rented GPUs."""

    unlimited: Decimal
    """Of the rented GPUs, if no budget stopped anything."""

    highest: Decimal
    """Of the rented GPUs, with the hard budgets."""

    bound_by: str
    """What keeps it from being more."""

    unguarded: tuple[str, ...]
    """Rented pools that no budget holds, as no queue leads to them."""

    listed: tuple[str, ...]
    """Rented pools whose price is the catalogue's, not the file's."""

    @property
    def fixed(self) -> Decimal:
        """What the owned GPUs cost whether used or not."""
        return sum((cost.highest for cost in self.owned), _NO_MONEY)


def costs_of(fleet: Fleet) -> Costs:
    """What a fleet costs in a month.

    A hard budget holds the jobs that pass the gate, and those only reach the flavors of `burst.order`. It does not hold
    nodes that stand idle because `nodes.min` keeps them, nor pools that no queue leads to, whoever uses those.
    """
    costs = {name: _cost(name, pool) for name, pool in fleet.pools.items()}
    behind_the_gate = {flavor_name(fleet.pools[name]) for name in fleet.burst.order}
    rented = tuple(costs[name] for name in fleet.cloud_pools)
    gated = [cost for cost in rented if flavor_name(fleet.pools[cost.pool]) in behind_the_gate]
    others = [cost for cost in rented if cost not in gated]
    limits = _limits(fleet)
    cap, whose = _cap(fleet, limits)
    most, bound_by = sum((cost.highest for cost in gated), _NO_MONEY), "the sizes of the pools"
    if cap is not None and cap + sum(cost.lowest for cost in gated) < most:
        most, bound_by = cap + sum(cost.lowest for cost in gated), whose
    return Costs(
        owned=tuple(costs[name] for name in fleet.onprem_pools),
        rented=rented,
        limits=limits,
        lowest=sum((cost.lowest for cost in rented), _NO_MONEY),
        unlimited=sum((cost.highest for cost in rented), _NO_MONEY),
        highest=most + sum(cost.highest for cost in others),
        bound_by=bound_by,
        unguarded=tuple(cost.pool for cost in others),
        listed=tuple(name for name, pool in fleet.cloud_pools.items() if pool.usd_per_gpu_hour is None),
    )


def _cost(name: str, pool: Pool) -> PoolCost:
    if not isinstance(pool, CloudPool):
        fixed = pool.gpus * pool.usd_per_gpu_hour * HOURS_PER_MONTH
        return PoolCost(name, None, pool.gpus, pool.usd_per_gpu_hour, fixed, fixed)
    # A range of nodes may mix instance types; the least that its minimum can cost are the smallest ones.
    always = pool.nodes.min * pool.fewest_gpus_per_node if isinstance(pool, NodeGroupPool | GkePool) else 0
    month = pool.price * HOURS_PER_MONTH
    return PoolCost(name, pool.market, pool.gpus, pool.price, always * month, pool.gpus * month)


def _limits(fleet: Fleet) -> tuple[Limit, ...]:
    budgets: list[tuple[str | None, str | None, Budget | None]] = [(None, None, fleet.burst.budget)]
    budgets += [(name, None, team.budget) for name, team in fleet.teams.items()]
    budgets += [(None, name, project.budget) for name, project in fleet.projects.items()]
    return tuple(
        Limit(team, project, budget.kind == "hard", budget.monthly, budget.weekly, budget.daily)
        for team, project, budget in budgets
        if budget is not None
    )


def _cap(fleet: Fleet, limits: tuple[Limit, ...]) -> tuple[Decimal | None, str]:
    """The most that the hard budgets let through, None for no limit, and whose they are.

    A project's holds only the jobs that name it, so it bounds no month. A team that stays local spends nothing.
    """
    hard = {(limit.team, limit.project): limit.month for limit in limits if limit.hard}
    caps = [(hard[None, None], "the fleet's hard budget")] if (None, None) in hard else []
    spending = [name for name, team in fleet.teams.items() if fleet.leaves(team)]
    if not spending:
        caps.append((_NO_MONEY, "policies that keep every job local"))
    elif all((name, None) in hard for name in spending):
        caps.append((sum((hard[name, None] for name in spending), _NO_MONEY), "the teams' hard budgets"))
    return min(caps, key=lambda cap: cap[0], default=(None, ""))
