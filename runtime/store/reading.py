"""Reads single entries and day files from a store, each as its kind, and says which of them cannot be read.

What cannot be read is returned with the reason, never raised: what follows from it is the caller's to decide.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from typing import TypeVar

from runtime.cost.entries import (
    EntryError,
    closing_from_dict,
    loss_from_dict,
    opening_from_dict,
    top_up_from_dict,
)
from runtime.cost.ledger import Attempt, Closing, Opening, TopUp
from runtime.cost.losses import Loss
from runtime.errors import CorruptEntry
from runtime.store import days
from runtime.store.bucket import Bucket
from runtime.store.days import Day, LossDay
from runtime.store.names import LossName, Name, day_path, loss_day_path, top_up_path

_Parsed = TypeVar("_Parsed")
_Wanted = TypeVar("_Wanted")
_PackedDay = TypeVar("_PackedDay", Day, LossDay)
_Entry = TypeVar("_Entry", Opening, Closing)


def parse(path: str, content: bytes, reader: Callable[[object], _Parsed]) -> _Parsed:
    """Read the content of one object.

    Raises:
        CorruptEntry: when it is not what stands there.
    """
    try:
        return reader(json.loads(content))
    except (EntryError, ValueError, RecursionError) as error:
        raise CorruptEntry(f"{path}: {error}") from error


async def read_openings(bucket: Bucket, names: Iterable[Name]) -> tuple[dict[Attempt, Opening], dict[Name, str]]:
    """The openings of these names, and those that cannot be read with the reason."""
    return await _read_attempts(bucket, names, opening_from_dict)


async def read_closings(bucket: Bucket, names: Iterable[Name]) -> tuple[dict[Attempt, Closing], dict[Name, str]]:
    """The closings of these names, and those that cannot be read with the reason."""
    return await _read_attempts(bucket, names, closing_from_dict)


async def _read_attempts(
    bucket: Bucket, names: Iterable[Name], reader: Callable[[object], _Entry]
) -> tuple[dict[Attempt, _Entry], dict[Name, str]]:
    def read(name: Name, path: str, content: bytes) -> _Entry:
        entry = parse(path, content, reader)
        return _its_own(entry, path, "attempt", entry.attempt, name.attempt)

    found, unread = await _read(bucket, {name.path: name for name in names}, read)
    return {name.attempt: entry for name, entry in found.items()}, unread


async def read_days(bucket: Bucket, wanted: Iterable[str]) -> tuple[list[Day], dict[str, str]]:
    """The packed days of these names, and those that cannot be read with the reason."""
    return await _read_days(bucket, {day_path(day): day for day in sorted(wanted)}, days.from_bytes)


async def read_loss_days(bucket: Bucket, wanted: Iterable[str]) -> tuple[list[LossDay], dict[str, str]]:
    """The packed days of losses of these names, and those that cannot be read with the reason."""
    return await _read_days(bucket, {loss_day_path(day): day for day in sorted(wanted)}, days.losses_from_bytes)


async def _read_days(
    bucket: Bucket, by_path: Mapping[str, str], reader: Callable[[str, bytes], _PackedDay]
) -> tuple[list[_PackedDay], dict[str, str]]:
    found, unread = await _read(bucket, by_path, lambda day, _, content: reader(day, content))
    return list(found.values()), unread


async def read_losses(bucket: Bucket, names: Iterable[LossName]) -> tuple[dict[LossName, Loss], dict[str, str]]:
    """The losses of these names, and those that cannot be read with the reason, by path."""

    def read(name: LossName, path: str, content: bytes) -> Loss:
        loss = parse(path, content, loss_from_dict)
        return _its_own(loss, path, "loss", loss.key, name.key)

    found, unread = await _read(bucket, {name.path: name for name in names}, read)
    return found, {name.path: reason for name, reason in unread.items()}


async def read_top_ups(bucket: Bucket, wanted: Iterable[str]) -> tuple[dict[str, TopUp], dict[str, str]]:
    """The top-ups of these ids, and those that cannot be read with the reason."""

    def read(identifier: str, path: str, content: bytes) -> TopUp:
        top_up = parse(path, content, top_up_from_dict)
        return _its_own(top_up, path, "top-up", top_up.id, identifier)

    return await _read(bucket, {top_up_path(identifier): identifier for identifier in sorted(wanted)}, read)


async def _read(
    bucket: Bucket, by_path: Mapping[str, _Wanted], read: Callable[[_Wanted, str, bytes], _Parsed]
) -> tuple[dict[_Wanted, _Parsed], dict[_Wanted, str]]:
    """What stands under these paths, and what cannot be read with the reason."""
    found: dict[_Wanted, _Parsed] = {}
    unread: dict[_Wanted, str] = {}
    async for path, content in bucket.read_many(list(by_path)):
        wanted = by_path[path]
        try:
            found[wanted] = read(wanted, path, content)
        except CorruptEntry as error:
            unread[wanted] = str(error).partition(": ")[2]
    return found, unread


def _its_own(entry: _Parsed, path: str, kind: str, key: object, expected: object) -> _Parsed:
    if key != expected:
        raise CorruptEntry(f"{path}: holds another {kind}, {key}")
    return entry
