"""What becomes of a fleet when one version of its file replaces another: objects, dangers, money.

Both versions are only files here: whether a cluster agrees with the old one, `pulumi preview` says.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from infra.coverage import parts_without_components
from infra.planning.compare import ABSENT, Difference, differences
from infra.planning.costs import Costs, PoolCost, costs_of
from infra.planning.dangers import dangers
from infra.planning.objects import Identity, Manifest, identity, node_patches, objects_of
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

    added: tuple[Identity, ...]
    removed: tuple[Identity, ...]
    changed: tuple[Changed, ...]
    dangers: tuple[str, ...]
    """What of it destroys, disturbs or forgets something."""

    parts: tuple[Difference, ...]
    """Settings of parts that have no objects yet, by their path in the file."""

    budgets: tuple[Difference, ...]
    pools: tuple[CostChange, ...]
    """Pools whose cost differs."""

    costs: tuple[Costs, Costs]

    def __bool__(self) -> bool:
        """Whether anything differs."""
        return any((self.added, self.removed, self.changed, self.dangers, self.parts, self.budgets, self.pools))


def changes(old: Fleet, new: Fleet) -> Changes:
    """Compare two versions of a fleet."""
    before, after = _by_identity(old), _by_identity(new)
    shared = [(one, tuple(differences(before[one], after[one]))) for one in after if one in before]
    costs = costs_of(old), costs_of(new)
    return Changes(
        added=tuple(one for one in after if one not in before),
        removed=tuple(one for one in before if one not in after),
        changed=tuple(Changed(one, fields) for one, fields in shared if fields),
        dangers=tuple(dangers(old, new)),
        parts=tuple(_parts(old, new)),
        budgets=tuple(_budgets(old, new)),
        pools=tuple(_pools(*costs)),
        costs=costs,
    )


def _by_identity(fleet: Fleet) -> dict[Identity, Manifest]:
    return {identity(one): one for one in [*objects_of(fleet), *node_patches(fleet)]}


def _budgets(old: Fleet, new: Fleet) -> Iterator[Difference]:
    before, after = _budgets_of(old), _budgets_of(new)
    for path in [*before, *(path for path in after if path not in before)]:
        yield from differences(before.get(path, {}), after.get(path, {}), path)


def _budgets_of(fleet: Fleet) -> dict[str, dict[str, Any]]:
    """The budgets by their path in the file."""
    budgets = {"burst.budget": fleet.burst.budget}
    teams = {f"teams.{name}.budget": team.budget for name, team in fleet.teams.items()}
    found = {**budgets, **teams}
    return {path: one.model_dump(mode="json", exclude_none=True) for path, one in found.items() if one is not None}


def _pools(old: Costs, new: Costs) -> Iterator[CostChange]:
    before, after = ({cost.pool: cost for cost in [*costs.owned, *costs.rented]} for costs in (old, new))
    for name in [*before, *(name for name in after if name not in before)]:
        if before.get(name) != after.get(name):
            yield CostChange(name, before.get(name), after.get(name))


def _parts(old: Fleet, new: Fleet) -> Iterator[Difference]:
    """The settings of the parts that are planned only; their whole setting, as nothing else shows its changes."""
    before, after = (fleet.model_dump(mode="json", exclude_none=True) for fleet in (old, new))
    named = [part.partition(": ")[0] for fleet in (old, new) for part in parts_without_components(fleet)]
    paths = dict.fromkeys(tuple(name.split(".")) for name in named)
    for path in paths:
        if not any(path[:length] in paths for length in range(1, len(path))):  # the part above it shows it already
            yield from differences(_at(before, path), _at(after, path), ".".join(path))


def _at(value: Any, path: Sequence[str]) -> Any:
    for key in path:
        value = value.get(key, ABSENT) if isinstance(value, dict) else ABSENT
    return value
