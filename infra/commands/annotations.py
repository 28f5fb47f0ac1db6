"""Problems in the forms that other programs read: JSON, SARIF 2.1.0, GitHub workflow commands."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final
from urllib.parse import quote

from stacks.problems import DESCRIPTIONS, Problem, Severity, and_more, told

_COMMANDS: Final[Mapping[Severity, str]] = {"error": "error", "warning": "warning", "note": "notice"}
_SARIF_SCHEMA: Final = "https://json.schemastore.org/sarif-2.1.0.json"


def json_text(problems: Sequence[Problem], files: int) -> str:
    """One object: whether all is right, how many files, and a row for each problem."""
    right = not any(problem.severity == "error" for problem in problems)
    rows = [problem_row(problem) for problem in problems]
    return json.dumps({"ok": right, "files": files, "problems": rows}, indent=2, ensure_ascii=False)


def problem_row(problem: Problem) -> dict[str, Any]:
    """A problem as every command prints it under --json."""
    return {
        "file": problem.file,
        "line": problem.line,
        "column": problem.column,
        "path": problem.path,
        "severity": problem.severity,
        "code": problem.code,
        "message": problem.message,
    }


def sarif_text(problems: Sequence[Problem]) -> str:
    """A SARIF log of one run, which code scanning and editors show at the lines."""
    rules = sorted({problem.code for problem in problems})
    driver = {
        "name": "gpufleet check",
        "rules": [{"id": code, "shortDescription": {"text": DESCRIPTIONS[code]}} for code in rules],
    }
    run = {
        "tool": {"driver": driver},
        "columnKind": "unicodeCodePoints",
        "results": [_result(problem, rules.index(problem.code)) for problem in problems],
    }
    return json.dumps({"$schema": _SARIF_SCHEMA, "version": "2.1.0", "runs": [run]}, indent=2, ensure_ascii=False)


def _result(problem: Problem, rule: int) -> dict[str, Any]:
    scheme = "file://" if problem.file.startswith("/") else ""
    location: dict[str, Any] = {"artifactLocation": {"uri": scheme + quote(problem.file)}}
    if problem.line:
        location["region"] = {"startLine": problem.line, "startColumn": problem.column}
    return {
        "ruleId": problem.code,
        "ruleIndex": rule,
        "level": problem.severity,
        "message": {"text": f"{problem.path}: {problem.message}" if problem.path else problem.message},
        "locations": [{"physicalLocation": location}],
    }


def github_lines(problems: Sequence[Problem]) -> Iterator[str]:
    """Workflow commands, which GitHub shows beside the lines of a pull request."""
    for file, found, more in told(problems):
        for problem in found:
            yield _github_line(problem)
        if more:
            yield f"::error file={_property(file)}::{and_more(more)}"


def _github_line(problem: Problem) -> str:
    place = [("file", problem.file)]
    if problem.line:
        place += [("line", str(problem.line)), ("col", str(problem.column))]
    properties = ",".join(f"{name}={_property(value)}" for name, value in [*place, ("title", problem.code)])
    text = f"{problem.path}: {problem.message}" if problem.path else problem.message
    return f"::{_COMMANDS[problem.severity]} {properties}::{_data(text)}"


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")
