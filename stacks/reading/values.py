"""The value of a node tree: mappings, lists, text, numbers, true, false and null, as Pulumi would hand them on.

No tags but YAML's own scalar ones, no dates, no keys that are not text: what would reach the program as something else
than what is written is a problem here. Merge keys are followed as yaml.v3 and PyYAML both do: what is written wins over
what is merged, and an earlier source over a later one.
"""

from __future__ import annotations

import math
from typing import Any, Final

from yaml import MappingNode, Node, ScalarNode, SequenceNode

from stacks.model import Path
from stacks.problems import Code, Place, Problem
from stacks.reading.document import MERGE, PLAIN, TEXT
from stacks.reading.scalars import resolve

_OWN: Final = "tag:yaml.org,2002:"
_COLLECTIONS: Final = (f"{_OWN}map", f"{_OWN}seq")


class Builder:
    """Builds values and collects what is wrong with them; a value with problems is not to be used."""

    def __init__(self, name: str) -> None:
        self.problems: list[Problem] = []
        self._name = name
        self._built: dict[int, Any] = {}

    def build(self, node: Node, path: Path = ()) -> Any:
        """The value of a node; nodes that aliases share give one shared value."""
        if isinstance(node, ScalarNode):
            return self._scalar(node, path)
        if id(node) not in self._built:
            if node.tag not in _COLLECTIONS:
                self._wrong(node, path, f"has the tag {_shown(node.tag)}; write the value without it")
            self._built[id(node)] = (
                self._mapping(node, path)
                if isinstance(node, MappingNode)
                else [self.build(child, (*path, index)) for index, child in enumerate(node.value)]
            )
        return self._built[id(node)]

    def _mapping(self, node: MappingNode, path: Path) -> dict[str, Any]:
        written: dict[str, Any] = {}
        merged: dict[str, Any] = {}
        for key, value in node.value:
            if key.tag == MERGE:
                sources = value.value if isinstance(value, SequenceNode) else [value]
                for source in sources:
                    if isinstance(source, MappingNode):
                        merged = self.build(source, path) | merged
                    else:
                        self._wrong(source, path, "<< merges mappings only, for example <<: *name", "wrong-type")
            elif (name := self._key(key, path)) is not None:
                written[name] = self.build(value, (*path, name))
        return merged | written

    def _key(self, node: Node, path: Path) -> str | None:
        if not isinstance(node, ScalarNode):
            hint = "; quote a text that begins with {" if isinstance(node, MappingNode) and node.flow_style else ""
            self._wrong(node, path, f"a key is a list or a mapping; keys are text{hint}", "wrong-type")
            return None
        text = str(node.value)
        if node.tag == TEXT or (node.tag == PLAIN and resolve(text)[0] == "str"):
            return text
        self._wrong(node, (*path, text), f"is a key that is not text; quote it: {text!r}", "wrong-type")
        return text

    def _scalar(self, node: ScalarNode, path: Path) -> Any:
        text = str(node.value)
        if node.tag in (TEXT, MERGE):  # a merge sign that is no key is text
            return text
        kind, value = resolve(text)
        widened = kind == "int" and node.tag == f"{_OWN}float"
        if node.tag not in (PLAIN, f"{_OWN}{kind}") and not widened:
            self._wrong(node, path, f"has the tag {_shown(node.tag)}; write the value without it")
        elif kind == "timestamp":
            reason = f"is read as a point in time; quote it to keep it text: {text!r}"
            self._wrong(node, path, reason, "wrong-type")
        elif isinstance(value, float) and not math.isfinite(value):
            self._wrong(node, path, f"must be a finite number (got {text})", "bad-value")
        return value

    def _wrong(self, node: Node, path: Path, reason: str, code: Code = "yaml-syntax") -> None:
        place = Place(self._name, node.start_mark.line + 1, node.start_mark.column + 1)
        self.problems.append(place.problem(code, reason, path))


def _shown(tag: str) -> str:
    return f"!!{tag.removeprefix(_OWN)}" if tag.startswith(_OWN) else tag
