"""When something turns by the calendar alone: the day of a budget, the window of a class.

Weeks and months turn when some day does, so days are all that is looked at. Nothing here says what happens then; the
run decides anew at each turn, and finds out.

Invariant: a turn is always later than the moment it is asked for.
"""

from __future__ import annotations

import math
from datetime import UTC, datetime, time, timedelta
from zoneinfo import ZoneInfo

from runtime.cost.periods import day_of
from runtime.cost.scopes import budgets
from stacks.agent_config import AgentConfig
from stacks.quantities import WeeklyWindow

_DAYS_SEARCHED = 3  # a wall clock's time comes within two days, and today's may be past


class Timetable:
    """The turns of one fleet."""

    def __init__(self, config: AgentConfig) -> None:
        self._zones = sorted({budget.time_zone for budget in budgets(config).values()})
        self._windows = [one.window for one in config.classes.values() if one.window is not None]

    def next_day(self, at: float) -> float:
        """When the next day begins in the time zone of any budget; never, where there is none."""
        return min((day_of(at, zone).end for zone in self._zones), default=math.inf)

    def next_window(self, at: float) -> float:
        """When the window of any class may next open or close; never, where there is none."""
        return min((_next_change(window, at) for window in self._windows), default=math.inf)


def _next_change(window: WeeklyWindow, at: float) -> float:
    closing = _next(window.end, window.time_zone, at)
    opening = window.next_opening(datetime.fromtimestamp(at, UTC)).timestamp()
    return closing if opening <= at else min(opening, closing)


def _next(wall: time, zone: str, at: float) -> float:
    """When the clock on the wall reads this next."""
    place = ZoneInfo(zone)
    today = datetime.fromtimestamp(at, place).date()
    moments = (datetime.combine(today + timedelta(days=day), wall, place).timestamp() for day in range(_DAYS_SEARCHED))
    return min(moment for moment in moments if moment > at)
