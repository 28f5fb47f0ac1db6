"""What is not wrong, and yet probably not meant: warnings, which `strict` turns into errors."""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal
from typing import TYPE_CHECKING, Final

from stacks import presets
from stacks.burst import ConstantWait
from stacks.flavors import flavor_name
from stacks.links import CloudPair
from stacks.pools import InstancePool
from stacks.quantities import format_duration, format_usd
from stacks.rules.rule import RuleProblem

if TYPE_CHECKING:
    from stacks.fleet import Fleet

_LATER: Final = "is checked but has no effect in this version of gpufleet"

_FAR_ABOVE: Final = 3  # times the list price; on-demand prices of one model differ less between regions
_FAR_BELOW: Final = Decimal("0.1")  # spot has been seen at a tenth of the list price, not below


def the_fleet_has_a_budget(fleet: Fleet) -> Iterator[RuleProblem]:
    """Without any limit a queue that grows overnight may cost anything."""
    if fleet.burst.budget is None and any(team.budget is None for team in fleet.teams.values()):
        free = next(name for name, team in fleet.teams.items() if team.budget is None)
        reason = f"neither the fleet nor team {free} has a budget, so nothing limits its spending; set burst.budget"
        yield RuleProblem(("burst",), None, reason)


def team_budgets_can_be_reached(fleet: Fleet) -> Iterator[RuleProblem]:
    """A team's limit above the fleet's limits nothing."""
    whole = fleet.burst.budget
    for name, team in fleet.teams.items():
        for period in ("monthly", "daily"):
            limit, most = getattr(team.budget, period, None), getattr(whole, period, None)
            if limit is not None and most is not None and limit > most:
                reason = f"is more than the whole fleet's {period} {format_usd(most)}, so it limits nothing"
                yield RuleProblem(("teams", name, "budget", period), str(limit), reason)


def daily_limits_can_be_reached(fleet: Fleet) -> Iterator[RuleProblem]:
    """A day's limit above the month's limits nothing."""
    budgets = [(("burst", "budget"), fleet.burst.budget)]
    for path, budget in [*budgets, *((("teams", name, "budget"), team.budget) for name, team in fleet.teams.items())]:
        if budget and budget.monthly is not None and budget.daily is not None and budget.daily > budget.monthly:
            reason = f"is more than monthly, {format_usd(budget.monthly)}, so it limits nothing"
            yield RuleProblem((*path, "daily"), str(budget.daily), reason)


def instance_types_are_in_the_catalogue(fleet: Fleet) -> Iterator[RuleProblem]:
    """A type that the catalogue does not know may be a typing error, and its price is not compared with a list."""
    for name, pool in fleet.pools.items():
        if isinstance(pool, InstancePool):
            for one in pool.unknown_types:
                reason = f"{one} is not in the catalogue of {pool.provider}; its figures are taken from shape"
                yield RuleProblem(("pools", name, pool.types_field), one, reason)


def every_local_gpu_has_an_owner(fleet: Fleet) -> Iterator[RuleProblem]:
    """Quota that no team owns is used by nobody: there is no queue that it belongs to."""
    for flavor in fleet.flavors.values():
        owned = sum(team.quota.get(flavor.name, 0) for team in fleet.teams.values())
        if not flavor.cloud and owned < flavor.gpus:
            left = flavor.gpus - owned
            reason = f"{left} of the {flavor.gpus} GPUs of {flavor.name} are in no team's quota, so no job can use them"
            yield RuleProblem(("pools", flavor.pools[0]), flavor.name, reason)


def every_cluster_has_pools(fleet: Fleet) -> Iterator[RuleProblem]:
    """A cluster without pools costs money and runs nothing."""
    used = {pool.cluster for pool in fleet.pools.values()}
    for link in fleet.links.values():  # the far end of a link may be there for its network alone
        used |= {link.aws_cluster, link.gcp_cluster} if isinstance(link, CloudPair) else {link.cluster}
    for name in fleet.clusters:
        if name not in used:
            yield RuleProblem(("clusters", name), name, "no pool is in it; add one or remove the cluster")


