"""Budgets: whether one more attempt fits them, and how each of them stands.

A hard budget is kept by ceilings: what a period has spent and everything that open attempts could still cost it stay
within the limit, in the current day and month and in any later one. A soft budget counts expected costs, refuses only
once it is used up, and reports what went over. The fleet and the team each apply their own kind. Nothing here reads a
clock or a store.

Invariant: if every attempt under a hard budget was opened only after `fits` said so and then committed, no calendar day
or month ever costs more than its limit, whenever those attempts start and end within what they committed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Final, Literal

from runtime.cost.exposure import (
    NOTHING,
    Amounts,
    Period,
    at_stake_in,
    day_of,
    expected_in,
    exposures,
    later_day,
    later_month,
    month_of,
)
from runtime.cost.ledger import Books, Opening
from stacks.agent_config import AgentConfig
from stacks.teams import Budget

FLEET: Final = "fleet"
"""Name of the fleet's own scope; a team's is `team <name>`."""

PeriodName = Literal["day", "month", "later day", "later month"]


@dataclass(frozen=True, slots=True)
class Shortfall:
    """Why an attempt does not fit: `needed_usd` of the period's `left_usd`. A later period is any that follows."""

    scope: str
    period: PeriodName
    limit_usd: Decimal
    left_usd: Decimal
    needed_usd: Decimal


@dataclass(slots=True)
class _Line:
    scope: str
    name: PeriodName
    period: Period
    limit: Decimal
    left: Decimal
    hard: bool

    def needs(self, opening: Opening, now: float) -> Decimal:
        return at_stake_in(opening, self.period, now) if self.hard else expected_in(opening, self.period, now)


def hard_budget_applies(config: AgentConfig, team: str) -> bool:
    """Whether the fleet's budget or the team's is a hard one."""
    return any(budget is not None and budget.kind == "hard" for budget in _budgets(config, team).values())


def only_hard_budgets_apply(config: AgentConfig, team: str) -> bool:
    """Whether no soft budget applies, neither the fleet's nor the team's."""
    return all(budget is None or budget.kind == "hard" for budget in _budgets(config, team).values())


class Accounts:
    """What is left of every budget at one moment; commitments made in the same decision are taken off as they are made.

    Money that a closing frees counts once the ledger holds the closing, never before.
    """

    def __init__(self, books: Books, config: AgentConfig, now: float) -> None:
        self._now = now
        periods: dict[PeriodName, Period] = {
            "day": day_of(now),
            "month": month_of(now),
            "later day": later_day(now),
            "later month": later_month(now),
        }
        self._fleet: list[_Line] = []
        self._lines: dict[str, list[_Line]] = {}
        budgets = {team: settings.budget for team, settings in config.teams.items() if settings.budget}
        if config.budget is None and not budgets:
            return
        found = dict(zip(periods, exposures(books, list(periods.values()), now), strict=True))
        if config.budget is not None:
            fleet = {name: exposure.fleet for name, exposure in found.items()}
            self._fleet = _lines(FLEET, config.budget, periods, fleet)
        for team, budget in budgets.items():
            amounts = {name: exposure.teams.get(team, Amounts()) for name, exposure in found.items()}
            self._lines[team] = [*self._fleet, *_lines(team_scope(team), budget, periods, amounts)]

    def fits(self, opening: Opening) -> Shortfall | None:
        """None if every budget has room for the attempt, else the first that has not."""
        for line in self._lines.get(opening.team, self._fleet):
            needed = line.needs(opening, self._now)
            if needed > line.left if line.hard else line.left <= 0:
                return Shortfall(line.scope, line.name, line.limit, max(line.left, NOTHING), needed)
        return None

    def commit(self, opening: Opening) -> None:
        """Take the attempt's money off what is left."""
        for line in self._lines.get(opening.team, self._fleet):
            line.left -= line.needs(opening, self._now)


def _lines(
    scope: str, budget: Budget, periods: Mapping[PeriodName, Period], amounts: Mapping[PeriodName, Amounts]
) -> list[_Line]:
    hard = budget.kind == "hard"
    # What a soft budget expects of a later period forbids nothing: it refuses only what is used up now.
    limits: dict[PeriodName, Decimal | None] = {"day": budget.daily, "month": budget.monthly}
    if hard:
        limits |= {"later day": budget.daily, "later month": budget.monthly}
    return [
        _Line(scope, name, periods[name], limit, limit - _exposed(amounts[name], hard), hard)
        for name, limit in limits.items()
        if limit is not None
    ]


def _exposed(amounts: Amounts, hard: bool) -> Decimal:
    return amounts.spent + (amounts.committed if hard else amounts.expected)


def team_scope(team: str) -> str:
    """Name of a team's scope."""
    return f"team {team}"


def _budgets(config: AgentConfig, team: str) -> dict[str, Budget | None]:
    settings = config.teams.get(team)
    return {FLEET: config.budget, team_scope(team): settings.budget if settings else None}


@dataclass(frozen=True, slots=True)
class Standing:
    """How one scope stands in one period. `left` and `overshoot` are None where there is no limit."""

    spent: Decimal
    committed: Decimal
    limit: Decimal | None
    left: Decimal | None
    overshoot: Decimal | None


@dataclass(frozen=True, slots=True)
class ScopeSummary:
    """How the fleet or a team stands today and this month. `kind` is None where there is no budget."""

    kind: Literal["hard", "soft"] | None
    day: Standing
    month: Standing


@dataclass(frozen=True, slots=True)
class Summary:
    """How every budget stands."""

    fleet: ScopeSummary
    teams: Mapping[str, ScopeSummary]


def summary(books: Books, config: AgentConfig, now: float) -> Summary:
    """Spent, committed and left today and this month, for the fleet and for every team with a name or a bill."""
    day, month = exposures(books, [day_of(now), month_of(now)], now)
    teams = sorted(config.teams.keys() | day.teams.keys() | month.teams.keys())
    return Summary(
        fleet=_scope(config.budget, day.fleet, month.fleet),
        teams={
            team: _scope(
                config.teams[team].budget if team in config.teams else None,
                day.teams.get(team, Amounts()),
                month.teams.get(team, Amounts()),
            )
            for team in teams
        },
    )


def _scope(budget: Budget | None, day: Amounts, month: Amounts) -> ScopeSummary:
    hard = budget is not None and budget.kind == "hard"
    return ScopeSummary(
        kind=budget.kind if budget else None,
        day=_standing(budget.daily if budget else None, day, hard),
        month=_standing(budget.monthly if budget else None, month, hard),
    )


def _standing(limit: Decimal | None, amounts: Amounts, hard: bool) -> Standing:
    exposed = _exposed(amounts, hard)
    return Standing(
        spent=amounts.spent,
        committed=exposed - amounts.spent,
        limit=limit,
        left=None if limit is None else max(limit - exposed, NOTHING),
        overshoot=None if limit is None else max(exposed - limit, NOTHING),
    )
