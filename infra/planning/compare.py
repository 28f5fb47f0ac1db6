"""The differences of two plain values, field by field, as people say them: `spec.replicas: 1 -> 2`.

Lists of things with a name are compared by the names, so that one more at the front is one more and not all of them
changed; other lists of equal length place by place; texts that hold YAML, such as the agent's configuration, by what
they hold. It knows nothing of Kubernetes.

Invariants: no difference is found exactly where the values are equal; the two sides of one never read alike, whole or
shortened; the order is that of the values.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import takewhile
from typing import Any, Final

import yaml

from stacks.problems import printable

ABSENT: Final = object()
"""Stands for a value that a side does not have."""

_PLAIN_KEY: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*")
_LONGEST_VALUE: Final = 60  # characters of a shortened value; two and a path then fit in two lines of a terminal
_SHOWN_BEFORE: Final = 20  # characters that are shown before the first one that differs
_CUT: Final = "..."
_LONGEST_KEY: Final = 120
_LOADER: Final = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


@dataclass(frozen=True, slots=True)
class Difference:
    """One field that differs, with both values whole; None where a side does not have it."""

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

    def shortened(self) -> Difference:
        """The same for one or two lines of a terminal: long values cut, around the first character that differs."""
        if self.old is None or self.new is None or _cut(self.old) != _cut(self.new):
            return replace(self, old=_cut(self.old), new=_cut(self.new))
        alike = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(self.old, self.new, strict=False)))
        start = max(0, alike - _SHOWN_BEFORE)
        old, new = (_cut(_CUT * bool(start) + side[start:]) for side in (self.old, self.new))
        return replace(self, old=old, new=new)


def differences(old: Any, new: Any, path: str = "") -> Iterator[Difference]:
    """Every field that differs, as deep as both sides have the same form."""
    if old == new:
        return
    found: list[Difference] = []
    before, after = _opened(old), _opened(new)
    if isinstance(before, Mapping) and isinstance(after, Mapping):
        found += _each(_by_text(before), _by_text(after), path, in_list=False)
    elif isinstance(before, list | tuple) and isinstance(after, list | tuple):
        found += _in_lists(before, after, path)
    yield from found or [Difference(path, *_both_said(old, new))]


def _below(path: str, key: str, *, in_list: bool = False) -> str:
    """The path of what stands in something, by its key, or by its name or place in a list."""
    key = printable(key, _LONGEST_KEY)
    if in_list or not _PLAIN_KEY.fullmatch(key):
        return f"{path}[{key}]"
    return f"{path}.{key}" if path else key


def _in_lists(old: Sequence[Any], new: Sequence[Any], path: str) -> Iterator[Difference]:
    before, after = _by_name(old), _by_name(new)
    if before is not None and after is not None:
        yield from _order(list(before), list(after), path)
        yield from _each(before, after, path, in_list=True)
    elif len(old) == len(new) and sorted(map(repr, old)) != sorted(map(repr, new)):  # another order is said as a whole
        for place, (was, becomes) in enumerate(zip(old, new, strict=True)):
            yield from differences(was, becomes, _below(path, str(place), in_list=True))


def _each(before: Mapping[str, Any], after: Mapping[str, Any], path: str, *, in_list: bool) -> Iterator[Difference]:
    for key in [*before, *(key for key in after if key not in before)]:
        yield from differences(before.get(key, ABSENT), after.get(key, ABSENT), _below(path, key, in_list=in_list))


def _order(before: list[str], after: list[str], path: str) -> Iterator[Difference]:
    """What both lists have, in another order: the order of flavors, for one, is the order in which they are tried."""
    first, second = [name for name in before if name in after], [name for name in after if name in before]
    if first != second:
        yield Difference(f"{path} (order)".lstrip(), _said(first), _said(second))


def _opened(value: Any) -> Any:
    """A value with its parts: a text of several lines may hold YAML."""
    if not isinstance(value, str) or "\n" not in value:
        return value
    try:
        return yaml.load(value, Loader=_LOADER)
    except (yaml.YAMLError, ValueError):  # the latter for a date that there is not
        return value


def _by_text(value: Mapping[Any, Any]) -> dict[str, Any]:
    return {str(key): inner for key, inner in value.items()}


def _by_name(items: Sequence[Any]) -> dict[str, Any] | None:
    """The items by their names; None where not each has one of its own."""
    names = [item.get("name") if isinstance(item, Mapping) else None for item in items]
    if not all(isinstance(name, str) for name in names) or len(set(names)) < len(names):
        return None
    return dict(zip(map(str, names), items, strict=True))


def _both_said(old: Any, new: Any) -> tuple[str | None, str | None]:
    """Both sides; in quotes where the text "8" and the number 8, say, would read alike."""
    said = _said(old), _said(new)
    return said if said[0] != said[1] else (repr(old), repr(new))


def _said(value: Any) -> str | None:
    """A value in one line, and in ASCII as far as it is, so that it passes through any pipe."""
    if value is ABSENT:
        return None
    plain = isinstance(value, str) and value and value == value.strip()
    said = str(value) if plain else json.dumps(value, default=str)
    return printable(said, len(said))


def _cut(text: str | None) -> str | None:
    if text is None or len(text) <= _LONGEST_VALUE:
        return text
    return text[: _LONGEST_VALUE - len(_CUT)] + _CUT