def prices_are_plausible(fleet: Fleet) -> Iterator[RuleProblem]:
    """A price far from the list is often that of a whole instance, or a slip of the point; spot is below on-demand."""
    for name, pool in fleet.pools.items():
        if not isinstance(pool, InstancePool) or pool.usd_per_gpu_hour is None:
            continue
        price = pool.usd_per_gpu_hour
        listed = [(one.usd_per_hour.get(pool.region or ""), one.gpus) for one in pool.known_types]
        prices = [whole / gpus for whole, gpus in listed if whole is not None]
        if not prices:
            continue
        shown = format_usd(max(prices))
        if any(whole == price and gpus > 1 for whole, gpus in listed):
            reason = f"is the price of a whole instance; a GPU-hour of it costs {shown}"
        elif price > _FAR_ABOVE * max(prices) or price < _FAR_BELOW * min(prices):
            reason = f"is far from the on-demand list price of {shown}; is the point in its place?"
        elif pool.market == "spot" and price >= max(prices):
            reason = f"is not below the on-demand list price of {shown}; lower it"
        else:
            continue
        yield RuleProblem(("pools", name, "usd_per_gpu_hour"), str(price), reason)


def every_cloud_pool_has_a_queue(fleet: Fleet) -> Iterator[RuleProblem]:
    """Burst jobs ask for whole GPUs, so that no queue offers a partitioned cloud pool."""
    for name, pool in fleet.cloud_pools.items():
        if pool.partitioned:
            reason = "no queue offers its partitioned GPUs; only pods that select its nodes themselves use them"
            yield RuleProblem(("pools", name), name, reason)


def slices_do_not_pass_for_gpus(fleet: Fleet) -> Iterator[RuleProblem]:
    """With `strategy: single` a job for eight GPUs may get eight slices."""
    for name, pool in fleet.onprem_pools.items():
        if pool.mig is not None and pool.mig.strategy == "single":
            reason = "its slices count as GPUs beside the whole ones of other pools; use mixed to keep them apart"
            yield RuleProblem(("pools", name, "mig", "strategy"), "single", reason)


def every_team_gets_slices(fleet: Fleet) -> Iterator[RuleProblem]:
    """A small share of few slices rounds down to none."""
    for flavor in fleet.flavors.values():
        before = 0
        for name in sorted(fleet.teams) if not flavor.cloud else ():
            quota = fleet.teams[name].quota.get(flavor.name, 0)
            for device in flavor.devices:
                if quota and flavor.devices_of(device, before + quota) == flavor.devices_of(device, before):
                    reason = f"{quota} of {flavor.gpus} GPUs are less than one {device}, so the team gets none of it"
                    yield RuleProblem(("teams", name, "quota", flavor.name), quota, reason)
            before += quota


def waits_are_within_the_bounds_of_the_policy(fleet: Fleet) -> Iterator[RuleProblem]:
    """A class's longest wait above the policy's bounds nothing."""
    policy = fleet.burst.policy
    longest = policy.wait if isinstance(policy, ConstantWait) else policy.bounds[1]
    for name, job_class in fleet.classes.items():
        if job_class.max_wait is not None and job_class.max_wait > longest:
            reason = f"is longer than the {format_duration(longest)} that the burst policy waits, so it bounds nothing"
            yield RuleProblem(("classes", name, "max_wait"), format_duration(job_class.max_wait), reason)


def pools_of_a_flavor_stand_together(fleet: Fleet) -> Iterator[RuleProblem]:
    """Jobs are sent to flavors, so that a pool is tried where the first pool of its flavor stands."""
    names = [flavor_name(fleet.pools[name]) for name in fleet.burst.order]
    for index, name in enumerate(names):
        if index and name in names[: index - 1] and names[index - 1] != name:
            reason = f"is tried together with {fleet.burst.order[names.index(name)]}: both are of flavor {name}"
            yield RuleProblem(("burst", "order", index), fleet.burst.order[index], reason)


def settings_have_an_effect(fleet: Fleet) -> Iterator[RuleProblem]:
    """Settings that this version checks and nothing carries out yet."""
    for name, job_class in fleet.classes.items():
        for field in ("window", "markets"):
            if getattr(job_class, field) is not None:
                yield RuleProblem(("classes", name, field), None, _LATER)
    for section in ("links", "scaling"):
        for name in getattr(fleet, section):
            yield RuleProblem((section, name), None, _LATER)
    for name in fleet.capacity.schedule:
        yield RuleProblem(("capacity", "schedule", name), None, _LATER)
    if fleet.burst.data is not None:
        yield RuleProblem(("burst", "data"), None, _LATER)
    if fleet.preset != "balanced":
        reason = "fills spot, capacity and targets too, which have no effect in this version; the burst policy has"
        yield RuleProblem(("preset",), fleet.preset, reason)
    usual = presets.sections(fleet.preset)
    if fleet.spot != usual.spot:
        yield RuleProblem(("spot",), None, _LATER)
    if fleet.targets != usual.targets:
        yield RuleProblem(("targets",), None, _LATER)
    if fleet.capacity.headroom != usual.capacity.headroom:
        yield RuleProblem(("capacity", "headroom"), None, _LATER)
