"""Reads the teams that stand in a file of their own, and puts them where `teams` would be.

It takes a file in the stack file's folder or below, and nothing else from there: what one may read in a review is what
is used.
"""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path, PurePosixPath
from typing import Any

from yaml import MappingNode, ScalarNode

from stacks.problems import ConfigError, Place, Problem
from stacks.reading.document import compose
from stacks.reading.echo import shown
from stacks.reading.positions import Positions
from stacks.reading.source import read_source
from stacks.reading.stackfile import Found, value_of
from stacks.reading.values import Builder


def with_teams(found: Found, folder: Path | None, display: PurePosixPath) -> Found:
    """The object with the teams of its `teams_file`, which stands in `folder` or below; `display` is its name.

    A link may not lead out of the folder: what a reviewer reads there is what is used.
    """
    file = found.value.get("teams_file") if isinstance(found.value, dict) else None
    if file is None:
        return found
    if reason := _no_teams_file(found.value, file):
        return found.and_wrong([found.problem("teams_file", reason)])
    if folder is None:
        reason = f"{shown(file)} cannot be found: this text has no folder; check the file instead"
        return found.and_wrong([found.problem("teams_file", reason)])
    name = str(display / file)
    try:
        text = read_source(folder / file, name)
        if not Path(os.path.realpath(folder / file)).is_relative_to(os.path.realpath(folder)):
            reason = f"{name} is a link that leads out of the stack file's folder; name a file in it"
            return found.and_wrong([found.problem("teams_file", reason)])
        teams = _teams(text, name)
    except ConfigError as error:
        return found.and_wrong(_of_teams(problem, found) for problem in error.problems)
    positions = found.positions.with_part("teams", teams.positions)
    problems = (*found.problems, *teams.problems)
    return replace(found, value={**found.value, "teams": teams.value}, positions=positions, problems=problems)


def _no_teams_file(fleet: dict[str, Any], file: object) -> str | None:
    """Why a value of `teams_file` names none that could be read."""
    if not isinstance(file, str) or not file:
        return f"must be the path of a file, for example teams.prod.yaml (got {shown(file)})"
    if "teams" in fleet:
        return "teams are given here too; keep either teams or teams_file"
    if PurePosixPath(file).is_absolute() or ".." in PurePosixPath(file).parts or "\\" in file:
        return f"must be a path below the stack file's folder, for example teams.prod.yaml (got {shown(file)})"
    return None


def _of_teams(problem: Problem, found: Found) -> Problem:
    """A problem that makes the whole file useless: at its line, or at the setting that names it."""
    if problem.line:
        return replace(problem, path="teams")
    place = found.positions.of(("teams_file",))
    return place.problem(problem.code, f"{problem.file} {problem.message}", ("teams_file",))


def _teams(text: str, name: str) -> Found:
    document = compose(text, name)
    if not isinstance(document.root, MappingNode) or (node := value_of(document.root, "teams")) is None:
        reason = "must hold teams: and below it the teams by name"
        raise ConfigError([Place(name, 1, 1).problem("not-a-stack-file", reason)])
    positions = Positions(name, document.root)
    others = [key.value for key, _ in document.root.value if isinstance(key, ScalarNode) and key.value != "teams"]
    strange = [
        positions.of((key,)).problem("unknown-setting", "only teams belongs in this file", (key,)) for key in others
    ]
    builder = Builder(name)
    value = builder.build(node, ("teams",))
    return Found(value, Positions(name, node), (*document.problems, *strange, *builder.problems))
