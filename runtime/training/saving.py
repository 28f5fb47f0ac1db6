"""The directory that a checkpoint is written into, before it has its name.

A file whose content this process has already written or verified is linked instead of written again. Files of unknown
origin are never linked: one that has rotted on the disk would spoil every later checkpoint.
"""

from __future__ import annotations

import hashlib
import os
import pickle
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from .checkpoint import OWNER, SHARED, STATE_NAME, own_directory
from .errors import SaveFailed
from .files import digest, sync_directory, sync_file, write_durably
from .manifest import Entry, valid_name
from .ranks import Ranks

_SHARED_RANK: Final = re.compile(r"__(\d{1,9})_")

Known = Mapping[tuple[int, str], Path]
"""Files that are known to be good, by size and SHA-256."""


class Saving:
    """What a save function writes into.

    `write` and `pickle` take content, and link it where it has not changed. Libraries that write files themselves do so
    under `path`, which is this rank's own, or under `shared`, which all ranks have in common.
    """

    def __init__(self, root: Path, step: int, ranks: Ranks, known: Known) -> None:
        self.step = step
        self.ranks = ranks
        self.path = own_directory(root, ranks)
        self.root = root
        self.linked_bytes = 0
        self._known = known
        self._entries: dict[str, Entry] = {}
        self.path.mkdir(exist_ok=True)

    @property
    def shared(self) -> Path:
        """Where all ranks write together."""
        path = self.root / SHARED
        path.mkdir(exist_ok=True)
        return path

    @property
    def entries(self) -> tuple[Entry, ...]:
        """The files of this rank."""
        return tuple(self._entries.values())

    def write(self, name: str, data: bytes | bytearray | memoryview) -> None:
        """Save a file of this content under this rank's own path."""
        view = memoryview(data).cast("B")
        path = self.path / name
        full = self._name(path)
        path.parent.mkdir(parents=True, exist_ok=True)
        entry = Entry(full, len(view), hashlib.sha256(view).hexdigest())
        if not self._link(entry, path):
            write_durably(path, view)
        self._entries[full] = entry

    def pickle(self, value: Any, name: str = STATE_NAME) -> None:
        """Save a Python value: numbers, lists, the state of a random generator."""
        self.write(name, pickle.dumps(value, protocol=pickle.HIGHEST_PROTOCOL))

    def collect(self) -> None:
        """Find every file of this rank, make it durable, and take its size and checksum.

        Raises:
            SaveFailed: a file that no checkpoint may hold.
        """
        directories = {self.path}
        for path in [*self._files(self.path), *self._files(self.root / SHARED)]:
            name = self._name(path)
            directories.update(parent for parent in path.parents if parent.is_relative_to(self.root))
            if path.is_symlink() or not path.is_file():
                raise SaveFailed(f"{name}: neither a file nor a directory; a checkpoint holds nothing else")
            if name not in self._entries and self._mine(path):
                self._entries[name] = self._take(name, path)
        for directory in directories:
            sync_directory(directory)

    def _files(self, top: Path) -> list[Path]:
        """Whatever is no directory under `top`; from the root itself, neither `shared` nor the owner's mark."""
        found = []
        for parent, names, files in os.walk(top):
            if Path(parent) == self.root:
                names[:] = [name for name in names if name != SHARED]
                files = [name for name in files if name != OWNER]
            links = [name for name in names if (Path(parent) / name).is_symlink()]
            found += [Path(parent) / name for name in sorted(files + links)]
        return found

    def _mine(self, path: Path) -> bool:
        """Whether this rank answers for a file: its own, or a shared one that begins with `__<rank>_`, as DCP's do."""
        if not path.is_relative_to(self.root / SHARED):
            return True
        rank = _SHARED_RANK.match(path.name)
        return self.ranks.rank == (int(rank[1]) if rank and int(rank[1]) < self.ranks.world else 0)

    def _take(self, name: str, path: Path) -> Entry:
        """A file that a library wrote: made durable, or replaced by a link where its content is known."""
        entry = Entry(name, *digest(path))
        spare = path.with_name(f"{path.name}.link")
        if self._link(entry, spare):
            spare.replace(path)
        else:
            sync_file(path)
        return entry

    def _link(self, entry: Entry, path: Path) -> bool:
        """Whether a known file could stand in; not where there are no links, or where it was deleted since."""
        source = self._known.get((entry.size, entry.sha256))
        if source is None or entry.size == 0:
            return False
        try:
            os.link(source, path, follow_symlinks=False)
        except FileExistsError:
            raise
        except OSError:
            return False
        self.linked_bytes += entry.size
        return True

    def _name(self, path: Path) -> str:
        name = path.relative_to(self.root).as_posix() if path.is_relative_to(self.root) else str(path)
        if not valid_name(name):
            raise SaveFailed(
                f"{name!r} is no name for a file of a checkpoint: a relative path of letters, digits and ._+=@,:%-"
            )
        return name
