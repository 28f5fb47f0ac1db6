"""Checks a whole ledger: that every entry can be read, stands where it belongs, and follows from the others.

It changes nothing and may run beside an agent; what an agent writes or packs meanwhile may be reported once, and is
gone when asked again. It holds one month in memory, and of the others the names of their attempts.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from runtime.cost.ledger import Attempt, Closing, Opening, close
from runtime.cost.losses import LossKey
from runtime.errors import CorruptEntry
from runtime.store import names, walk
from runtime.store.bucket import Bucket
from runtime.store.owner import Owner, read_owner
from runtime.store.walk import LossMonth, Month

_RESTORE: Final = "put the object back from a copy, or move it out of v1/ if its jobs never ran in the cloud"
_RESTORE_LOSS: Final = "put the object back from a copy, or move it out of v1/losses/; no budget depends on it"
_MOVE_AWAY: Final = "keep the one that is right and move the other out of v1/"


@dataclass(frozen=True, slots=True, order=True)
class Finding:
    """One thing that is wrong: where, what, and how to mend it."""

    path: str
    what: str
    mend: str


@dataclass(slots=True)
class Report:
    """What a ledger holds, each attempt and loss counted once, and everything that is wrong with it, by path."""

    owner: Owner | None = None
    openings: int = 0
    closings: int = 0
    top_ups: int = 0
    losses: int = 0
    day_files: int = 0
    single_entries: int = 0
    findings: list[Finding] = field(default_factory=list)

    @property
    def open_attempts(self) -> int:
        """Attempts that have no closing yet."""
        return self.openings - self.closings


async def verify(bucket: Bucket) -> Report:
    """Check everything below `v1/`.

    Raises:
        StoreDown: when the store cannot be read.
    """
    report = Report()
    seen: dict[Attempt, str] = {}
    async for month in walk.months(bucket):
        report.findings += _of_month(month)
        report.day_files += len(month.days)
        report.single_entries += len(month.openings) + len(month.closings)
        for attempt, (_, closing) in month.attempts().items():
            if attempt in seen:
                report.findings.append(_twice(attempt, month.month, seen[attempt]))
                continue
            seen[attempt] = month.month
            report.openings += 1
            report.closings += closing is not None
    await _verify_losses(bucket, report)
    top_ups, unread = await walk.top_ups(bucket)
    report.top_ups = len(top_ups)
    report.findings += [
        Finding(path, f"cannot be read: {reason}", "move it out of v1/top-ups/ and top up anew")
        for path, reason in unread.items()
    ]
    report.owner = await _owner(bucket, report)
    report.findings.sort()
    return report


async def _verify_losses(bucket: Bucket, report: Report) -> None:
    seen: dict[LossKey, str] = {}
    async for month in walk.loss_months(bucket):
        report.day_files += len(month.days)
        report.single_entries += len(month.singles)
        report.findings += [
            Finding(path, f"cannot be read: {reason}", _RESTORE_LOSS) for path, reason in month.unread.items()
        ]
        report.findings += _of_loss_month(month, seen)
    report.losses = len(seen)


def _of_loss_month(month: LossMonth, seen: dict[LossKey, str]) -> Iterator[Finding]:
    """What is wrong with the losses of a month; each is added to `seen` with where it stands."""
    mine: dict[LossKey, str] = {}
    for day in month.days:
        for key in day.losses:
            if key in mine:
                yield Finding(names.loss_day_path(day.day), f"{_loss(key)} stands in {mine[key]} too", _MOVE_AWAY)
            mine.setdefault(key, names.loss_day_path(day.day))
    packed = {key: loss for day in month.days for key, loss in day.losses.items()}
    for name, loss in month.singles.items():
        if names.day(loss.stopped_at) != name.day:
            stopped_on = names.day(loss.stopped_at)
            yield Finding(name.path, f"was stopped on {stopped_on}", f"move it to that day, or {_MOVE_AWAY}")
        if name.key in packed and packed[name.key] != loss:
            yield Finding(name.path, f"differs from {mine[name.key]}, which is believed", _MOVE_AWAY)
        elif name.key in mine and name.key not in packed:
            yield Finding(name.path, f"{_loss(name.key)} stands in {mine[name.key]} too", _MOVE_AWAY)
        mine.setdefault(name.key, name.path)
    for key, path in mine.items():
        if key in seen:
            yield Finding(path, f"{_loss(key)} stands in {seen[key]} too", _MOVE_AWAY)
        seen.setdefault(key, path)


def _loss(key: LossKey) -> str:
    return f"loss {key.number} of {key.workload_uid}"


def _of_month(month: Month) -> Iterator[Finding]:
    yield from (Finding(path, f"cannot be read: {reason}", _RESTORE) for path, reason in month.unread.items())
    packed = {attempt: day for day in month.days for attempt in day.openings}
    opened = {name.attempt: opening for name, opening in month.openings.items()}
    paths = {name.attempt: name.path for name in (*month.openings, *month.closings)}
    for name, opening in month.openings.items():
        if names.month(opening.opened_at) != month.month:
            yield Finding(
                name.path, f"was opened in {names.month(opening.opened_at)}", f"move it to that month, or {_MOVE_AWAY}"
            )
        if (day := packed.get(name.attempt)) is not None and day.openings[name.attempt] != opening:
            yield Finding(name.path, f"differs from {names.day_path(day.day)}, which is believed", _MOVE_AWAY)
    for name, ended in month.closings.items():
        if (day := packed.get(name.attempt)) is not None:
            if day.closings[name.attempt] != ended:
                yield Finding(name.path, f"differs from {names.day_path(day.day)}, which is believed", _MOVE_AWAY)
        elif name.attempt not in opened and not _opening_is_unread(name.path, month.unread):
            yield Finding(name.path, "has no opening, so it counts nowhere", _RESTORE.replace("object", "opening"))
    for attempt, (opening, closing) in month.attempts().items():
        if closing is not None:
            day = packed.get(attempt)
            path = names.day_path(day.day) if day is not None else paths[attempt]
            yield from _of_pair(path, opening, closing)


def _of_pair(path: str, opening: Opening, closing: Closing) -> Iterator[Finding]:
    name = f"{closing.attempt.workload_uid}.{closing.attempt.reserved_at}"
    if closing.started_at < opening.opened_at:
        yield Finding(
            path,
            f"{name} started before it was opened",
            "the clocks of the cluster differ; put the closing back from a copy",
        )
        return
    usd = close(opening, closing.started_at, closing.ended_at, closing.reason).usd
    if usd != closing.usd:
        yield Finding(
            path,
            f"{name} cost {closing.usd} USD, and {usd} USD follow from its times and its price",
            "put the closing back from a copy",
        )


def _opening_is_unread(closing_path: str, unread: Mapping[str, str]) -> bool:
    return closing_path.removesuffix(".close.json") + ".open.json" in unread


def _twice(attempt: Attempt, month: str, other: str) -> Finding:
    name = f"{attempt.workload_uid}.{attempt.reserved_at}"
    return Finding(
        f"{names.ROOT}/{month}/{name}.open.json", f"stands in {other} too, so it may count twice", _MOVE_AWAY
    )


async def _owner(bucket: Bucket, report: Report) -> Owner | None:
    """Whose ledger it is. One that holds entries has an owner."""
    mend = "start the agent, which claims a ledger without an owner"
    try:
        owner = await read_owner(bucket)
    except CorruptEntry as error:
        report.findings.append(Finding(names.OWNER, str(error).partition(": ")[2], f"move it away and {mend}"))
        return None
    if owner is None and (report.openings or report.top_ups or report.losses):
        report.findings.append(Finding(names.OWNER, "is missing, so that another cluster could claim the ledger", mend))
    return owner
