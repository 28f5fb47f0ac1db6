"""Edits of YAML text that leave every character alone which is not part of the edit.

Comments, blank lines, quoting, order, indentation and line ends of everything else stay. It does not format, and it
does not guess: what it cannot edit for certain (anchors that others use, block scalars, explicit `?` keys) is an error
that names the line.

Invariants: all edits address the text as it was when the document was read; edits never overlap; the result is read
back and must have exactly the nodes that were asked for, or nothing is returned.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import Any, Final

import yaml
from yaml import MappingNode, Node, ScalarNode, SequenceNode

from stacks.editing.spans import EditError, Entry, Source
from stacks.reading.document import TEXT
from stacks.reading.scalars import resolve

__all__ = ["Document", "Edit", "EditError", "Entry"]

_COLON: Final = re.compile(r"[ \t]*:")


@dataclass(frozen=True, slots=True, order=True)
class Edit:
    """Replace the characters from `start` up to `end` with `text`."""

    start: int
    end: int
    text: str


class Document(Source):
    """A YAML text to which edits are added; `result` is the edited text.

    Entries are found with `entry`, `entries` and `sources`, and keep their old name and place whatever is edited.
    Values are plain Python data, written in flow style.

    Raises:
        EditError: the text is not one YAML document with a mapping at its root.
    """

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self._edits: list[Edit] = []

    def rename(self, entry: Entry, name: str) -> None:
        """Give the entry's key another name, in the quotes that it has."""
        key = self._plain_key(entry)
        self._edits.append(Edit(*entry.key_span[:2], _flow(name, key.style)))
        key.value, key.tag = name, _composed(_flow(name)).tag

    def replace(self, entry: Entry, value: object) -> None:
        """Give the entry another value in place of a scalar or an alias; a comment behind it stays."""
        self._plain_key(entry)
        start, end, is_alias = entry.value_span
        if not is_alias:
            if not isinstance(entry.value, ScalarNode) or entry.value.style in {"|", ">"}:
                raise entry.error("only a value on one line can be replaced; change it by hand")
            if self.text[start : start + 1] in {"&", "!"}:
                raise entry.error("has an anchor or a tag, on which other places may rely; write the plain value there")
        style = entry.value.style if isinstance(entry.value, ScalarNode) and isinstance(value, str) else None
        text = _flow(value, style)
        self._edits.append(Edit(start, end, text if start < end else f" {text}"))
        entry.mapping.value[self._position(entry)] = (entry.key, _composed(text))

    def remove(self, entry: Entry, *, keep_comment: bool = False) -> None:
        """Remove the entry, and the comment behind it unless that is to be kept on a line of its own.

        Comments on the lines above it stay in any case.
        """
        self._plain_key(entry)
        if keep_comment and "#" in self.text[entry.key_span.end : entry.value_span.start]:
            raise entry.error("has a comment between key and value; put it on a line of its own above the key")
        self._edits.append(self._removal(entry, keep_comment=keep_comment))
        del entry.mapping.value[self._position(entry)]

    def insert(self, mapping: MappingNode, name: str, value: object, *, after: Entry | None = None) -> None:
        """Add an entry behind another of the mapping, or at its end."""
        entries = self.entries(mapping)
        after = after or (entries[-1] if entries else None)
        self._edits += self._insertion(mapping, after, f"{_flow(name)}: {_flow(value)}")
        position = self._position(after) + 1 if after else 0
        mapping.value.insert(position, (_composed(_flow(name)), _composed(_flow(value))))

    def insert_first(self, mapping: MappingNode, name: str, value: object) -> None:
        """Add an entry before all others of the mapping, above the comment that stands right above the first."""
        self._edits += self._insertion(mapping, None, f"{_flow(name)}: {_flow(value)}")
        mapping.value.insert(0, (_composed(_flow(name)), _composed(_flow(value))))

    def move(self, entry: Entry, *, after: Entry | None) -> None:
        """Move an entry behind another of its mapping, or to the front for None.

        In block style the comment lines right above it go with it.
        """
        self._plain_key(entry)
        if after and after.mapping is not entry.mapping:
            raise entry.error("can be moved within its own mapping only")
        if entry is after:
            return
        if entry.mapping.flow_style:
            text = self.text[entry.start : entry.end]
            self._edits += [self._removal(entry, keep_comment=False), *self._insertion(entry.mapping, after, text)]
        else:
            if not self.alone(entry):
                raise entry.error("shares its line with the dash of a list; change it by hand")
            first, last = self.above(entry), self.below(entry)
            indent = entry.start - self.line_start(entry.start)
            text = self.text[first:last].rstrip("\r\n")[indent:]
            self._edits += [Edit(first, last, ""), *self._insertion(entry.mapping, after, text)]
        pair = entry.mapping.value.pop(self._position(entry))
        entry.mapping.value.insert(self._position(after) + 1 if after else 0, pair)

    def result(self) -> str:
        """Return the text with all edits, read back and compared with what was asked for.

        Raises:
            EditError: edits overlap, or the text would not say exactly what was asked for.
        """
        pieces, done = [], 0
        for edit in sorted(self._edits, key=lambda edit: (edit.start, edit.end)):
            if edit.start < done:
                raise EditError("two changes meet in one place; change it by hand", *self.place(edit.start))
            pieces += [self.text[done : edit.start], edit.text]
            done = edit.end
        text = "".join([*pieces, self.text[done:]])
        if not self._reads_back(text):
            reason = "cannot be changed without changing something else; write it in a simpler form, or by hand"
            raise EditError(reason, *self.place(min(self._edits).start))
        return text

    def _reads_back(self, text: str) -> bool:
        try:
            return _same(self.root, Source(text).root)
        except EditError:
            return False

    def _plain_key(self, entry: Entry) -> ScalarNode:
        plain = not entry.key_span.is_alias and self.text[entry.start] not in "&!|>"
        if not plain or not isinstance(entry.key, ScalarNode) or not _COLON.match(self.text, entry.key_span.end):
            raise entry.error("only an entry of the plain form `key: value` can be changed; rewrite it so")
        return entry.key

    def _position(self, entry: Entry) -> int:
        return next(i for i, (key, _) in enumerate(entry.mapping.value) if key is entry.key)

    def _removal(self, entry: Entry, *, keep_comment: bool) -> Edit:
        entries = self.entries(entry.mapping)
        if not entry.mapping.flow_style and len(entries) == 1:
            return Edit(entry.start, entry.end, "{}")
        tail = self.alone(entry)
        if tail:
            if keep_comment and tail["comment"]:
                return Edit(entry.start, tail.start("comment"), "")
            return Edit(self.line_start(entry.start), self.below(entry), "")
        if not entry.mapping.flow_style:
            raise entry.error("shares its line with the dash of a list; change it by hand")
        before = entries[entry.index - 1] if entry.index else None
        after = entries[entry.index + 1] if entry.index + 1 < len(entries) else None
        if after and "\n" not in self.text[entry.end : after.start]:
            return Edit(entry.start, after.start, "")
        if before and not after and "\n" not in self.text[before.end : entry.start]:
            return Edit(before.end, entry.end, "")
        if after:
            comma = re.compile(r"(?:\s|#[^\n]*\n)*,").match(self.text, entry.end)
            return Edit(entry.start, comma.end() if comma else entry.end, "")
        return Edit(entry.start, entry.end, "")

    def _insertion(self, mapping: MappingNode, after: Entry | None, text: str) -> list[Edit]:
        entries = self.entries(mapping)
        if mapping.flow_style:
            return self._flow_insertion(mapping, after, text)
        if after is None:
            first = entries[0]
            start = self.line_start(first.start)
            indent = self.text[start : first.start]
            above = self.above(first)
            if indent.strip(" ") or above == self.line_start(0):  # a list's dash, or the comments that head the file
                indent, above = " " * first.key.start_mark.column, first.start
                return [Edit(above, above, f"{text}{self.newline(above)}{indent}")]
            return [Edit(above, above, f"{indent}{text}{self.newline(above)}")]
        at = self.below(after)
        indent, newline = " " * after.key.start_mark.column, self.newline(after.end)
        if self.text[at - 1] == "\n":
            return [Edit(at, at, f"{indent}{text}{newline}")]
        return [Edit(at, at, f"{newline}{indent}{text}")]

    def _flow_insertion(self, mapping: MappingNode, after: Entry | None, text: str) -> list[Edit]:
        entries = self.entries(mapping)
        if not entries:
            at = mapping.end_mark.index - 1
            return [Edit(at, at, text)]
        if after is None:
            return [Edit(entries[0].start, entries[0].start, f"{text}, ")]
        tail = self.alone(after)
        if not tail or (not tail["comma"] and after is not entries[-1]):
            return [Edit(after.end, after.end, f", {text}")]
        line = f"{self.newline(after.end)}{' ' * after.key.start_mark.column}{text}"
        if tail["comma"]:
            return [Edit(tail.end(), tail.end(), f"{line},")]
        return [Edit(after.end, after.end, ","), Edit(tail.end(), tail.end(), line)]


