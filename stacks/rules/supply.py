"""Rules of supply and demand: what teams, classes and schedules ask for is there."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from stacks.flavors import flavor_name
from stacks.pools import InstancePool
from stacks.rules.rule import RuleProblem
from stacks.suggest import did_you_mean, nearest

_LONGEST_LABEL_VALUE: Final = 63
_MOST_IN_A_GROUP: Final = 64
"""Flavors, and resources, of one resource group (Kueue 0.19's ClusterQueue schema)."""

if TYPE_CHECKING:
    from stacks.fleet import Fleet


def node_names_are_unique(fleet: Fleet) -> Iterator[RuleProblem]:
    """No node belongs to two pools."""
    owner: dict[str, str] = {}
    for name, pool in fleet.onprem_pools.items():
        for index, node in enumerate(pool.node_names):
            if node in owner:
                reason = f"{node} is in pool {owner[node]} already; take it out of one"
                yield RuleProblem(("pools", name, "node_names", index), node, reason)
            owner.setdefault(node, name)


def burst_order_names_cloud_pools_once(fleet: Fleet) -> Iterator[RuleProblem]:
    """Every pool of the order is a cloud pool, named once."""
    seen: set[str] = set()
    meant: set[str] = set()
    for index, name in enumerate(fleet.burst.order):
        path = ("burst", "order", index)
        if name in fleet.onprem_pools:
            yield RuleProblem(path, name, "is an on-prem pool; burst.order names cloud pools only")
        elif name not in fleet.pools:
            yield RuleProblem(path, name, f"no such cloud pool{did_you_mean(name, fleet.cloud_pools)}")
            meant.update(nearest(name, fleet.cloud_pools))
        elif name in seen:
            yield RuleProblem(path, name, "is named twice; name each pool once")
        seen.add(name)
    for name, pool in fleet.cloud_pools.items():
        if name not in seen | meant and not pool.partitioned:
            yield RuleProblem(("pools", name), name, "is in no burst.order, so no job could use it; add it there")


def burst_goes_to_whole_gpus(fleet: Fleet) -> Iterator[RuleProblem]:
    """A released job keeps its request for whole GPUs; a partitioned pool could not serve it."""
    for index, name in enumerate(fleet.burst.order):
        pool = fleet.cloud_pools.get(name)
        if pool is not None and pool.partitioned:
            reason = "its GPUs are partitioned, and burst jobs ask for whole ones; take it out of burst.order"
            yield RuleProblem(("burst", "order", index), name, reason)


def list_prices_are_known(fleet: Fleet) -> Iterator[RuleProblem]:
    """A pool without a price of its own has a list price in its region."""
    for name, pool in fleet.pools.items():
        if not isinstance(pool, InstancePool) or not pool.unlisted_types or pool.cluster not in fleet.clusters:
            continue
        if pool.region is None:
            reason = "the list price needs the region (e.g. region: us-east-1); or set usd_per_gpu_hour"
        else:
            reason = f"no list price of {', '.join(pool.unlisted_types)} in {pool.region}; set usd_per_gpu_hour"
        yield RuleProblem(("pools", name), None, reason)


def flavors_are_one_kind_of_gpu(fleet: Fleet) -> Iterator[RuleProblem]:
    """Pools of one flavor have the same GPUs in the same place, and its name fits into a node label."""
    first: dict[str, str] = {}
    for name, pool in fleet.pools.items():
        flavor = flavor_name(pool)
        other = fleet.pools[first.setdefault(flavor, name)]
        if len(flavor) > _LONGEST_LABEL_VALUE:
            reason = f"its flavor would be called {flavor}, and a label has {_LONGEST_LABEL_VALUE} characters at most"
            yield RuleProblem(("pools", name), name, f"{reason}; shorten the provider's name")
        if (pool.gpu, pool.location, pool.partitioned) != (other.gpu, other.location, other.partitioned):
            reason = f"its flavor would be called {flavor} like that of pool {first[flavor]}, which is another kind"
            yield RuleProblem(("pools", name), name, f"{reason}; rename the provider")


def queues_stay_within_the_limits_of_kueue(fleet: Fleet) -> Iterator[RuleProblem]:
    """A queue takes so many flavors and resources, and no more."""
    devices = {device for flavor in fleet.flavors.values() for device in flavor.devices}
    for count, what in ((len(fleet.flavors), "flavors"), (len(devices) + 2, "resources")):
        if count > _MOST_IN_A_GROUP:
            reason = f"make {count} {what}, and a queue of Kueue takes {_MOST_IN_A_GROUP}; use fewer kinds of pools"
            yield RuleProblem(("pools",), None, reason)


def limits_hold_a_node(fleet: Fleet) -> Iterator[RuleProblem]:
    """A pool that may grow may grow by a whole node; 0 switches it off."""
    for name, pool in fleet.cloud_pools.items():
        least = pool.fewest_gpus_per_node if isinstance(pool, InstancePool) else pool.gpus_per_node
        if 0 < pool.gpus < least:
            reason = f"is less than the {least} GPUs of one node, so none could start; allow a node, or 0 for none"
            yield RuleProblem(("pools", name, "max_gpus"), pool.gpus, reason)


def quotas_name_local_flavors(fleet: Fleet) -> Iterator[RuleProblem]:
    """Quota, borrow and lend name flavors of on-prem pools; cloud use is limited by max_burst_gpus and budgets."""
    flavors = fleet.flavors
    local = [flavor.name for flavor in flavors.values() if not flavor.cloud]
    for team_name, team in fleet.teams.items():
        for field in ("quota", "borrow", "lend"):
            for name in getattr(team, field):
                path = ("teams", team_name, field, name)
                if name in flavors and flavors[name].cloud:
                    yield RuleProblem(path, name, "is a cloud flavor; limit it with max_burst_gpus and budget")
                elif "/" in name:
                    reason = "is a resource, and quota is of flavors, with which their slices and shares go along"
                    yield RuleProblem(path, name, f"{reason}{did_you_mean(name, local)}")
                elif name not in flavors:
                    yield RuleProblem(path, name, f"no such flavor{did_you_mean(name, local)}")


def quotas_fit_the_supply(fleet: Fleet) -> Iterator[RuleProblem]:
    """The teams' quotas of a flavor sum to no more than its GPUs."""
    for flavor in fleet.flavors.values():
        promised = sum(team.quota.get(flavor.name, 0) for team in fleet.teams.values())
        if not flavor.cloud and promised > flavor.gpus:
            shares = ", ".join(
                f"{name} {team.quota[flavor.name]}" for name, team in fleet.teams.items() if flavor.name in team.quota
            )
            reason = f"quotas of {flavor.name} sum to {promised} GPUs ({shares}) but its pools have {flavor.gpus}"
            yield RuleProblem(("teams",), promised, f"{reason}; lower a quota or add nodes")


def classes_have_somewhere_to_run(fleet: Fleet) -> Iterator[RuleProblem]:
    """Each market that a class names is one that a pool has which its jobs can reach."""
    reached = [pool.market for name, pool in fleet.cloud_pools.items() if name in fleet.burst.order]
    offered = {*reached, *(["onprem"] if fleet.onprem_pools else [])}
    for name, job_class in fleet.classes.items():
        for index, market in enumerate(job_class.markets or ()):
            if market not in offered:
                reason = f"no pool has {market}; the pools have {', '.join(sorted(offered))}"
                yield RuleProblem(("classes", name, "markets", index), market, reason)


def schedules_start_what_a_cloud_pool_has(fleet: Fleet) -> Iterator[RuleProblem]:
    """A schedule names a cloud pool of the burst order and no more GPUs than it may have."""
    for name, prewarm in fleet.capacity.schedule.items():
        path = ("capacity", "schedule", name)
        pool = fleet.cloud_pools.get(prewarm.pool)
        if pool is None:
            hint = did_you_mean(prewarm.pool, fleet.cloud_pools)
            yield RuleProblem((*path, "pool"), prewarm.pool, f"no such cloud pool{hint}")
        elif prewarm.pool not in fleet.burst.order:
            reason = "is not in burst.order, so no job could use what it starts"
            yield RuleProblem((*path, "pool"), prewarm.pool, reason)
        elif prewarm.gpus > pool.gpus:
            reason = f"pool {prewarm.pool} has at most {pool.gpus} GPUs; ask for fewer, or raise its limit"
            yield RuleProblem((*path, "gpus"), prewarm.gpus, reason)
