"""Whether a job fits the local quota: Kueue's own rule, over the queue tree that the fleet file makes.

It is quota alone: neither nodes, nor processors and memory, nor what preemption could free. The tree has two levels
(see components.kubernetes.kueue): each team's Cohort holds the team's quota, the organisation's none of local flavors,
so GPUs that no team owns are used by nobody.

Source of the rule: Kueue 0.19, pkg/cache/scheduler/resource_node.go, `available`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from stacks.flavors import flavors_of_pools
from stacks.fleet import Fleet

Usage = Mapping[tuple[str, str], int]
"""GPUs in use by (team, flavor)."""


@dataclass(frozen=True, slots=True)
class _Share:
    nominal: int
    guaranteed: int
    borrow: int | None


class LocalQuota:
    """The local quota of a fleet; `flavors` are the local flavors in the order Kueue tries them."""

    def __init__(self, fleet: Fleet) -> None:
        self._shares: dict[tuple[str, str], _Share] = {}
        self._shared: dict[str, int] = {}
        self._teams = tuple(fleet.teams)
        local = [flavor for flavor in flavors_of_pools(fleet.pools).values() if not flavor.cloud]
        self.flavors = tuple(flavor.name for flavor in local)
        for flavor in local:
            lendable = 0
            for name, team in fleet.teams.items():
                nominal = team.quota.get(flavor.name, 0)
                lent = team.lend.get(flavor.name, nominal)
                self._shares[name, flavor.name] = _Share(nominal, nominal - lent, team.borrow.get(flavor.name))
                lendable += lent
            self._shared[flavor.name] = lendable

    def fits(self, team: str, gpus: int, usage: Usage) -> bool:
        """Whether some local flavor has room for this many GPUs of the team."""
        return any(self.available(team, flavor, usage) >= gpus for flavor in self.flavors)

    def available(self, team: str, flavor: str, usage: Usage) -> int:
        """GPUs of the flavor that the team could still reserve, its own and borrowed."""
        share = self._shares.get((team, flavor))
        if share is None:
            return 0
        used = usage.get((team, flavor), 0)
        above = max(0, used - share.guaranteed)
        room = self._shared[flavor] - sum(self._above_guaranteed(name, flavor, usage) for name in self._teams)
        if share.borrow is not None:
            room = min(room, share.nominal - share.guaranteed - above + share.borrow)
        return max(0, share.guaranteed - used) + room

    def _above_guaranteed(self, team: str, flavor: str, usage: Usage) -> int:
        return max(0, usage.get((team, flavor), 0) - self._shares[team, flavor].guaranteed)
