"""`gpufleet check`: what is wrong with stack files, for people and for programs.

It reads files and nothing else: no cluster, no engine, no network. It imports neither, so that it answers at once.
"""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Final

import typer

from infra.commands.annotations import github_lines, json_text, sarif_text
from infra.commands.options import Json
from infra.commands.places import stack_files
from stacks.load import ConfigError, Problem, Reading, read_file, read_object, read_text
from stacks.problems import and_more, printable, told
from stacks.reading.echo import looks_secret, masked
from stacks.reading.resolved import object_of
from stacks.reading.source import LARGEST_BYTES, decode

_STANDARD_INPUT: Final = "-"
_INPUT_NAME: Final = "standard input"
_STACK_FILES: Final = "Pulumi.*.yaml"
_LONGEST_NAME: Final = 4_096  # PATH_MAX of Linux
_WIDEST_LINE: Final = 160  # characters of a source line; what lies beyond is no help in a terminal

_KEYS: Final = re.compile(r"([\w.-]+)['\"]?\s*:")


class Format(StrEnum):
    """How problems are printed."""

    TEXT = "text"
    JSON = "json"
    SARIF = "sarif"
    GITHUB = "github"


Files = Annotated[
    list[str] | None,
    typer.Argument(
        help="Stack files, folders of them, or - for standard input.",
        metavar="FILES...",
        show_default=False,
        autocompletion=stack_files,
    ),
]
Form = Annotated[Format, typer.Option("--format", help="For people, programs, code scanning or GitHub annotations.")]
Strict = Annotated[
    bool, typer.Option("--strict", help="Take warnings (not notes) for errors, as `strict: true` in a file does.")
]
Resolved = Annotated[
    bool,
    typer.Option("--resolved", help="Read the object that Pulumi resolved from standard input (pulumi config --json)."),
]


def check(
    files: Files = None,
    output: Form = Format.TEXT,
    as_json: Json = False,
    strict: Strict = False,
    resolved: Resolved = False,
) -> None:
    """Say everything that is wrong with stack files, each with its line.

    Warnings are about what is probably not meant, notes about what this version does not do yet; neither makes a file
    wrong. A teams_file of standard input is looked for in the current folder.

    Exit code: 0; 1 if anything is wrong.
    """
    if as_json and output not in (Format.TEXT, Format.JSON):
        raise typer.BadParameter(
            f"{output} is another form than --json asks for; give one of them", param_hint="--format"
        )
    if resolved and files:
        raise typer.BadParameter("reads standard input and no files", param_hint="--resolved")
    sources = [_read_resolved] if resolved else _sources(files or [])
    problems: list[Problem] = []
    failed = 0
    for read in sources:
        try:
            problems += read(strict).warnings
        except ConfigError as error:
            problems += error.problems
            failed += 1
    _print(problems, Format.JSON if as_json else output, len(sources), failed)
    raise typer.Exit(1 if failed else 0)


def _sources(names: list[str]) -> list[Callable[[bool], Reading]]:
    """How to read each of the files, and of the folders' stack files."""
    if not names:
        raise typer.BadParameter("name a stack file, a folder of them, or - for standard input", param_hint="FILES")
    sources: dict[str, Callable[[bool], Reading]] = {}
    for name in names:
        if name == _STANDARD_INPUT:
            sources[name] = _read_standard_input
        elif Path(name).is_dir():
            found = sorted(Path(name).glob(_STACK_FILES))
            if not found:
                raise typer.BadParameter(f"folder {name} has no {_STACK_FILES}", param_hint="FILES")
            sources |= {str(path): _reader(path) for path in found}
        else:
            sources[str(Path(name))] = _reader(Path(name))
    return list(sources.values())


def _reader(path: Path) -> Callable[[bool], Reading]:
    name = printable(str(path), _LONGEST_NAME)  # a name may hold bytes that no terminal shows
    return lambda strict: read_file(path, display=name, strict=strict)


def _read_standard_input(strict: bool) -> Reading:
    return read_text(_standard_input(), _INPUT_NAME, folder=Path(), strict=strict)


def _read_resolved(strict: bool) -> Reading:
    value = object_of(_standard_input(), _INPUT_NAME)
    return read_object(value, _INPUT_NAME, folder=Path(), strict=strict)


def _standard_input() -> str:
    return decode(sys.stdin.buffer.read(LARGEST_BYTES + 1), _INPUT_NAME)


def _print(problems: list[Problem], output: Format, files: int, failed: int) -> None:
    if output is Format.JSON:
        typer.echo(json_text(problems, files))
    elif output is Format.SARIF:
        typer.echo(sarif_text(problems))
    elif output is Format.GITHUB:
        for line in github_lines(problems):
            typer.echo(line)
    else:
        texts: dict[str, list[str]] = {}
        for file, found, more in told(problems):
            for problem in found:
                typer.echo(str(problem))
                for line in _excerpt(problem, texts) if _on_terminal() else ():
                    typer.echo(line)
            if more:
                typer.echo(f"{file}: {and_more(more)}")
        typer.echo(_summary(problems, files, failed))


def _on_terminal() -> bool:
    return sys.stdout.isatty()


def _excerpt(problem: Problem, texts: dict[str, list[str]]) -> Iterator[str]:
    """The line of the file with a caret below the place; nothing where a secret might stand in it."""
    if not problem.line or problem.code == "secret-inside":
        return
    if problem.file not in texts:
        texts[problem.file] = _lines(Path(problem.file))
    lines = texts[problem.file]
    line = lines[problem.line - 1] if problem.line <= len(lines) else ""
    if not line.strip() or problem.column > _WIDEST_LINE or _may_hold_a_secret(line):
        return
    margin = f"{problem.line:>6} | "
    yield margin + printable(line.replace("\t", " "), _WIDEST_LINE)
    yield " " * (len(margin) + problem.column - 1) + "^"


def _may_hold_a_secret(line: str) -> bool:
    return looks_secret(_KEYS.findall(line)) or masked(line) != line


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text("utf-8-sig").splitlines()
    except (OSError, UnicodeDecodeError):  # standard input, or a file that changes or is no text
        return []


def _summary(problems: list[Problem], files: int, failed: int) -> str:
    counts = Counter(problem.severity for problem in problems)
    told = [_count(counts[severity], severity) for severity in ("error", "warning", "note") if counts[severity]]
    state = f"{failed} of {_count(files, 'file')} wrong" if failed else f"{_count(files, 'file')} right"
    return f"{state}: {', '.join(told)}" if told else state


def _count(number: int, thing: str) -> str:
    return f"{number:,} {thing}{'' if number == 1 else 's'}"
