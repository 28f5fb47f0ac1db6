"""Reads a whole ledger month by month, for people and programs: what was opened, closed, topped up and lost.

It never writes and claims nothing, so it may run beside an agent. What cannot be read is left out and named.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

from runtime.cost.ledger import Attempt, Closing, Opening, TopUp
from runtime.cost.losses import Loss, LossKey
from runtime.store import names
from runtime.store.bucket import Bucket
from runtime.store.days import Day, LossDay
from runtime.store.names import LossName, Name
from runtime.store.reading import read_closings, read_days, read_loss_days, read_losses, read_openings, read_top_ups


@dataclass(slots=True)
class Month:
    """Everything of one month: packed days, single entries, and the reasons why some cannot be read, by path."""

    month: str
    days: list[Day] = field(default_factory=list)
    openings: dict[Name, Opening] = field(default_factory=dict)
    closings: dict[Name, Closing] = field(default_factory=dict)
    unread: dict[str, str] = field(default_factory=dict)

    def attempts(self) -> dict[Attempt, tuple[Opening, Closing | None]]:
        """Each attempt once; a packed day goes before single entries."""
        closings = {name.attempt: closing for name, closing in self.closings.items()}
        found = {name.attempt: (opening, closings.get(name.attempt)) for name, opening in self.openings.items()}
        for day in self.days:
            found |= {attempt: (opening, day.closings[attempt]) for attempt, opening in day.openings.items()}
        return found


@dataclass(slots=True)
class LossMonth:
    """The losses of one month: packed days, single entries, and the reasons why some cannot be read, by path."""

    days: list[LossDay]
    singles: dict[LossName, Loss]
    unread: dict[str, str]

    def losses(self) -> dict[LossKey, Loss]:
        """Each loss once; a packed day goes before single entries."""
        found = {name.key: loss for name, loss in self.singles.items()}
        for day in self.days:
            found |= day.losses
        return found


@dataclass(frozen=True, slots=True)
class History:
    """A whole ledger. A closing belongs to an opening; one alone is left out."""

    attempts: dict[Attempt, tuple[Opening, Closing | None]]
    top_ups: dict[str, TopUp]
    unread: dict[str, str]
    losses: dict[LossKey, Loss] = field(default_factory=dict)


async def months(bucket: Bucket) -> AsyncIterator[Month]:
    """Every month, the oldest first. Single entries are listed before days: what is packed meanwhile is seen twice."""
    singles: dict[str, defaultdict[str, list[Name]]] = {"open": defaultdict(list), "close": defaultdict(list)}
    for name, kind in await names.list_names(bucket):
        singles[kind][name.month].append(name)
    days: defaultdict[str, list[str]] = defaultdict(list)
    async for item in bucket.list(names.DAYS):
        if (day := names.day_name(item.path)) is not None:
            days[day[: len("YYYY-MM")]].append(day)
    openings, closings = singles["open"], singles["close"]
    for month in sorted(days.keys() | openings.keys() | closings.keys()):
        found, unread_days = await read_days(bucket, days[month])
        opened, unread_openings = await read_openings(bucket, openings[month])
        closed, unread_closings = await read_closings(bucket, closings[month])
        unread = {names.day_path(day): reason for day, reason in unread_days.items()}
        unread |= {name.path: reason for name, reason in (unread_openings | unread_closings).items()}
        yield Month(
            month,
            found,
            {name: opened[name.attempt] for name in openings[month] if name.attempt in opened},
            {name: closed[name.attempt] for name in closings[month] if name.attempt in closed},
            unread,
        )


async def top_ups(bucket: Bucket) -> tuple[dict[str, TopUp], dict[str, str]]:
    """Every top-up by id, and those that cannot be read with the reason, by path."""
    listed = {one async for item in bucket.list(names.TOP_UPS) if (one := names.top_up_name(item.path)) is not None}
    found, unread = await read_top_ups(bucket, listed)
    return found, {names.top_up_path(one): reason for one, reason in unread.items()}


async def loss_months(bucket: Bucket, since: float = 0.0, workload_uid: str | None = None) -> AsyncIterator[LossMonth]:
    """The losses of every month, the oldest first; from the day of `since` on, and of one Workload where it is named.

    Packed days are read whole.
    """
    first = names.day(since)
    singles: defaultdict[str, list[LossName]] = defaultdict(list)
    for name in await names.list_losses(bucket):
        if name.day >= first and workload_uid in (None, name.key.workload_uid):
            singles[name.day[: len("YYYY-MM")]].append(name)
    days: defaultdict[str, list[str]] = defaultdict(list)
    for day in await names.list_loss_days(bucket):
        if day >= first:
            days[day[: len("YYYY-MM")]].append(day)
    for month in sorted(days.keys() | singles.keys()):
        packed, unread_days = await read_loss_days(bucket, days[month])
        found, unread_singles = await read_losses(bucket, singles[month])
        unread = {names.loss_day_path(day): reason for day, reason in unread_days.items()}
        yield LossMonth(packed, found, unread | unread_singles)


async def losses_of(bucket: Bucket, workload_uid: str, since: float) -> list[Loss]:
    """The losses of one Workload since it was made, by their numbers; what cannot be read is left out.

    Raises:
        StoreDown: when the store cannot be read.
    """
    found: dict[LossKey, Loss] = {}
    async for month in loss_months(bucket, since, workload_uid):
        found |= {key: loss for key, loss in month.losses().items() if key.workload_uid == workload_uid}
    return sorted(found.values(), key=lambda loss: loss.number)


async def history(bucket: Bucket) -> History:
    """The whole ledger at once.

    Raises:
        StoreDown: when the store cannot be read.
    """
    attempts: dict[Attempt, tuple[Opening, Closing | None]] = {}
    unread: dict[str, str] = {}
    async for month in months(bucket):
        attempts |= month.attempts()
        unread |= month.unread
    losses: dict[LossKey, Loss] = {}
    async for lost in loss_months(bucket):
        losses |= lost.losses()
        unread |= lost.unread
    found, unread_top_ups = await top_ups(bucket)
    return History(attempts, found, unread | unread_top_ups, losses)
