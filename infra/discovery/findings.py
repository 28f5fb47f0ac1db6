"""What a cluster turned out to hold, in the terms of the fleet file, with where each figure comes from.

Prices are not here: a cluster does not know them, except where a gpufleet agent was told.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from stacks.agent_config import AgentConfig

CLUSTER: Final = "cluster"
"""Name of the cluster in the file, until the draft gives it another."""


@dataclass(frozen=True, slots=True)
class Part:
    """One entry of a section of the file, e.g. a pool."""

    name: str
    settings: Mapping[str, Any]
    """As the file has them, in its order."""
    notes: Mapping[str, str] = field(default_factory=dict)
    """Where a setting comes from, or what to review about it, by setting."""
    remarks: tuple[str, ...] = ()
    """What is to say about the whole part."""


@dataclass(frozen=True, slots=True)
class Share:
    """A team's amounts of one resource of one of Kueue's flavors."""

    flavor: str
    resource: str
    nominal: int
    borrow: int | None = None
    lend: int | None = None


@dataclass(frozen=True, slots=True)
class FoundTeam:
    """A team, with its quota still by Kueue's flavors."""

    part: Part
    shares: tuple[Share, ...] = ()


@dataclass(frozen=True, slots=True)
class Taken:
    """Names of objects that somebody else made: pulumi creates nothing under a name that is taken."""

    namespaces: frozenset[str] = frozenset()
    cluster_queues: frozenset[str] = frozenset()
    cohorts: frozenset[str] = frozenset()
    classes: frozenset[str] = frozenset()
    flavors: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Findings:
    """Everything found."""

    organization: str = ""
    organization_source: str = ""
    pools: tuple[Part, ...] = ()
    flavor_pools: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Kueue's flavors → the pools whose nodes they select."""
    teams: tuple[FoundTeam, ...] = ()
    classes: tuple[Part, ...] = ()
    deployed: AgentConfig | None = None
    """What the gpufleet agent of this cluster is told, where there is one."""
    agent: Part | None = None
    taken: Taken = Taken()
    left_out: tuple[str, ...] = ()
    """What the file cannot hold, and why."""
    remarks: tuple[str, ...] = ()
    """What else is to say, e.g. what could not be read."""

    @property
    def rents(self) -> bool:
        """Whether there are rented nodes."""
        return any(part.settings["location"] != "onprem" for part in self.pools)

    @property
    def gpu(self) -> str | None:
        """The model that most of the owned GPUs are of."""
        owned = [part.settings for part in self.pools if part.settings["location"] == "onprem"]
        largest = max(owned, key=lambda one: one["nodes"] * one["gpus_per_node"], default=None)
        return str(largest["gpu"]) if largest else None
