"""The scopes that have budgets and bills: the fleet, each team and each project, by name."""

from __future__ import annotations

from typing import Final

from stacks.agent_config import AgentConfig
from stacks.teams import Budget

FLEET: Final = "fleet"
"""Name of the fleet's own scope; a team's is `team <name>`, a project's `project <name>`."""

_TEAM: Final = "team "
_PROJECT: Final = "project "


def team_scope(team: str) -> str:
    """Name of a team's scope."""
    return f"{_TEAM}{team}"


def project_scope(project: str) -> str:
    """Name of a project's scope."""
    return f"{_PROJECT}{project}"


def scopes_of(team: str, project: str) -> tuple[str, ...]:
    """The scopes that pay for a job of the team; an empty project is none."""
    scopes = (FLEET, team_scope(team))
    return (*scopes, project_scope(project)) if project else scopes


def team_of(scope: str) -> str | None:
    """The team that a scope is of, None for another kind of scope."""
    return scope.removeprefix(_TEAM) if scope.startswith(_TEAM) else None


def project_of(scope: str) -> str | None:
    """The project that a scope is of, None for another kind of scope."""
    return scope.removeprefix(_PROJECT) if scope.startswith(_PROJECT) else None


def budgets(config: AgentConfig) -> dict[str, Budget]:
    """Every budget by its scope, the fleet's first."""
    found = {FLEET: config.budget}
    found |= {team_scope(name): team.budget for name, team in config.teams.items()}
    found |= {project_scope(name): project.budget for name, project in config.projects.items()}
    return {scope: budget for scope, budget in found.items() if budget is not None}
