"""Teams' quotas in the flavors of the fleet, from amounts in Kueue's flavors, never more than there is."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from infra.discovery.findings import FoundTeam, Part, Share
from stacks.flavors import Flavor

_UNLIMITED: Final = 1_000_000
"""The most GPUs that the file takes; people write more into Kueue where they mean no limit."""


@dataclass(slots=True)
class Allotment:
    """Hands out the GPUs of each local flavor: who comes first gets what Kueue says, later ones what is left."""

    flavors: Mapping[str, Flavor]
    flavor_pools: Mapping[str, tuple[str, ...]]
    _left: dict[str, int] = field(init=False)

    def __post_init__(self) -> None:
        self._left = {name: flavor.gpus for name, flavor in self.flavors.items() if not flavor.cloud}

    def team(self, found: FoundTeam) -> Part:
        """The team with its quota."""
        remarks = list(found.part.remarks)
        quota: dict[str, int] = {}
        borrow: dict[str, int] = {}
        lend: dict[str, int] = {}
        cloud, extra = 0, None
        for share in found.shares:
            flavor = self._flavor(share, remarks)
            if flavor is None:
                continue
            if flavor.cloud:
                cloud += share.nominal
                extra = max(extra or 0, share.borrow) if share.borrow is not None else extra
                continue
            quota[flavor.name] = max(quota.get(flavor.name, 0), _gpus(flavor, share.resource, share.nominal))
            if share.borrow is not None:
                borrow[flavor.name] = max(borrow.get(flavor.name, 0), _gpus(flavor, share.resource, share.borrow))
            if share.lend is not None:
                lend[flavor.name] = max(lend.get(flavor.name, 0), _gpus(flavor, share.resource, share.lend))
        settings: dict[str, Any] = {"quota": {name: self._take(name, gpus, remarks) for name, gpus in quota.items()}}
        settings["quota"] = {name: gpus for name, gpus in settings["quota"].items() if gpus}
        settings |= {"borrow": borrow} if borrow else {}
        lend = {name: min(gpus, settings["quota"].get(name, 0)) for name, gpus in lend.items()}
        settings |= {"lend": lend} if lend else {}
        if (cloud or extra is not None) and "max_burst_gpus" not in found.part.settings:
            settings["max_burst_gpus"] = min(cloud + (extra or 0), _UNLIMITED)
        return Part(found.part.name, {**found.part.settings, **settings}, found.part.notes, tuple(remarks))

    def evenly(self, names: Iterable[str]) -> list[Part]:
        """Teams that share all local GPUs alike; the first get what cannot be divided."""
        teams = list(names)
        parts = []
        for place, name in enumerate(teams):
            quota = {flavor: gpus // len(teams) + (place < gpus % len(teams)) for flavor, gpus in self._left.items()}
            note = "REVIEW: an even share of the GPUs of your own" if self._left else "no GPUs of your own"
            parts.append(Part(name, {"quota": {key: gpus for key, gpus in quota.items() if gpus}}, {"quota": note}))
        return parts

    def _flavor(self, share: Share, remarks: list[str]) -> Flavor | None:
        if share.flavor in self.flavors:
            names = {share.flavor}
        else:
            pools = set(self.flavor_pools.get(share.flavor, ()))
            names = {flavor.name for flavor in self.flavors.values() if pools & set(flavor.pools)}
        fitting = [self.flavors[name] for name in sorted(names) if share.resource in self.flavors[name].devices]
        if len(fitting) == 1:
            return fitting[0]
        if share.nominal:
            several = ", ".join(one.name for one in fitting)
            why = f"selects nodes of {several}" if several else "selects no nodes of a pool that offers it"
            remarks.append(f"REVIEW: {share.nominal:,} {share.resource} of flavor {share.flavor} left out: it {why}.")
        return None

    def _take(self, flavor: str, wanted: int, remarks: list[str]) -> int:
        given = min(wanted, self._left[flavor])
        self._left[flavor] -= given
        if given < wanted:
            remarks.append(f"REVIEW: its quota of {flavor} is {wanted:,} in Kueue; {given:,} are there or left.")
        return given


def _gpus(flavor: Flavor, resource: str, amount: int) -> int:
    """GPUs that an amount of slices or shared GPUs stands for, rounded up: quotas were rounded down."""
    devices = flavor.devices[resource]
    return min(-(-amount * flavor.gpus // devices), _UNLIMITED) if devices else 0
