"""`gpufleet migrate`: brings stack files of an older schema version to the current one, comments and all.

It shows what it would change, and changes nothing until it is told to write. A file is replaced as a whole or not at
all, and one that cannot be migrated does not keep the others from it.
"""

from __future__ import annotations

import difflib
import json
import stat
from codecs import BOM_UTF8
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from infra.commands.annotations import problem_row
from infra.commands.options import Json
from infra.commands.places import stack_files
from infra.files import write_atomically
from stacks import migrations
from stacks.editing.edits import EditError
from stacks.editing.spans import BYTE_ORDER_MARK
from stacks.load import read_text
from stacks.migrations import CURRENT, Migration
from stacks.problems import ConfigError, Place, Problem
from stacks.reading.source import read_source
from stacks.reading.stackfile import KEY

Files = Annotated[
    list[Path],
    typer.Argument(help="Stack files, e.g. stacks/Pulumi.local.yaml.", autocompletion=stack_files),
]
Write = Annotated[bool, typer.Option("--write", help="Change the files; without it, only show what would change.")]


@dataclass(frozen=True, slots=True)
class _Outcome:
    """What became of one file."""

    file: Path
    before: str
    after: Migration | None
    """None where it could not be migrated."""
    problems: tuple[Problem, ...]

    @property
    def changed(self) -> bool:
        return self.after is not None and self.after.text != self.before


def migrate(files: Files, write: Write = False, as_json: Json = False) -> None:
    """Bring stack files of an older schema version to the current one; comments and layout stay.

    Without --write it shows the changes and makes none.

    Exit code: 0; 1 if a file cannot be migrated, or is still wrong afterwards.
    """
    outcomes = [_outcome(file) for file in files]
    for index, outcome in enumerate(outcomes):
        if write and outcome.after and outcome.changed:
            try:
                _replace(outcome.file, outcome.after.text)
            except OSError as error:
                reason = f"cannot be written: {error.strerror or error}"
                problem = Place(str(outcome.file)).problem("unreadable", reason)
                outcomes[index] = _Outcome(outcome.file, outcome.before, None, (problem,))
    if as_json:
        typer.echo(json.dumps({"files": [_row(outcome) for outcome in outcomes]}, indent=2))
    else:
        for outcome in outcomes:
            _tell(outcome, wrote=write)
    raise typer.Exit(1 if any(outcome.problems for outcome in outcomes) else 0)


def _outcome(file: Path) -> _Outcome:
    place = Place(str(file))
    try:
        before = _read(file)
        after = migrations.migrate(before, str(file), ("config", KEY))
    except ConfigError as error:
        return _Outcome(file, "", None, tuple(error.problems))
    except EditError as error:
        place = place._replace(line=error.line, column=error.column)
        return _Outcome(file, "", None, (place.problem("bad-value", error.reason),))
    if after.text == before:
        return _Outcome(file, before, after, ())
    try:
        read_text(after.text.removeprefix(BYTE_ORDER_MARK), str(file), folder=file.parent)
    except ConfigError as error:
        return _Outcome(file, before, after, tuple(error.problems))
    return _Outcome(file, before, after, ())


def _read(file: Path) -> str:
    """The file's text as it stands there, with its line ends and its byte order mark."""
    text = read_source(file, str(file))
    with file.open("rb") as stream:
        marked = stream.read(len(BOM_UTF8)) == BOM_UTF8
    return f"{BYTE_ORDER_MARK}{text}" if marked else text


def _replace(file: Path, text: str) -> None:
    """Put the text in the file's place; a symbolic link keeps pointing to the file, which keeps its permissions."""
    target = file.resolve(strict=True)
    write_atomically(target, text, stat.S_IMODE(target.stat().st_mode))


def _row(outcome: _Outcome) -> dict[str, Any]:
    after = outcome.after
    return {
        "file": str(outcome.file),
        "from": after.found if after else None,
        "to": CURRENT if after else None,
        "steps": list(after.steps) if after else [],
        "changed": outcome.changed,
        "diff": "".join(_diff(outcome, after.text)) if after else "",
        "problems": [problem_row(problem) for problem in outcome.problems],
    }


def _tell(outcome: _Outcome, *, wrote: bool) -> None:
    if outcome.after and not outcome.changed:
        typer.echo(f"{outcome.file}: nothing to do, schema version {CURRENT} already")
    elif outcome.after:
        typer.echo("".join(_diff(outcome, outcome.after.text)), nl=False)
        for step in outcome.after.steps:
            typer.echo(f"{outcome.file}: {step}")
        typer.echo(f"{outcome.file}: {'written' if wrote else 'not written; --write does it'}")
    if outcome.problems and outcome.changed:
        typer.echo(f"{outcome.file}: what is still wrong, with the lines of the new text:", err=True)
    for problem in outcome.problems:
        typer.echo(str(problem), err=True)


def _diff(outcome: _Outcome, text: str) -> Iterator[str]:
    before, after = (content.splitlines(keepends=True) for content in (outcome.before, text))
    for line in difflib.unified_diff(before, after, f"{outcome.file} (now)", f"{outcome.file} (migrated)"):
        yield line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n"
