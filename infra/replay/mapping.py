"""Translates the teams and classes that a trace names into those of the fleet.

An unknown name is never guessed: it is mapped because someone asked for it, or the row is dropped and counted.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from infra.replay.errors import TraceError
from stacks.fleet import Fleet
from stacks.suggest import did_you_mean

OTHERS: Final = "*"
"""As a key of a mapping: every name that is neither mapped nor known."""


class NameMap:
    """Finds the fleet's name for a name of the trace; case does not matter."""

    def __init__(self, kind: str, known: Iterable[str], mapping: Mapping[str, str], empty: str | None = None) -> None:
        """Check that every target of the mapping exists.

        Args:
            kind: What is mapped, for messages and the option's name: `team` or `class`.
            known: The fleet's names.
            mapping: Name of the trace to name of the fleet.
            empty: What an empty cell means; None where it may not be empty.

        Raises:
            TraceError: naming the option, for a target that is no name of the fleet.
        """
        names = {name.lower(): name for name in known}
        self._names: dict[str, str] = dict(names)
        for source, target in mapping.items():
            if target.lower() not in names:
                raise TraceError(
                    f"--map-{kind} {source}={target}: the fleet has no {kind} {target}"
                    f"{did_you_mean(target, names.values())}"
                )
            self._names[source.lower()] = names[target.lower()]
        self._others = self._names.pop(OTHERS, None)
        self._empty = empty

    def find(self, name: str) -> str | None:
        """The fleet's name, None where there is none."""
        if not name:
            return self._empty
        return self._names.get(name.lower(), self._others)


def team_map(fleet: Fleet, mapping: Mapping[str, str]) -> NameMap:
    """The mapping of teams."""
    return NameMap("team", fleet.teams, mapping)


def class_map(fleet: Fleet, mapping: Mapping[str, str]) -> NameMap:
    """The mapping of classes; a job that names none belongs to the fleet's default class."""
    default = next(name for name, job_class in fleet.classes.items() if job_class.default)
    return NameMap("class", fleet.classes, mapping, default)


def spread_by_size(fleet: Fleet, sizes: Mapping[str, float]) -> dict[str, str]:
    """Map unknown teams, largest first, in turn onto the fleet's teams, largest quota first.

    Args:
        fleet: Whose teams to spread them over.
        sizes: GPU-seconds of each unknown team.
    """
    targets = sorted(fleet.teams, key=lambda name: (-sum(fleet.teams[name].quota.values()), name))
    sources = sorted(sizes, key=lambda name: (-sizes[name], name))
    return {source: targets[index % len(targets)] for index, source in enumerate(sources)}
