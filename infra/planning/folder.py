"""Keeps a folder of rendered files equal to what a fleet says, without touching what somebody else put there.

A record in the folder (`RECORD`) names the files that are ours, with a digest of each. A file that is not in it is not
written or deleted, unless it holds already what would be written. One of ours that was changed by hand is written anew
while it is rendered, since the fleet's file is its source, and left alone once it is not.

Invariants: every file is replaced as a whole or not at all; a file that stays the same is not touched; nothing is
written before it is clear that all of it may be. After a crash at any point the same call finishes the work.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from infra.local.errors import LocalError

RECORD: Final = ".gpufleet-render"
"""Without an ending: tools that apply every *.yaml and *.json of a folder would take it for an object."""

_VERSION: Final = 1
_OUR_NAME: Final = re.compile(r"[a-z0-9][a-z0-9.-]*\.yaml")
_LARGEST_BYTES: Final = 16 * 2**20  # far above any object of ours; etcd takes 1.5 MiB


class RenderError(LocalError):
    """The folder cannot hold the rendered files."""


@dataclass(frozen=True, slots=True)
class Rendered:
    """What was done to each file, by name."""

    written: tuple[str, ...]
    unchanged: tuple[str, ...]
    removed: tuple[str, ...]
    overwritten: tuple[str, ...]
    """Those of the written that had been changed by hand."""
    left: tuple[str, ...]
    """No longer rendered, and not removed, because they were changed by hand."""


def write_folder(folder: Path, files: Mapping[str, str], origin: str) -> Rendered:
    """Make a folder hold these files; `origin` says whose they are, and one folder has one origin.

    Raises:
        RenderError: the folder cannot be used, or has files of these names that are not ours.
    """
    if folder.exists() and not folder.is_dir():
        raise RenderError(f"{folder} is a file; name a folder")
    try:
        return _write(folder, {name: text.encode() for name, text in files.items()}, origin)
    except OSError as error:
        where = error.filename or folder
        raise RenderError(f"{where}: {error.strerror or error}; name a folder that can be written") from error


def _write(folder: Path, files: Mapping[str, bytes], origin: str) -> Rendered:
    folder.mkdir(parents=True, exist_ok=True)
    ours = _ours(folder, origin)
    found = {name: _content(folder / name) for name in {**ours, **files}}
    foreign = [name for name in files if name not in ours and found[name] not in (None, files[name])]
    if foreign:
        raise RenderError(
            f"{folder} holds files that `gpufleet render` did not write: {_listed(foreign)}; "
            "name another folder, or remove them"
        )
    by_hand = {name for name, digest in ours.items() if found[name] is not None and _digest(found[name]) != digest}
    stale = [name for name in ours if name not in files and found[name] is not None]
    changed = [name for name, content in files.items() if found[name] != content]
    left = {name: ours[name] for name in stale if name in by_hand}
    record = {name: _digest(content) for name, content in files.items()}
    # First, so that whatever is written next is known as ours even if this is the last thing that happens.
    _write_record(folder, {**record, **ours}, origin)
    for name in changed:
        _replace(folder / name, files[name])
    removed = [name for name in stale if name not in by_hand]
    for name in removed:
        (folder / name).unlink()
    _write_record(folder, {**record, **left}, origin)
    return Rendered(
        tuple(changed),
        tuple(name for name in files if name not in changed),
        tuple(removed),
        tuple(name for name in changed if name in by_hand),
        tuple(left),
    )


def _ours(folder: Path, origin: str) -> dict[str, str]:
    """The files that earlier calls wrote, with their digests."""
    path = folder / RECORD
    content = _content(path)
    if content is None:
        return {}
    try:
        record: Any = json.loads(content)
        files = record["files"]
        if record["version"] != _VERSION or not all(_is_entry(*item) for item in files.items()):
            raise ValueError
        written_from = str(record["origin"])
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise RenderError(
            f"{path} is not the record of this gpufleet; restore it, or empty the folder and render anew"
        ) from None
    if written_from != origin:
        raise RenderError(
            f"{folder} holds what was rendered from {written_from}; {origin} needs a folder of its own "
            f"(if one file took the other's place, remove {path} and what it lists)"
        )
    return dict(files)


def _is_entry(name: object, digest: object) -> bool:
    """Whether it is a plain name as we give them: one with a slash would let a record delete files elsewhere."""
    return isinstance(name, str) and isinstance(digest, str) and _OUR_NAME.fullmatch(name) is not None


def _write_record(folder: Path, files: Mapping[str, str], origin: str) -> None:
    record = {"version": _VERSION, "origin": origin, "files": dict(sorted(files.items()))}
    content = (json.dumps(record, indent=2) + "\n").encode()
    if _content(folder / RECORD) != content:
        _replace(folder / RECORD, content)


def _content(path: Path) -> bytes | None:
    """What a file holds, None where there is none.

    Raises:
        RenderError: it is something else than a file.
    """
    try:
        status = path.lstat()
    except FileNotFoundError:
        return None
    if not stat.S_ISREG(status.st_mode) or status.st_size > _LARGEST_BYTES:
        raise RenderError(f"{path} stands where a rendered file belongs and is none; remove it or name another folder")
    return path.read_bytes()


def _replace(path: Path, content: bytes) -> None:
    temporary = path.with_name(f"{RECORD}.{os.getpid()}.tmp")
    temporary.unlink(missing_ok=True)
    try:
        with temporary.open("xb") as file:
            file.write(content)
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def _digest(content: bytes | None) -> str:
    return hashlib.sha256(content or b"").hexdigest()


def _listed(names: list[str]) -> str:
    shown = ", ".join(names[:5])
    return shown if len(names) <= 5 else f"{shown} and {len(names) - 5} more"
