"""Packs the losses of whole days into one file each, and deletes the single entries that it replaces.

A loss is never open, so a day is packed as soon as it has rested; one that is recorded later than that, by an agent
that was away for days, stays single. As with attempts, the file is written by conditional put, read back and compared
before a single entry goes, so a crash at any step leaves entries that are there twice and equal, and count once. One
that differs from the file is never deleted; `gpufleet ledger verify` reports it.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Sequence

from runtime.store import days, names
from runtime.store.bucket import Bucket
from runtime.store.days import LossDay
from runtime.store.names import LossName
from runtime.store.packing import is_ripe, write_checked
from runtime.store.reading import read_loss_days, read_losses

log = logging.getLogger(__name__)


class LossPacker:
    """Packs the losses of one store. It remembers what had to stay, and looks again on the next day."""

    def __init__(self, bucket: Bucket) -> None:
        self._bucket = bucket
        self._looked_on = ""
        self._stay: set[str] = set()

    async def run(self, now: float, most_days: int) -> tuple[str, ...]:
        """Pack at most so many days, the oldest first; returns them.

        Raises:
            StoreDown: when the store fails on the way.
            CorruptEntry: when what was written does not read back.
        """
        if self._looked_on != names.day(now):
            self._looked_on = names.day(now)
            self._stay.clear()
        ripe: defaultdict[str, list[LossName]] = defaultdict(list)
        for name in await names.list_losses(self._bucket):
            if is_ripe(name.day, now):
                ripe[name.day].append(name)
        packed = await names.list_loss_days(self._bucket) if ripe else set()
        done: list[str] = []
        for day, singles in sorted(ripe.items()):
            if len(done) >= most_days:
                break
            if any(name.path not in self._stay for name in singles) and await self._settle(day, singles, day in packed):
                done.append(day)
        return tuple(done)

    async def _settle(self, day: str, singles: Sequence[LossName], is_packed: bool) -> bool:
        """Write the day's file where there is none, and delete the single entries that it holds; whether any went."""
        read, unread = await read_losses(self._bucket, singles)
        if is_packed:
            files, _ = await read_loss_days(self._bucket, [day])
            file = files[0] if files else LossDay(day, {})
        else:
            file = LossDay(day, {loss.key: loss for loss in read.values() if names.day(loss.stopped_at) == day})
            if unread or not file.losses:
                self._stay |= {name.path for name in singles}
                return False
            if not await self._write(file):
                return False
        gone = {name.path for name, loss in read.items() if file.losses.get(name.key) == loss}
        if differ := [name.path for name in singles if name.key in file.losses and name.path not in gone]:
            log.error(
                "single losses differ from their packed day; see `gpufleet ledger verify`", extra={"entries": differ}
            )
        self._stay |= {name.path for name in singles} - gone
        await self._bucket.delete(sorted(gone))
        return bool(gone)

    async def _write(self, file: LossDay) -> bool:
        def reads_back(content: bytes) -> bool:
            return days.losses_from_bytes(file.day, content) == file

        path = names.loss_day_path(file.day)
        return await write_checked(self._bucket, path, days.losses_to_bytes(file), reads_back)
