"""The agent's ledger: what it knows of the store, and the three things it writes there.

What counts now is held in memory (runtime.store.copy), and read anew at the start and after every failure.

Money fails closed. Any doubt about the store makes `books` None, so that no money moves:

- store unreachable, or a write without a clear answer: until the next complete read;
- an opening or a packed day that cannot be read: as long as it can count in a budget, that is until its month and the
  next are over. It is named in the log and counted in a metric. Put it back from a copy or, if its job never ran in
  the cloud, move it out of `v1/`; the next read sees it. Object stores write whole objects, so this takes a damaged
  disk or a hand;
- a closing that cannot be read: nothing stops; its attempt keeps counting as open, which is never too little;
- a top-up that cannot be read: nothing stops; it does not count;
- a loss, or a packed day of losses, that cannot be read: nothing stops; it does not count. No budget depends on it.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from runtime import metrics
from runtime.clock import Clock
from runtime.cost.entries import (
    closing_from_dict,
    closing_to_dict,
    loss_from_dict,
    loss_to_dict,
    opening_from_dict,
    opening_to_dict,
    top_up_from_dict,
    top_up_to_dict,
)
from runtime.cost.ledger import Books, Closing, Opening, TopUp
from runtime.cost.losses import Loss, recordable
from runtime.errors import StoreDown
from runtime.store import names
from runtime.store.bucket import Bucket
from runtime.store.compaction import Compactor
from runtime.store.copy import Copy
from runtime.store.owner import Owner, claim
from runtime.store.reading import parse

log = logging.getLogger(__name__)
_Entry = TypeVar("_Entry", Opening, Closing, TopUp, Loss)


class Store:
    """The ledger of one fleet. Entries of different attempts may be written at once; nothing may while it is read.

    Without an owner it only reads: it claims nothing, and writing fails.
    """

    def __init__(self, url: str, clock: Clock, owner: Owner | None) -> None:
        self._bucket = Bucket(url)
        self._clock = clock
        self._owner = owner
        self._compactor = Compactor(self._bucket)
        self._copy = Copy(self._bucket)
        self._complete = False
        self._blocking: tuple[str, ...] = ()
        self._books: Books | None = None

    @property
    def books(self) -> Books | None:
        """The ledger as last read and since written, or None while in doubt."""
        if not self._complete or self._blocking:
            return None
        if self._books is None:
            self._books = self._copy.books()
        return self._books

    async def refresh(self) -> None:
        """Read what is there and not yet known.

        Raises:
            StoreDown: when the store cannot be read or is another's; `books` is None until a later refresh succeeds.
        """
        self._books = None
        copy = self._copy
        if not self._complete:
            if self._owner is not None:
                with self._doubt("claiming the ledger"):
                    await claim(self._bucket, self._owner)
            copy = Copy(self._bucket)
        with self._doubt("reading the ledger"):
            unread = await copy.update(self._clock.now(), self._clock.real_now())
        self._copy, self._blocking = copy, unread.blocking
        self._complete = True
        metrics.corrupt_entries.set(unread.entries)
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
        if known := self._copy.openings.get(opening.attempt):
            return known
        path = names.entry_path(opening.attempt, opening.opened_at, "open")
        stands = await self._create(path, opening, opening_to_dict(opening), opening_from_dict)
        self._copy.openings[opening.attempt] = stands
        return stands

    async def close(self, closing: Closing) -> Closing:
        """Record the end of an attempt, once; returns the closing that stands.

        Raises:
            StoreDown: when it is not known to be recorded, or its opening is not known.
            CorruptEntry: when an earlier try stands there and cannot be read.
        """
        if known := self._copy.closings.get(closing.attempt):
            return known
        self._must_be_sure()
        opening = self._copy.openings.get(closing.attempt)
        if opening is None:
            raise StoreDown(f"closing {closing.attempt}: its opening has not been read")
        path = names.entry_path(closing.attempt, opening.opened_at, "close")
        stands = await self._create(path, closing, closing_to_dict(closing), closing_from_dict)
        self._copy.closings[closing.attempt] = stands
        return stands

    async def add_top_up(self, top_up: TopUp) -> TopUp:
        """Record a top-up, once; returns the one that stands under its id.

        Raises:
            StoreDown: when it is not known to be recorded.
            CorruptEntry: when one stands there and cannot be read.
        """
        if known := self._copy.top_ups.get(top_up.id):
            return known
        path = names.top_up_path(top_up.id)
        stands = await self._create(path, top_up, top_up_to_dict(top_up), top_up_from_dict)
        self._copy.top_ups[top_up.id] = stands
        return stands

    async def lose(self, loss: Loss) -> Loss:
        """Record the work that an eviction cost, once; returns the loss that stands under its name.

        It is counted in the metrics when this call is the first that this process knows of it, and not again.

        Raises:
            StoreDown: when it is not known to be recorded.
            CorruptEntry: when it cannot be a loss, or one stands there and cannot be read.
        """
        if known := self._copy.losses.get(loss.key):
            return known
        loss = recordable(loss)
        written = loss_to_dict(loss)
        parse(f"loss {loss.number} of {loss.workload_uid}", _content(written), loss_from_dict)
        path = names.loss_path(loss.key, loss.stopped_at)
        stands = await self._create(path, loss, written, loss_from_dict)
        self._copy.losses[loss.key] = stands
        metrics.count_loss(stands)
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

    async def _create(
        self, path: str, entry: _Entry, written: dict[str, Any], reader: Callable[[object], _Entry]
    ) -> _Entry:
        """Write an entry once; the one that stands there afterwards."""
        self._must_be_sure()
        content = _content(written)
        # What does not read back would stop all money when the ledger is read next, for the fault of one entry.
        parse(path, content, reader)
        with self._doubt(f"writing {path}"):
            stands = None if await self._bucket.create(path, content) else await self._bucket.read(path)
        self._books = None
        if stands is None:
            return entry
        return parse(path, stands, reader)

    @contextmanager
    def _doubt(self, doing: str) -> Iterator[None]:
        """Whatever goes wrong inside leaves the copy in doubt."""
        try:
            yield
        except (StoreDown, ValueError) as error:
            self._complete = False
            metrics.ledger_up.set(0)
            raise StoreDown(f"{doing}: {error}") from error


def _content(written: dict[str, Any]) -> bytes:
    return json.dumps(written, separators=(",", ":"), sort_keys=True).encode()
