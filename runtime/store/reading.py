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
    return await _read(bucket, names, opening_from_dict)


async def read_closings(bucket: Bucket, names: Iterable[Name]) -> tuple[dict[Attempt, Closing], dict[Name, str]]:
    """The closings of these names, and those that cannot be read with the reason."""
    return await _read(bucket, names, closing_from_dict)


async def _read(
    bucket: Bucket, names: Iterable[Name], reader: Callable[[object], _Entry]
) -> tuple[dict[Attempt, _Entry], dict[Name, str]]:
    by_path = {name.path: name for name in names}
    found: dict[Attempt, _Entry] = {}
    unread: dict[Name, str] = {}
    async for path, content in bucket.read_many(list(by_path)):
        name = by_path[path]
        try:
            entry = parse(path, content, reader)
            if entry.attempt != name.attempt:
                raise CorruptEntry(f"{path}: holds another attempt, {entry.attempt}")
            found[name.attempt] = entry
        except CorruptEntry as error:
            unread[name] = _told(error)
    return found, unread


async def read_days(bucket: Bucket, wanted: Iterable[str]) -> tuple[list[Day], dict[str, str]]:
    """The packed days of these names, and those that cannot be read with the reason."""
    return await _read_days(bucket, {day_path(day): day for day in sorted(wanted)}, days.from_bytes)


async def read_loss_days(bucket: Bucket, wanted: Iterable[str]) -> tuple[list[LossDay], dict[str, str]]:
    """The packed days of losses of these names, and those that cannot be read with the reason."""
    return await _read_days(bucket, {loss_day_path(day): day for day in sorted(wanted)}, days.losses_from_bytes)


async def _read_days(
    bucket: Bucket, by_path: Mapping[str, str], reader: Callable[[str, bytes], _PackedDay]
) -> tuple[list[_PackedDay], dict[str, str]]:
    found: list[_PackedDay] = []
    unread: dict[str, str] = {}
    async for path, content in bucket.read_many(list(by_path)):
        try:
            found.append(reader(by_path[path], content))
        except CorruptEntry as error:
            unread[by_path[path]] = _told(error)
    return found, unread


async def read_losses(bucket: Bucket, names: Iterable[LossName]) -> tuple[dict[LossName, Loss], dict[str, str]]:
    """The losses of these names, and those that cannot be read with the reason, by path."""
    by_path = {name.path: name for name in names}
    found: dict[LossName, Loss] = {}
    unread: dict[str, str] = {}
    async for path, content in bucket.read_many(list(by_path)):
        name = by_path[path]
        try:
            loss = parse(path, content, loss_from_dict)
            if loss.key != name.key:
                raise CorruptEntry(f"{path}: holds another loss, {loss.key}")
            found[name] = loss
        except CorruptEntry as error:
            unread[path] = _told(error)
    return found, unread


async def read_top_ups(bucket: Bucket, wanted: Iterable[str]) -> tuple[dict[str, TopUp], dict[str, str]]:
    """The top-ups of these ids, and those that cannot be read with the reason."""
    by_path = {top_up_path(identifier): identifier for identifier in sorted(wanted)}
    found: dict[str, TopUp] = {}
    unread: dict[str, str] = {}
    async for path, content in bucket.read_many(list(by_path)):
        try:
            top_up = parse(path, content, top_up_from_dict)
            if top_up.id != by_path[path]:
                raise CorruptEntry(f"{path}: holds another top-up, {top_up.id}")
            found[top_up.id] = top_up
        except CorruptEntry as error:
            unread[by_path[path]] = _told(error)
    return found, unread


def _told(error: CorruptEntry) -> str:
    return str(error).partition(": ")[2]
