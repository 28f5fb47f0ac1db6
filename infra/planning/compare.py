"""The differences of two plain values, field by field, as people say them: `spec.replicas: 1 -> 2`.

Lists of things with a name are compared by the names, so that one more at the front is one more and not all of them
changed; so are texts that hold YAML, such as the agent's configuration. It knows nothing of Kubernetes.

Invariants: no difference is found exactly where the values are equal; the order is that of the values.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import yaml

from stacks.problems import printable

ABSENT: Final = object()
"""Stands for a value that a side does not have."""

_PLAIN_KEY: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*")
_LONGEST_VALUE: Final = 60  # characters of one value; two and a path then fit in two lines of a terminal
_LONGEST_KEY: Final = 120
_LOADER: Final = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


@dataclass(frozen=True, slots=True)
class Difference:
    """One field that differs; None where a side does not have it."""

    path: str
    old: str | None
    new: str | None

    def __str__(self) -> str:
        """`path: old -> new`, or what was added or removed."""
        if self.old is None:
            return f"{self.path}: added {self.new}"
        if self.new is None:
            return f"{self.path}: removed {self.old}"
        return f"{self.path}: {self.old} -> {self.new}"


def differences(old: Any, new: Any, path: str = "") -> Iterator[Difference]:
    """Every field that differs, as deep as both sides have the same form."""
    if old == new:
        return
    before, after = _parts(old), _parts(new)
    found: list[Difference] = []
    if before is not None and after is not None:
        in_list = isinstance(old, list | tuple)
        if in_list:
            found += _order(list(before), list(after), path)
        for key in [*before, *(key for key in after if key not in before)]:
            below = _below(path, key, in_list=in_list)
            found += differences(before.get(key, ABSENT), after.get(key, ABSENT), below)
    yield from found or [Difference(path, _said(old), _said(new))]


def _order(before: list[str], after: list[str], path: str) -> Iterator[Difference]:
    """What both lists have, in another order: the order of flavors, for one, is the order in which they are tried."""
    first, second = [name for name in before if name in after], [name for name in after if name in before]
    if first != second:
        yield Difference(f"{path} (order)".lstrip(), _said(first), _said(second))


def _parts(value: Any) -> Mapping[str, Any] | None:
    """What a value consists of, by name; None for one that is compared as a whole."""
    if isinstance(value, str) and "\n" in value:
        value = _yaml(value)
    if isinstance(value, Mapping):
        return {str(key): inner for key, inner in value.items()}
    if isinstance(value, list | tuple) and value:
        names = [item.get("name") if isinstance(item, Mapping) else None for item in value]
        if all(isinstance(name, str) for name in names) and len(set(names)) == len(names):
            return dict(zip(map(str, names), value, strict=True))
    return None


def _yaml(text: str) -> Any:
    try:
        return yaml.load(text, Loader=_LOADER)
    except yaml.YAMLError:
        return None


def _below(path: str, key: str, *, in_list: bool) -> str:
    key = printable(key, _LONGEST_KEY)
    if in_list or not _PLAIN_KEY.fullmatch(key):
        return f"{path}[{key}]"
    return f"{path}.{key}" if path else key


def _said(value: Any) -> str | None:
    if value is ABSENT:
        return None
    if isinstance(value, str):
        return _cut(value if value and value == value.strip() else json.dumps(value))
    if isinstance(value, Mapping | Sequence) and len(value) == 0:
        return "{}" if isinstance(value, Mapping) else "[]"
    return _cut(json.dumps(value, default=str))


def _cut(text: str) -> str:
    """A value in one line, and in ASCII as far as it is, so that it passes through any pipe."""
    return printable(text if len(text) <= _LONGEST_VALUE else f"{text[: _LONGEST_VALUE - 3]}...", _LONGEST_VALUE)
