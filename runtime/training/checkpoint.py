"""One complete checkpoint: a directory that is never changed after it has its name."""

from __future__ import annotations

import errno
import pickle
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from . import manifest as manifests
from .errors import TornCheckpoint, Unreadable
from .files import digest, read_regular
from .manifest import Entry, Manifest
from .ranks import Ranks

STATE_NAME: Final = "state.pickle"
SHARED: Final = "shared"
"""Where all ranks write together, as torch.distributed.checkpoint does."""

OWNER: Final = ".owner"
"""Locked by the process that writes the directory it lies in, for as long as that lives; not part of a checkpoint."""

_NOT_THERE: Final = frozenset({errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.EISDIR, errno.EINVAL, errno.ENXIO})
"""What opening says of a file that is missing, or is a link, a directory, a pipe or a socket in its place."""

_NAME: Final = re.compile(r"step-([0-9]{12})")


def directory_name(step: int) -> str:
    """The name of a step's directory: names sort as steps do."""
    return f"step-{step:012d}"


def step_of(name: str) -> int | None:
    """The step of a directory's name; None where it is no checkpoint's."""
    found = _NAME.fullmatch(name)
    return int(found[1]) if found else None


def own_directory(root: Path, ranks: Ranks) -> Path:
    """Where a rank's own files are: one that trains alone has the whole checkpoint."""
    return root if ranks.world == 1 else root / f"rank-{ranks.rank:05d}"


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A checkpoint whose manifest could be read. Whether its files are what the manifest says, `verify` finds out."""

    step: int
    path: Path
    manifest: Manifest

    @classmethod
    def open(cls, path: Path) -> Checkpoint:
        """The checkpoint in a directory.

        Raises:
            TornCheckpoint: there is none that could be complete.
        """
        step = step_of(path.name)
        if step is None:
            raise TornCheckpoint(f"{path}: no name of a checkpoint; they look like {directory_name(1_200)}")
        try:
            data = read_regular(path / manifests.NAME, manifests.MAX_BYTES)
            return cls(step, path, manifests.parse_manifest(data, step))
        except OSError as error:
            raise _unread(path / manifests.NAME, error) from None
        except TornCheckpoint as error:
            raise TornCheckpoint(f"{path}: {error}") from None

    @property
    def shared(self) -> Path:
        """Where all ranks wrote together."""
        return self.path / SHARED

    def own(self, ranks: Ranks) -> Path:
        """Where this rank's own files are."""
        return own_directory(self.path, ranks)

    def verify(self) -> None:
        """Read every file and compare; sizes first, because that is quick.

        Raises:
            TornCheckpoint: the first file that is not what the manifest says.
        """
        for entry in self.manifest.files:
            self._compare_size(entry)
        for entry in self.manifest.files:
            path = self.path / entry.name
            try:
                found = digest(path)
            except OSError as error:
                raise _unread(path, error) from None
            if found != (entry.size, entry.sha256):
                raise TornCheckpoint(f"{path}: its content is not what was saved (SHA-256 differs)")

    def unpickle(self, name: str = STATE_NAME) -> Any:
        """What `Saving.pickle` saved. A pickle can run code: who can write to the store, can run code here."""
        with manifests.inside(self.path, name).open("rb") as file:
            return pickle.load(file)

    def _compare_size(self, entry: Entry) -> None:
        path = manifests.inside(self.path, entry.name)
        try:
            size = path.lstat().st_size
        except OSError as error:
            raise _unread(path, error) from None
        if size != entry.size:
            raise TornCheckpoint(f"{path}: has {size} bytes, {entry.size} were saved")


def _unread(path: Path, error: OSError) -> TornCheckpoint:
    """What a failure to read means: the file is not what was saved, or nobody can say."""
    kind = TornCheckpoint if error.errno in _NOT_THERE else Unreadable
    return kind(f"{path}: cannot be read: {error.strerror or error}")
