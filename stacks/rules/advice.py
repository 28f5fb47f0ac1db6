"""What is not wrong, and yet probably not meant: warnings, which `strict` turns into errors."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Final, assert_never

from stacks import presets
from stacks.eviction import METADATA_PLACES, SPOT_NOTICES, STOPPING, Eviction
from stacks.flavors import flavor_name
from stacks.links import CloudPair, ExistingLink
from stacks.policies import AlwaysBurst, ComputeWait, ConstantWait, NeverBurst, PerGpuWait
from stacks.pools import InstancePool, PartitionedPool
from stacks.quantities import format_duration, format_usd
from stacks.rules.rule import RuleProblem

if TYPE_CHECKING:
    from stacks.fleet import Fleet

_LATER: Final = "is checked but has no effect in this version of gpufleet"

_FAR_ABOVE: Final = 3  # times the list price; on-demand prices of one model differ less between regions
_FAR_BELOW: Final = Decimal("0.1")  # spot has been seen at a tenth of the list price, not below


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
    """A class's longest wait above that of every policy its jobs may have bounds nothing."""
    of_teams = [team.policy or fleet.burst.policy for team in fleet.teams.values()]
    for name, job_class in fleet.classes.items():
        policies, whose = ([job_class.policy], "its policy") if job_class.policy else (of_teams, "the burst policy")
        waits = [_longest_wait(policy) for policy in policies if not isinstance(policy, NeverBurst)]
        if job_class.max_wait is None or any(job_class.max_wait <= wait for wait in waits):
            continue
        if not waits:
            reason = "bounds nothing, as the burst policy is never"
        elif not max(waits):
            reason = f"bounds nothing, as {whose} is always"
        else:
            reason = f"is longer than the {format_duration(max(waits))} that {whose} waits, so it bounds nothing"
        yield RuleProblem(("classes", name, "max_wait"), format_duration(job_class.max_wait), reason)


def _longest_wait(policy: ConstantWait | PerGpuWait | ComputeWait | AlwaysBurst) -> timedelta:
    match policy:
        case ConstantWait():
            return policy.wait
        case PerGpuWait() | ComputeWait():
            return policy.bounds[1]
        case AlwaysBurst():
            return timedelta(0)
        case _:
            assert_never(policy)


def pools_of_a_flavor_stand_together(fleet: Fleet) -> Iterator[RuleProblem]:
    """Jobs are sent to flavors, so that a pool is tried where the first pool of its flavor stands."""
    names = [flavor_name(fleet.pools[name]) for name in fleet.burst.order]
    for index, name in enumerate(names):
        if index and name in names[: index - 1] and names[index - 1] != name:
            reason = f"is tried together with {fleet.burst.order[names.index(name)]}: both are of flavor {name}"
            yield RuleProblem(("burst", "order", index), fleet.burst.order[index], reason)


def notices_reach_a_node(fleet: Fleet) -> Iterator[RuleProblem]:
    """How notices are read says nothing where no node is asked that way."""
    settings, places = fleet.eviction, {flavor.location for flavor in fleet.flavors.values()}
    metadata_only = places <= METADATA_PLACES
    if settings.notices_url is not None and (metadata_only or not settings.node_agent):
        where = "no pool is on-prem or a broker's" if metadata_only else "node_agent is false"
        yield RuleProblem(("eviction", "notices_url"), settings.notices_url, f"is asked by nobody, as {where}")
    if settings.gcp_notice != Eviction().gcp_notice and "gcp" not in places:
        written = format_duration(settings.gcp_notice)
        yield RuleProblem(("eviction", "gcp_notice"), written, "says nothing, as no pool is on Google Cloud")


def saving_fits_the_notice(fleet: Fleet) -> Iterator[RuleProblem]:
    """A job has no longer to save than a spot machine's notice lasts, less what it takes to stop it."""
    notices = {**SPOT_NOTICES, "gcp": fleet.eviction.gcp_notice}
    spot = [flavor for flavor in fleet.flavors.values() if flavor.market == "spot" and flavor.location in notices]
    if not spot or "grace" not in fleet.spot.checkpoint.model_fields_set:
        return
    first = min(spot, key=lambda flavor: notices[flavor.location])
    notice, grace = notices[first.location], fleet.spot.checkpoint.grace
    left = max(timedelta(0), notice - STOPPING)
    if grace > left:
        reason = (
            f"is longer than the {format_duration(left)} that a job on {first.name} has once it is asked to save: its "
            f"notice is {format_duration(notice)}, and {format_duration(STOPPING)} of it are kept to stop the job"
        )
        yield RuleProblem(("spot", "checkpoint", "grace"), format_duration(grace), reason)


def settings_have_an_effect(fleet: Fleet) -> Iterator[RuleProblem]:
    """Settings that this version checks and nothing carries out yet."""
    crossed = fleet.burst.data.link if fleet.burst.data else None
    for name, link in fleet.links.items():
        if name != crossed:
            yield RuleProblem(("links", name), None, _LATER)
        elif not isinstance(link, ExistingLink):
            reason = "counts in the estimates of burst.data, but this version of gpufleet does not make the link"
            yield RuleProblem(("links", name), None, reason)
    for name, pool in fleet.pools.items():
        if isinstance(pool, PartitionedPool) and pool.topology_levels:
            yield RuleProblem(("pools", name, "topology_levels"), None, _LATER)
    for name in fleet.scaling:
        yield RuleProblem(("scaling", name), None, _LATER)
    for name in fleet.capacity.schedule:
        yield RuleProblem(("capacity", "schedule", name), None, _LATER)
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
