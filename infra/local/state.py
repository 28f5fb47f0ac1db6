"""One directory per stack that holds all the embedded control plane keeps: data, keys, logs, ports, processes.

It knows nothing of Kubernetes. Deleting the directory after `stop` deletes the stack.

Invariants: the directory is private to its user; each file is replaced atomically, so a reader never sees half of
one; `State.id` is random and never reused, so that a process which carries it is certainly ours.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from infra.files import write_atomically
from infra.local.errors import StateError
from infra.local.locking import locked

STATE_VARIABLE = "GPUFLEET_STATE"
_IDENTITY_FILE = "state.json"
_IDENTITY_LOCK = ".identity.lock"
_LOCK = "lock"
_FORMAT = 1  # raised when a newer layout cannot be read by older code


def read_json(path: Path) -> Any:
    """Return the content of a JSON file, None where it is missing or damaged (a full disk leaves such files)."""
    try:
        return json.loads(path.read_bytes())
    except (FileNotFoundError, ValueError):
        return None


@dataclass
class State:
    """The state directory of one stack; get one from `State.open`."""

    root: Path
    stack: str
    id: str
    _lock_depth: int = field(default=0, repr=False)

    @staticmethod
    def directory(checkout: Path, stack: str) -> Path:
        """Where the stack's state is, or would be: $GPUFLEET_STATE, else `<checkout>/.gpufleet/<stack>`."""
        override = os.environ.get(STATE_VARIABLE)
        root = Path(override).expanduser() if override else checkout / ".gpufleet" / stack
        return root.absolute()

    @classmethod
    def open(cls, checkout: Path, stack: str) -> State:
        """Open or create the stack's directory.

        Raises:
            StateError: it holds something else, belongs to another stack, is of a newer format, or cannot be written.
        """
        return cls.at(cls.directory(checkout, stack), stack)

    @classmethod
    def at(cls, root: Path, stack: str) -> State:
        """Open or create the state in exactly this directory."""
        try:
            root.mkdir(parents=True, exist_ok=True, mode=0o700)
            return cls(root, stack, _identity(root, stack))
        except (PermissionError, NotADirectoryError, FileExistsError, FileNotFoundError) as error:
            raise StateError(
                f"{root}: cannot be used as state directory ({error.strerror}); set {STATE_VARIABLE} to a writable one"
            ) from error

    @contextmanager
    def lock(self, purpose: str) -> Iterator[None]:
        """Be the only process that changes this stack; re-entrant in one process, raises LockedError if taken."""
        if self._lock_depth == 0:
            with locked(self.root / _LOCK, purpose):
                yield from self._counted()
        else:
            yield from self._counted()

    def _counted(self) -> Iterator[None]:
        self._lock_depth += 1
        try:
            yield
        finally:
            self._lock_depth -= 1

    def delete(self) -> None:
        """Delete the directory, what makes it ours last, so that an interrupted deletion can be repeated."""
        with self.lock("removes the stack"):
            for entry in self.root.iterdir():
                if entry.name not in (_IDENTITY_FILE, _LOCK):
                    shutil.rmtree(entry) if entry.is_dir() and not entry.is_symlink() else entry.unlink()
            for name in (_IDENTITY_FILE, _LOCK):
                (self.root / name).unlink(missing_ok=True)
        with contextlib.suppress(OSError):  # somebody works in it, or has put something there meanwhile
            self.root.rmdir()

    @property
    def kubeconfig(self) -> Path:
        """The administrator's kubeconfig, self-contained: it may be copied elsewhere."""
        return self.root / "kubeconfig"

    @property
    def logs(self) -> Path:
        """One log per process, appended to over restarts."""
        return self.root / "logs"

    @property
    def audit_log(self) -> Path:
        """The API server's audit log, JSON lines; rotated files stand beside it."""
        return self.root / "audit" / "audit.log"

    @property
    def pki(self) -> Path:
        """Certificates and keys."""
        return self.root / "pki"

    @property
    def config(self) -> Path:
        """Generated configuration files of the processes."""
        return self.root / "config"


def _identity(root: Path, stack: str) -> str:
    path = root / _IDENTITY_FILE
    if (foreign := _foreign(root)) and not path.exists():
        # Whoever deletes the stack deletes the directory: it must never be somebody's home.
        raise StateError(
            f"{root}: holds {foreign} and no {_IDENTITY_FILE}, so it is no state directory; "
            f"set {STATE_VARIABLE} to an empty or a new one"
        )
    with locked(root / _IDENTITY_LOCK, "opens the state directory", on_wait=lambda _: None):
        known = read_json(path)
        if not isinstance(known, dict) or not known.get("id"):
            known = {"format": _FORMAT, "stack": stack, "id": uuid.uuid4().hex}
            write_atomically(path, json.dumps(known))
    if known.get("format") != _FORMAT:
        raise StateError(
            f"{root}: is of format {known.get('format')!r}, this version reads {_FORMAT}; delete it or use that version"
        )
    if known.get("stack") != stack:
        raise StateError(
            f"{root}: belongs to the stack {known.get('stack')!r}, not {stack!r}; "
            f"set {STATE_VARIABLE} to another directory"
        )
    return str(known["id"])


def _foreign(root: Path) -> str:
    """The name of something in the directory that no beginning of ours explains; empty where there is none."""
    ours = (_IDENTITY_LOCK, _LOCK)
    names = sorted(entry.name for entry in root.iterdir())
    return next((name for name in names if name not in ours and not name.startswith(f".{_IDENTITY_FILE}.")), "")
