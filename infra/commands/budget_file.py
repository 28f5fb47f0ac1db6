"""Changes the limits of one budget in the typed file, and leaves every other character of it alone.

The stack file says where its teams stand; a team's budget is changed there. What comes out is checked as a whole before
anything is written. Budgets that the file shares through anchors are refused: the change would reach others too.
"""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from pathlib import Path

from yaml import MappingNode

from infra.commands.file_change import Change, FileChangeError, mapping_of, require_sound, text_of
from runtime.cost.scopes import FLEET, project_of, team_of
from stacks.editing.edits import Document, EditError
from stacks.load import read_file
from stacks.quantities.text import plain_number
from stacks.reading.stackfile import KEY
from stacks.suggest import did_you_mean


def change_limits(file: Path, scope: str, limits: Mapping[str, Decimal | None]) -> Change:
    """Set limits of a scope's budget (None removes one), in the stack file or in its `teams_file`.

    Raises:
        ConfigError: the stack file is wrong, before or after the change.
        FileChangeError: there is no such scope, or its budget cannot be changed by a program.
    """
    read_file(file)
    before = text_of(file)
    document = Document(before)
    fleet = mapping_of(document, mapping_of(document, document.root, "config", file), KEY, file)
    teams_file = document.entry(fleet, "teams_file")
    sources = [file] if teams_file is None else [file, file.parent / teams_file.value.value]
    edited, shown = document, file
    if team_of(scope) is not None and teams_file is not None:
        shown = sources[-1]
        before = text_of(shown)
        edited = Document(before)
        fleet = edited.root
    try:
        _edit(edited, _holder(edited, fleet, scope, shown), limits)
        change = Change(shown, before, edited.result())
    except EditError as error:
        where = f"{shown}:{error.line}:{error.column}" if error.line else str(shown)
        raise FileChangeError(f"{where}: {error.reason}") from None
    require_sound(sources, change)
    return change


def _holder(document: Document, fleet: MappingNode, scope: str, file: Path) -> MappingNode:
    """The mapping that has the scope's `budget`, or would have it."""
    if scope == FLEET:
        return mapping_of(document, fleet, "burst", file)
    section, name = ("teams", team_of(scope)) if team_of(scope) is not None else ("projects", project_of(scope))
    if document.entry(fleet, section) is None:
        raise FileChangeError(f"{file}: has no {section}; add {section}: {{{name}: ...}} by hand first")
    members = mapping_of(document, fleet, section, file)
    if name is None or document.entry(members, name) is None:
        known = [entry.name for entry in document.entries(members) if not entry.is_merge]
        raise FileChangeError(f"{file}: there is no {scope}{did_you_mean(str(name), known)}")
    return mapping_of(document, members, name, file)


def _edit(document: Document, holder: MappingNode, limits: Mapping[str, Decimal | None]) -> None:
    written = {name: f"{plain_number(limit)} USD" for name, limit in limits.items() if limit is not None}
    entry = document.entry(holder, "budget")
    if entry is None:
        document.insert(holder, "budget", written)
        return
    if entry.value_span.is_alias or not isinstance(entry.value, MappingNode):
        raise entry.error("is shared with other places, or is no map; write the budget out here, or change it by hand")
    for name in limits:
        limit = document.entry(entry.value, name)
        if name not in written:
            if limit is not None:
                document.remove(limit)
        elif limit is None:
            document.insert(entry.value, name, written[name])
        else:
            document.replace(limit, written[name])
