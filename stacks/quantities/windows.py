"""Windows of time that come back every week: when they are open, and when they open next.

A window follows the clock on the wall: it is open while that clock reads a time between its start and its end. When
summer time skips the start, the window opens at the first moment that exists; when an hour comes twice, a window within
that hour opens twice. Texts are read by `window_text`; nothing here reads a clock.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, time, timedelta
from typing import Final
from zoneinfo import ZoneInfo

from stacks.quantities.calendar import EVERY_DAY, format_days, format_time_of_day

_MIDNIGHT: Final = time(0, 0)
_DAY: Final = timedelta(days=1)
_SEARCHED_DAYS: Final = 15
"""Two weeks, because summer time may skip the only opening of one week; and the day that is under way."""


@dataclass(frozen=True, slots=True)
class WeeklyWindow:
    """A part of the week, in local time: `start` on each of `days` until the next `end`.

    An end of 00:00 is the midnight that ends the day; with a start of 00:00 the window is the whole day.
    """

    days: frozenset[int]
    start: time
    end: time
    time_zone: str

    def __post_init__(self) -> None:
        if not self.days or not self.days <= EVERY_DAY:
            raise ValueError("a window needs at least one day, 1 (Monday) to 7 (Sunday)")
        if self.start == self.end != _MIDNIGHT:
            raise ValueError(
                "starts and ends at the same time; write 00:00-24:00 for whole days, or for example 22:00-06:00"
            )

    def __str__(self) -> str:
        days = "" if self.days == EVERY_DAY else f"{format_days(self.days)} "
        end = "24:00" if self.end == _MIDNIGHT else format_time_of_day(self.end)
        return f"{days}{format_time_of_day(self.start)}-{end} {self.time_zone}"

    def contains(self, moment: datetime) -> bool:
        """Whether the window is open at a moment.

        Raises:
            ValueError: when the moment has no time zone.
        """
        return self._open_at(_utc(moment).astimezone(ZoneInfo(self.time_zone)))

    def next_opening(self, moment: datetime) -> datetime:
        """The first moment, not before the given one, at which the window is open; in UTC.

        Raises:
            ValueError: when the moment has no time zone.
        """
        begin, zone = _utc(moment), ZoneInfo(self.time_zone)
        if self.contains(begin):
            return begin
        return min(
            opening
            for opening in self._possible_openings(begin, zone)
            if opening >= begin and self._open_at(opening.astimezone(zone))
        )

    def _open_at(self, local: datetime) -> bool:
        clock, weekday = local.time(), local.isoweekday()
        if self.start < self.end:
            return weekday in self.days and self.start <= clock < self.end
        if clock >= self.start:
            return weekday in self.days
        return clock < self.end and (weekday - 2) % 7 + 1 in self.days

    def _possible_openings(self, begin: datetime, zone: ZoneInfo) -> Iterator[datetime]:
        """A window opens when the clock reaches its start, or when the clock itself is moved."""
        today = begin.astimezone(zone).date()
        for day in range(-1, _SEARCHED_DAYS):
            wall = datetime.combine(today + day * _DAY, self.start, zone)
            yield wall.astimezone(UTC)
            yield wall.replace(fold=1).astimezone(UTC)
            since = begin + day * _DAY
            if since.astimezone(zone).utcoffset() != (since + _DAY).astimezone(zone).utcoffset():
                yield _change_of_clock(since, since + _DAY, zone)


def _utc(moment: datetime) -> datetime:
    if moment.tzinfo is None:
        raise ValueError("a moment needs a time zone, for example datetime.now(UTC)")
    return moment.astimezone(UTC)


def _change_of_clock(before: datetime, after: datetime, zone: ZoneInfo) -> datetime:
    """The first second with the later offset, by halving; the two moments have different offsets."""
    offset = before.astimezone(zone).utcoffset()
    low, high = int(before.timestamp()), int(after.timestamp())
    while high - low > 1:
        middle = (low + high) // 2
        if datetime.fromtimestamp(middle, UTC).astimezone(zone).utcoffset() == offset:
            low = middle
        else:
            high = middle
    return datetime.fromtimestamp(high, UTC)
