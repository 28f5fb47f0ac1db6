"""How every budget stands: spent, committed and left of each limit, top-ups, and the thresholds that are reached.

Nothing here refuses anything; runtime.cost.budget does. A scope without a limit has a bill all the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Literal

from runtime.cost.exposure import NOTHING, Amounts, add_up
from runtime.cost.ledger import Books, TopUp
from runtime.cost.periods import PERIOD_OF, Period, PeriodKind
from runtime.cost.scopes import FLEET, budgets, project_of, project_scope, team_of, team_scope
from stacks.agent_config import AgentConfig
from stacks.teams import Budget


@dataclass(frozen=True, slots=True)
class Standing:
    """How one scope stands in one period.

    `limit` is the file's, without `topped_up`; `left` is what both leave. `left` and `overshoot` are None where there
    is no limit.
    """

    period: Period
    spent: Decimal
    committed: Decimal
    limit: Decimal | None
    topped_up: Decimal
    left: Decimal | None
    overshoot: Decimal | None

    @property
    def overdrawn(self) -> bool:
        """Whether spent and committed together are beyond the limit and its top-ups."""
        return bool(self.overshoot)


@dataclass(frozen=True, slots=True)
class ScopeSummary:
    """How one scope stands today, this week and this month in its time zone. `kind` is None without a budget."""

    kind: Literal["hard", "soft"] | None
    time_zone: str
    day: Standing
    week: Standing
    month: Standing

    def standings(self) -> Iterator[tuple[PeriodKind, Standing]]:
        """Each period with how it stands."""
        yield "day", self.day
        yield "week", self.week
        yield "month", self.month


@dataclass(frozen=True, slots=True)
class Summary:
    """How every budget stands, and what is spent and committed where there is none."""

    fleet: ScopeSummary
    teams: Mapping[str, ScopeSummary]
    projects: Mapping[str, ScopeSummary]

    def scopes(self) -> Iterator[tuple[str, ScopeSummary]]:
        """Every scope by its name: the fleet, the teams, the projects."""
        yield FLEET, self.fleet
        yield from ((team_scope(name), scope) for name, scope in self.teams.items())
        yield from ((project_scope(name), scope) for name, scope in self.projects.items())


@dataclass(frozen=True, slots=True)
class Reached:
    """A threshold of a budget that spent and committed money have reached in a running period."""

    scope: str
    period: PeriodKind
    period_start: float
    threshold: float
    spent_and_committed: Decimal
    limit: Decimal
    """With its top-ups."""


def summary(books: Books, config: AgentConfig, now: float) -> Summary:
    """Spent, committed and left now, of the fleet and of every team and project with a name or a bill.

    A scope without a budget is shown in the fleet's time zone.
    """
    found_budgets = budgets(config)
    fleet_zone = config.budget.time_zone if config.budget else "UTC"

    def periods_of(scope: str) -> dict[PeriodKind, Period]:
        zone = found_budgets[scope].time_zone if scope in found_budgets else fleet_zone
        return {kind: period_of(now, zone) for kind, period_of in PERIOD_OF.items()}

    found = add_up(books, lambda scope: periods_of(scope).values(), now)

    def scope_summary(scope: str) -> ScopeSummary:
        budget, amounts = found_budgets.get(scope), found.get(scope, {})
        standings = {
            kind: _standing(kind, period, budget, amounts.get(period, Amounts()), scope, books.top_ups.values(), now)
            for kind, period in periods_of(scope).items()
        }
        zone = budget.time_zone if budget else fleet_zone
        return ScopeSummary(budget.kind if budget else None, zone, **standings)

    teams = {team for scope in found if (team := team_of(scope)) is not None} | config.teams.keys()
    projects = {project for scope in found if (project := project_of(scope)) is not None} | config.projects.keys()
    return Summary(
        fleet=scope_summary(FLEET),
        teams={name: scope_summary(team_scope(name)) for name in sorted(teams)},
        projects={name: scope_summary(project_scope(name)) for name in sorted(projects)},
    )


def reached(found: Summary, config: AgentConfig) -> tuple[Reached, ...]:
    """Every threshold of every budget that is reached now, by scope, period and threshold.

    The same threshold of the same period (`scope`, `period`, `period_start`, `threshold`) is the same event. What is
    committed counts, so that a threshold can be left again when a job costs less than it might have.
    """
    with_budgets = budgets(config)
    return tuple(
        Reached(scope, kind, standing.period.start, threshold, exposed, whole)
        for scope, one in found.scopes()
        if scope in with_budgets
        for kind, standing in one.standings()
        if standing.limit is not None
        for exposed, whole in [(standing.spent + standing.committed, standing.limit + standing.topped_up)]
        for threshold in with_budgets[scope].thresholds
        if exposed > 0 and exposed >= whole * Decimal(str(threshold))
    )


def limits(budget: Budget) -> dict[PeriodKind, Decimal]:
    """The limits that a budget has, by period."""
    found = {"day": budget.daily, "week": budget.weekly, "month": budget.monthly}
    return {kind: limit for kind in PERIOD_OF if (limit := found[kind]) is not None}


def topped_up(top_ups: Iterable[TopUp], scope: str, period: Period, now: float) -> Decimal:
    """What was added to a scope's limit for the period and has not expired."""
    mine = (one for one in top_ups if one.scope == scope and period.start <= one.granted_at < period.end)
    return sum((one.usd for one in mine if now < one.expires_at), NOTHING)


def _standing(
    kind: PeriodKind,
    period: Period,
    budget: Budget | None,
    amounts: Amounts,
    scope: str,
    top_ups: Iterable[TopUp],
    now: float,
) -> Standing:
    exposed = amounts.exposed(hard=budget is not None and budget.kind == "hard")
    limit = limits(budget).get(kind) if budget else None
    added = topped_up(top_ups, scope, period, now) if limit is not None else NOTHING
    return Standing(
        period=period,
        spent=amounts.spent,
        committed=exposed - amounts.spent,
        limit=limit,
        topped_up=added,
        left=None if limit is None else max(limit + added - exposed, NOTHING),
        overshoot=None if limit is None else max(exposed - limit - added, NOTHING),
    )
