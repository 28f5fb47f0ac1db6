"""Where each entry of the ledger stands, by name alone: paths, months and days. It reads nothing.

Invariant: a path that was made here reads back as what it names.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from typing import Final

from runtime.cost.ledger import Attempt
from runtime.cost.losses import LossKey
from runtime.cost.periods import DAY_SECONDS
from runtime.store.bucket import Bucket, Item

ROOT: Final = "v1"
OWNER: Final = f"{ROOT}/owner.json"
DAYS: Final = f"{ROOT}/days"
TOP_UPS: Final = f"{ROOT}/top-ups"
LOSSES: Final = f"{ROOT}/losses"
LOSS_DAYS: Final = f"{LOSSES}/days"

WIDEST_OFFSET_SECONDS: Final = 14 * 3_600
"""A day begins at most so long before it does in UTC (Pacific/Kiritimati), and less than that after (UTC-12)."""

_ENTRY: Final = re.compile(rf"{ROOT}/(\d{{4}}-\d{{2}})/([^/]+)\.(\d+)\.(open|close)\.json")
_DAY: Final = re.compile(rf"{DAYS}/(\d{{4}}-\d{{2}}-\d{{2}})\.jsonl")
_TOP_UP: Final = re.compile(rf"{TOP_UPS}/([^/]+)\.json")
_LOSS: Final = re.compile(rf"{LOSSES}/(\d{{4}}-\d{{2}})/(\d{{2}})/([^/]+)\.(\d+)\.json")
_LOSS_DAY: Final = re.compile(rf"{LOSS_DAYS}/(\d{{4}}-\d{{2}}-\d{{2}})\.jsonl")


@dataclass(frozen=True, slots=True)
class Name:
    """Where an entry stands, and when it was written (real time)."""

    path: str
    month: str
    attempt: Attempt
    written_at: float


@dataclass(frozen=True, slots=True)
class LossName:
    """Where a single loss stands: the day in UTC on which its job was stopped is in its path."""

    path: str
    day: str
    key: LossKey


@dataclass(slots=True)
class Listing:
    """The single entries that a store holds, by name alone."""

    openings: dict[Attempt, Name] = field(default_factory=dict)
    closings: dict[Attempt, Name] = field(default_factory=dict)


def entry_path(attempt: Attempt, opened_at: float, kind: str) -> str:
    """Path of a single entry; `kind` is open or close."""
    return f"{ROOT}/{month(opened_at)}/{attempt.workload_uid}.{attempt.reserved_at}.{kind}.json"


def entry_name(item: Item) -> tuple[Name, str] | None:
    """The single entry of an object, and its kind; None for any other object."""
    if not (match := _ENTRY.fullmatch(item.path)):
        return None
    in_month, uid, second, kind = match.groups()
    return Name(item.path, in_month, Attempt(uid, int(second)), item.written_at), kind


def day_path(day: str) -> str:
    """Path of a day file."""
    return f"{DAYS}/{day}.jsonl"


def day_name(path: str) -> str | None:
    """The day of a day file; None for any other object."""
    match = _DAY.fullmatch(path)
    return match.group(1) if match and _is_day(match.group(1)) else None


def top_up_path(identifier: str) -> str:
    """Path of a top-up."""
    return f"{TOP_UPS}/{identifier}.json"


def top_up_name(path: str) -> str | None:
    """The id of a top-up's object; None for any other object."""
    match = _TOP_UP.fullmatch(path)
    return match.group(1) if match else None


def loss_path(key: LossKey, stopped_at: float) -> str:
    """Path of a single loss."""
    in_day = datetime.fromtimestamp(stopped_at, UTC).strftime("%Y-%m/%d")
    return f"{LOSSES}/{in_day}/{key.workload_uid}.{key.number}.json"


def loss_name(path: str) -> LossName | None:
    """The single loss of an object; None for any other object."""
    if not (match := _LOSS.fullmatch(path)):
        return None
    in_month, of_month, uid, number = match.groups()
    in_day = f"{in_month}-{of_month}"
    return LossName(path, in_day, LossKey(uid, int(number))) if _is_day(in_day) else None


def loss_day_path(day: str) -> str:
    """Path of a packed day of losses."""
    return f"{LOSS_DAYS}/{day}.jsonl"


def loss_day_name(path: str) -> str | None:
    """The day of a packed day of losses; None for any other object."""
    match = _LOSS_DAY.fullmatch(path)
    return match.group(1) if match and _is_day(match.group(1)) else None


def _is_day(text: str) -> bool:
    try:
        date.fromisoformat(text)
    except ValueError:
        return False
    return True


def month(at: float) -> str:
    """The month in UTC that contains a moment, as `YYYY-MM`."""
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m")


def day(at: float) -> str:
    """The day in UTC that contains a moment, as `YYYY-MM-DD`."""
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d")


def day_end(name: str) -> float:
    """When a day is over."""
    return datetime.fromisoformat(name).replace(tzinfo=UTC).timestamp() + DAY_SECONDS


def live_months(now: float) -> set[str]:
    """The current and the previous month, wherever on earth one asks."""
    found = set()
    for moment in (now - WIDEST_OFFSET_SECONDS, now, now + WIDEST_OFFSET_SECONDS):
        first = datetime.fromtimestamp(moment, UTC).replace(day=1)
        found |= {first.strftime("%Y-%m"), (first - timedelta(days=1)).strftime("%Y-%m")}
    return found


async def list_names(bucket: Bucket, months: Iterable[str] | None = None) -> list[tuple[Name, str]]:
    """Every single entry of these months, or of all, with its kind; in the order of their paths."""
    prefixes = [ROOT] if months is None else [f"{ROOT}/{one}" for one in sorted(months)]
    found = [named async for item in _listed(bucket, prefixes) if (named := entry_name(item)) is not None]
    return sorted(found, key=lambda named: named[0].path)


async def list_entries(bucket: Bucket, months: Iterable[str] | None = None) -> Listing:
    """The single entries of these months, or of all; of an attempt that stands in two months, the later."""
    listing = Listing()
    for name, kind in await list_names(bucket, months):
        (listing.openings if kind == "open" else listing.closings)[name.attempt] = name
    return listing


async def list_losses(bucket: Bucket, months: Iterable[str] | None = None) -> list[LossName]:
    """Every single loss of these months, or of all, in the order of their paths."""
    prefixes = [LOSSES] if months is None else [f"{LOSSES}/{one}" for one in sorted(months)]
    found = [named async for item in _listed(bucket, prefixes) if (named := loss_name(item.path)) is not None]
    return sorted(found, key=lambda named: named.path)


async def list_loss_days(bucket: Bucket) -> set[str]:
    """Every packed day of losses."""
    return {day async for item in bucket.list(LOSS_DAYS) if (day := loss_day_name(item.path)) is not None}


async def _listed(bucket: Bucket, prefixes: Iterable[str]) -> AsyncIterator[Item]:
    for prefix in prefixes:
        async for item in bucket.list(prefix):
            yield item
