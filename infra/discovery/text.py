"""Writes a draft as the text of a stack file, with a comment wherever a figure was found, taken or left to review.

It knows no section's meaning. Invariant: whatever names and comments hold, the text is YAML with the draft's values.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from textwrap import wrap
from typing import Any, Final

from infra.discovery.draft import Draft
from infra.discovery.findings import Part
from infra.discovery.objects import remark
from stacks.load import KEY

_WIDTH: Final = 120
_NOTE_COLUMN: Final = 40
_INDENT: Final = 8  # of most settings, which counts into the width
_STEP: Final = "  "
_PLAIN: Final = re.compile(
    r"[A-Za-z][A-Za-z0-9_./-]*|[0-9]+(\.[0-9]+)? USD|[0-9]+[A-Z]i|([0-9]+(d|h|m|s|ms))+|([0-9]x)?[0-9]g\.[0-9]+gb"
)
_RESERVED: Final = frozenset({"true", "false", "yes", "no", "on", "off", "y", "n", "null"})

_HEADER: Final = (
    "# Written by `gpufleet init`. Comments say where figures come from; what is marked REVIEW is a default that a",
    "# person should look at. `gpufleet check` says what is wrong, `gpufleet plan` what it amounts to.",
)


def render(draft: Draft, heading: Sequence[str] = (), schema: str | None = None) -> str:
    """The text of the file; `schema` is the path from its folder to the JSON schema, for editors."""
    modeline = [f"# yaml-language-server: $schema={schema}"] if schema else []
    lines = [*modeline, *_HEADER, *(row for line in (*heading, *draft.remarks) for row in _comment(line))]
    lines += ["config:", f"{_STEP}{KEY}:"]
    lines += [_STEP * 2 + line for line in _body(draft)]
    return "\n".join(lines) + "\n"


def _body(draft: Draft) -> Iterator[str]:
    yield "schema_version: 1"
    yield f"preset: {draft.preset}"
    yield from _settings(draft.organization)
    yield from _section("clusters", [draft.cluster])
    if draft.links:
        yield from _section("links", draft.links)
    yield from _section("pools", draft.pools)
    if draft.left_out:
        yield _STEP + "# Left out:"
        yield from (_STEP + row for reason in draft.left_out for row in _comment(f"- {reason}"))
    yield from _section("classes", draft.classes)
    yield from _section("teams", draft.teams)
    if draft.projects:
        yield from _section("projects", draft.projects)
    for part in (draft.burst, draft.agent):
        if part is not None:
            yield from _part(part)


def _section(name: str, parts: Sequence[Part]) -> Iterator[str]:
    yield f"{name}:"
    for part in parts:
        yield from (_STEP + line for line in _part(part))


def _part(part: Part) -> Iterator[str]:
    for text in part.remarks:
        yield from _comment(text)
    yield f"{flow(part.name)}:"
    yield from (_STEP + line for line in _settings(part))


def _settings(part: Part) -> Iterator[str]:
    for key, value in part.settings.items():
        note = part.notes.get(key, "")
        line = f"{key}: {flow(value)}"
        beside = f"{line:<{_NOTE_COLUMN}}  # {remark(note)}" if note else line
        if len(beside) + _INDENT <= _WIDTH:
            yield beside
            continue
        if note:
            yield from _comment(note)
        if isinstance(value, list) and len(line) + _INDENT > _WIDTH:
            yield from (f"{key}: [", *(_STEP + row for row in _rows(value)), "]")
        else:
            yield line


def _rows(values: Sequence[Any]) -> Iterator[str]:
    """The items of a long list, as many on a line as fit."""
    row = ""
    for value in values:
        item = f"{flow(value)}, "
        if row and len(row) + len(item) + _INDENT > _WIDTH:
            yield row.rstrip()
            row = ""
        row += item
    yield row.rstrip()


def flow(value: Any) -> str:
    """A value on one line, quoted where YAML would take text for something else."""
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{flow(key)}: {flow(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(flow, value)) + "]"
    if isinstance(value, bool) or value is None:
        return json.dumps(value)
    if isinstance(value, str):
        plain = _PLAIN.fullmatch(value) and value.lower() not in _RESERVED
        return value if plain else json.dumps(value)
    return str(value)


def _comment(text: str) -> list[str]:
    """Comment lines as narrow as settings."""
    return [f"# {row}" for row in wrap(remark(text), _WIDTH - _INDENT - 2, break_on_hyphens=False)]
