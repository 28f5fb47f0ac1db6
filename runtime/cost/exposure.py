"""Which calendar period pays for which attempt: what it has spent, and what open attempts may still cost it.

A closed attempt is spread evenly over the time it ran. An open one counts in every period as much as could fall there
at worst: it may start at any moment after its opening, so all of it, or as many seconds as the period has left after
the opening. No other rule would hold whatever the start: a job that may run for an hour and is cleared ten minutes
before midnight can cost ten minutes of today and a full hour of tomorrow, so both days must have room for that.

Invariant: closing an attempt never raises what it counts in a period, if it was opened under a hard budget. So a limit
that held when an attempt was opened holds for ever after.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from decimal import ROUND_CEILING, Decimal
from typing import Final

from runtime.cost.ledger import MICRO_USD, Books, Closing, Opening, cost_usd

DAY_SECONDS: Final = 86_400
LONGEST_MONTH_SECONDS: Final = 31 * DAY_SECONDS
NOTHING: Final = Decimal(0)


@dataclass(frozen=True, slots=True)
class Period:
    """A stretch of fleet time that a limit applies to, `end` excluded."""

    start: float
    end: float


def day_of(at: float) -> Period:
    """The calendar day in UTC that contains `at`."""
    start = at // DAY_SECONDS * DAY_SECONDS
    return Period(start, start + DAY_SECONDS)


def month_of(at: float) -> Period:
    """The calendar month in UTC that contains `at`."""
    first = datetime.fromtimestamp(at, UTC).replace(day=1, hour=0, minute=0, second=0, microsecond=0)
    following = first.replace(year=first.year + first.month // 12, month=first.month % 12 + 1)
    return Period(first.timestamp(), following.timestamp())


def later_day(at: float) -> Period:
    """The day after; for what is open at `at` it stands for every later day, since all of them look the same."""
    end = day_of(at).end
    return Period(end, end + DAY_SECONDS)


def later_month(at: float) -> Period:
    """31 days after the month; for what is open at `at` it stands for every later month, none of which is longer."""
    end = month_of(at).end
    return Period(end, end + LONGEST_MONTH_SECONDS)


def spent_in(closing: Closing, period: Period) -> Decimal:
    """What a closed attempt cost in the period, in proportion to the time it ran there."""
    if closing.started_at >= period.start and closing.ended_at <= period.end:
        return closing.usd
    overlap = min(closing.ended_at, period.end) - max(closing.started_at, period.start)
    if overlap <= 0:
        return NOTHING
    return closing.usd * Decimal(overlap) / Decimal(closing.ended_at - closing.started_at)


def at_stake_in(opening: Opening, period: Period, now: float) -> Decimal:
    """The most that an open attempt may yet cost in the period; only expected if no hard budget bounds it."""
    if not opening.hard:
        return expected_in(opening, period, now)
    return _share(opening.committed_usd, opening.max_seconds, opening.opened_at, period)


def expected_in(opening: Opening, period: Period, now: float) -> Decimal:
    """What an open attempt is expected to cost in the period: its expected run time, or longer once it took longer."""
    seconds = max(opening.expected_seconds, now - opening.opened_at)
    if opening.hard:
        seconds = min(seconds, opening.max_seconds)
    return _share(_price(opening, seconds), seconds, opening.opened_at, period)


def _price(opening: Opening, seconds: float) -> Decimal:
    return cost_usd(opening.usd_per_gpu_hour, opening.gpus, seconds)


def _share(usd: Decimal, seconds: float, opened_at: float, period: Period) -> Decimal:
    room = period.end - max(opened_at, period.start)
    if room >= seconds:
        return usd
    if room <= 0:
        return NOTHING
    part = (usd * Decimal(room) / Decimal(seconds)).quantize(MICRO_USD, rounding=ROUND_CEILING)
    # A closing's own amount was rounded up too, and its share must not come out above this one.
    return min(usd, part + MICRO_USD)


@dataclass(slots=True)
class Amounts:
    """What one team, or the fleet, has in one period. `committed` is the worst case, `expected` the likely one."""

    spent: Decimal = NOTHING
    committed: Decimal = NOTHING
    expected: Decimal = NOTHING


@dataclass(slots=True)
class Exposure:
    """Spent and committed money of one period, for the fleet and by team."""

    period: Period
    fleet: Amounts = field(default_factory=Amounts)
    teams: dict[str, Amounts] = field(default_factory=dict)


def exposures(books: Books, periods: Sequence[Period], now: float) -> list[Exposure]:
    """What each of the periods has spent and committed, in one pass over the books."""
    found = [Exposure(period) for period in periods]
    for attempt, opening in books.openings.items():
        closing = books.closings.get(attempt)
        for exposure in found:
            if closing is None or closing.ended_at > exposure.period.start:
                _add(exposure, opening, closing, now)
    return found


def exposure(books: Books, period: Period, now: float) -> Exposure:
    """What the period has spent and committed."""
    return exposures(books, [period], now)[0]


def _add(into: Exposure, opening: Opening, closing: Closing | None, now: float) -> None:
    team = into.teams.get(opening.team)
    if team is None:
        team = into.teams[opening.team] = Amounts()
    if closing is not None:
        spent = spent_in(closing, into.period)
        into.fleet.spent += spent
        team.spent += spent
        return
    committed, expected = at_stake_in(opening, into.period, now), expected_in(opening, into.period, now)
    for amounts in (into.fleet, team):
        amounts.committed += committed
        amounts.expected += expected