class _Dumper(yaml.SafeDumper):
    """Quotes a text that PyYAML would take for one, and Pulumi for a number."""


def _represent_text(dumper: yaml.SafeDumper, text: str) -> ScalarNode:
    return dumper.represent_scalar(TEXT, text, style=None if resolve(text)[0] == "str" else "'")


_Dumper.add_representer(str, _represent_text)


def _flow(value: Any, style: str | None = None) -> str:
    """YAML of a value on one line, legal within a flow collection too."""
    layout: dict[str, Any] = {"default_flow_style": True, "width": math.inf, "allow_unicode": True, "sort_keys": False}
    text: str = yaml.dump([value], Dumper=_Dumper, default_style=style, **layout)
    return text[1:-2]


def _composed(text: str) -> Node:
    sequence = yaml.compose(f"[{text}]", Loader=yaml.SafeLoader)
    assert isinstance(sequence, SequenceNode)
    node: Node = sequence.value[0]
    return node


def _same(expected: Node, found: Node) -> bool:
    """Whether two documents have equal nodes in equal order; shared nodes and cycles are walked once."""
    pending: list[tuple[Node, Node]] = [(expected, found)]
    seen: set[tuple[int, int]] = set()
    while pending:
        mine, its = pending.pop()
        if (id(mine), id(its)) in seen:
            continue
        seen.add((id(mine), id(its)))
        if mine.tag != its.tag or type(mine) is not type(its) or len(mine.value) != len(its.value):
            return False
        if isinstance(mine, MappingNode):
            for pair, other in zip(mine.value, its.value, strict=True):
                pending += zip(pair, other, strict=True)
        elif isinstance(mine, SequenceNode):
            pending += zip(mine.value, its.value, strict=True)
        elif mine.value != its.value:
            return False
    return True
