"""Which calendar period pays for which attempt: what it has spent, and what open attempts may still cost it.

A closed attempt is spread evenly over the time it ran. An open one counts in every period as much as could fall there
at worst: it may start at any moment after its opening, so all of it, or as many seconds as the period has left after
the opening. No other rule would hold whatever the start: a job that may run for an hour and is cleared ten minutes
before midnight can cost ten minutes of today and a full hour of tomorrow, so both days must have room for that. The
part of a cost that does not depend on time is paid once, by the period in which the attempt was opened.

Invariant: closing an attempt never raises what it counts in a period, if it was opened under a hard budget. So a limit
that held when an attempt was opened holds for ever after.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from decimal import ROUND_CEILING, Decimal
from typing import Final

from runtime.cost.ledger import MICRO_USD, Books, Closing, Opening, cost_usd
from runtime.cost.periods import Period, day_of, later_day, later_month, later_week, month_of, week_of
from runtime.cost.scopes import FLEET, project_of, scopes_of, team_of

__all__ = [
    "NOTHING",
    "Amounts",
    "Exposure",
    "Period",
    "add_up",
    "at_stake_in",
    "day_of",
    "expected_in",
    "exposure",
    "later_day",
    "later_month",
    "later_week",
    "month_of",
    "spent_in",
    "week_of",
]

NOTHING: Final = Decimal(0)


def spent_in(opening: Opening, closing: Closing, period: Period) -> Decimal:
    """What a closed attempt cost in the period: its fixed part where it was opened, the rest in proportion to time."""
    if period.start <= opening.opened_at <= closing.started_at and closing.ended_at <= period.end:
        return closing.usd
    fixed = min(opening.fixed_usd, closing.usd)
    spent = fixed if period.start <= opening.opened_at < period.end else NOTHING
    overlap = min(closing.ended_at, period.end) - max(closing.started_at, period.start)
    if overlap <= 0:
        return spent
    return spent + (closing.usd - fixed) * Decimal(overlap) / Decimal(closing.ended_at - closing.started_at)


def at_stake_in(opening: Opening, period: Period, now: float) -> Decimal:
    """The most that an open attempt may yet cost in the period; only expected if no hard budget bounds it."""
    if not opening.hard:
        return expected_in(opening, period, now)
    return _share(opening, opening.committed_usd - opening.fixed_usd, opening.max_seconds, period, now)


def expected_in(opening: Opening, period: Period, now: float) -> Decimal:
    """What an open attempt is expected to cost in the period: its expected run time, or longer once it took longer."""
    seconds = max(opening.expected_seconds, now - opening.opened_at)
    if opening.hard:
        seconds = min(seconds, opening.max_seconds)
    return _share(opening, cost_usd(opening.usd_per_gpu_hour, opening.gpus, seconds), seconds, period, now)


def _share(opening: Opening, usd: Decimal, seconds: float, period: Period, now: float) -> Decimal:
    """What of `usd`, the price of `seconds`, may fall into the period, and the fixed part where it belongs.

    An opening that seems to be of the future, because a clock was set back, may run from now on.
    """
    seen_at = min(opening.opened_at, now)
    room = period.end - max(seen_at, period.start)
    if room <= 0:
        return NOTHING
    begins_here = period.start <= opening.opened_at < period.end or period.start <= seen_at
    fixed = opening.fixed_usd if begins_here else NOTHING
    if room >= seconds:
        return usd + fixed
    part = (usd * Decimal(room) / Decimal(seconds)).quantize(MICRO_USD, rounding=ROUND_CEILING)
    # A closing's own amount was rounded up too, and its share must not come out above this one.
    return min(usd, part + MICRO_USD) + fixed


@dataclass(slots=True)
class Amounts:
    """What one scope has in one period. `committed` is the worst case of what is open, `expected` the likely one."""

    spent: Decimal = NOTHING
    committed: Decimal = NOTHING
    expected: Decimal = NOTHING

    def exposed(self, *, hard: bool) -> Decimal:
        """What counts against a budget: spent, and the worst case under a hard one, else what is expected."""
        return self.spent + (self.committed if hard else self.expected)


_Targets = list[tuple[Period, list[Amounts]]]


def add_up(books: Books, periods_of: Callable[[str], Iterable[Period]], now: float) -> dict[str, dict[Period, Amounts]]:
    """What each scope has in the periods that are asked of it, in one pass over the books.

    The fleet is always in the result, other scopes once an attempt names them. Attempts of one team and project go to
    the same places, and scopes with equal periods share the work.
    """
    found: dict[str, dict[Period, Amounts]] = {FLEET: {period: Amounts() for period in periods_of(FLEET)}}
    targets: dict[tuple[str, str], _Targets] = {}
    for attempt, opening in books.openings.items():
        key = (opening.team, opening.project)
        if (groups := targets.get(key)) is None:
            groups = targets[key] = _targets(scopes_of(*key), found, periods_of)
        closing = books.closings.get(attempt)
        if closing is None:
            _add_open(opening, groups, now)
        else:
            _add_closed(opening, closing, groups)
    return found


def _targets(
    scopes: Sequence[str], found: dict[str, dict[Period, Amounts]], periods_of: Callable[[str], Iterable[Period]]
) -> _Targets:
    groups: dict[Period, list[Amounts]] = {}
    for scope in scopes:
        amounts = found.setdefault(scope, {})
        for period in periods_of(scope):
            groups.setdefault(period, []).append(amounts.setdefault(period, Amounts()))
    return list(groups.items())


def _add_closed(opening: Opening, closing: Closing, groups: _Targets) -> None:
    for period, places in groups:
        if closing.ended_at < period.start or opening.opened_at >= period.end:
            continue
        if spent := spent_in(opening, closing, period):
            for amounts in places:
                amounts.spent += spent


def _add_open(opening: Opening, groups: _Targets, now: float) -> None:
    for period, places in groups:
        committed, expected = at_stake_in(opening, period, now), expected_in(opening, period, now)
        for amounts in places:
            amounts.committed += committed
            amounts.expected += expected


@dataclass(slots=True)
class Exposure:
    """Spent and committed money of one period, for the fleet, by team and by project."""

    period: Period
    fleet: Amounts = field(default_factory=Amounts)
    teams: dict[str, Amounts] = field(default_factory=dict)
    projects: dict[str, Amounts] = field(default_factory=dict)


def exposure(books: Books, period: Period, now: float) -> Exposure:
    """What one period, the same for everybody, has spent and committed."""
    found = Exposure(period)
    for scope, amounts in add_up(books, lambda _: (period,), now).items():
        if (team := team_of(scope)) is not None:
            found.teams[team] = amounts[period]
        elif (project := project_of(scope)) is not None:
            found.projects[project] = amounts[period]
        else:
            found.fleet = amounts[period]
    return found
