"""Where in the text a value stands: line and column from PyYAML's node marks.

No dialect of our own: anchors and merge keys are followed as PyYAML does, and a value that came through one is placed
where it was written.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from yaml import MappingNode, Mark, Node, ScalarNode, SequenceNode

Path = tuple[str | int, ...]


class Positions:
    """Looks up places below a prefix of the document."""

    def __init__(self, root: Node | None, prefix: Path) -> None:
        self._root = root
        self._prefix = prefix

    def of(self, path: Sequence[str | int]) -> tuple[int, int]:
        """Line and column, from 1, of the key or element at `path`; of its nearest parent where it is absent.

        Without a text, (0, 0).
        """
        if self._root is None:
            return 0, 0
        node, mark = self._root, self._root.start_mark
        for part in (*self._prefix, *path):
            found = _child(node, part)
            if found is None:
                break
            node, mark = found
        return mark.line + 1, mark.column + 1


def _child(node: Node, part: str | int) -> tuple[Node, Mark] | None:
    if isinstance(node, SequenceNode):
        if isinstance(part, int) and part < len(node.value):
            return node.value[part], node.value[part].start_mark
        return None
    if not isinstance(node, MappingNode):
        return None
    merged: list[Node] = []
    for key, value in node.value:
        if isinstance(key, ScalarNode) and key.tag == "tag:yaml.org,2002:merge":
            merged += value.value if isinstance(value, SequenceNode) else [value]
        elif isinstance(key, ScalarNode) and key.value == str(part):
            return value, key.start_mark
    for source in merged:
        if found := _child(source, part):
            return found
    return None


def duplicate_keys(root: Node | None) -> Iterator[tuple[str, Mark]]:
    """Every key that stands twice in one mapping, with the place of the second."""
    pending: list[tuple[Node | None, str]] = [(root, "")]
    visited: set[int] = set()
    while pending:
        node, path = pending.pop()
        if node is None or id(node) in visited:
            continue
        visited.add(id(node))
        if isinstance(node, SequenceNode):
            pending += [(child, f"{path}.{index}") for index, child in enumerate(node.value)]
        elif isinstance(node, MappingNode):
            seen: set[str] = set()
            for key, value in node.value:
                name = key.value if isinstance(key, ScalarNode) else ""
                below = f"{path}.{name}".strip(".")
                if name in seen and name != "<<":
                    yield below, key.start_mark
                seen.add(name)
                pending.append((value, below))
