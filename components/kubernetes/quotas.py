"""Quotas of the queue tree: what each flavor has of every resource, and which part of it a team owns.

Quotas of the file are in GPUs; cores, memory and MIG slices go along in proportion.
"""

from __future__ import annotations

from typing import Any

from stacks.flavors import Flavor
from stacks.fleet import Fleet
from stacks.quantities import format_memory


def resources(fleet: Fleet) -> list[str]:
    """What every quota names: Kueue wants all flavors of a group to name the same."""
    return ["cpu", "memory", *fleet.queued_devices]


def resource_groups(fleet: Fleet, quotas: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The one group of a queue or cohort; Kueue refuses a group without flavors, and takes none at all."""
    return [{"coveredResources": resources(fleet), "flavors": quotas}] if quotas else []


def team_quota(fleet: Fleet, name: str, flavor: Flavor) -> dict[str, Any]:
    """What a team owns of a flavor, may borrow and lends; of the cloud it owns nothing and borrows up to its limit."""
    team = fleet.teams[name]
    if flavor.cloud:
        return quota(fleet, flavor, 0, borrow=team.max_burst_gpus)
    return quota(
        fleet,
        flavor,
        team.quota.get(flavor.name, 0),
        before=0 if flavor.whole else _owned_before(fleet, name, flavor),
        borrow=team.borrow.get(flavor.name),
        lend=team.lend.get(flavor.name),
    )


def _owned_before(fleet: Fleet, name: str, flavor: Flavor) -> int:
    return sum(team.quota.get(flavor.name, 0) for other, team in fleet.teams.items() if other < name)


def quota(
    fleet: Fleet,
    flavor: Flavor,
    gpus: int,
    *,
    before: int = 0,
    borrow: int | None = None,
    lend: int | None = None,
) -> dict[str, Any]:
    """Quota of one flavor in GPUs; cores, memory and slices go along in proportion to them.

    Args:
        fleet: The fleet, whose resources are all named.
        flavor: The flavor.
        gpus: GPUs that are owned.
        before: GPUs of the teams whose names come first, so that all teams' slices add up to what there is.
        borrow: Most GPUs beyond those.
        lend: Most of those that others may borrow.
    """
    amounts = {"borrowingLimit": borrow, "lendingLimit": lend}
    named: list[dict[str, str]] = []
    for resource in resources(fleet):
        shares = {field: _share(flavor, resource, count) for field, count in amounts.items() if count is not None}
        named.append({"name": resource, "nominalQuota": _share(flavor, resource, gpus, before), **shares})
    return {"name": flavor.name, "resources": named}


def _share(flavor: Flavor, resource: str, gpus: int, before: int = 0) -> str:
    if not flavor.gpus:
        return "0"
    if resource == "memory":
        return format_memory(flavor.memory * gpus // flavor.gpus)
    if resource != "cpu":
        return str(flavor.devices_of(resource, before + gpus) - flavor.devices_of(resource, before))
    # Thousandths of a core, so that shares which make up a whole node add up to all of its cores.
    thousandths = 1_000 * flavor.cpus * gpus // flavor.gpus
    return str(thousandths // 1_000) if thousandths % 1_000 == 0 else f"{thousandths}m"
