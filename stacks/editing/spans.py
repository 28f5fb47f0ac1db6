"""Where each entry of a YAML mapping stands in its text, to the character.

PyYAML's nodes forget two things that an editor of text needs: where an alias was written (its node is the anchor's),
and where a block collection really ends (its mark is the start of whatever comes next, beyond comments). Both are
recorded here while the text is composed. Nothing is changed here; `stacks.editing.edits` does that.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

import yaml
from yaml import AliasEvent, MappingNode, Node, ScalarNode, SequenceNode

_MERGE: Final = "tag:yaml.org,2002:merge"
_OTHER_LINE_BREAK: Final = re.compile("\r(?!\n)|[\x85\u2028\u2029]")  # YAML 1.1 counts them, editors do not show them

_AFTER_ENTRY: Final = re.compile(r"[ \t]*(?P<comma>,?)[ \t]*(?P<comment>#[^\r\n]*)?(?=\r?\n|\Z)")
_NOTHING_AFTER: Final = re.compile("(?P<comma>)(?P<comment>)")
BYTE_ORDER_MARK: Final = "\ufeff"


class EditError(Exception):
    """A place of the text that cannot be edited safely, or not at all; line and column count from 1, 0 for none."""

    def __init__(self, reason: str, line: int = 0, column: int = 0) -> None:
        self.reason, self.line, self.column = reason, line, column
        super().__init__(f"line {line}, column {column}: {reason}" if line else reason)


class Span(NamedTuple):
    """Offsets of a node in the text, as written: of the alias, not of its anchor."""

    start: int
    end: int
    is_alias: bool


@dataclass(frozen=True, slots=True, eq=False)
class Entry:
    """One `key: value` of a mapping, as it stands in the text before any edit; equal only to itself."""

    mapping: MappingNode = field(repr=False)
    index: int
    key: Node = field(repr=False)
    value: Node = field(repr=False)
    name: str
    """Text of the key; empty for a key that is not a scalar."""
    key_span: Span
    value_span: Span

    @property
    def start(self) -> int:
        """Offset of the key."""
        return self.key_span.start

    @property
    def end(self) -> int:
        """Offset behind the last character of the value; comments and blank lines behind it are not part of it."""
        return self.value_span.end

    @property
    def is_merge(self) -> bool:
        """Whether this is a merge key, `<<`."""
        return self.key.tag == _MERGE

    def error(self, reason: str) -> EditError:
        """The error that names this entry's line."""
        return EditError(f"{self.name}: {reason}", self.key.start_mark.line + 1, self.key.start_mark.column + 1)


class _Loader(yaml.SafeLoader):
    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.spans: dict[int, list[Span]] = {}
        self.shared: set[int] = set()
        self._leaf_end = 0

    def compose_node(self, parent: Node | None, index: int) -> Node | None:
        event: yaml.Event = self.peek_event()  # type: ignore[no-untyped-call]
        node = super().compose_node(parent, index)
        if isinstance(event, AliasEvent):
            self._leaf_end = _offset(event.end_mark)
            self.shared.add(id(node))
        elif node is not None and (isinstance(node, ScalarNode) or getattr(node, "flow_style", False)):
            self._leaf_end = _offset(node.end_mark)
        span = Span(_offset(event.start_mark), self._leaf_end, isinstance(event, AliasEvent))
        self.spans.setdefault(id(parent), []).append(span)
        return node


