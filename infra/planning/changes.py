"""What becomes of a fleet when one version of its file replaces another: settings, objects, dangers, money.

Both versions are only files here: whether a cluster agrees with the old one, `pulumi preview` says.

Invariants: no setting changes without a difference, whether or not an object shows it; each object of the old version
is either in the new one, or removed, or kept.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from infra.coverage import parts_without_components
from infra.planning.compare import ABSENT, Difference, differences
from infra.planning.costs import Costs, PoolCost, costs_of
from infra.planning.dangers import dangers, data_stays
from infra.planning.objects import KEPT_KINDS, Identity, Manifest, identity, node_patches, objects_of
from stacks.fleet import Fleet


@dataclass(frozen=True, slots=True)
class Changed:
    """An object that both versions have, with the fields that differ."""

    identity: Identity
    fields: tuple[Difference, ...]


@dataclass(frozen=True, slots=True)
class CostChange:
    """A pool in both versions; None where a version does not have it."""

    pool: str
    old: PoolCost | None
    new: PoolCost | None


@dataclass(frozen=True, slots=True)
class Changes:
    """Everything that differs."""

    settings: tuple[Difference, ...]
    """By their path in the file, with what presets and defaults fill in."""

    parts: tuple[str, ...]
    """The parts with changed settings that no component makes yet."""

    added: tuple[Identity, ...]
    removed: tuple[Identity, ...]
    kept: tuple[Identity, ...]
    """Gone from the file, and left in the cluster."""

    changed: tuple[Changed, ...]
    dangers: tuple[str, ...]
    """What of it destroys, disturbs or forgets something."""

    pools: tuple[CostChange, ...]
    """Pools whose cost differs."""

    costs: tuple[Costs, Costs]

    def __bool__(self) -> bool:
        """Whether anything differs."""
        return any((self.settings, self.added, self.removed, self.kept, self.changed, self.dangers, self.pools))


def changes(old: Fleet, new: Fleet) -> Changes:
    """Compare two versions of a fleet."""
    before, after = _by_identity(old), _by_identity(new)
    gone = [one for one in before if one not in after]
    kept = [one for one in gone if one.kind in KEPT_KINDS] if data_stays(old, new) else []
    shared = [(one, tuple(differences(before[one], after[one]))) for one in after if one in before]
    settings = _settings(old), _settings(new)
    costs = costs_of(old), costs_of(new)
    return Changes(
        settings=tuple(differences(*settings)),
        parts=tuple(_parts(old, new, *settings)),
        added=tuple(one for one in after if one not in before),
        removed=tuple(one for one in gone if one not in kept),
        kept=tuple(kept),
        changed=tuple(Changed(one, fields) for one, fields in shared if fields),
        dangers=tuple(dangers(old, new)),
        pools=tuple(_pools(*costs)),
        costs=costs,
    )


def _settings(fleet: Fleet) -> dict[str, Any]:
    return fleet.model_dump(mode="json", exclude_none=True)


def _by_identity(fleet: Fleet) -> dict[Identity, Manifest]:
    return {identity(one): one for one in [*objects_of(fleet), *node_patches(fleet)]}


def _pools(old: Costs, new: Costs) -> Iterator[CostChange]:
    before, after = ({cost.pool: cost for cost in [*costs.owned, *costs.rented]} for costs in (old, new))
    for name in [*before, *(name for name in after if name not in before)]:
        if before.get(name) != after.get(name):
            yield CostChange(name, before.get(name), after.get(name))


def _parts(old: Fleet, new: Fleet, before: Any, after: Any) -> Iterator[str]:
    for part in dict.fromkeys([*parts_without_components(old), *parts_without_components(new)]):
        path = part.partition(": ")[0].split(".")
        if _at(before, path) != _at(after, path):
            yield part


def _at(value: Any, path: Sequence[str]) -> Any:
    for key in path:
        value = value.get(key, ABSENT) if isinstance(value, dict) else ABSENT
    return value
