"""The written form of the ledger: openings, closings, top-ups and losses as plain JSON values, read back strictly.

It does not read or write files; runtime.store does. Money is at stake, so a reader never guesses: an entry with a
missing, unknown or impossible field is refused, and so is any version that is not known. Version 1 knew no projects
and no fixed costs; its entries still read, as those of no project. It knew no losses either.

Invariant: reading what was written gives an equal value.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields
from decimal import Decimal
from typing import Any, Final, TypeVar

from runtime.cost import losses, topups
from runtime.cost.fields import READERS, text, whole
from runtime.cost.ledger import Attempt, Closing, Opening, TopUp
from runtime.cost.losses import Loss

ENTRY_VERSION: Final = 2
"""Version of the written form."""

_SINCE_VERSION_2: Final = frozenset({"project", "fixed_usd"})
_READABLE: Final = (1, ENTRY_VERSION)


_Entry = TypeVar("_Entry", Opening, Closing, TopUp, Loss)


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
    return _checked(topups.check, _from_dict(TopUp, entry))


def loss_to_dict(loss: Loss) -> dict[str, Any]:
    """The written form of a loss: plain JSON values."""
    return _to_dict(loss)


def loss_from_dict(entry: object) -> Loss:
    """Read the written form of a loss.

    Raises:
        EntryError: when a field is missing, unknown or out of range, or the version is not known.
    """
    return _checked(losses.check, _from_dict(Loss, entry))


def _checked(check: Callable[[_Entry], _Entry], entry: _Entry) -> _Entry:
    try:
        return check(entry)
    except ValueError as error:
        raise EntryError(f"{type(entry).__name__.lower()}: {error}") from error


def _to_dict(value: Opening | Closing | TopUp | Loss) -> dict[str, Any]:
    written: dict[str, Any] = {"v": ENTRY_VERSION}
    for field in fields(value):
        item = getattr(value, field.name)
        if isinstance(item, Attempt):
            written |= {"workload_uid": item.workload_uid, "reserved_at": item.reserved_at}
        else:
            written[field.name] = _plain(item)
    return written


def _plain(item: object) -> object:
    if isinstance(item, Decimal):
        return f"{item:f}"
    return list(item) if isinstance(item, tuple) else item


_ATTEMPT_READERS: Final[Mapping[str, Callable[[object], Any]]] = {"workload_uid": text, "reserved_at": whole}


def _readers(kind: type[Opening | Closing | TopUp | Loss], version: int) -> dict[str, Callable[[object], Any]]:
    found: dict[str, Callable[[object], Any]] = {}
    for field in fields(kind):
        if field.name == "attempt":
            found |= _ATTEMPT_READERS
        elif version >= ENTRY_VERSION or field.name not in _SINCE_VERSION_2:
            found[field.name] = READERS[str(field.type)]
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
    if "reserved_at" in values:
        values["attempt"] = Attempt(values.pop("workload_uid"), values.pop("reserved_at"))
    return kind(**values)
