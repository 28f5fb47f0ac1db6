"""What the agent knows of the store: every entry that may count now, read once and kept.

It holds the current and the previous month of every time zone, every attempt without a closing, what was closed in the
last two months, and the losses of live months. It writes nothing and decides nothing; what cannot be read is logged and
told, and what follows from that is runtime.store.ledger's to decide.

Invariant: single entries are listed before packed days, so one that is packed in between stands in a day that is seen.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from runtime.cost.ledger import Attempt, Books, Closing, Opening, TopUp
from runtime.cost.losses import Loss, LossKey
from runtime.store import names
from runtime.store.bucket import Bucket
from runtime.store.names import Listing, Name
from runtime.store.reading import read_closings, read_days, read_loss_days, read_losses, read_openings, read_top_ups

RECENT_SECONDS: Final = 63 * 86_400
"""Two months at their longest, in any time zone: an attempt that was closed longer ago touches no month that counts."""

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Unread:
    """How many entries cannot be read, and the paths of those that may count in a budget."""

    entries: int
    blocking: tuple[str, ...]


class Copy:
    """The entries of one ledger. The first `update` lists every name, later ones those of live months alone."""

    def __init__(self, bucket: Bucket) -> None:
        self._bucket = bucket
        self._listed_all = False
        self._days_read: set[str] = set()
        self._top_ups_read: set[str] = set()
        self._loss_days_read: set[str] = set()
        self.openings: dict[Attempt, Opening] = {}
        self.closings: dict[Attempt, Closing] = {}
        self.top_ups: dict[str, TopUp] = {}
        self.losses: dict[LossKey, Loss] = {}

    def books(self) -> Books:
        """The entries as they are now, which do not change afterwards."""
        return Books(dict(self.openings), dict(self.closings), dict(self.top_ups), dict(self.losses))

    async def update(self, now: float, real_now: float) -> Unread:
        """Read what is there and not yet known, and forget what does not count any more. `now` is fleet time.

        Raises:
            StoreDown: when the store cannot be read; what was read until then is kept.
        """
        live = names.live_months(now)
        listing = await names.list_entries(self._bucket, live | self._open_months() if self._listed_all else None)
        counting = _Counting(listing, live, real_now - RECENT_SECONDS)
        unread = {names.day_path(day): day[: len("YYYY-MM")] for day in await self._read_days(counting)}
        unread |= {name.path: name.month for name in await self._read_openings(counting)}
        unread_closings = await self._read_closings(counting)
        unread_others = await self._read_top_ups() + await self._read_losses(live)
        self._forget(now, live)
        self._listed_all = True
        blocking = tuple(path for path, month in unread.items() if month in live)
        return Unread(len(unread) + unread_closings + unread_others, blocking)

    async def _read_days(self, counting: _Counting) -> Iterable[str]:
        """Read packed days that may count; those that cannot be read. What a day says goes before single entries."""
        wanted = set()
        async for item in self._bucket.list(names.DAYS):
            day = names.day_name(item.path)
            if day and day not in self._days_read and counting.has(day[: len("YYYY-MM")], item.written_at):
                wanted.add(day)
        found, unread = await read_days(self._bucket, wanted)
        for one in found:
            self._days_read.add(one.day)
            self.openings |= one.openings
            self.closings |= one.closings
        _log_unread({names.day_path(day): reason for day, reason in unread.items()})
        return unread

    async def _read_openings(self, counting: _Counting) -> Iterable[Name]:
        wanted = [name for attempt, name in counting.openings().items() if attempt not in self.openings]
        found, unread = await read_openings(self._bucket, wanted)
        self.openings |= found
        _log_unread({name.path: reason for name, reason in unread.items()})
        return unread

    async def _read_closings(self, counting: _Counting) -> int:
        """Read the closings of the openings that count; how many cannot be read."""
        closings = counting.listing.closings
        wanted = [closings[one] for one in counting.openings() if one in closings and one not in self.closings]
        found, unread = await read_closings(self._bucket, wanted)
        self.closings |= found
        _log_unread({name.path: reason for name, reason in unread.items()})
        return len(unread)

    async def _read_top_ups(self) -> int:
        listed = [names.top_up_name(item.path) async for item in self._bucket.list(names.TOP_UPS)]
        found, unread = await read_top_ups(self._bucket, {one for one in listed if one} - self._top_ups_read)
        self.top_ups |= found
        self._top_ups_read |= found.keys()
        _log_unread({names.top_up_path(identifier): reason for identifier, reason in unread.items()})
        return len(unread)

    async def _read_losses(self, live: set[str]) -> int:
        """Read the losses of live months; how many entries cannot be read. What a day says goes before single ones."""
        listed = await names.list_losses(self._bucket, live)
        wanted = {day for day in await names.list_loss_days(self._bucket) if day[: len("YYYY-MM")] in live}
        days, unread_days = await read_loss_days(self._bucket, wanted - self._loss_days_read)
        for one in days:
            self._loss_days_read.add(one.day)
            self.losses |= one.losses
        found, unread = await read_losses(self._bucket, [name for name in listed if name.key not in self.losses])
        self.losses |= {name.key: loss for name, loss in found.items()}
        unread |= {names.loss_day_path(day): reason for day, reason in unread_days.items()}
        _log_unread(unread)
        return len(unread)

    def _open_months(self) -> set[str]:
        unclosed = self.openings.keys() - self.closings.keys()
        return {names.month(self.openings[attempt].opened_at) for attempt in unclosed}

    def _forget(self, now: float, live: set[str]) -> None:
        """Drop what ended before the live months, and top-ups and losses from before them."""
        for attempt, closing in list(self.closings.items()):
            if closing.ended_at < now and names.month(closing.ended_at) not in live:
                del self.closings[attempt]
                self.openings.pop(attempt, None)
        for identifier, top_up in list(self.top_ups.items()):
            if top_up.granted_at < now and names.month(top_up.granted_at) not in live:
                del self.top_ups[identifier]
        for key, loss in list(self.losses.items()):
            if loss.stopped_at < now and names.month(loss.stopped_at) not in live:
                del self.losses[key]


@dataclass(frozen=True, slots=True)
class _Counting:
    """Which single entries and days may count now: of live months, closed since `oldest` (real time), or still open."""

    listing: Listing
    live: set[str]
    oldest: float

    def has(self, month: str, written_at: float) -> bool:
        return month in self.live or written_at >= self.oldest

    def openings(self) -> dict[Attempt, Name]:
        closings = self.listing.closings
        return {
            attempt: name
            for attempt, name in self.listing.openings.items()
            if attempt not in closings or self.has(name.month, closings[attempt].written_at)
        }


def _log_unread(unread: Mapping[str, str]) -> None:
    for path, reason in unread.items():
        log.error("an entry of the ledger cannot be read", extra={"entry": path, "error": reason})
