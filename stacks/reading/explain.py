"""Turns pydantic's errors into the problems of a person: one mistake, one problem, at its place.

What pydantic says more than once is said once: of the branches of a union only the one that was meant; of a misspelt
key only that it is unknown, not also that the right one is missing; of a list with a wrong element not also that the
right ones are too few.

A model that refuses its settings as a whole may begin its reason with the setting to mend, `nodes.min: is more than
max`; the problem then stands there.

Pydantic checks what spans several settings only where each of them is right. A model with a wrong setting is therefore
not checked as a whole, and the rules of the whole fleet wait until every section is right by itself.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from stacks.fleet import Fleet
from stacks.model import Path
from stacks.problems import Problem
from stacks.reading.branches import meant
from stacks.reading.echo import looks_secret, with_value_once
from stacks.reading.messages import Said, broken_rule, describe, unknown_setting
from stacks.reading.positions import Positions
from stacks.reading.trail import Choice, Trail, follow, settings_of
from stacks.suggest import nearest

_SETTING_FIRST: Final = re.compile(r"([^\s:]+): (.+)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class _Error:
    detail: ErrorDetails
    trail: Trail

    @property
    def kind(self) -> str:
        return self.detail["type"]


def explain(error: ValidationError, value: object, positions: Positions, whole: Path) -> Iterator[Problem]:
    """The problems of a value that is no fleet; `whole` is what the value itself is called.

    What is wrong with a value that no one wrote, but that was taken from elsewhere in the file, is wrong there already.
    """
    found = [_Error(detail, _trail(detail)) for detail in error.errors(include_url=False)]
    said = list(_say(found, value))
    written = [one for one in said if one.code != "bad-value" or _at(value, one.path) is not None]
    for path, code, message in written or said:
        yield positions.of(path).problem(code, message, path or whole)


def _trail(detail: ErrorDetails) -> Trail:
    if detail["type"] == "fleet_rule":
        return Trail(detail["loc"], (), (), ())  # a rule's path is the file's
    return follow(Fleet, detail["loc"])


def _say(found: Sequence[_Error], value: object) -> Iterator[Said]:
    errors, instead = _meant(found, value)
    yield from instead
    missing: dict[Path, list[str]] = {}
    for error in errors:
        if error.kind == "missing":
            missing.setdefault(error.trail.path[:-1], []).append(str(error.trail.path[-1]))
    misspelt: set[Path] = set()
    for error in errors:
        if error.kind == "extra_forbidden":
            *above, name = error.trail.path
            beside = tuple(missing.get(tuple(above), ()))
            misspelt |= {(*above, one) for one in nearest(str(name), beside)}
            yield Said(error.trail.path, "unknown-setting", unknown_setting(str(name), error.trail.siblings, beside))
    for error in errors:
        if error.kind == "extra_forbidden" or _is_false(error) or error.trail.path in misspelt:
            continue
        if error.kind == "fleet_rule":
            yield Said(error.trail.path, *broken_rule(error.detail))
        else:
            said = _tag(error) or _at_its_setting(error, value)
            yield said or Said(error.trail.path, *describe(error.detail, error.trail))


def _is_false(error: _Error) -> bool:
    """Whether only the elements that are right are too few."""
    return error.kind == "too_short" and len(error.detail["input"]) >= error.detail.get("ctx", {})["min_length"]


def _tag(error: _Error) -> Said | None:
    """A wrong tag of a union at its own place; one that seems misspelt is an unknown setting."""
    if error.kind not in ("union_tag_invalid", "union_tag_not_found"):
        return None
    tag = str(error.detail.get("ctx", {})["discriminator"]).strip("'")
    if error.kind == "union_tag_invalid":
        return Said((*error.trail.path, tag), *describe(error.detail, error.trail))
    given = error.detail["input"]
    known = settings_of(error.trail.types) if given and isinstance(given, dict) else ()
    for key in given if known else ():
        if isinstance(key, str) and key not in known and nearest(key, [tag]):
            return Said((*error.trail.path, key), "unknown-setting", unknown_setting(key, known, (tag,)))
    return None


def _at_its_setting(error: _Error, value: object) -> Said | None:
    """What a model says of one of its settings, at that setting; one that the file leaves out is missing."""
    if error.kind != "value_error" or not (settings := error.trail.settings):
        return None
    found = _SETTING_FIRST.fullmatch(str(error.detail.get("ctx", {})["error"]))
    first, *others = found[1].split(".") if found else [""]
    first = error.trail.alias(first)
    if found is None or first not in settings:
        return None
    path, is_there, given = _walk(error.trail.path, [first, *others], _at(value, error.trail.path))
    given = None if isinstance(given, bool) else given  # said well enough by the setting's name
    reason = with_value_once(found[2], given, secret=looks_secret(path))
    return Said(path, "bad-value" if is_there else "missing-setting", reason)


def _walk(path: Path, parts: list[str], given: Any) -> tuple[Path, bool, Any]:
    """The path below a value, whether all of it is in the file, and what stands there; keys may hold dots."""
    step: str | int
    while parts:
        if isinstance(given, list) and parts[0].isdecimal() and int(parts[0]) < len(given):
            length, step = 1, int(parts[0])
        elif isinstance(given, dict):
            lengths = (length for length in range(len(parts), 0, -1) if ".".join(parts[:length]) in given)
            length = next(lengths, 0)
            step = ".".join(parts[:length])
        else:
            length, step = 0, ""
        if not length:
            return (*path, *parts), False, {}
        path, parts, given = (*path, step), parts[length:], given[step]
    return path, True, given


def _meant(errors: Sequence[_Error], value: object) -> tuple[list[_Error], list[Said]]:
    """The errors without those of union branches that nobody meant, and what is said instead of some."""
    choices: dict[Path, dict[str, Choice]] = {}
    counts: dict[Path, dict[str, int]] = {}
    for error in errors:
        for choice in error.trail.choices:
            choices.setdefault(choice.union, {}).setdefault(choice.label, choice)
            count = counts.setdefault(choice.union, {})
            count[choice.label] = count.get(choice.label, 0) + 1
    chosen = {
        union: meant(tuple(found.values()), counts[union], _at(value, next(iter(found.values())).path))
        for union, found in choices.items()
    }
    kept = [error for error in errors if _is_meant(error, chosen)]
    return kept, [said for one in chosen.values() if isinstance(one, list) for said in one]


def _is_meant(error: _Error, chosen: Mapping[Path, str | list[Said]]) -> bool:
    return all(chosen[choice.union] == choice.label for choice in error.trail.choices)


def _at(value: Any, path: Path) -> Any:
    for part in path:
        if isinstance(value, dict):
            value = value.get(part)
        elif isinstance(value, list) and isinstance(part, int) and part < len(value):
            value = value[part]
        else:
            return None
    return value
