"""Changes of one stack file, or of the teams file beside it, that leave every character alone that is not part of them.

What comes out is checked as a whole before anything is written. What the file shares through anchors is refused: a
change would reach other places too.
"""

from __future__ import annotations

import difflib
import stat
import tempfile
from codecs import BOM_UTF8
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from yaml import MappingNode

from infra.files import write_atomically
from infra.local.errors import LocalError
from stacks.editing.edits import Document, Entry
from stacks.editing.spans import BYTE_ORDER_MARK
from stacks.load import read_file
from stacks.reading.source import read_source


class FileChangeError(LocalError):
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
            FileChangeError: it cannot be written.
        """
        try:
            target = self.file.resolve(strict=True)
            write_atomically(target, self.after, stat.S_IMODE(target.stat().st_mode))
        except OSError as error:
            raise FileChangeError(f"{self.file}: cannot be written: {error.strerror or error}") from error


def mapping_of(document: Document, parent: MappingNode, name: str, file: Path) -> MappingNode:
    """The mapping of that name, where it is the file's own.

    Raises:
        FileChangeError: it is not there, or is shared or no map.
    """
    entry: Entry | None = document.entry(parent, name)
    if entry is None:
        raise FileChangeError(f"{file}: {name} is not written where it can be changed; change it by hand")
    if document.is_shared(entry.value) or not isinstance(entry.value, MappingNode):
        line = entry.key.start_mark.line + 1
        raise FileChangeError(f"{file}:{line}: {name} is shared with other places, or is no map; change it by hand")
    return entry.value


def require_sound(sources: Sequence[Path], change: Change) -> None:
    """Read the stack file, which comes first, with the change, from a copy, so that a wrong file is never written.

    Raises:
        ConfigError: it is wrong.
    """
    file = sources[0]
    with tempfile.TemporaryDirectory(prefix="gpufleet-") as folder:
        for source in sources:
            copy = Path(folder) / source.relative_to(file.parent)
            copy.parent.mkdir(parents=True, exist_ok=True)
            copy.write_text(change.after if source == change.file else text_of(source), encoding="utf-8", newline="")
        read_file(Path(folder) / file.name, display=str(file))


def text_of(file: Path) -> str:
    """The file's text as it stands there, with its line ends and its byte order mark."""
    text = read_source(file, str(file))
    with file.open("rb") as stream:
        marked = stream.read(len(BOM_UTF8)) == BOM_UTF8
    return f"{BYTE_ORDER_MARK}{text}" if marked else text
