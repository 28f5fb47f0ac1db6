"""Files that are either wholly there or not there, whatever is killed in between.

Every function that says "durable" has called fsync on the file, and on the directory where a name changed. What the
file system makes of that is its own affair: NFS sends the data to the server, a FUSE mount of a bucket may do nothing.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import os
import secrets
import stat
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

LOCK_PATIENCE_SECONDS: Final = 5.0
"""Longer than any holder needs (it reads and writes a line), and short beside the shortest notice of 30 s."""

_LOCK_RETRY_SECONDS: Final = 0.02
_NO_LOCKS: Final = frozenset({errno.ENOLCK, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL})
"""What file systems without locks answer to flock."""

_CHUNK_BYTES: Final = 1 << 20


def write_durably(path: Path, data: bytes | bytearray | memoryview) -> None:
    """Write a new file, durably but for its name in the directory. An existing one is an error."""
    with path.open("xb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def replace_durably(path: Path, data: bytes) -> None:
    """Put a file in the place of another; readers see the one or the other, whole."""
    _replace(path, data, write_durably)
    sync_directory(path.parent)


def replace_quickly(path: Path, data: bytes) -> None:
    """As `replace_durably`, for what may be lost with the machine."""
    _replace(path, data, Path.write_bytes)


def _replace(path: Path, data: bytes, write: Callable[[Path, bytes], object]) -> None:
    fresh = path.with_name(f".{path.name}.{secrets.token_hex(6)}")
    try:
        write(fresh, data)
        fresh.replace(path)
    except BaseException:
        with contextlib.suppress(OSError):
            fresh.unlink(missing_ok=True)
        raise


def overwrite(path: Path, data: bytes) -> None:
    """Put new content into a file that exists and must stay the same file, as the one that kubelet mounts."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.pwrite(descriptor, data, 0)
        os.ftruncate(descriptor, len(data))
    finally:
        os.close(descriptor)


def sync_file(path: Path) -> None:
    """Make the content of a file durable that somebody else wrote."""
    with path.open("rb") as file:
        os.fsync(file.fileno())


def sync_directory(path: Path) -> None:
    """Make the names in a directory durable."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in _NO_LOCKS:  # some network file systems cannot, and need not, sync a directory
            raise
    finally:
        os.close(descriptor)


def read_regular(path: Path, limit: int) -> bytes:
    """At most `limit` + 1 bytes of a regular file; a link, a pipe or a device is an error, and never waits."""
    descriptor = _open_regular(path)
    with os.fdopen(descriptor, "rb") as file:
        return file.read(limit + 1)


def digest(path: Path) -> tuple[int, str]:
    """Size and SHA-256 of a regular file, read once."""
    sha = hashlib.sha256()
    size = 0
    with os.fdopen(_open_regular(path), "rb", buffering=0) as file:
        buffer = bytearray(_CHUNK_BYTES)
        view = memoryview(buffer)
        while count := file.readinto(buffer):
            sha.update(view[:count])
            size += count
    return size, sha.hexdigest()


def _open_regular(path: Path) -> int:
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    if stat.S_ISREG(os.fstat(descriptor).st_mode):
        return descriptor
    os.close(descriptor)
    raise OSError(errno.EINVAL, "not a regular file", str(path))


@contextlib.contextmanager
def locked(path: Path, patience: float = LOCK_PATIENCE_SECONDS) -> Iterator[bool]:
    """Hold a lock that ends with its process, however that ends; yields False where there are no locks.

    Raises:
        TimeoutError: somebody else held it for longer than `patience` seconds.
    """
    with path.open("ab") as file:
        until = time.monotonic() + patience
        while (got := try_lock(file.fileno())) is False:
            if time.monotonic() >= until:
                raise TimeoutError(errno.ETIMEDOUT, f"held by another process for {patience:g} s", str(path))
            time.sleep(_LOCK_RETRY_SECONDS)
        yield bool(got)


def try_lock(descriptor: int) -> bool | None:
    """Whether the lock was to be had; None where the file system has no locks."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in _NO_LOCKS:
            return None
        if error.errno in (errno.EAGAIN, errno.EACCES):
            return False
        raise
    return True
