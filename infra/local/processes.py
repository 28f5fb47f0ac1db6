"""Start, find and stop the background processes of one state directory.

It restarts nothing by itself. It works on Linux only, because it trusts /proc for two things: the start time of a
process, so that a reused pid is never mistaken for ours, and the environment, in which each of our processes (and
whatever it starts) carries the state's mark.

Invariants: an intent is on disk before a process exists, and the mark is inside the process from its first moment; so
wherever the parent is killed, `find` still sees every process. Nothing without the mark is ever signalled.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import select
import signal
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

from infra.files import write_atomically
from infra.local import procfs
from infra.local.errors import ProcessError
from infra.local.state import State, read_json

MARK_VARIABLE = "GPUFLEET_PROCESS"
_NAME = re.compile(r"[a-z0-9]([a-z0-9.-]*[a-z0-9])?")
_LOG_LIMIT_BYTES = 32 * 1024**2  # a log above this is moved aside at the next start; one old log is kept
_KILL_GRACE_SECONDS = 5.0  # from SIGKILL to gone; longer means uninterruptible sleep


@dataclass(frozen=True)
class ProcessRecord:
    """What is remembered of a process; `pid` is None for one that was about to start."""

    name: str
    log: str
    pid: int | None = None
    start_ticks: int | None = None
    boot_id: str = ""
    command: tuple[str, ...] = ()
    ports: Mapping[str, int] = field(default_factory=dict)
    log_start: int = 0  # size of the log when this process started

    @property
    def alive(self) -> bool:
        """Whether exactly this process still runs: not another one with its pid, and not a zombie."""
        return (
            self.pid is not None
            and self.start_ticks is not None
            and self.boot_id == procfs.boot_id()
            and procfs.start_ticks(self.pid) == self.start_ticks
        )


def mark(state: State, name: str) -> dict[str, str]:
    """The environment by which `find` knows a process, and all that it starts."""
    return {MARK_VARIABLE: f"{state.id}/{name}"}


def spawn(
    state: State,
    name: str,
    command: Sequence[str],
    *,
    environment: Mapping[str, str] | None = None,
    ports: Mapping[str, int] | None = None,
) -> ProcessRecord:
    """Start `command` in a session of its own, its output appended to the state's log of that name.

    It gets PATH, HOME (the state directory) and `environment`, nothing else of ours.

    Raises:
        ProcessError: the program cannot be executed.
    """
    if not _NAME.fullmatch(name):
        raise ValueError(f"process name {name!r}: use lower-case letters, digits, dots and dashes")
    log = state.logs / f"{name}.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    _rotate(log)
    intent = ProcessRecord(
        name,
        str(log),
        boot_id=procfs.boot_id(),
        command=tuple(command),
        ports=dict(ports or {}),
        log_start=log.stat().st_size if log.exists() else 0,
    )
    _save(state, intent)
    complete = {
        "PATH": os.environ.get("PATH", os.defpath),
        "HOME": str(state.root),
        **(environment or {}),
        **mark(state, name),
    }
    try:
        pid = _spawn_detached(command, complete, log)
    except OSError as error:
        forget(state, name)
        raise ProcessError(f"{name}: cannot execute {command[0]}: {error.strerror}") from error
    record = replace(intent, pid=pid, start_ticks=procfs.start_ticks(pid))
    _save(state, record)
    return record


def _spawn_detached(command: Sequence[str], environment: Mapping[str, str], log: Path) -> int:
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
    return os.posix_spawn(
        command[0],
        list(command),
        dict(environment),
        file_actions=[
            (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
            (os.POSIX_SPAWN_OPEN, 1, str(log), flags, 0o600),
            (os.POSIX_SPAWN_DUP2, 1, 2),
        ],
        setsid=True,
        setsigmask=[],
        setsigdef=[signal.SIGPIPE, signal.SIGINT, signal.SIGTERM],
    )


def records(state: State) -> dict[str, ProcessRecord]:
    """Return the registry by name, dead processes included."""
    found: dict[str, ProcessRecord] = {}
    for path in sorted((state.root / "processes").glob("*.json")):
        content = read_json(path)
        try:
            record = ProcessRecord(**{**content, "command": tuple(content["command"])})
        except (TypeError, KeyError):
            continue  # damaged by a full disk; the mark in the environment still finds the process
        found[record.name] = record
    return found


def find(state: State) -> dict[str, list[int]]:
    """Return the pids of all living processes of this state by name: registered, or merely marked."""
    found: dict[str, list[int]] = {}
    prefix = f"{MARK_VARIABLE}={state.id}/".encode()
    for pid, name in procfs.marked(prefix):
        found.setdefault(name, []).append(pid)
    for record in records(state).values():
        if record.alive and record.pid is not None and record.pid not in found.get(record.name, []):
            found.setdefault(record.name, []).append(record.pid)
    return found


def stop(state: State, names: Sequence[str], grace_seconds: float = 10.0) -> None:
    """Ask the named processes to end, all at once, and kill what has not ended after the grace.

    Raises:
        ProcessError: a process survives SIGKILL (uninterruptible sleep).
    """
    _signal_and_wait(_pids(state, names), signal.SIGTERM, grace_seconds)
    deadline = time.monotonic() + _KILL_GRACE_SECONDS
    # A process may have started another one between our look and its end: look until nothing is left.
    while left := _pids(state, names):
        if time.monotonic() > deadline:
            raise ProcessError(f"{', '.join(names)}: pids {left} do not end even when killed; look at them with ps -l")
        _signal_and_wait(left, signal.SIGKILL, _KILL_GRACE_SECONDS)
    for name in names:
        forget(state, name)


def _pids(state: State, names: Sequence[str]) -> list[int]:
    found = find(state)
    return [pid for name in names for pid in found.get(name, [])]


def _signal_and_wait(pids: Sequence[int], number: signal.Signals, seconds: float) -> None:
    watched: dict[int, int] = {}
    poller = select.poll()
    try:
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                descriptor = os.pidfd_open(pid)
                watched[descriptor] = pid
                poller.register(descriptor, select.POLLIN)
                signal.pidfd_send_signal(descriptor, number)
        deadline = time.monotonic() + seconds
        waiting = set(watched)
        while waiting and (left := deadline - time.monotonic()) > 0:
            for descriptor, _ in poller.poll(left * 1000):
                poller.unregister(descriptor)
                waiting.discard(descriptor)
    finally:
        for descriptor, pid in watched.items():
            os.close(descriptor)
            reap(pid)


def reap(pid: int) -> int | None:
    """Return the exit code of a dead child of ours (negative: its signal), None if it lives or is no child."""
    try:
        waited, status = os.waitpid(pid, os.WNOHANG)
    except ChildProcessError:
        return None
    return os.waitstatus_to_exitcode(status) if waited else None


def log_tail(record: ProcessRecord, lines: int = 12) -> str:
    """Return the last lines that this process (and none before it) wrote to its log."""
    try:
        with Path(record.log).open("rb") as stream:
            size = stream.seek(0, os.SEEK_END)
            stream.seek(max(record.log_start, size - 16 * 1024))
            return "\n".join(stream.read().decode(errors="replace").splitlines()[-lines:])
    except OSError:
        return ""


def forget(state: State, name: str) -> None:
    """Remove a process from the registry."""
    _record_path(state, name).unlink(missing_ok=True)


def _rotate(log: Path) -> None:
    if log.exists() and log.stat().st_size > _LOG_LIMIT_BYTES:
        log.replace(log.with_suffix(".log.1"))


def _save(state: State, record: ProcessRecord) -> None:
    write_atomically(_record_path(state, record.name), json.dumps(asdict(record)))


def _record_path(state: State, name: str) -> Path:
    return state.root / "processes" / f"{name}.json"
