"""GPUs of every flavor as Kueue shares them out: own quota, what may be borrowed and lent, caps of the cloud.

It follows Kueue's arithmetic for the tree of docs/architecture.md: local quota stands with each team, cloud caps with
the organisation. It knows whole GPUs only: no cores or memory, no spread over nodes, and no preemption, so a team whose
own GPUs are borrowed waits here for them to come free, where Kueue would take them back at once.

Invariant: what is taken of a flavor never exceeds what is ready of it, except where it did from the start.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping
from typing import Final

from stacks.agent_config import AgentConfig, TeamConfig

OWN: Final = 0
BORROWED: Final = 1
"""Kueue admits what fits into a team's own quota before what has to be borrowed."""


class Quota:
    """What is taken of every flavor at one moment of a run."""

    def __init__(self, config: AgentConfig, capacity: Mapping[str, int]) -> None:
        self._teams = config.teams
        self._ready = {
            name: flavor.gpus if flavor.cloud else min(flavor.gpus, capacity.get(name, flavor.gpus))
            for name, flavor in config.flavors.items()
        }
        self._cloud = frozenset(name for name, flavor in config.flavors.items() if flavor.cloud)
        self._kept = {
            (team, flavor): _kept(settings, flavor) for team, settings in config.teams.items() for flavor in self._ready
        }
        self._lent = {
            flavor: sum(
                settings.quota.get(flavor, 0) - self._kept[team, flavor] for team, settings in config.teams.items()
            )
            for flavor in self._ready
        }
        self._taken: dict[str, int] = defaultdict(int)
        self._shared: dict[str, int] = defaultdict(int)
        self._by_team: dict[tuple[str, str], int] = defaultdict(int)

    def level(self, team: str, flavor: str, gpus: int) -> int | None:
        """OWN or BORROWED where the team can have so many more GPUs of a flavor now, None where it cannot."""
        settings = self._teams.get(team)
        if settings is None or flavor not in self._ready or self._taken[flavor] + gpus > self._ready[flavor]:
            return None
        used = self._by_team[team, flavor]
        if flavor in self._cloud:
            most = settings.max_burst_gpus
            return BORROWED if most is None or used + gpus <= most else None
        own = settings.quota.get(flavor, 0)
        if used + gpus > own + settings.borrow.get(flavor, math.inf):
            return None
        if self._shared[flavor] + self._beyond(team, flavor, gpus) > self._lent[flavor]:
            return None
        return OWN if used + gpus <= own else BORROWED

    def take(self, team: str, flavor: str, gpus: int) -> None:
        """Give a team GPUs of a flavor; a negative number takes them back."""
        self._shared[flavor] += self._beyond(team, flavor, gpus)
        self._taken[flavor] += gpus
        self._by_team[team, flavor] += gpus

    def _beyond(self, team: str, flavor: str, gpus: int) -> int:
        """How many more GPUs the team would use of what all teams share."""
        used, kept = self._by_team[team, flavor], self._kept.get((team, flavor), 0)
        return max(0, used + gpus - kept) - max(0, used - kept)


def _kept(team: TeamConfig, flavor: str) -> int:
    """What a team lends to nobody."""
    own = team.quota.get(flavor, 0)
    return own - min(own, team.lend.get(flavor, own))
