"""Changes the limits of one budget in the typed file, and leaves every other character of it alone.

The stack file says where its teams stand; a team's budget is changed there. What comes out is checked as a whole before
anything is written. Budgets that the file shares through anchors are refused: the change would reach others too.
"""

from __future__ import annotations

import difflib
import stat
import tempfile
from codecs import BOM_UTF8
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path

from yaml import MappingNode

from infra.files import write_atomically
from infra.local.errors import LocalError
from runtime.cost.scopes import FLEET, project_of, team_of
from stacks.editing.edits import Document, EditError, Entry
from stacks.editing.spans import BYTE_ORDER_MARK
from stacks.load import read_file
from stacks.quantities.text import plain_number
from stacks.reading.source import read_source
from stacks.reading.stackfile import KEY
from stacks.suggest import did_you_mean


class BudgetFileError(LocalError):
    """The file cannot be changed so by a program."""


@dataclass(frozen=True, slots=True)
class Change:
    """A file before and after; nothing is written yet."""

    file: Path
    before: str
    after: str

    def diff(self) -> Iterator[str]:
        """The lines that change, as a unified diff."""
        before, after = (text.splitlines(keepends=True) for text in (self.before, self.after))
        for line in difflib.unified_diff(before, after, f"{self.file} (now)", f"{self.file} (changed)"):
            yield line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n"

    def write(self) -> None:
        """Replace the file as a whole; a link keeps pointing to it, and it keeps its permissions.

        Raises:
            BudgetFileError: it cannot be written.
        """
        try:
            target = self.file.resolve(strict=True)
            write_atomically(target, self.after, stat.S_IMODE(target.stat().st_mode))
        except OSError as error:
            raise BudgetFileError(f"{self.file}: cannot be written: {error.strerror or error}") from error


def change_limits(file: Path, scope: str, limits: Mapping[str, Decimal | None]) -> Change:
    """Set limits of a scope's budget (None removes one), in the stack file or in its `teams_file`.

    Raises:
        ConfigError: the stack file is wrong, before or after the change.
        BudgetFileError: there is no such scope, or its budget cannot be changed by a program.
    """
    read_file(file)
    before = _text(file)
    document = Document(before)
    fleet = _mapping(document, _mapping(document, document.root, "config", file), KEY, file)
    teams_file = document.entry(fleet, "teams_file")
    sources = [file] if teams_file is None else [file, file.parent / teams_file.value.value]
    edited, shown = document, file
    if team_of(scope) is not None and teams_file is not None:
        shown = sources[-1]
        before = _text(shown)
        edited = Document(before)
        fleet = edited.root
    try:
        _edit(edited, _holder(edited, fleet, scope, shown), limits)
        change = Change(shown, before, edited.result())
    except EditError as error:
        where = f"{shown}:{error.line}:{error.column}" if error.line else str(shown)
        raise BudgetFileError(f"{where}: {error.reason}") from None
    _check(sources, change)
    return change


def _holder(document: Document, fleet: MappingNode, scope: str, file: Path) -> MappingNode:
    """The mapping that has the scope's `budget`, or would have it."""
    if scope == FLEET:
        return _mapping(document, fleet, "burst", file)
    section, name = ("teams", team_of(scope)) if team_of(scope) is not None else ("projects", project_of(scope))
    if document.entry(fleet, section) is None:
        raise BudgetFileError(f"{file}: has no {section}; add {section}: {{{name}: ...}} by hand first")
    members = _mapping(document, fleet, section, file)
    if name is None or document.entry(members, name) is None:
        known = [entry.name for entry in document.entries(members) if not entry.is_merge]
        raise BudgetFileError(f"{file}: there is no {scope}{did_you_mean(str(name), known)}")
    return _mapping(document, members, name, file)


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


def _mapping(document: Document, parent: MappingNode, name: str, file: Path) -> MappingNode:
    entry: Entry | None = document.entry(parent, name)
    if entry is None:
        raise BudgetFileError(f"{file}: {name} is not written where it can be changed; change it by hand")
    if entry.value_span.is_alias or not isinstance(entry.value, MappingNode):
        line = entry.key.start_mark.line + 1
        raise BudgetFileError(f"{file}:{line}: {name} is shared with other places, or is no map; change it by hand")
    return entry.value


def _check(sources: Sequence[Path], change: Change) -> None:
    """Read the stack file, which comes first, with the change, from a copy, so that a wrong file is never written."""
    file = sources[0]
    with tempfile.TemporaryDirectory(prefix="gpufleet-") as folder:
        for source in sources:
            copy = Path(folder) / source.relative_to(file.parent)
            copy.parent.mkdir(parents=True, exist_ok=True)
            copy.write_text(change.after if source == change.file else _text(source), encoding="utf-8", newline="")
        read_file(Path(folder) / file.name, display=str(file))


def _text(file: Path) -> str:
    """The file's text as it stands there, with its line ends and its byte order mark."""
    text = read_source(file, str(file))
    with file.open("rb") as stream:
        marked = stream.read(len(BOM_UTF8)) == BOM_UTF8
    return f"{BYTE_ORDER_MARK}{text}" if marked else text
