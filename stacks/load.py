"""Reads a stack file into a Fleet, or reports everything that is wrong with it, by line and column.

The same checks serve the command line, `pulumi preview` and the editor's schema. Nothing is ever half-read: the result
is a Fleet or a ConfigError.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import yaml
from pydantic import ValidationError
from pydantic_core import ErrorDetails

from stacks.fleet import Fleet
from stacks.messages import message
from stacks.positions import Positions, duplicate_keys
from stacks.suggest import did_you_mean

KEY: Final = "gpufleet:fleet"
"""The one configuration key that holds the whole fleet."""

_LARGEST: Final = 4 * 2**20  # bytes; the largest plausible file (thousands of pools) is far below


@dataclass(frozen=True, slots=True, order=True)
class Problem:
    """One thing that is wrong; line and column count from 1, and are 0 where the text is not at hand."""

    file: str
    line: int
    column: int
    path: str
    message: str

    def __str__(self) -> str:
        """The one-line form, `file:line:column: path: message`."""
        place = f"{self.file}:{self.line}:{self.column}" if self.line else self.file
        return f"{place}: {self.path}: {self.message}" if self.path else f"{place}: {self.message}"


class ConfigError(Exception):
    """The file is wrong; `problems` has every reason, sorted by line."""

    def __init__(self, problems: list[Problem]) -> None:
        self.problems = sorted(set(problems))
        super().__init__("\n".join(map(str, self.problems)))


def load_file(path: Path, *, display: str | None = None) -> Fleet:
    """Read a stack file.

    Raises:
        ConfigError: when the file cannot be read or is wrong in any way.
    """
    name = display or str(path)
    try:
        size = path.stat().st_size
        if size > _LARGEST:
            raise ConfigError([Problem(name, 0, 0, "", f"is {size:,} bytes; a stack file is at most {_LARGEST:,}")])
        text = path.read_text("utf-8")
    except OSError as error:
        raise ConfigError([Problem(name, 0, 0, "", f"cannot be read: {error.strerror or error}")]) from None
    except UnicodeDecodeError as error:
        raise ConfigError([Problem(name, 0, 0, "", f"is not UTF-8 text (byte {error.start})")]) from None
    return load_text(text, name)


def load_text(text: str, name: str) -> Fleet:
    """Read the text of a stack file; `name` is what problems call it.

    Raises:
        ConfigError: when the text is wrong in any way.
    """
    try:
        root = yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line, column = (mark.line + 1, mark.column + 1) if mark else (0, 0)
        raise ConfigError([Problem(name, line, column, "", f"not YAML: {error.problem}")]) from None
    except (yaml.YAMLError, RecursionError) as error:
        raise ConfigError([Problem(name, 0, 0, "", f"not YAML: {str(error).splitlines()[0]}")]) from None
    if doubled := [
        Problem(name, mark.line + 1, mark.column + 1, path, "is written twice; the first would be lost silently")
        for path, mark in duplicate_keys(root)
    ]:
        raise ConfigError(doubled)
    try:
        document = yaml.safe_load(text)
    except (yaml.YAMLError, ValueError) as error:
        raise ConfigError([Problem(name, 0, 0, "", f"not YAML: {str(error).splitlines()[0]}")]) from None
    positions = Positions(root, ("config", KEY))
    config = document.get("config") if isinstance(document, dict) else None
    if not isinstance(config, dict) or KEY not in config:
        reason = f"has no config.{KEY}; see stacks/Pulumi.local.yaml for an example"
        raise ConfigError([Problem(name, 1, 1, "", reason)])
    stray = _stray_keys(config, name, Positions(root, ("config",)))
    return load_object(config[KEY], name, positions, stray)


def load_stack(path: Path, resolved: object, *, display: str | None = None) -> Fleet:
    """Read the configuration that Pulumi resolved, with places from the stack file where that is what it says.

    Another file (`--config-file`) or a default of Pulumi.yaml may have supplied the object; problems then name their
    path in the object alone.

    Raises:
        ConfigError: when the object is wrong in any way.
    """
    try:
        document = yaml.safe_load(path.read_text("utf-8"))
        from_file = document["config"][KEY] == resolved
    except (OSError, ValueError, yaml.YAMLError, KeyError, TypeError):
        from_file = False
    return load_file(path, display=display) if from_file else load_object(resolved, KEY)


def load_object(
    value: object, name: str, positions: Positions | None = None, problems: list[Problem] | None = None
) -> Fleet:
    """Read the resolved configuration object, as Pulumi hands it to the program.

    Raises:
        ConfigError: when the object is wrong in any way, or `problems` found earlier is not empty.
    """
    problems = list(problems or [])
    positions = positions or Positions(None, ())
    problems += _encrypted(value, name, positions)
    if problems:
        raise ConfigError(problems)
    try:
        return Fleet.model_validate(value)
    except ValidationError as error:
        details = error.errors(include_url=False)
        raise ConfigError([_problem(detail, value, name, positions) for detail in details]) from None


def _stray_keys(config: Mapping[str, object], name: str, positions: Positions) -> list[Problem]:
    return [
        Problem(
            name,
            *positions.of((key,)),
            key,
            f"only {KEY} and secrets belong here{did_you_mean(key, [KEY])}",
        )
        for key, value in config.items()
        if key.startswith("gpufleet:") and key != KEY and not (isinstance(value, dict) and set(value) == {"secure"})
    ]


def _encrypted(value: object, name: str, positions: Positions, path: tuple[str | int, ...] = ()) -> Iterator[Problem]:
    if isinstance(value, dict):
        if set(value) == {"secure"}:
            reason = "an encrypted value may not stand inside the object; make it a sibling secret and name it here"
            yield Problem(name, *positions.of(path), _dotted(path), reason)
            return
        for key, child in value.items():
            yield from _encrypted(child, name, positions, (*path, key))
    elif isinstance(value, list):
        for index, child in enumerate(value):
            yield from _encrypted(child, name, positions, (*path, index))


def _problem(detail: ErrorDetails, value: object, name: str, positions: Positions) -> Problem:
    path = _in_the_file(detail["loc"], value)
    if detail["type"] == "missing":
        path = (*path, detail["loc"][-1])
    return Problem(name, *positions.of(path), _dotted(path), message(detail, path))


def _in_the_file(loc: tuple[str | int, ...], value: Any) -> tuple[str | int, ...]:
    """Drop the parts that pydantic adds (union tags, `[key]`), keep those that lead through the value."""
    path: list[str | int] = []
    for part in loc:
        if _has(value, part):
            value = value[part]
            path.append(part)
    return tuple(path)


def _has(value: object, part: str | int) -> bool:
    if isinstance(value, list):
        return isinstance(part, int) and part < len(value)
    return isinstance(value, dict) and part in value


def _dotted(path: tuple[str | int, ...]) -> str:
    return ".".join(map(str, path))
