"""Reads a stack file into a Fleet, or reports everything that is wrong with it, by line and column.

The same checks serve the command line, `pulumi preview` and the editor's schema. Nothing is ever half-read: the result
is a Fleet or a ConfigError. The rules between sections need sections that are right by themselves, so a file with wrong
settings may show more problems once those are mended; all of one kind are always shown together.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath

from pydantic import ValidationError

from stacks.fleet import Fleet
from stacks.presets import Filled, fillings
from stacks.problems import Code, ConfigError, Problem, folded
from stacks.reading.contents import empty, encrypted, refuse_as_a_whole
from stacks.reading.explain import explain
from stacks.reading.positions import Positions
from stacks.reading.source import read_source
from stacks.reading.stackfile import KEY, Found, find
from stacks.reading.teams_file import with_teams
from stacks.rules import NOTICES, WARNINGS, Rule
from stacks.version import advice, no_version, other_version

__all__ = [
    "KEY",
    "ConfigError",
    "Problem",
    "Reading",
    "load_file",
    "load_object",
    "load_text",
    "read_file",
    "read_object",
    "read_stack",
    "read_text",
]


@dataclass(frozen=True, slots=True)
class Reading:
    """A fleet; and what in its file is probably not meant (warnings) or not done in this version (notes), by line."""

    fleet: Fleet
    warnings: tuple[Problem, ...]
    filled: tuple[Filled, ...]
    """What the file leaves out and what stands in for it."""


def read_file(path: Path, *, display: str | None = None, strict: bool = False) -> Reading:
    """Read a stack file; `display` is what problems call it.

    Raises:
        ConfigError: when the file cannot be read or is wrong in any way, which with `strict` warnings are, too.
    """
    name = display or str(path)
    return read_text(read_source(path, name), name, folder=path.parent, strict=strict)


def read_text(text: str, name: str, *, folder: Path | None = None, strict: bool = False) -> Reading:
    """Read the text of a stack file; `folder` is where its `teams_file` would be.

    Raises:
        ConfigError: when the text is wrong in any way.
    """
    return _read(find(text, name), folder, PurePosixPath(name).parent, strict)


def read_object(value: object, name: str, *, folder: Path | None = None, strict: bool = False) -> Reading:
    """Read the resolved configuration object, as Pulumi hands it to the program.

    Raises:
        ConfigError: when the object is wrong in any way.
    """
    return _read(Found(value, Positions(name)), folder, PurePosixPath(), strict)


def load_file(path: Path, *, display: str | None = None) -> Fleet:
    """The fleet of a stack file.

    Raises:
        ConfigError: when the file cannot be read or is wrong in any way.
    """
    return read_file(path, display=display).fleet


def load_text(text: str, name: str) -> Fleet:
    """The fleet of a stack file's text.

    Raises:
        ConfigError: when the text is wrong in any way.
    """
    return read_text(text, name).fleet


def load_object(value: object, name: str) -> Fleet:
    """The fleet of a resolved configuration object.

    Raises:
        ConfigError: when the object is wrong in any way.
    """
    return read_object(value, name).fleet


def read_stack(path: Path, resolved: object, *, display: str | None = None) -> Reading:
    """Read the configuration that Pulumi resolved, with places from the stack file where that says the same.

    Another file (`--config-file`) or a default of Pulumi.yaml may have supplied the object; problems then name their
    path in the object alone. A `teams_file` is looked for beside the stack file either way.

    Raises:
        ConfigError: when the object is wrong in any way.
    """
    name = display or str(path)
    try:
        found = find(read_source(path, name), name)
    except ConfigError:
        found = None
    if found is None or found.value != resolved:
        found = Found(resolved, Positions(KEY), name=())
    return _read(found, path.parent, PurePosixPath(name).parent, strict=False)


def _read(found: Found, folder: Path | None, display: PurePosixPath, strict: bool) -> Reading:
    if (version := other_version(found.value)) is not None:
        raise ConfigError([found.positions.of(("schema_version",)).problem("old-version", advice(version))])
    refuse_as_a_whole(found)
    found = with_teams(found, folder, display)
    found = found.and_wrong(encrypted(found))
    if reason := no_version(found.value):
        found = found.and_wrong([found.problem("schema_version", reason)])
    wrong: list[Problem] = []
    fleet = None
    try:
        fleet = Fleet.model_validate(found.value)
    except ValidationError as error:
        wrong += explain(error, found.value, found.positions, found.name)
    found = found.and_wrong(empty(found, wrong))
    if found.problems or fleet is None:
        raise ConfigError(folded([*found.problems, *found.unclaimed(wrong)]))
    warnings = [replace(one, severity="warning") for one in folded(_advice(WARNINGS, "rule", fleet, found.positions))]
    notes = [replace(one, severity="note") for one in folded(_advice(NOTICES, "no-effect", fleet, found.positions))]
    if warnings and (strict or fleet.strict):
        raise ConfigError([*(problem.as_error() for problem in warnings), *notes])
    return Reading(fleet, tuple(sorted((*warnings, *notes))), tuple(fillings(found.value)))


def _advice(rules: Iterable[Rule], code: Code, fleet: Fleet, positions: Positions) -> Iterator[Problem]:
    for path, _, reason in (problem for rule in rules for problem in rule(fleet)):
        yield positions.of(path).problem(code, reason, path)
