"""Checkpoints in a directory: a local disk, an emptyDir, a volume shared by all nodes, a mounted bucket.

    step-000000001200/     complete, and never changed again: its files, and manifest.json with their checksums
    latest                 JSON: the newest complete checkpoint, for people and other programs
    .saving-<step>-<id>/   being written; what a killed process left there goes when the next attempt starts
    .torn-<step>-<id>/     found not to be what its manifest says; only the last of them is kept, to be looked at

A checkpoint gets its name by one rename, after all of it is durable, and an existing name is never taken over. So the
names alone tell what there is, and resuming believes them and the checksums, never `latest`. `latest` only moves to a
higher step, unless what it names is gone; that holds between processes wherever flock does.
"""

from __future__ import annotations

import contextlib
import errno
import json
import logging
import os
import secrets
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from . import manifest as manifests
from .checkpoint import OWNER, Checkpoint, directory_name, step_of
from .errors import SaveFailed, StoreUnusable, TornCheckpoint, Unreadable
from .files import locked, read_regular, replace_durably, sync_directory, try_lock, write_durably
from .retention import Retention
from .saving import Saving

LATEST: Final = "latest"
_LOCK: Final = ".lock"
_SAVING: Final = ".saving-"
_TORN: Final = ".torn-"
_DELETING: Final = ".deleting-"
_MAX_LATEST_BYTES: Final = 4_096
_TRIES: Final = 3
"""The name is free, another attempt takes it meanwhile, and then its checkpoint is looked at."""

log = logging.getLogger(__name__)

Save = Callable[[Saving], None]


