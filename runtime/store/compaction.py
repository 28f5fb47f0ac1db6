"""Packs the entries of whole days into one file each, and deletes the single entries that it replaces.

Losses have files of their own (runtime.store.losses), because they need not wait for attempts that are still open.

A day is packed once it is over for two days and every attempt that was opened on it is closed. The order makes a crash
at any step harmless: the day's file is written by conditional put, read back and compared, then the single openings go
and the closings last. Until they are gone the file and they say the same, and the file is believed. A single entry that
differs from the file is never deleted; `gpufleet ledger verify` reports it.

Invariant: at every moment each attempt can be read, and none of them can seem open that is closed.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from runtime.cost.ledger import Attempt, Books
from runtime.store import days, names
from runtime.store.bucket import Bucket
from runtime.store.days import Day
from runtime.store.losses import LossPacker
from runtime.store.names import Listing, Name
from runtime.store.packing import is_ripe, write_checked
from runtime.store.reading import read_closings, read_days, read_openings

MOST_READS: Final = 2_000
"""Openings that are not in memory and read at most for one month: a tick of the agent must not wait for a whole year's.
Months with more are left to `gpufleet ledger compact`."""

log = logging.getLogger(__name__)
_NONE: Final = Books({}, {})


@dataclass(slots=True)
class _Singles:
    """Entries that stand singly, of one month or one day, by name."""

    openings: dict[Attempt, Name] = field(default_factory=dict)
    closings: dict[Attempt, Name] = field(default_factory=dict)

    def of(self, attempts: Collection[Attempt]) -> _Singles:
        """Those of these attempts."""
        return _Singles(
            {one: self.openings[one] for one in attempts if one in self.openings},
            {one: self.closings[one] for one in attempts if one in self.closings},
        )


class Compactor:
    """Packs days of one store. It remembers months in which there was nothing to do, and looks again when they change.

    `most_reads` bounds what is read of one month only to learn its days; None reads whatever there is.
    """

    def __init__(self, bucket: Bucket, most_reads: int | None = MOST_READS) -> None:
        self._bucket = bucket
        self._most_reads = most_reads
        self._settled: dict[str, int] = {}
        self._losses = LossPacker(bucket)

    async def run(self, now: float, most_days: int, known: Books = _NONE) -> tuple[str, ...]:
        """Pack at most so many days of attempts and so many of losses, the oldest first; returns the days.

        `known` saves reading what is in memory.

        Raises:
            StoreDown: when the store fails on the way.
            CorruptEntry: when what was written does not read back.
        """
        months = _by_month(await names.list_entries(self._bucket))
        packed = {day async for item in self._bucket.list(names.DAYS) if (day := names.day_name(item.path))}
        done: list[str] = []
        for month, singles in sorted(months.items()):
            if len(done) >= most_days:
                break
            files = frozenset(_days_in(month, packed))
            state = hash((frozenset(singles.openings), frozenset(singles.closings), files, names.day(now)))
            if self._settled.get(month) == state:
                continue
            did = await self._month(month, singles, packed, known, now, most_days - len(done))
            done += did
            if not did:
                self._settled[month] = state
        return tuple(sorted({*done, *await self._losses.run(now, most_days)}))

    async def _month(
        self, month: str, singles: _Singles, packed: set[str], known: Books, now: float, most_days: int
    ) -> list[str]:
        files = {file.day: file for file in (await read_days(self._bucket, _days_in(month, packed)))[0]}
        done: list[str] = []
        for day, attempts in sorted((await self._days(singles, files, known)).items()):
            if len(done) >= most_days:
                break
            if not day.startswith(month) or not is_ripe(day, now):
                continue
            file, mine = files.get(day), singles.of(attempts)
            if file is None and (day in packed or mine.openings.keys() != mine.closings.keys()):
                continue
            if await self._settle(day, file, mine):
                done.append(day)
        return done

    async def _days(self, singles: _Singles, files: Mapping[str, Day], known: Books) -> Mapping[str, set[Attempt]]:
        """The attempts of single entries by the day of their opening; none where too many would have to be read."""
        days_of = {attempt: day for day, file in files.items() for attempt in file.openings}
        days_of |= {one: names.day(known.openings[one].opened_at) for one in singles.openings if one in known.openings}
        unknown = [name for one, name in singles.openings.items() if one not in days_of]
        if self._most_reads is not None and len(unknown) > self._most_reads:
            return {}
        read, _ = await read_openings(self._bucket, unknown)
        days_of |= {one: names.day(opening.opened_at) for one, opening in read.items()}
        found: defaultdict[str, set[Attempt]] = defaultdict(set)
        for attempt in singles.openings.keys() | singles.closings.keys():
            if (day := days_of.get(attempt)) is not None:
                found[day].add(attempt)
        return found

    async def _settle(self, day: str, file: Day | None, singles: _Singles) -> bool:
        """Write the day's file where there is none, and delete the single entries that it holds; whether any went."""
        openings, bad_openings = await read_openings(self._bucket, singles.openings.values())
        closings, bad_closings = await read_closings(self._bucket, singles.closings.values())
        if file is None:
            if bad_openings or bad_closings or any(names.day(one.opened_at) != day for one in openings.values()):
                return False
            file = Day(day, openings, closings)
            if not await self._write(file):
                return False
        gone_openings = [
            name.path for one, name in singles.openings.items() if file.openings.get(one) == openings.get(one)
        ]
        gone_closings = [
            name.path for one, name in singles.closings.items() if file.closings.get(one) == closings.get(one)
        ]
        if kept := len(singles.openings) + len(singles.closings) - len(gone_openings) - len(gone_closings):
            log.error(
                "single entries differ from their packed day; see `gpufleet ledger verify`",
                extra={"day": day, "entries": kept},
            )
        await self._bucket.delete(gone_openings)
        await self._bucket.delete(gone_closings)
        return bool(gone_openings or gone_closings)

    async def _write(self, file: Day) -> bool:
        def reads_back(content: bytes) -> bool:
            return days.from_bytes(file.day, content) == file

        return await write_checked(self._bucket, names.day_path(file.day), days.to_bytes(file), reads_back)


def _by_month(listing: Listing) -> dict[str, _Singles]:
    found: defaultdict[str, _Singles] = defaultdict(_Singles)
    for attempt, name in listing.openings.items():
        found[name.month].openings[attempt] = name
    for attempt, name in listing.closings.items():
        found[name.month].closings[attempt] = name
    return found


def _days_in(month: str, packed: Iterable[str]) -> list[str]:
    return [day for day in packed if day.startswith(month)]
