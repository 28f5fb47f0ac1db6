"""Reads the stack files that `plan`, `render` and `diff` name: a file, or a file of a Git revision.

A revision's `teams_file` is taken from the same revision, never from the working tree. Git is asked for stored bytes
only: no filter, hook or fetch of the repository's configuration runs.
"""

from __future__ import annotations

import os
import subprocess
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from tempfile import TemporaryDirectory
from typing import Any, Final

from stacks.fleet import Fleet
from stacks.load import ConfigError, Problem, read_text
from stacks.presets import Filled
from stacks.problems import Place, printable
from stacks.reading.source import LARGEST_BYTES, decode, read_source
from stacks.reading.stackfile import find

_LONGEST_WORDS: Final = 200  # characters of Git's message that are repeated

# Messages in English, and nothing fetched: a partial clone would ask its server for what it lacks.
_QUIET_GIT: Final = {"LC_ALL": "C", "GIT_TERMINAL_PROMPT": "0", "GIT_NO_LAZY_FETCH": "1"}


@dataclass(frozen=True, slots=True)
class Source:
    """A fleet that was read, and what only its text tells."""

    name: str
    """As it was asked for."""

    fleet: Fleet
    warnings: tuple[Problem, ...]
    filled: tuple[Filled, ...]
    """What the file leaves out and what stands in for it."""


def read(name: str) -> Source:
    """Read a stack file by its path, or by REVISION:path where there is no such file.

    Raises:
        ConfigError: it cannot be read, or is wrong in any way.
    """
    path = Path(name)
    if ":" in name and not _exists(path):
        return _read_revision(name)
    return _read(read_source(path, name), name, path.parent)


def read_both(old: str, new: str) -> tuple[Source, Source]:
    """Read two stack files.

    Raises:
        ConfigError: either is wrong; with the problems of both.
    """
    sources, problems = [], []
    for name in (old, new):
        try:
            sources.append(read(name))
        except ConfigError as error:
            problems += error.problems
    if problems:
        raise ConfigError(problems)
    return sources[0], sources[1]


def _read(text: str, name: str, folder: Path) -> Source:
    reading = read_text(text, name, folder=folder)
    return Source(name, reading.fleet, reading.warnings, reading.filled)


def _read_revision(name: str) -> Source:
    text = decode(_blob(name), name)
    with TemporaryDirectory(prefix="gpufleet-") as folder:
        if teams_file := _teams_file(find(text, name).value):
            beside = name[: max(name.rfind("/"), name.rfind(":")) + 1]
            # What cannot be had is reported by the reader, which does not find it and knows where the file names it.
            with suppress(ConfigError, OSError):
                content = _blob(beside + teams_file)
                target = Path(folder, teams_file)
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_bytes(content)
        return _read(text, name, Path(folder))


def _teams_file(fleet: Any) -> str | None:
    """The file that a fleet object names for its teams, unless it leads out of the folder, which the reader refuses."""
    file = fleet.get("teams_file") if isinstance(fleet, dict) else None
    if not isinstance(file, str) or not file or "\0" in file:
        return None
    return None if PurePosixPath(file).is_absolute() or ".." in PurePosixPath(file).parts else file


def _blob(name: str) -> bytes:
    """The bytes of a file in a revision; one byte more than a stack file may have where there are more."""
    command = ["git", "cat-file", "blob", "--end-of-options", name]
    try:
        with subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**os.environ, **_QUIET_GIT},
        ) as git:
            assert git.stdout is not None  # both are pipes
            assert git.stderr is not None
            content = git.stdout.read(LARGEST_BYTES + 1)
            if len(content) > LARGEST_BYTES:
                git.kill()
                return content
            said = git.stderr.read().decode(errors="replace")
    except OSError as error:
        raise _unreadable(name, f"git does not start: {error.strerror or error}") from None
    except ValueError:
        raise _unreadable(name, "a name has no NUL character") from None
    if git.returncode:
        raise _unreadable(name, said.strip().partition("\n")[0].removeprefix("fatal: ") or "git failed")
    return content


def _unreadable(name: str, reason: str) -> ConfigError:
    words = f"is no file, and no file of a Git revision: {printable(reason, _LONGEST_WORDS)}"
    return ConfigError([Place(name).problem("unreadable", words)])


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except OSError:  # a name that is too long, or a folder that may not be searched
        return False
