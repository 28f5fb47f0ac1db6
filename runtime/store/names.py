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
from runtime.cost.periods import DAY_SECONDS
from runtime.store.bucket import Bucket, Item

ROOT: Final = "v1"
OWNER: Final = f"{ROOT}/owner.json"
DAYS: Final = f"{ROOT}/days"
TOP_UPS: Final = f"{ROOT}/top-ups"

WIDEST_OFFSET_SECONDS: Final = 14 * 3_600
"""A day begins at most so long before it does in UTC (Pacific/Kiritimati), and less than that after (UTC-12)."""

_ENTRY: Final = re.compile(rf"{ROOT}/(\d{{4}}-\d{{2}})/([^/]+)\.(\d+)\.(open|close)\.json")
_DAY: Final = re.compile(rf"{DAYS}/(\d{{4}}-\d{{2}}-\d{{2}})\.jsonl")
_TOP_UP: Final = re.compile(rf"{TOP_UPS}/([^/]+)\.json")


@dataclass(frozen=True, slots=True)
class Name:
    """Where an entry stands, and when it was written (real time)."""

    path: str
    month: str
    attempt: Attempt
    written_at: float


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
    if not (match := _DAY.fullmatch(path)):
        return None
    try:
        date.fromisoformat(match.group(1))
    except ValueError:
        return None
    return match.group(1)


def top_up_path(identifier: str) -> str:
    """Path of a top-up."""
    return f"{TOP_UPS}/{identifier}.json"


def top_up_name(path: str) -> str | None:
    """The id of a top-up's object; None for any other object."""
    match = _TOP_UP.fullmatch(path)
    return match.group(1) if match else None


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


async def _listed(bucket: Bucket, prefixes: Iterable[str]) -> AsyncIterator[Item]:
    for prefix in prefixes:
        async for item in bucket.list(prefix):
            yield item
