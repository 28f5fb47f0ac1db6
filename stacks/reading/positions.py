"""Where in the text a value stands: file, line and column from PyYAML's node marks.

A value that came through an anchor or a merge key is placed where it was written. Looking up is fast however large the
mappings are: each is indexed once, when it is first passed through.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from yaml import MappingNode, Mark, Node, ScalarNode, SequenceNode

from stacks.problems import Place
from stacks.reading.document import MERGE


class Positions:
    """Looks up places below a node, and in the other files that stand for parts of it (`parts`, by their path)."""

    def __init__(self, name: str, root: Node | None = None, parts: Mapping[str, Positions] | None = None) -> None:
        self._name = name
        self._root = root
        self._parts = parts or {}
        self._entries: dict[int, dict[str, tuple[Node, Mark]]] = {}

    def with_part(self, key: str, part: Positions) -> Positions:
        """The same, with another file's places below a key."""
        return Positions(self._name, self._root, {**self._parts, key: part})

    def of(self, path: Sequence[str | int]) -> Place:
        """The key or element at `path`, or its nearest parent where it is absent; without a text, the name alone."""
        if path and (part := self._parts.get(str(path[0]))):
            return part.of(path[1:])
        if self._root is None:
            return Place(self._name)
        node, mark = self._root, self._root.start_mark
        for step in path:
            found = self._child(node, step)
            if found is None:
                break
            node, mark = found
        return Place(self._name, mark.line + 1, mark.column + 1)

    def _child(self, node: Node, step: str | int) -> tuple[Node, Mark] | None:
        if isinstance(node, MappingNode):
            return self._index(node).get(str(step))
        if isinstance(node, SequenceNode) and isinstance(step, int) and step < len(node.value):
            return node.value[step], node.value[step].start_mark
        return None

    def _index(self, node: MappingNode) -> dict[str, tuple[Node, Mark]]:
        if id(node) not in self._entries:
            written: dict[str, tuple[Node, Mark]] = {}
            merged: dict[str, tuple[Node, Mark]] = {}
            for key, value in node.value:
                if key.tag == MERGE:
                    for source in value.value if isinstance(value, SequenceNode) else [value]:
                        merged = (self._index(source) if isinstance(source, MappingNode) else {}) | merged
                elif isinstance(key, ScalarNode):
                    written[key.value] = (value, key.start_mark)
            self._entries[id(node)] = merged | written
        return self._entries[id(node)]
