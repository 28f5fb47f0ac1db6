"""The agent's ledger: what it knows of the store, and the three things it writes there.

The copy in memory holds the current and the previous month of every time zone, every attempt without a closing, and
what was closed in the last two months. All names are listed at the start and after every failure, later only those of
live months.

Money fails closed. Any doubt about the store makes `books` None, so that no money moves:

- store unreachable, or a write without a clear answer: until the next complete read;
- an opening or a packed day that cannot be read: as long as it can count in a budget, that is until its month and the
  next are over. It is named in the log and counted in a metric. Put it back from a copy or, if its job never ran in
  the cloud, move it out of `v1/`; the next read sees it. Object stores write whole objects, so this takes a damaged
  disk or a hand;
- a closing that cannot be read: nothing stops; its attempt keeps counting as open, which is never too little;
- a top-up that cannot be read: nothing stops; it does not count.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final, TypeVar

from runtime import metrics
from runtime.clock import Clock
from runtime.cost.entries import (
    closing_from_dict,
    closing_to_dict,
    opening_from_dict,
    opening_to_dict,
    top_up_from_dict,
    top_up_to_dict,
)
from runtime.cost.ledger import Attempt, Books, Closing, Opening, TopUp
from runtime.errors import StoreDown
from runtime.store import names
from runtime.store.bucket import Bucket
from runtime.store.compaction import Compactor
from runtime.store.names import Listing, Name
from runtime.store.owner import Owner, claim
from runtime.store.reading import parse, read_closings, read_days, read_openings, read_top_ups

RECENT_SECONDS: Final = 63 * 86_400
"""Two months at their longest, in any time zone: an attempt that was closed longer ago touches no month that counts."""

log = logging.getLogger(__name__)
_Entry = TypeVar("_Entry", Opening, Closing, TopUp)


class Store:
    """The ledger of one fleet. Entries of different attempts may be written at once; nothing may while it is read.

    Without an owner it only reads: it claims nothing, and writing fails.
    """

    def __init__(self, url: str, clock: Clock, owner: Owner | None) -> None:
        self._bucket = Bucket(url)
        self._clock = clock
        self._owner = owner
        self._compactor = Compactor(self._bucket)
        self._openings: dict[Attempt, Opening] = {}
        self._closings: dict[Attempt, Closing] = {}
        self._top_ups: dict[str, TopUp] = {}
        self._days_read: set[str] = set()
        self._top_ups_read: set[str] = set()
        self._complete = False
        self._blocking: tuple[str, ...] = ()
        self._books: Books | None = None

    @property
    def books(self) -> Books | None:
        """The ledger as last read and since written, or None while in doubt."""
        if not self._complete or self._blocking:
            return None
        if self._books is None:
            self._books = Books(dict(self._openings), dict(self._closings), dict(self._top_ups))
        return self._books

    async def refresh(self) -> None:
        """Read what is there and not yet known.

        Raises:
            StoreDown: when the store cannot be read or is another's; `books` is None until a later refresh succeeds.
        """
        live = names.live_months(self._clock.now())
        self._books = None
        if not self._complete:
            if self._owner is not None:
                with self._doubt("claiming the ledger"):
                    await claim(self._bucket, self._owner)
            self._openings.clear()
            self._closings.clear()
            self._top_ups.clear()
            self._days_read.clear()
            self._top_ups_read.clear()
        with self._doubt("reading the ledger"):
            # Single entries are listed before days: one that was packed in between stands in a day that is seen.
            listing = await names.list_entries(self._bucket, live | self._open_months() if self._complete else None)
            unread = {names.day_path(day): day[: len("YYYY-MM")] for day in await self._read_days(live)}
            unread |= {name.path: name.month for name in await self._read_openings(listing, live)}
            unread_closings = await self._read_closings(listing, live)
            unread_top_ups = await self._read_top_ups()
        self._forget(live)
        self._blocking = tuple(path for path, month in unread.items() if month in live)
        self._complete = True
        metrics.corrupt_entries.set(len(unread) + unread_closings + unread_top_ups)
        metrics.ledger_up.set(not self._blocking)
        if self._blocking:
            log.error(
                "parts of the ledger cannot be read, no money may move: put them back, or move them out of v1/ "
                "if their jobs never ran in the cloud",
                extra={"entries": self._blocking},
            )

    async def open(self, opening: Opening) -> Opening:
        """Commit the money of one attempt, once; returns the opening that stands, which an earlier try may have made.

        Raises:
            StoreDown: when it is not known to be committed.
            CorruptEntry: when an earlier try stands there and cannot be read.
        """
        if known := self._openings.get(opening.attempt):
            return known
        path = names.entry_path(opening.attempt, opening.opened_at, "open")
        stands = await self._create(path, opening, opening_to_dict(opening), opening_from_dict)
        self._openings[opening.attempt] = stands
        return stands

    async def close(self, closing: Closing) -> Closing:
        """Record the end of an attempt, once; returns the closing that stands.

        Raises:
            StoreDown: when it is not known to be recorded, or its opening is not known.
            CorruptEntry: when an earlier try stands there and cannot be read.
        """
        if known := self._closings.get(closing.attempt):
            return known
        self._must_be_sure()
        opening = self._openings.get(closing.attempt)
        if opening is None:
            raise StoreDown(f"closing {closing.attempt}: its opening has not been read")
        path = names.entry_path(closing.attempt, opening.opened_at, "close")
        stands = await self._create(path, closing, closing_to_dict(closing), closing_from_dict)
        self._closings[closing.attempt] = stands
        return stands

    async def add_top_up(self, top_up: TopUp) -> TopUp:
        """Record a top-up, once; returns the one that stands under its id.

        Raises:
            StoreDown: when it is not known to be recorded.
            CorruptEntry: when one stands there and cannot be read.
        """
        if known := self._top_ups.get(top_up.id):
            return known
        path = names.top_up_path(top_up.id)
        stands = await self._create(path, top_up, top_up_to_dict(top_up), top_up_from_dict)
        self._top_ups[top_up.id] = stands
        self._top_ups_read.add(top_up.id)
        return stands

    async def compact(self, now: float, most_days: int = 1) -> tuple[str, ...]:
        """Pack whole days whose attempts are all closed, at most so many; returns them. Nothing while in doubt.

        `now` is fleet time. A failure leaves the ledger readable and the books as they are.

        Raises:
            StoreDown: when the store fails on the way.
            CorruptEntry: when what was written does not read back.
        """
        books = self.books
        if books is None:
            return ()
        self._must_be_sure()
        return await self._compactor.run(now, most_days, books)

    def _must_be_sure(self) -> None:
        """Fail at once while in doubt: each write would wait for the same lost store, and some may have happened."""
        if self._owner is None:
            raise StoreDown("this ledger was opened only to be read")
        if not self._complete:
            raise StoreDown("the ledger is in doubt since an earlier failure; it is read again first")

    async def _create(self, path: str, entry: _Entry, written: dict[str, Any], reader: Any) -> _Entry:
        """Write an entry once; the one that stands there afterwards."""
        self._must_be_sure()
        content = json.dumps(written, separators=(",", ":"), sort_keys=True).encode()
        with self._doubt(f"writing {path}"):
            stands = None if await self._bucket.create(path, content) else await self._bucket.read(path)
        self._books = None
        if stands is None:
            return entry
        found: _Entry = parse(path, stands, reader)
        return found

    async def _read_days(self, live: set[str]) -> Iterable[str]:
        """Read packed days that may count; those that cannot be read. What a day says goes before single entries."""
        oldest = self._clock.real_now() - RECENT_SECONDS
        wanted = set()
        async for item in self._bucket.list(names.DAYS):
            day = names.day_name(item.path)
            if day and day not in self._days_read and (day[: len("YYYY-MM")] in live or item.written_at >= oldest):
                wanted.add(day)
        found, unread = await read_days(self._bucket, wanted)
        for one in found:
            self._days_read.add(one.day)
            self._openings |= one.openings
            self._closings |= one.closings
        _log_unread({names.day_path(day): reason for day, reason in unread.items()})
        return unread

    async def _read_openings(self, listing: Listing, live: set[str]) -> Iterable[Name]:
        wanted = [name for name in listing.openings.values() if self._counts(name, listing, live)]
        found, unread = await read_openings(
            self._bucket, [name for name in wanted if name.attempt not in self._openings]
        )
        self._openings |= found
        _log_unread({name.path: reason for name, reason in unread.items()})
        return unread

    async def _read_closings(self, listing: Listing, live: set[str]) -> int:
        """Read the closings of the openings that count; how many cannot be read."""
        wanted = [
            name
            for attempt, name in listing.closings.items()
            if attempt not in self._closings
            and attempt in listing.openings
            and self._counts(listing.openings[attempt], listing, live)
        ]
        found, unread = await read_closings(self._bucket, wanted)
        self._closings |= found
        _log_unread({name.path: reason for name, reason in unread.items()})
        return len(unread)

    async def _read_top_ups(self) -> int:
        listed = [names.top_up_name(item.path) async for item in self._bucket.list(names.TOP_UPS)]
        found, unread = await read_top_ups(self._bucket, {one for one in listed if one} - self._top_ups_read)
        self._top_ups |= found
        self._top_ups_read |= found.keys()
        _log_unread({names.top_up_path(identifier): reason for identifier, reason in unread.items()})
        return len(unread)

    def _counts(self, name: Name, listing: Listing, live: set[str]) -> bool:
        closed = listing.closings.get(name.attempt)
        oldest = self._clock.real_now() - RECENT_SECONDS
        return name.month in live or closed is None or closed.written_at >= oldest

    def _open_months(self) -> set[str]:
        unclosed = self._openings.keys() - self._closings.keys()
        return {names.month(self._openings[attempt].opened_at) for attempt in unclosed}

    def _forget(self, live: set[str]) -> None:
        """Drop what ended before the live months, and top-ups that were granted before them."""
        now = self._clock.now()
        for attempt, closing in list(self._closings.items()):
            if closing.ended_at < now and names.month(closing.ended_at) not in live:
                del self._closings[attempt]
                self._openings.pop(attempt, None)
        for identifier, top_up in list(self._top_ups.items()):
            if top_up.granted_at < now and names.month(top_up.granted_at) not in live:
                del self._top_ups[identifier]

    @contextmanager
    def _doubt(self, doing: str) -> Iterator[None]:
        """Whatever goes wrong inside leaves the copy in doubt."""
        try:
            yield
        except (StoreDown, ValueError) as error:
            self._complete = False
            metrics.ledger_up.set(0)
            raise StoreDown(f"{doing}: {error}") from error


def _log_unread(unread: Mapping[str, str]) -> None:
    for path, reason in unread.items():
        log.error("an entry of the ledger cannot be read", extra={"entry": path, "error": reason})
