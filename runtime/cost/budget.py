"""Budgets: whether one more attempt fits them all, and what is left of each.

A hard budget is kept by ceilings: what a period has spent and everything that open attempts could still cost it stay
within the limit, in the current day, week and month and in any later one. A soft budget counts expected costs, refuses
only once it is used up, and reports what went over. Fleet, team and project each apply their own kind, in their own
time zone. Nothing here reads a clock or a store; runtime.cost.standing says how each budget stands.

A top-up adds to the current periods in which it was granted, until it expires; later periods never count on one.

Invariant: if every attempt under a hard budget was opened only after `fits` said so and then committed, no calendar
day, week or month ever costs more than its limit, with its top-ups, whenever those attempts start and end within what
they committed. What can go beyond: a limit that was lowered, a budget whose zone was changed, and a budget that was
made hard while attempts were open that had been opened under soft ones alone. Those count as long as they are expected
to run, or have run already, and may outrun that; the attempts opened since keep the limit by themselves.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Final, Literal

from runtime.cost.exposure import NOTHING, Amounts, add_up, at_stake_in, expected_in
from runtime.cost.ledger import Books, Opening, TopUp
from runtime.cost.periods import LATER, PERIOD_OF, Period, PeriodKind
from runtime.cost.scopes import FLEET, budgets, project_scope, scopes_of, team_scope
from runtime.cost.standing import Reached, ScopeSummary, Standing, Summary, limits, reached, summary, topped_up
from stacks.agent_config import AgentConfig
from stacks.teams import Budget

__all__ = [
    "FLEET",
    "Accounts",
    "PeriodName",
    "Reached",
    "ScopeSummary",
    "Shortfall",
    "Standing",
    "Summary",
    "project_scope",
    "reached",
    "summary",
    "team_scope",
]

PeriodName = Literal["day", "week", "month", "later day", "later week", "later month"]

_LATER_NAMES: Final[Mapping[PeriodKind, PeriodName]] = {
    "day": "later day",
    "week": "later week",
    "month": "later month",
}


@dataclass(frozen=True, slots=True)
class Shortfall:
    """What is left in one period of one budget, top-ups included, and what an attempt needs there.

    A later period is any that follows.
    """

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

    def refuses(self, opening: Opening, now: float) -> bool:
        if not self.hard:
            return self.left <= 0
        # No period is ever charged more than the whole of a ceiling, so most answers need no division.
        if opening.hard and opening.committed_usd <= self.left:
            return False
        return self.needs(opening, now) > self.left

    def shortfall(self, opening: Opening, now: float) -> Shortfall:
        return Shortfall(self.scope, self.name, self.limit, max(self.left, NOTHING), self.needs(opening, now))


class Accounts:
    """What is left of every budget at one moment; commitments made in the same decision are taken off as they are made.

    Money that a closing frees counts once the ledger holds the closing, never before.
    """

    def __init__(self, books: Books, config: AgentConfig, now: float) -> None:
        self._now = now
        self._lines_of: dict[tuple[str, str], list[_Line]] = {}
        self._scopes: dict[str, list[_Line]] = {}
        wanted = {scope: _periods(budget, now) for scope, budget in budgets(config).items()}
        if not wanted:
            return
        found = add_up(books, lambda scope: wanted.get(scope, {}).values(), now)
        for scope, budget in budgets(config).items():
            amounts = found.get(scope, {})
            self._scopes[scope] = list(_lines(scope, budget, wanted[scope], amounts, books.top_ups, now))

    def fits(self, opening: Opening) -> Shortfall | None:
        """None if every budget has room for the attempt, else the first that has not: fleet, team, then project.

        An opening must not be older than the running periods (`earliest_opening`), or a period that is over would pay.
        """
        for line in self._applying(opening):
            if line.refuses(opening, self._now):
                return line.shortfall(opening, self._now)
        return None

    def commit(self, opening: Opening) -> None:
        """Take the attempt's money off what is left."""
        for line in self._applying(opening):
            line.left -= line.needs(opening, self._now)

    def tightest(self, opening: Opening) -> Shortfall | None:
        """The running period with the least left, of the budgets that apply to the attempt; None where none does."""
        running = [line for line in self._applying(opening) if line.name in PERIOD_OF]
        line = min(running, key=lambda line: line.left, default=None)
        return None if line is None else line.shortfall(opening, self._now)

    def earliest_opening(self, team: str, project: str = "") -> float:
        """The latest start of a running period of the budgets that apply; before it, one that is over would pay."""
        lines = self._lines(team, project)
        return max((line.period.start for line in lines if line.name in PERIOD_OF), default=0.0)

    def _applying(self, opening: Opening) -> list[_Line]:
        return self._lines(opening.team, opening.project)

    def _lines(self, team: str, project: str) -> list[_Line]:
        key = (team, project)
        if (lines := self._lines_of.get(key)) is None:
            lines = [line for scope in scopes_of(*key) for line in self._scopes.get(scope, [])]
            self._lines_of[key] = lines
        return lines


def _periods(budget: Budget, now: float) -> dict[PeriodName, Period]:
    """The periods that have a limit; what a soft budget expects of a later one forbids nothing now."""
    found: dict[PeriodName, Period] = {}
    for kind in limits(budget):
        found[kind] = PERIOD_OF[kind](now, budget.time_zone)
        if budget.kind == "hard":
            found[_LATER_NAMES[kind]] = LATER[kind](now, budget.time_zone)
    return found


def _lines(
    scope: str,
    budget: Budget,
    periods: Mapping[PeriodName, Period],
    found: Mapping[Period, Amounts],
    top_ups: Mapping[str, TopUp],
    now: float,
) -> Iterable[_Line]:
    hard = budget.kind == "hard"
    for kind, limit in limits(budget).items():
        names: list[tuple[PeriodName, Decimal]] = [
            (kind, limit + topped_up(top_ups.values(), scope, periods[kind], now)),
            (_LATER_NAMES[kind], limit),
        ]
        for name, whole in names:
            if name in periods:
                amounts = found.get(periods[name], Amounts())
                yield _Line(scope, name, periods[name], whole, whole - amounts.exposed(hard=hard), hard)
