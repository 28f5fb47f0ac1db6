"""What is wrong with a stack file: one Problem for each mistake, all of them in one ConfigError.

It does not find problems; the reader does. A problem is one printable line whatever the file holds: control characters
are escaped and long texts cut, so that a terminal, a log or an annotation shows what was meant.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Final, Literal, NamedTuple

Severity = Literal["error", "warning", "note"]
"""A note is no fault of the file: it says what this version cannot do yet."""

Code = Literal[
    "unreadable",
    "yaml-syntax",
    "too-large",
    "not-a-stack-file",
    "old-version",
    "duplicate-key",
    "unknown-setting",
    "missing-setting",
    "wrong-type",
    "bad-value",
    "unknown-name",
    "rule",
    "secret-inside",
    "no-effect",
]
"""The kind of a problem; part of the interface, as people filter by it."""

DESCRIPTIONS: Final[dict[Code, str]] = {
    "unreadable": "The file cannot be read as text.",
    "yaml-syntax": "The text is not YAML, or uses a part of YAML that stack files leave out.",
    "too-large": "The file is larger, deeper or expands to more than any fleet needs.",
    "not-a-stack-file": "The file does not hold the fleet object where Pulumi keeps it.",
    "old-version": "The file has another schema version than this gpufleet reads.",
    "duplicate-key": "A key is written twice, so one of the values would be lost.",
    "unknown-setting": "There is no such setting.",
    "missing-setting": "A required setting is absent.",
    "wrong-type": "The value is of another kind than the setting needs.",
    "bad-value": "The value is of the right kind, but not allowed.",
    "unknown-name": "The value names something that is not defined.",
    "rule": "Two parts of the file contradict each other, or what they ask for cannot work.",
    "secret-inside": "A secret stands where it would be stored or shown in clear text.",
    "no-effect": "This version checks the setting and does nothing by it.",
}

_LONGEST_MESSAGE: Final = 600  # characters; a rule that lists every team of a large fleet stays one screen at most
_LONGEST_PART: Final = 80  # characters of one key in a path
_LONGEST_NAME: Final = 4_096  # PATH_MAX of Linux
_MOST_TOLD: Final = 200  # problems of one file; whoever has more mends the first and runs it again


@dataclass(frozen=True, slots=True, order=True)
class Problem:
    """One thing that is wrong; line and column count from 1, and are 0 where the text is not at hand."""

    file: str
    line: int
    column: int
    path: str
    message: str
    code: Code
    severity: Severity = "error"

    def __str__(self) -> str:
        """The one-line form, `file:line:column: path: message`."""
        place = f"{self.file}:{self.line}:{self.column}" if self.line else self.file
        mark = "" if self.severity == "error" else f"{self.severity}: "
        return f"{place}: {mark}{self.path}: {self.message}" if self.path else f"{place}: {mark}{self.message}"

    def as_error(self) -> Problem:
        """The same problem where warnings are not let pass."""
        return replace(self, severity="error")


class ConfigError(Exception):
    """The file is wrong; `problems` has every reason, sorted by line."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems = sorted(set(problems))
        super().__init__("\n".join(_lines(self.problems)))


def _lines(problems: Iterable[Problem]) -> Iterator[str]:
    for file, found, more in told(problems):
        yield from map(str, found)
        if more:
            yield f"{file}: {and_more(more)}"


class Place(NamedTuple):
    """A point in a file; line 0 where only the file is known."""

    file: str
    line: int = 0
    column: int = 0

    def problem(self, code: Code, message: str, path: Sequence[str | int] = ()) -> Problem:
        """The problem that stands here."""
        file = printable(self.file, _LONGEST_NAME)
        return Problem(file, self.line, self.column, dotted(path), printable(message, _LONGEST_MESSAGE), code)


def told(problems: Iterable[Problem]) -> Iterator[tuple[str, list[Problem], int]]:
    """For each file the problems that a person is told, and how many more there are."""
    for file, found in groupby(problems, key=lambda problem: problem.file):
        all_of_it = list(found)
        yield file, all_of_it[:_MOST_TOLD], max(0, len(all_of_it) - _MOST_TOLD)


def and_more(number: int) -> str:
    """What stands for the problems that are not told."""
    return f"… and {number:,} more"


def folded(problems: Iterable[Problem]) -> Iterator[Problem]:
    """The problems, with those of one value that several settings use through an anchor said once.

    What is absent is not folded: it stands at its section, where many settings may be.
    """
    alike: dict[object, list[Problem]] = {}
    for problem in problems:
        at_one_place = problem.line and problem.code != "missing-setting"
        key = replace(problem, path="") if at_one_place else problem
        alike.setdefault(key, []).append(problem)
    for first, *others in alike.values():
        more = len({problem.path for problem in others} - {first.path})
        settings = f"{more:,} more setting that uses" if more == 1 else f"{more:,} more settings that use"
        yield replace(first, message=f"{first.message} (and for {settings} it)") if more else first


def dotted(path: Sequence[str | int]) -> str:
    """A path as people write it, `pools.rack.nodes`."""
    return ".".join(printable(str(part), _LONGEST_PART) for part in path)


def printable(text: str, longest: int) -> str:
    """Text that no terminal takes for an instruction, cut to a length."""
    short = text if len(text) <= longest else text[: longest - 1] + "…"
    if short.isprintable():
        return short
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in short)
