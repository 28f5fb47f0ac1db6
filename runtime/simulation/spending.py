"""The ledger of a run: the real books made small, and what the run opens and closes in them.

A month of a large fleet has tens of thousands of attempts that have ended, and each decision of a run adds them all up.
So those that ended are drawn together wherever no budget can tell them apart: of one team and project, and between two
neighbouring beginnings of a day, week or month of any budget.

Invariant: every budget stands with the small books as it stood with the real ones, at any later time.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import replace
from decimal import Decimal
from typing import Final

from runtime.cost.ledger import NEVER_READY, Attempt, Books, Closing, Opening
from runtime.cost.periods import PERIOD_OF
from runtime.cost.scopes import budgets
from stacks.agent_config import AgentConfig

_NOTHING: Final = Decimal(0)
_PUT_TOGETHER: Final = "put together"
_Key = tuple[str, str, int]


def small_books(books: Books, config: AgentConfig, now: float) -> Books:
    """The same money in fewer attempts."""
    edges = _beginnings(config, now)
    openings: dict[Attempt, Opening] = {}
    closings: dict[Attempt, Closing] = {}
    together: dict[_Key, Attempt] = {}
    for attempt, opening in sorted(books.openings.items(), key=lambda item: _order(item[0])):
        closing = books.closings.get(attempt)
        if closing is not None and closing.reason != NEVER_READY:
            if closing.ended_at <= edges[0]:
                continue  # before all periods that are not over
            place = bisect_right(edges, opening.opened_at)
            if place == bisect_right(edges, closing.ended_at):
                first = together.setdefault((opening.team, opening.project, place), attempt)
                openings.setdefault(first, replace(opening, opened_at=edges[place - 1], fixed_usd=_NOTHING))
                closings[first] = _added(closings.get(first), closing)
                continue
        openings[attempt] = opening
        if closing is not None:
            closings[attempt] = closing
    return replace(books, openings=openings, closings=closings)


def with_entries(books: Books, opened: Iterable[Opening], closed: Iterable[Closing]) -> Books:
    """The books with these entries as well; an attempt that is open already stays as it was opened."""
    openings = {opening.attempt: opening for opening in opened} | dict(books.openings)
    closings = dict(books.closings) | {closing.attempt: closing for closing in closed}
    return replace(books, openings=openings, closings=closings)


def _added(before: Closing | None, closing: Closing) -> Closing:
    if before is None:
        return replace(closing, reason=_PUT_TOGETHER)
    return replace(
        before,
        started_at=min(before.started_at, closing.started_at),
        ended_at=max(before.ended_at, closing.ended_at),
        usd=before.usd + closing.usd,
    )


def _beginnings(config: AgentConfig, now: float) -> list[float]:
    """When the day, week and month began that are under way in the time zone of any budget, in order."""
    zones = {budget.time_zone for budget in budgets(config).values()}
    return sorted({now} | {period_of(now, zone).start for zone in zones for period_of in PERIOD_OF.values()})


def _order(attempt: Attempt) -> tuple[str, int]:
    return attempt.workload_uid, attempt.reserved_at
