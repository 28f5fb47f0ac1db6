"""What may not stand anywhere in the object, whatever setting it is for: encrypted values, nulls, endless nesting.

It knows no models, so it finds these also where the models do not look.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any, Final

from stacks.model import Path
from stacks.problems import ConfigError, Problem, dotted
from stacks.reading.document import DEEPEST
from stacks.reading.messages import split_number
from stacks.reading.stackfile import KEY, Found

_HALF_CHARACTER: Final = re.compile("[\ud800-\udfff]")
_SIBLING: Final = f"{KEY.partition(':')[0]}:NAME"


def refuse_as_a_whole(found: Found) -> None:
    """Raise for what the models cannot read: an encrypted object, endless nesting, broken text."""
    whole = found.positions.of(())
    if _is_encrypted(found.value):
        reason = f"the whole object is encrypted; store it as plain settings and only secrets beside it ({_SIBLING})"
        raise ConfigError([*found.problems, whole.problem("secret-inside", reason, found.name)])
    if any(len(path) > DEEPEST for _, path in _walk(found.value)):
        raise ConfigError([whole.problem("too-large", f"is nested more than {DEEPEST} levels deep")])
    if broken := list(_half_characters(found)):
        raise ConfigError([*found.problems, *broken])


def _half_characters(found: Found) -> Iterator[Problem]:
    """Text that is none, as JSON can escape half of a character; the models cannot even read it."""
    for value, path in _walk(found.value):
        if any(isinstance(text, str) and _HALF_CHARACTER.search(text) for text in (value, *path[-1:])):
            yield found.positions.of(path).problem("bad-value", "holds half of a character; write it whole", path)


def encrypted(found: Found) -> Iterator[Problem]:
    """Encrypted values, which would reach the program decrypted."""
    for value, path in _walk(found.value):
        if _is_encrypted(value):
            reason = f"an encrypted value may not stand inside the object; make it a sibling secret ({_SIBLING})"
            yield found.positions.of(path).problem("secret-inside", f"{reason} and name it here", path)


def empty(found: Found, others: Sequence[Problem]) -> Iterator[Problem]:
    """Settings without a value: commented out below, or forgotten, where a default would step in silently.

    Those that are no settings, or stand in what is of the wrong kind, are among the `others` already.
    """
    unknown = {problem.path for problem in others if problem.code == "unknown-setting"}
    wrong = {problem.path for problem in others if problem.code == "wrong-type"}
    for value, path in _walk(found.value):
        above = {dotted(path[:length]) for length in range(1, len(path))} if value is None else set()
        if value is None and path and not above & (wrong | unknown) and dotted(path) not in unknown:
            reason = split_number(str(path[-1])) or "has no value; write one, or leave the setting out"
            yield found.positions.of(path).problem("wrong-type", reason, path)


def _is_encrypted(value: object) -> bool:
    return isinstance(value, dict) and value.keys() == {"secure"}


def _walk(value: object) -> Iterator[tuple[object, Path]]:
    """Every value and where it stands; one that aliases share once, nothing below an encrypted one."""
    pending: list[tuple[Any, Path]] = [(value, ())]
    seen: set[int] = set()
    while pending:
        inner, path = pending.pop()
        yield inner, path
        if not isinstance(inner, dict | list) or id(inner) in seen or _is_encrypted(inner) or len(path) > DEEPEST:
            continue
        seen.add(id(inner))
        pending += [
            (child, (*path, key)) for key, child in (inner.items() if isinstance(inner, dict) else enumerate(inner))
        ]
