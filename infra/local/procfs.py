"""What Linux says about processes, read from /proc.

It decides nothing and signals nobody. On a system without /proc every function fails at once, which is why the
embedded control plane is for Linux only.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

_PROC = Path("/proc")


def marked(prefix: bytes) -> Iterator[tuple[int, str]]:
    """Yield (pid, rest) for every living process, except this one, whose environment has an entry with the prefix."""
    for entry in _PROC.iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        try:
            variables = (entry / "environ").read_bytes().split(b"\0")
        except OSError:
            continue  # gone meanwhile, or another user's
        for variable in variables:
            if variable.startswith(prefix) and start_ticks(int(entry.name)) is not None:
                yield int(entry.name), variable[len(prefix) :].decode(errors="replace")
                break


def start_ticks(pid: int) -> int | None:
    """Return the start time of a process in clock ticks since boot, None if there is none or it is a zombie."""
    try:
        after_name = (_PROC / str(pid) / "stat").read_bytes().rsplit(b")", 1)[1].split()
    except (OSError, IndexError):
        return None
    return None if after_name[0] in (b"Z", b"X") else int(after_name[19])


def resident_mib(pid: int) -> float:
    """Return the resident memory of a process in MiB, 0 where it is gone."""
    try:
        pages = int((_PROC / str(pid) / "statm").read_bytes().split()[1])
    except (OSError, IndexError):
        return 0.0
    return pages * os.sysconf("SC_PAGE_SIZE") / 1024**2


def boot_id() -> str:
    """Return what tells this boot of the machine from every other."""
    return (_PROC / "sys/kernel/random/boot_id").read_text().strip()
