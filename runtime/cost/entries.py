"""The written form of the ledger: openings and closings as plain JSON values, read back strictly.

It does not read or write files; runtime.store does. Money is at stake, so a reader never guesses: an entry with a
missing, unknown or impossible field is refused, and so is any version but ours.

Invariant: reading what was written gives an equal value.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import fields
from decimal import Decimal, InvalidOperation
from typing import Any, Final, TypeVar

from runtime.cost.ledger import Attempt, Closing, Opening

ENTRY_VERSION: Final = 1
"""Version of the written form; a reader refuses any other."""


class EntryError(ValueError):
    """A text that should be an entry of the ledger is not one of this version."""


def opening_to_dict(opening: Opening) -> dict[str, Any]:
    """The written form of an opening: plain JSON values, amounts as text."""
    return _to_dict(opening)


def opening_from_dict(entry: object) -> Opening:
    """Read the written form of an opening.

    Raises:
        EntryError: when a field is missing, unknown or out of range, or the version is not ours.
    """
    return _from_dict(Opening, entry)


def closing_to_dict(closing: Closing) -> dict[str, Any]:
    """The written form of a closing: plain JSON values, amounts as text."""
    return _to_dict(closing)


def closing_from_dict(entry: object) -> Closing:
    """Read the written form of a closing.

    Raises:
        EntryError: when a field is missing, unknown or out of range, or the version is not ours.
    """
    return _from_dict(Closing, entry)


def _to_dict(value: Opening | Closing) -> dict[str, Any]:
    written: dict[str, Any] = {
        "v": ENTRY_VERSION,
        "workload_uid": value.attempt.workload_uid,
        "reserved_at": value.attempt.reserved_at,
    }
    for field in fields(value):
        if field.name != "attempt":
            item = getattr(value, field.name)
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


def _seconds(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError("must be a number of seconds")
    try:
        seconds = float(value)
    except OverflowError:
        seconds = math.inf
    if not math.isfinite(seconds) or seconds < 0:
        raise ValueError("must be a finite number of seconds, zero or more")
    return seconds


def _amount(value: object) -> Decimal:
    try:
        amount = Decimal(_text(value))
    except InvalidOperation:
        raise ValueError('must be an amount as text, for example "12.5"') from None
    if not amount.is_finite() or amount < 0:
        raise ValueError("must be a finite amount, zero or more")
    return amount


_READERS: Final[Mapping[str, Callable[[object], Any]]] = {
    "str": _text,
    "bool": _flag,
    "int": _whole,
    "float": _seconds,
    "Decimal": _amount,
}
_Entry = TypeVar("_Entry", Opening, Closing)


def _from_dict(kind: type[_Entry], entry: object) -> _Entry:
    what = kind.__name__.lower()
    if not isinstance(entry, dict):
        raise EntryError(f"{what}: must be a JSON object, got {type(entry).__name__}")
    if entry.get("v") != ENTRY_VERSION:
        raise EntryError(f"{what}: version {entry.get('v')!r} is not {ENTRY_VERSION}; written by another release?")
    readers: dict[str, Callable[[object], Any]] = {"workload_uid": _text, "reserved_at": _whole}
    readers |= {field.name: _READERS[str(field.type)] for field in fields(kind) if field.name != "attempt"}
    if wrong := sorted(map(str, (entry.keys() ^ readers.keys()) - {"v"})):
        raise EntryError(f"{what}: missing or unknown fields {', '.join(wrong)}")
    values: dict[str, Any] = {}
    for name, read in readers.items():
        try:
            values[name] = read(entry[name])
        except ValueError as error:
            raise EntryError(f"{what}: {name} {error} (got {entry[name]!r})") from error
    attempt = Attempt(values.pop("workload_uid"), values.pop("reserved_at"))
    return kind(attempt=attempt, **values)