class Source:
    """A text and its nodes.

    Raises:
        EditError: the text is not one YAML document with a mapping at its root.
    """

    def __init__(self, text: str) -> None:
        self.text = text
        if odd := _OTHER_LINE_BREAK.search(text):
            line = text.count("\n", 0, odd.start()) + 1
            raise EditError(f"has the line break {odd.group()!a}; save it with \\n or \\r\\n line ends", line, 1)
        try:
            loader = _Loader(text)
            root = loader.get_single_node()
        except yaml.MarkedYAMLError as error:
            mark = error.problem_mark or error.context_mark
            place = (mark.line + 1, mark.column + 1) if mark else (0, 0)
            raise EditError(f"not YAML: {error.problem}", *place) from None
        except (yaml.YAMLError, RecursionError, ValueError) as error:
            raise EditError(f"not YAML: {str(error).splitlines()[0]}") from None
        if not isinstance(root, MappingNode):
            raise EditError("holds no mapping; a stack file starts with `config:`", 1, 1)
        self.root = root
        self._spans, self._shared = loader.spans, loader.shared
        self._entries: dict[int, tuple[Entry, ...]] = {}

    def entries(self, mapping: MappingNode) -> tuple[Entry, ...]:
        """The entries of a mapping in the order of the text, merge keys among them, as they were before any edit."""
        if id(mapping) not in self._entries:
            spans = self._spans.get(id(mapping), [])
            self._entries[id(mapping)] = tuple(
                Entry(mapping, i, key, value, _name(key), spans[2 * i], spans[2 * i + 1])
                for i, (key, value) in enumerate(mapping.value)
            )
        return self._entries[id(mapping)]

    def entry(self, mapping: MappingNode, name: str) -> Entry | None:
        """The entry of that name which is written in the mapping itself, None where there is none."""
        return next((entry for entry in self.entries(mapping) if entry.name == name), None)

    def is_shared(self, node: Node) -> bool:
        """Whether an alias stands for the node somewhere, so that a change within it would reach that place too."""
        return id(node) in self._shared

    def sources(self, mapping: MappingNode) -> Iterator[MappingNode]:
        """The mapping itself, then every mapping that its merge keys bring in, each once."""
        pending, seen = [mapping], {id(mapping)}
        while pending:
            yield (current := pending.pop())
            for entry in self.entries(current):
                if not entry.is_merge:
                    continue
                merged = entry.value.value if isinstance(entry.value, SequenceNode) else [entry.value]
                new = [node for node in merged if isinstance(node, MappingNode) and id(node) not in seen]
                seen.update(map(id, new))
                pending += reversed(new)  # an earlier source wins over a later one

    def alone(self, entry: Entry) -> re.Match[str] | None:
        """What stands behind the entry on its last line, where nothing but a comma and a comment does."""
        if self.text[self.line_start(entry.start) : entry.start].strip(" \t"):
            return None
        if self.text[entry.end - 1] == "\n":  # a block scalar ends behind its last line break
            return _NOTHING_AFTER.match(self.text, entry.end)
        return _AFTER_ENTRY.match(self.text, entry.end)

    def line_start(self, offset: int) -> int:
        """Offset of the first character of the line, behind a byte order mark."""
        start = self.text.rfind("\n", 0, offset) + 1
        return 1 if start == 0 and self.text.startswith(BYTE_ORDER_MARK) else start

    def below(self, entry: Entry) -> int:
        """Offset of the line after the entry's last one."""
        if self.text[entry.end - 1] == "\n":
            return entry.end
        found = self.text.find("\n", entry.end)
        return found + 1 if found >= 0 else len(self.text)

    def above(self, entry: Entry) -> int:
        """Offset of the first of the comment lines right above the entry, in its column; else of its own line."""
        start = self.line_start(entry.start)
        comment = " " * (entry.start - start) + "#"
        while start > self.line_start(0) and self.text.startswith(comment, previous := self.line_start(start - 1)):
            start = previous
        return start

    def newline(self, offset: int) -> str:
        """The line end of the line at the offset; on a last line without one, that of the text."""
        found = self.text.find("\n", offset)
        found = found if found >= 0 else self.text.find("\n")
        return "\r\n" if found > 0 and self.text[found - 1] == "\r" else "\n"

    def place(self, offset: int) -> tuple[int, int]:
        """Line and column of an offset, from 1."""
        return self.text.count("\n", 0, offset) + 1, offset - self.line_start(offset) + 1


def _name(key: Node) -> str:
    return key.value if isinstance(key, ScalarNode) else ""


def _offset(mark: Any) -> int:
    """PyYAML marks every node that it reads from text; its stubs allow None and two kinds of marks."""
    return int(mark.index)
