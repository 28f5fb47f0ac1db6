"""The written form of the ledger: openings, closings and top-ups as plain JSON values, read back strictly.

It does not read or write files; runtime.store does. Money is at stake, so a reader never guesses: an entry with a
missing, unknown or impossible field is refused, and so is any version that is not known. Version 1 knew no projects
and no fixed costs; its entries still read, as those of no project.

Invariant: reading what was written gives an equal value.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import fields
from decimal import Decimal, InvalidOperation
from typing import Any, Final, TypeVar

from runtime.cost import topups
from runtime.cost.ledger import Attempt, Closing, Opening, TopUp

ENTRY_VERSION: Final = 2
"""Version of the written form."""

_SINCE_VERSION_2: Final = frozenset({"project", "fixed_usd"})
_READABLE: Final = (1, ENTRY_VERSION)

_LATEST_SECONDS: Final = 32_503_680_000.0
"""The year 3000: the calendar ends before a float does."""
_MOST_GPUS: Final = 10**9
_MOST_USD: Final = Decimal(10**21)
"""With six places it is within the 28 digits of decimal arithmetic."""
_LONGEST_AMOUNT: Final = 64


class EntryError(ValueError):
    """A text that should be an entry of the ledger is not one that this release reads."""


def opening_to_dict(opening: Opening) -> dict[str, Any]:
    """The written form of an opening: plain JSON values, amounts as text."""
    return _to_dict(opening)


def opening_from_dict(entry: object) -> Opening:
    """Read the written form of an opening.

    Raises:
        EntryError: when a field is missing, unknown or out of range, or the version is not known.
    """
    opening = _from_dict(Opening, entry)
    if opening.fixed_usd > opening.committed_usd:
        raise EntryError(f"opening: fixed_usd {opening.fixed_usd} is more than committed_usd {opening.committed_usd}")
    return opening


def closing_to_dict(closing: Closing) -> dict[str, Any]:
    """The written form of a closing: plain JSON values, amounts as text."""
    return _to_dict(closing)


def closing_from_dict(entry: object) -> Closing:
    """Read the written form of a closing.

    Raises:
        EntryError: when a field is missing, unknown or out of range, or the version is not known.
    """
    closing = _from_dict(Closing, entry)
    if closing.ended_at < closing.started_at:
        raise EntryError(f"closing: ended_at {closing.ended_at} is before started_at {closing.started_at}")
    return closing


def top_up_to_dict(top_up: TopUp) -> dict[str, Any]:
    """The written form of a top-up: plain JSON values, the amount as text."""
    return _to_dict(top_up)


def top_up_from_dict(entry: object) -> TopUp:
    """Read the written form of a top-up.

    Raises:
        EntryError: when a field is missing, unknown or out of range, or the version is not known.
    """
    try:
        return topups.check(_from_dict(TopUp, entry))
    except EntryError:
        raise
    except ValueError as error:
        raise EntryError(f"topup: {error}") from error


def _to_dict(value: Opening | Closing | TopUp) -> dict[str, Any]:
    written: dict[str, Any] = {"v": ENTRY_VERSION}
    for field in fields(value):
        item = getattr(value, field.name)
        if isinstance(item, Attempt):
            written |= {"workload_uid": item.workload_uid, "reserved_at": item.reserved_at}
        else:
            written[field.name] = f"{item:f}" if isinstance(item, Decimal) else item
    return written


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise ValueError("must be text")
    return value


def _flag(value: object) -> bool:
    if not isinstance(value, bool):
        raise ValueError("must be true or false")
    return value


def _whole(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise ValueError("must be a whole number, zero or more")
    return value


def _count(value: object) -> int:
    number = _whole(value)
    if number > _MOST_GPUS:
        raise ValueError(f"must be at most {_MOST_GPUS:,}")
    return number


def _seconds(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError("must be a number of seconds")
    if not (0 <= value <= _LATEST_SECONDS) or not math.isfinite(value):
        raise ValueError("must be a finite number of seconds, from zero to the year 3000")
    return float(value)


def _amount(value: object) -> Decimal:
    text = _text(value)
    try:
        amount = Decimal(text)
    except InvalidOperation:
        raise ValueError('must be an amount as text, for example "12.5"') from None
    if not amount.is_finite() or not 0 <= amount < _MOST_USD or len(text) > _LONGEST_AMOUNT:
        raise ValueError(f"must be a finite amount, zero or more and below {_MOST_USD:.0e}")
    return amount


_READERS: Final[Mapping[str, Callable[[object], Any]]] = {
    "str": _text,
    "bool": _flag,
    "int": _count,
    "float": _seconds,
    "Decimal": _amount,
}
_ATTEMPT_READERS: Final[Mapping[str, Callable[[object], Any]]] = {"workload_uid": _text, "reserved_at": _whole}
_Entry = TypeVar("_Entry", Opening, Closing, TopUp)


def _readers(kind: type[Opening | Closing | TopUp], version: int) -> dict[str, Callable[[object], Any]]:
    found: dict[str, Callable[[object], Any]] = {}
    for field in fields(kind):
        if field.name == "attempt":
            found |= _ATTEMPT_READERS
        elif version >= ENTRY_VERSION or field.name not in _SINCE_VERSION_2:
            found[field.name] = _READERS[str(field.type)]
    return found


def _from_dict(kind: type[_Entry], entry: object) -> _Entry:
    what = kind.__name__.lower()
    if not isinstance(entry, dict):
        raise EntryError(f"{what}: must be a JSON object, got {type(entry).__name__}")
    version = entry.get("v")
    if isinstance(version, bool) or version not in _READABLE:
        known = " or ".join(map(str, _READABLE))
        raise EntryError(f"{what}: version {topups.shown(version)} is not {known}; written by another release?")
    readers = _readers(kind, version)
    if wrong := sorted(map(str, (entry.keys() ^ readers.keys()) - {"v"})):
        raise EntryError(f"{what}: missing or unknown fields {', '.join(wrong)}")
    values: dict[str, Any] = {}
    for name, read in readers.items():
        try:
            values[name] = read(entry[name])
        except ValueError as error:
            raise EntryError(f"{what}: {name} {error} (got {topups.shown(entry[name])})") from error
    if "workload_uid" in values:
        values["attempt"] = Attempt(values.pop("workload_uid"), values.pop("reserved_at"))
    return kind(**values)
