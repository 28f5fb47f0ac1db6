"""Puts a MIG layout into a pool of the stack file, and leaves every other character of it alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from yaml import MappingNode

from infra.commands.file_change import Change, FileChangeError, mapping_of, require_sound, text_of
from infra.gpus.nodes import NodeLayout
from stacks.editing.edits import Document, EditError, Entry
from stacks.reading.stackfile import KEY


def change_layout(file: Path, pool: str, layout: NodeLayout, before_it: NodeLayout) -> Change:
    """Give the pool this layout; its strategy stays, and is `mixed` where it had no MIG.

    The layout that it had becomes `former`, so that nodes can go back to it, unless one stands there already.

    Raises:
        ConfigError: the stack file would be wrong.
        FileChangeError: the pool is not written where a program can change it.
    """
    before = text_of(file)
    document = Document(before)
    fleet = mapping_of(document, mapping_of(document, document.root, "config", file), KEY, file)
    holder = mapping_of(document, mapping_of(document, fleet, "pools", file), pool, file)
    try:
        _edit(document, holder, layout, before_it)
        change = Change(file, before, document.result())
    except EditError as error:
        where = f"{file}:{error.line}:{error.column}" if error.line else str(file)
        raise FileChangeError(f"{where}: {error.reason}") from None
    require_sound(_sources(document, fleet, file), change)
    return change


def _edit(document: Document, holder: MappingNode, layout: NodeLayout, before_it: NodeLayout) -> None:
    mig = document.entry(holder, "mig")
    if mig is None:
        document.insert(holder, "mig", {"strategy": "mixed", "layout": layout})
        return
    if document.is_shared(mig.value) or not isinstance(mig.value, MappingNode):
        raise mig.error("is shared with other places, or is no map; write it out here, or change it by hand")
    entry = document.entry(mig.value, "layout")
    if entry is None:
        raise mig.error("has its layout from elsewhere; write it out here, or change it by hand")
    had_none = document.entry(mig.value, "former") is None
    if len(document.entries(mig.value)) > 1:
        if had_none:
            document.insert(mig.value, "former", before_it, after=entry)
        _put(document, entry, layout)
    else:
        _put(document, mig, {"layout": layout} | ({"former": before_it} if had_none else {}))


def _put(document: Document, entry: Entry, value: Any) -> None:
    """Write the entry anew at its place; comments inside the old value go with it."""
    entries = document.entries(entry.mapping)
    if entry.index:
        document.insert(entry.mapping, entry.name, value, after=entries[entry.index - 1])
    else:
        document.insert_first(entry.mapping, entry.name, value)
    document.remove(entry, keep_comment=True)


def _sources(document: Document, fleet: MappingNode, file: Path) -> list[Path]:
    teams_file = document.entry(fleet, "teams_file")
    return [file] if teams_file is None else [file, file.parent / teams_file.value.value]
