"""The node tree of a stack file, parsed once and proved harmless before anything walks it.

It says nothing about what the file means. One composition serves the value and the positions, with libyaml where PyYAML
has it. Plain scalars are resolved later (`stacks.reading.scalars`), so that they mean what they mean to Pulumi.

A tree that is handed out is finite, at most `DEEPEST` levels deep and expands to at most `MOST_VALUES` values with its
aliases followed, so whoever walks it may recurse. The limits hold while composing, too:
the composer of libyaml recurses in C, where a stack that overflows ends the process.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import yaml
from yaml import MappingNode, Node, ScalarNode, SequenceNode

from stacks.model import Path
from stacks.problems import Code, ConfigError, Place, Problem
from stacks.reading.syntax import place_of, strange_character, syntax_problem

DEEPEST: Final = 100  # the models need about eight levels
MOST_VALUES: Final = 500_000  # keys and values; ten thousand pools have about 200,000
MERGE: Final = "tag:yaml.org,2002:merge"
PLAIN: Final = "plain"
"""Tag of a scalar without quotes or tag; what it means is for `stacks.reading.scalars` to say."""
TEXT: Final = "tag:yaml.org,2002:str"

_LIST: Final = "tag:yaml.org,2002:seq"
_MAPPING: Final = "tag:yaml.org,2002:map"


class _TooMuchError(yaml.MarkedYAMLError):
    """The text goes beyond a limit."""


class _Bounded:
    """What both of PyYAML's loaders call for each node; bounds the tree while it grows."""

    _depth = 0
    _count = 0

    def descend_resolver(self, parent: Node | None, _index: object) -> None:
        self._depth += 1
        self._count += 1
        mark = parent.start_mark if parent else None
        if self._depth > DEEPEST:
            raise _TooMuchError(problem=f"is nested more than {DEEPEST} levels deep", problem_mark=mark)
        if self._count > MOST_VALUES:
            raise _TooMuchError(problem=f"holds more than {MOST_VALUES:,} values", problem_mark=mark)

    def ascend_resolver(self) -> None:
        self._depth -= 1

    def resolve(self, kind: type[Node], value: str | None, implicit: Any) -> str:
        if kind is not ScalarNode:
            return _LIST if kind is SequenceNode else _MAPPING
        if not implicit[0]:
            return TEXT
        return MERGE if value == "<<" else PLAIN


_FASTEST: Final = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_Loader: Final = type("_Loader", (_Bounded, _FASTEST), {})


@dataclass(frozen=True, slots=True)
class Document:
    """A tree that is safe to walk (None where the text has nothing but comments), and the keys it has twice."""

    root: Node | None
    problems: tuple[Problem, ...]


def compose(text: str, name: str, inside: Path = ()) -> Document:
    """Read a YAML text; problems below `inside` are named by their path from there.

    Raises:
        ConfigError: when it is not YAML, or not harmless.
    """
    if (problem := strange_character(text, name)) is not None:
        raise ConfigError([problem])
    try:
        root: Node | None = yaml.compose(text, Loader=_Loader)
    except _TooMuchError as error:
        raise ConfigError([place_of(name, error.problem_mark).problem("too-large", str(error.problem))]) from None
    except yaml.MarkedYAMLError as error:
        raise ConfigError([syntax_problem(error, text, name)]) from None
    except yaml.YAMLError as error:
        raise ConfigError([Place(name).problem("yaml-syntax", f"not YAML: {error}")]) from None
    if isinstance(root, ScalarNode) and root.tag == PLAIN and not root.value:  # the text is nothing but a marker
        root = None
    return Document(root, tuple(_Tree(name, inside).check(root)) if root else ())


class _Tree:
    """Checks a tree; visits each node once, however often aliases lead to it."""

    def __init__(self, name: str, inside: Path) -> None:
        self._name = name
        self._inside = inside  # shown whole for the key itself, and left out below it
        self._size: dict[int, int] = {}
        self._height: dict[int, int] = {}

    def check(self, root: Node) -> Iterator[Problem]:
        """Every key that is written twice.

        Raises:
            ConfigError: the tree has no end, or not soon.
        """
        above: set[int] = set()
        pending: list[tuple[Node, Path, bool]] = [(root, (), False)]
        while pending:
            node, path, is_left = pending.pop()
            if is_left:
                self._measure(node)
                above.discard(id(node))
            elif id(node) in above:
                raise ConfigError([self._problem(node, path, "yaml-syntax", "an anchor may not hold its own alias")])
            elif id(node) not in self._size:
                above.add(id(node))
                pending.append((node, path, True))
                pending += [(child, way, False) for child, way in _collections(node, path)]
                yield from self._doubled(node, path)
        if self._size[id(root)] > MOST_VALUES:
            reason = f"aliases make it {self._size[id(root)]:.3g} values; at most {MOST_VALUES:,} are read"
            raise ConfigError([self._problem(root, (), "too-large", reason)])
        if self._height[id(root)] > DEEPEST:
            reason = f"aliases nest it more than {DEEPEST} levels deep"
            raise ConfigError([self._problem(root, (), "too-large", reason)])

    def _measure(self, node: Node) -> None:
        below = [id(child) for child, _ in _collections(node, ())]
        parts = 0 if isinstance(node, ScalarNode) else len(node.value) * (2 if isinstance(node, MappingNode) else 1)
        self._size[id(node)] = 1 + parts - len(below) + sum(self._size[child] for child in below)
        self._height[id(node)] = 1 + max((self._height[child] for child in below), default=0)

    def _doubled(self, node: Node, path: Path) -> Iterator[Problem]:
        seen: dict[str, int] = {}
        for key, _ in node.value if isinstance(node, MappingNode) else ():
            if not isinstance(key, ScalarNode):
                continue
            if key.value in seen:
                reason = f"is written twice (first in line {seen[key.value]}); one of the two would be lost silently"
                if key.tag == MERGE:
                    reason = "is written twice; merge several with <<: [*a, *b]"
                yield self._problem(key, (*path, key.value), "duplicate-key", reason)
            seen.setdefault(key.value, key.start_mark.line + 1)

    def _problem(self, node: Node, path: Path, code: Code, reason: str) -> Problem:
        depth = len(self._inside)
        relative = path[depth:] or path[-1:] if path[:depth] == self._inside else path
        return place_of(self._name, node.start_mark).problem(code, reason, relative)


def _collections(node: Node, path: Path) -> list[tuple[Node, Path]]:
    """The lists and mappings right below a node, keys included."""
    if isinstance(node, SequenceNode):
        entries = [(child, (*path, index)) for index, child in enumerate(node.value)]
    elif isinstance(node, MappingNode):
        entries = [(part, (*path, _name(key))) for key, value in node.value for part in (key, value)]
    else:
        return []
    return [(child, way) for child, way in entries if not isinstance(child, ScalarNode)]


def _name(key: Node) -> str:
    return str(key.value) if isinstance(key, ScalarNode) else "?"
