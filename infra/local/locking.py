"""A lock between processes whose holder can be named.

It is no lock between threads. The kernel drops it when its holder dies, however it dies, so there is no stale lock
to clean up: the text inside the file is for messages only and never decides anything.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from infra.local.errors import LockedError


@dataclass(frozen=True)
class Holder:
    """Who holds a lock, as far as it has said."""

    pid: int | None
    purpose: str

    def __str__(self) -> str:
        who = f"pid {self.pid}" if self.pid else "another process"
        return f"{who} which {self.purpose}" if self.purpose else who


@contextmanager
def locked(path: Path, purpose: str, *, on_wait: Callable[[Holder], None] | None = None) -> Iterator[None]:
    """Hold the lock at `path`; `purpose` completes the sentence "pid 7 which …".

    With `on_wait` a taken lock is announced once and waited for; without, it raises LockedError at once.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        _take(descriptor, path, on_wait)
        with contextlib.suppress(OSError):  # on a full disk the lock holds without it, and `down` frees the disk
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, json.dumps({"pid": os.getpid(), "purpose": purpose}).encode(), 0)
        try:
            yield
        finally:
            os.ftruncate(descriptor, 0)
    finally:
        os.close(descriptor)


def _take(descriptor: int, path: Path, on_wait: Callable[[Holder], None] | None) -> None:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        holder = _holder(descriptor)
        if on_wait is None:
            raise LockedError(f"{path} is held by {holder}; wait for it to end, or stop it", holder.pid) from None
        on_wait(holder)
        fcntl.flock(descriptor, fcntl.LOCK_EX)


def _holder(descriptor: int) -> Holder:
    try:
        content = json.loads(os.pread(descriptor, 4096, 0))
        return Holder(int(content["pid"]), str(content["purpose"]))
    except (ValueError, KeyError, TypeError):
        return Holder(None, "")