class Checkpoints:
    """The checkpoints of one job. Several attempts may use the same directory at the same time."""

    def __init__(self, root: Path, retention: Retention | None = None) -> None:
        self.root = root
        self.retention = retention or Retention()
        self.known: dict[tuple[int, str], Path] = {}

    def prepare(self) -> None:
        """Make the directory, see that it can be written to, and clear away what killed processes left.

        Raises:
            StoreUnusable: it cannot be used, and why.
        """
        try:
            self.root.mkdir(parents=True, exist_ok=True)
            probe = self.root / f"{_DELETING}probe-{secrets.token_hex(6)}"
            probe.mkdir()
            probe.rmdir()
        except OSError as error:
            raise StoreUnusable(
                f"{self.root}: {error.strerror or error}. Checkpoints need a directory that this process may write to: "
                "mount a volume there without readOnly, or set GPUFLEET_CHECKPOINT_DIR"
            ) from error
        for path in self._hidden(_DELETING):
            _remove(path)
        for path in self._hidden(_SAVING):
            if _is_abandoned(path):
                _remove(path)

    def steps(self) -> list[int]:
        """Steps of all checkpoints, newest first; whether each is whole, `open` and `verify` say."""
        with os.scandir(self.root) as entries:
            found = [step_of(entry.name) for entry in entries if entry.is_dir(follow_symlinks=False)]
        return sorted((step for step in found if step is not None), reverse=True)

    def path(self, step: int) -> Path:
        """Where the checkpoint of a step is, if there is one."""
        return self.root / directory_name(step)

    def open(self, step: int) -> Checkpoint:
        """The checkpoint of a step; raises TornCheckpoint."""
        return Checkpoint.open(self.path(step))

    def newest(self) -> Checkpoint | None:
        """The newest checkpoint that is what its manifest says; those that are torn are set aside."""
        for step in self.steps():
            try:
                checkpoint = self.open(step)
                checkpoint.verify()
            except TornCheckpoint as error:
                log.warning("going back to the checkpoint before: %s", error)
                if not isinstance(error, Unreadable):
                    self.set_aside(step)
                continue
            self.learn(checkpoint)
            return checkpoint
        return None

    def fresh(self, step: int, token: str) -> Path:
        """Where a checkpoint is written before it has its name; `token` tells attempts apart."""
        return self.root / f"{_SAVING}{step:012d}-{token}"

    @contextlib.contextmanager
    def writing(self, fresh: Path) -> Iterator[None]:
        """Own a fresh directory, which is gone afterwards unless it was published."""
        fresh.mkdir()
        try:
            with (fresh / OWNER).open("xb") as owner:
                try_lock(owner.fileno())
                yield
        finally:
            _remove(fresh)

    def publish(self, fresh: Path, manifest: manifests.Manifest) -> Checkpoint:
        """Give a checkpoint its name. Where another attempt was quicker, and its one is whole, that one stands."""
        final = self.path(manifest.step)
        write_durably(fresh / manifests.NAME, manifest.to_json())
        (fresh / OWNER).unlink(missing_ok=True)
        sync_directory(fresh)
        for _ in range(_TRIES):
            if self._is_taken(final):
                return self.open(manifest.step)
            try:
                fresh.rename(final)
            except OSError as error:
                if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                    raise
                continue  # another attempt was quicker
            sync_directory(self.root)
            return Checkpoint(manifest.step, final, manifest)
        raise SaveFailed(f"{final}: a torn checkpoint is there, and cannot be set aside")

    def _is_taken(self, final: Path) -> bool:
        if not final.exists():
            return False
        try:
            Checkpoint.open(final).verify()
        except TornCheckpoint as error:
            log.warning("a torn checkpoint is replaced: %s", error)
            self.set_aside(step_of(final.name) or 0)
            return False
        return True

    def latest(self) -> int | None:
        """The step that `latest` names, if that checkpoint is still there."""
        try:
            value = json.loads(read_regular(self.root / LATEST, _MAX_LATEST_BYTES))
        except (OSError, ValueError, RecursionError):
            return None
        step = value.get("step") if isinstance(value, dict) else None
        if isinstance(step, bool) or not isinstance(step, int) or not 0 <= step <= manifests.MAX_STEP:
            return None
        return step if (self.path(step) / manifests.NAME).is_file() else None

    def advance(self, checkpoint: Checkpoint) -> bool:
        """Let `latest` name a checkpoint, unless it names a higher one: compare and set, under a lock."""
        with locked(self.root / _LOCK) as exclusive:
            if not exclusive:
                log.warning("%s: no locks here, so `latest` may go back; resuming does not rely on it", self.root)
            current = self.latest()
            if current is not None and current >= checkpoint.step:
                return current == checkpoint.step
            value = {"version": 1, "step": checkpoint.step, "path": checkpoint.path.name, "at": time.time()}
            replace_durably(self.root / LATEST, json.dumps(value).encode() + b"\n")
            return True

    def prune(self) -> list[int]:
        """Delete what the retention does not keep; returns those steps. What is being deleted has no name any more."""
        gone = []
        for step in self.retention.superfluous(self.steps()):
            if self._rename_away(step, _DELETING):
                gone.append(step)
        for path in self._hidden(_DELETING):
            _remove(path)
        return gone

    def set_aside(self, step: int) -> None:
        """Take the name from a checkpoint, so that nobody resumes from it, where the directory may be written."""
        for path in self._hidden(_TORN):
            _remove(path)
        self._rename_away(step, _TORN)

    def _rename_away(self, step: int, prefix: str) -> bool:
        try:
            self.path(step).rename(self.root / f"{prefix}{step:012d}-{secrets.token_hex(6)}")
        except OSError as error:
            log.warning("step %d stays where it is: %s", step, error)
            return False
        return True

    def learn(self, checkpoint: Checkpoint) -> None:
        """Remember the files of the newest good checkpoint: the next one may link to them."""
        files = checkpoint.manifest.files
        self.known = {(entry.size, entry.sha256): checkpoint.path / entry.name for entry in files}

    def _hidden(self, prefix: str) -> list[Path]:
        with os.scandir(self.root) as entries:
            return [Path(entry.path) for entry in entries if entry.name.startswith(prefix)]


def _is_abandoned(path: Path) -> bool:
    """Whether the process that wrote here is gone: its lock went with it. Where there are no locks, nobody can tell."""
    try:
        with (path / OWNER).open("rb+") as file:
            return try_lock(file.fileno()) is True
    except FileNotFoundError:
        return True
    except OSError:
        return False


def _remove(path: Path) -> None:
    """Delete a directory tree as far as that is possible; the next attempt tries the rest."""
    shutil.rmtree(path, ignore_errors=True)
