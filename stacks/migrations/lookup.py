"""Finds what a migration changes, wherever anchors and merge keys have it written.

It reads only. A mapping that several places share is found once, so that it is changed once.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from yaml import MappingNode, ScalarNode

from stacks.editing.edits import Document, Entry
from stacks.reading.scalars import resolve


def all_written(document: Document, mapping: MappingNode, name: str) -> list[Entry]:
    """The entries of that name in a mapping and in what its merge keys bring in; the first one counts."""
    return [entry for source in document.sources(mapping) if (entry := document.entry(source, name))]


def inherited(document: Document, mapping: MappingNode, name: str) -> Entry | None:
    """The entry that counts, None where there is none."""
    return next(iter(all_written(document, mapping, name)), None)


def members(document: Document, fleet: MappingNode, *names: str) -> Iterator[MappingNode]:
    """Every element of a section of named elements, each once, whichever of its names the section has."""
    seen: set[int] = set()
    for section in (entry.value for name in names for entry in all_written(document, fleet, name)):
        if not isinstance(section, MappingNode):
            continue
        for entry in (entry for source in document.sources(section) for entry in document.entries(source)):
            if isinstance(entry.value, MappingNode) and not entry.is_merge and id(entry.value) not in seen:
                seen.add(id(entry.value))
                yield entry.value


def old_entries(document: Document, mappings: Iterable[MappingNode], old: str, new: str) -> list[Entry]:
    """The entries named `old`, each once, wherever an anchor or a merge key has them written.

    Raises:
        EditError: a mapping has both names, so that one of the two would be lost.
    """
    entries: dict[Entry, None] = {}
    for mapping in mappings:
        found, replaced = all_written(document, mapping, old), all_written(document, mapping, new)
        if found and replaced:
            line = replaced[0].key.start_mark.line + 1
            raise found[0].error(f"is the old name of {new}, which is there too (line {line}); remove one of them")
        entries.update(dict.fromkeys(found))
    return list(entries)


def plain_value(entry: Entry) -> bool | int | float | str | None:
    """The value of a scalar, as Pulumi reads it."""
    if not isinstance(entry.value, ScalarNode):
        raise entry.error("must be a single value, not a list or a map")
    text: str = entry.value.value
    return text if entry.value.style else resolve(text)[1]
