"""Rules of money: what projects belong to, and budgets that could never stop anything."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from stacks.model import Path
from stacks.policies import NeverBurst
from stacks.quantities import format_usd
from stacks.rules.rule import RuleProblem
from stacks.suggest import did_you_mean
from stacks.teams import Budget

if TYPE_CHECKING:
    from stacks.fleet import Fleet

_PERIODS: Final = ("daily", "weekly", "monthly")
"""From the shortest to the longest."""


def projects_name_known_teams(fleet: Fleet) -> Iterator[RuleProblem]:
    """The teams of a project are defined, each named once."""
    for name, project in fleet.projects.items():
        teams = project.teams or ()
        for index, team in enumerate(teams):
            path = ("projects", name, "teams", index)
            if team not in fleet.teams:
                yield RuleProblem(path, team, f"no such team{did_you_mean(team, fleet.teams)}")
            elif team in teams[:index]:
                yield RuleProblem(path, team, "is named twice; name each team once")


def the_fleet_has_a_budget(fleet: Fleet) -> Iterator[RuleProblem]:
    """Without any limit a queue that grows overnight may cost anything."""
    free = [name for name, team in fleet.teams.items() if team.budget is None and fleet.leaves(team)]
    if fleet.burst.budget is None and free:
        reason = f"neither the fleet nor team {free[0]} has a budget, so nothing limits its spending; set burst.budget"
        yield RuleProblem(("burst",), None, reason)


def budgets_within_the_fleet_can_be_reached(fleet: Fleet) -> Iterator[RuleProblem]:
    """A team's or a project's limit above the fleet's limits nothing."""
    whole = fleet.burst.budget
    for path, budget in _budgets_within(fleet) if whole else ():
        for period in _PERIODS:
            limit, most = getattr(budget, period), getattr(whole, period)
            if limit is not None and most is not None and limit > most:
                reason = f"is more than the whole fleet's {period} {format_usd(most)}, so it limits nothing"
                yield RuleProblem((*path, period), str(limit), reason)


def limits_of_shorter_periods_can_be_reached(fleet: Fleet) -> Iterator[RuleProblem]:
    """A day's limit above the week's or the month's limits nothing, nor does a week's above the month's."""
    whole: list[tuple[Path, Budget]] = [(("burst", "budget"), fleet.burst.budget)] if fleet.burst.budget else []
    for path, budget in [*whole, *_budgets_within(fleet)]:
        for index, period in enumerate(_PERIODS):
            limit = getattr(budget, period)
            longer = [(name, getattr(budget, name)) for name in _PERIODS[index + 1 :]]
            above = next((one for one in longer if limit is not None and one[1] is not None and limit > one[1]), None)
            if above is not None:
                reason = f"is more than {above[0]}, {format_usd(above[1])}, so it limits nothing"
                yield RuleProblem((*path, period), str(limit), reason)


def teams_that_stay_local_have_no_limits(fleet: Fleet) -> Iterator[RuleProblem]:
    """A team whose jobs never go to the cloud has nothing to limit there."""
    for name, team in fleet.teams.items():
        for field in ("budget", "max_burst_gpus"):
            if isinstance(team.policy, NeverBurst) and getattr(team, field) is not None:
                reason = "has no effect, as the team's policy is never; leave it out, or change the policy"
                yield RuleProblem(("teams", name, field), None, reason)


def _budgets_within(fleet: Fleet) -> Iterator[tuple[Path, Budget]]:
    """The budgets of teams and projects, and where they stand."""
    yield from ((("teams", name, "budget"), team.budget) for name, team in fleet.teams.items() if team.budget)
    yield from ((("projects", name, "budget"), project.budget) for name, project in fleet.projects.items())
