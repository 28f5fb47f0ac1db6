"""The exception tree of the embedded control plane; each message says what was wrong and how to fix it.

LocalError
├── ToolchainError      a binary can neither be found, downloaded nor built
├── LockedError         another process holds a lock
├── StateError          the state directory cannot be used
├── DiskSpaceError      not enough space, or none left
├── ProcessError        a process did not start, became unhealthy or does not stop
├── PodSpecError        a pod template asks for what the local pod runner cannot do
└── KubeError           the API server refused a request or cannot be reached
"""

from __future__ import annotations

import errno
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

BYTES_PER_GIB = 1024**3


class LocalError(Exception):
    """Base of everything this package raises on purpose: the command line prints it without a traceback."""


class ToolchainError(LocalError):
    """A binary can neither be found, downloaded nor built."""


class LockedError(LocalError):
    """Another process holds the lock; `pid` is None where the holder has not said who it is yet."""

    def __init__(self, message: str, pid: int | None) -> None:
        super().__init__(message)
        self.pid = pid


class StateError(LocalError):
    """The state directory cannot be used."""


class DiskSpaceError(LocalError):
    """There is not enough free space for what was asked."""


class ProcessError(LocalError):
    """A process did not start, became unhealthy or does not stop."""


class PodSpecError(LocalError):
    """A pod template asks for what the local pod runner cannot do."""


class KubeError(LocalError):
    """The API server refused a request; `status` is the HTTP status, 0 where there was no answer at all."""

    def __init__(self, message: str, status: int, reason: str = "") -> None:
        super().__init__(message)
        self.status = status
        self.reason = reason


def require_free_space(path: Path, needed_gib: float, purpose: str) -> None:
    """Raise DiskSpaceError unless the file system of `path` (or of its nearest existing parent) has the space."""
    existing = next(candidate for candidate in (path, *path.parents) if candidate.exists())
    free_gib = shutil.disk_usage(existing).free / BYTES_PER_GIB
    if free_gib < needed_gib:
        raise DiskSpaceError(
            f"{path}: {free_gib:.1f} GiB free, but {purpose} needs {needed_gib:g} GiB; free some space and try again"
        )


@contextmanager
def disk_full_is_plain(path: Path) -> Iterator[None]:
    """Turn "no space left" and "quota exceeded" from the system into a DiskSpaceError that names the place."""
    try:
        yield
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        where = error.filename or path
        raise DiskSpaceError(
            f"{where}: no space left on the device; free some space and run the command again"
        ) from error
