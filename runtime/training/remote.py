"""Checkpoints in an object store: only what is not there yet is sent.

    objects/<SHA-256>          the content of a file, once however many checkpoints hold it
    steps/000000001200.json    the manifest of a complete checkpoint; written after all its objects, never replaced
    latest.json                {"version": 1, "step": 1200}; only ever replaced by a higher step, on condition

It brings no client of any store: `Bucket` is what it needs of one, and an adapter is twenty lines
(docs/checkpointing.md). Objects are deleted by the process that saves; if another attempt sends the same content in
that very moment, its checkpoint may lack it, which resuming finds and goes back by one.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from secrets import token_hex
from typing import Final, Protocol

from .checkpoint import Checkpoint
from .errors import Conflict, TornCheckpoint
from .files import digest
from .manifest import MAX_BYTES, MAX_STEP, Entry, Manifest, inside, parse_manifest
from .retention import Retention
from .store import Checkpoints

LATEST: Final = "latest.json"
AT_ONCE: Final = 4
"""Transfers at the same time: one stream seldom fills the link of a GPU node."""

_OBJECTS: Final = "objects/"
_STEPS: Final = "steps/"
_TRIES: Final = 10
"""A conditional write loses only to a write that succeeded, so ten in a row mean ten other writers."""

log = logging.getLogger(__name__)


class Bucket(Protocol):
    """An object store, or a prefix in one. Its failures are OSError, so that a save fails and the training goes on."""

    url: str

    def get(self, key: str) -> tuple[bytes, str]:
        """Content and version (an ETag or generation) of a small object; KeyError where there is none."""
        ...

    def put(self, key: str, data: bytes, version: str) -> None:
        """Write a small object if its version is still this one, or if there is none for ""; else raise Conflict."""
        ...

    def upload(self, key: str, path: Path) -> None:
        """Send a file of any size."""
        ...

    def download(self, key: str, path: Path) -> None:
        """Fetch an object of any size; KeyError where there is none."""
        ...

    def keys(self, prefix: str) -> Iterable[str]:
        """Keys that begin with a prefix."""
        ...

    def delete(self, key: str) -> None:
        """Delete an object, if it is there."""
        ...


class Remote:
    """Sends complete checkpoints to a bucket, and fetches the newest whole one."""

    def __init__(self, bucket: Bucket, retention: Retention | None = None) -> None:
        self._bucket = bucket
        self._retention = retention or Retention()
        self.sent_bytes = 0

    def url(self, step: int) -> str:
        """Where a step's manifest is."""
        return f"{self._bucket.url.rstrip('/')}/{_step_key(step)}"

    def push(self, checkpoint: Checkpoint) -> None:
        """Send a checkpoint, all of which is there when this returns."""
        there = set(self._bucket.keys(_OBJECTS))
        missing = {entry.sha256: entry for entry in checkpoint.manifest.files if _object(entry) not in there}
        with ThreadPoolExecutor(AT_ONCE) as pool:
            list(pool.map(lambda one: self._bucket.upload(_object(one), checkpoint.path / one.name), missing.values()))
        self.sent_bytes += sum(entry.size for entry in missing.values())
        key = _step_key(checkpoint.step)
        try:
            self._bucket.put(key, checkpoint.manifest.to_json(), "")
        except Conflict:
            log.info("step %d is there already, by another attempt", checkpoint.step)
        self._advance(checkpoint.step)
        self._prune()

    def pull(self, checkpoints: Checkpoints) -> Checkpoint | None:
        """Fetch the newest whole checkpoint, if it is newer than the newest whole one here; returns the newer."""
        here = checkpoints.newest()
        for step in sorted(self.steps(), reverse=True):
            if here is not None and step <= here.step:
                break
            try:
                return self._fetch(checkpoints, step)
            except TornCheckpoint as error:
                log.warning("a checkpoint in %s is torn; going back to the one before: %s", self._bucket.url, error)
        return here

    def steps(self) -> list[int]:
        """Steps whose manifest is there."""
        names = [key.removeprefix(_STEPS).removesuffix(".json") for key in self._bucket.keys(_STEPS)]
        return [int(name) for name in names if len(name) == 12 and name.isascii() and name.isdecimal()]

    def latest(self) -> int | None:
        """The step that `latest.json` names; None where it is missing or makes no sense."""
        return self._latest()[0]

    def _fetch(self, checkpoints: Checkpoints, step: int) -> Checkpoint:
        manifest = self._manifest(step)
        fresh = checkpoints.fresh(step, token_hex(6))
        with checkpoints.writing(fresh):
            with ThreadPoolExecutor(AT_ONCE) as pool:
                list(pool.map(lambda entry: self._fetch_file(fresh, entry), manifest.files))
            return checkpoints.publish(fresh, manifest)

    def _fetch_file(self, root: Path, entry: Entry) -> None:
        path = inside(root, entry.name)
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            self._bucket.download(_object(entry), path)
        except KeyError:
            raise TornCheckpoint(f"{entry.name}: its object is not in the bucket") from None
        if digest(path) != (entry.size, entry.sha256):
            raise TornCheckpoint(f"{entry.name}: what the bucket holds is not what was saved")

    def _manifest(self, step: int) -> Manifest:
        try:
            data, _ = self._bucket.get(_step_key(step))
        except KeyError:
            raise TornCheckpoint(f"step {step}: its manifest has just been deleted") from None
        return parse_manifest(data[: MAX_BYTES + 1], step)

    def _latest(self) -> tuple[int | None, str]:
        try:
            data, version = self._bucket.get(LATEST)
        except KeyError:
            return None, ""
        try:
            value = json.loads(data)
        except (ValueError, RecursionError):
            return None, version
        step = value.get("step") if isinstance(value, dict) else None
        sound = isinstance(step, int) and not isinstance(step, bool) and 0 <= step <= MAX_STEP
        return step if sound else None, version

    def _advance(self, step: int) -> None:
        for _ in range(_TRIES):
            current, version = self._latest()
            if current is not None and current >= step and current in self.steps():
                return
            try:
                self._bucket.put(LATEST, json.dumps({"version": 1, "step": step}).encode(), version)
            except Conflict:
                continue
            return
        log.warning("%s/%s: %d other writers in a row; left as it is", self._bucket.url, LATEST, _TRIES)

    def _prune(self) -> None:
        superfluous = self._retention.superfluous(self.steps())
        for step in superfluous:
            self._bucket.delete(_step_key(step))
        if not superfluous:
            return
        there = set(self._bucket.keys(_OBJECTS))  # listed before the manifests: what is sent meanwhile is not in it
        try:
            used = {_object(entry) for step in self.steps() for entry in self._manifest(step).files}
        except TornCheckpoint as error:
            log.warning("nothing is deleted from %s: %s", self._bucket.url, error)
            return
        for key in there - used:
            self._bucket.delete(key)


def _object(entry: Entry) -> str:
    return _OBJECTS + entry.sha256


def _step_key(step: int) -> str:
    return f"{_STEPS}{step:012d}.json"
