"""The list of what belongs to a checkpoint: names, sizes and SHA-256 of its files.

A manifest is read from a store that others can write to, so nothing in it is believed: no name leaves the checkpoint's
own directory, and no memory is taken because a number in it says so.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from .errors import TornCheckpoint

VERSION: Final = 1
NAME: Final = "manifest.json"
MAX_BYTES: Final = 32 << 20
"""A hundred bytes for each of the most files there may be, three times over."""

MAX_FILES: Final = 100_000
"""More than ten thousand ranks with several files each."""

MAX_STEP: Final = 10**12 - 1
"""Twelve digits, the width of a step in a directory's name."""

_SHA256: Final = re.compile(r"[0-9a-f]{64}\Z")
_PART: Final = re.compile(r"[A-Za-z0-9_+=@,:%-][A-Za-z0-9._+=@,:% -]{0,254}\Z|\.metadata\Z")
"""One part of a file's name: visible, no separator, no `..`. torch.distributed.checkpoint writes `.metadata`."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One file."""

    name: str
    size: int
    sha256: str


@dataclass(frozen=True, slots=True)
class Manifest:
    """What belongs to the checkpoint of one step. Nothing is ordered by `saved_at`: a clock may be wrong."""

    step: int
    saved_at: float
    files: tuple[Entry, ...]

    @property
    def size(self) -> int:
        """Bytes of all files."""
        return sum(entry.size for entry in self.files)

    def to_json(self) -> bytes:
        """Sorted by name, so that the same files give the same bytes."""
        files = [
            {"name": entry.name, "size": entry.size, "sha256": entry.sha256}
            for entry in sorted(self.files, key=lambda entry: entry.name)
        ]
        value = {"version": VERSION, "step": self.step, "saved_at": self.saved_at, "files": files}
        return json.dumps(value, separators=(",", ":")).encode()


def parse_manifest(data: bytes, step: int) -> Manifest:
    """The manifest of the checkpoint of `step`.

    Raises:
        TornCheckpoint: it is none, or one of another step, and why.
    """
    if len(data) > MAX_BYTES:
        raise TornCheckpoint(f"the manifest has more than {MAX_BYTES} bytes")
    try:
        value = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise TornCheckpoint(f"the manifest is not JSON: {error}") from None
    if not isinstance(value, dict) or value.get("version") != VERSION:
        raise TornCheckpoint(f"the manifest is not of version {VERSION}, the only one that this helper reads")
    if value.get("step") != step:
        raise TornCheckpoint(f"the manifest is of step {value.get('step')!r}, its place is that of step {step}")
    return Manifest(step, _number(value.get("saved_at")), _entries(value.get("files")))


def valid_name(name: object) -> bool:
    """Whether a checkpoint may hold a file of this name: a relative path of at most 1,024 plain characters."""
    if not isinstance(name, str) or len(name) > 1_024 or name == NAME:
        return False
    return all(_PART.match(part) for part in name.split("/"))


def inside(root: Path, name: str) -> Path:
    """The path of a file of the checkpoint at `root`.

    Raises:
        TornCheckpoint: a link leads elsewhere.
    """
    path = root / name
    if path.parent.resolve() != root.resolve() / Path(name).parent:
        raise TornCheckpoint(f"{name}: a link in its path leads out of the checkpoint")
    return path


def _entries(value: object) -> tuple[Entry, ...]:
    if not isinstance(value, list) or len(value) > MAX_FILES:
        raise TornCheckpoint(f"'files' of the manifest must be a list of at most {MAX_FILES} files")
    entries = tuple(_entry(one) for one in value)
    if len({entry.name for entry in entries}) < len(entries):
        raise TornCheckpoint("the manifest names a file twice")
    return entries


def _entry(value: object) -> Entry:
    item: Mapping[str, Any] = value if isinstance(value, dict) else {}
    name, size, sha256 = item.get("name"), item.get("size"), item.get("sha256")
    if not isinstance(name, str) or not valid_name(name):
        raise TornCheckpoint(f"the manifest names the file {str(name)[:80]!r}, which no checkpoint may hold")
    if isinstance(size, bool) or not isinstance(size, int) or size < 0:
        raise TornCheckpoint(f"{name}: its size in the manifest is {str(size)[:80]}, no number of bytes")
    if not isinstance(sha256, str) or not _SHA256.match(sha256):
        raise TornCheckpoint(f"{name}: its checksum in the manifest is no SHA-256")
    return Entry(name, size, sha256)


def _number(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TornCheckpoint(f"'saved_at' of the manifest is {str(value)[:80]}, no time")
    try:
        return float(value)
    except OverflowError:
        raise TornCheckpoint("'saved_at' of the manifest is no time") from None
