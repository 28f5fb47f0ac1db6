"""The written form of one packed day: JSON lines with a heading, the day's entries, and a checksum at the end.

A day has one file for its attempts:

    {"kind":"day","v":1,"day":"2026-11-19","entries":2}
    {"kind":"opening","v":2,"workload_uid":…}
    {"kind":"closing","v":2,"workload_uid":…}
    {"kind":"end","sha256":"…"}        of every byte above this line

and one for its losses, which have a kind of their own:

    {"kind":"loss","entry":{"v":2,"workload_uid":…}}

Equal days give equal bytes. A reader refuses a file as a whole: one damaged line could be any.

Invariant: reading what was written gives equal entries, and each attempt of a day has its opening and its closing.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from runtime.cost.entries import (
    EntryError,
    closing_from_dict,
    closing_to_dict,
    loss_from_dict,
    loss_to_dict,
    opening_from_dict,
    opening_to_dict,
)
from runtime.cost.ledger import Attempt, Closing, Opening
from runtime.cost.losses import Loss, LossKey
from runtime.cost.topups import shown
from runtime.errors import CorruptEntry
from runtime.store import names

DAY_VERSION: Final = 1
"""Version of the file's form; its entries carry their own."""


@dataclass(frozen=True, slots=True)
class Day:
    """Every attempt that was opened on one day in UTC, all of them closed."""

    day: str
    openings: Mapping[Attempt, Opening]
    closings: Mapping[Attempt, Closing]


@dataclass(frozen=True, slots=True)
class LossDay:
    """The losses of one day in UTC, by when their jobs were stopped."""

    day: str
    losses: Mapping[LossKey, Loss]


def to_bytes(day: Day) -> bytes:
    """The content of a day's file."""
    lines: list[dict[str, Any]] = []
    for attempt in sorted(day.openings, key=lambda attempt: (attempt.workload_uid, attempt.reserved_at)):
        lines.append({"kind": "opening"} | opening_to_dict(day.openings[attempt]))
        lines.append({"kind": "closing"} | closing_to_dict(day.closings[attempt]))
    return _sealed(day.day, lines)


def losses_to_bytes(day: LossDay) -> bytes:
    """The content of a day's file of losses."""
    order = sorted(day.losses, key=lambda key: (key.workload_uid, key.number))
    return _sealed(day.day, [{"kind": "loss", "entry": loss_to_dict(day.losses[key])} for key in order])


def from_bytes(name: str, content: bytes) -> Day:
    """Read a day's file; `name` is the day that it must hold.

    Raises:
        CorruptEntry: when anything in it is not as it was written.
    """
    try:
        return _attempts(name, _unsealed(name, content))
    except _DAMAGE as error:
        raise CorruptEntry(f"{names.day_path(name)}: {error}") from error


def losses_from_bytes(name: str, content: bytes) -> LossDay:
    """Read a day's file of losses; `name` is the day that it must hold.

    Raises:
        CorruptEntry: when anything in it is not as it was written.
    """
    try:
        return _losses(name, _unsealed(name, content))
    except _DAMAGE as error:
        raise CorruptEntry(f"{names.loss_day_path(name)}: {error}") from error


_DAMAGE: Final = (EntryError, ValueError, TypeError, AttributeError, RecursionError)
"""What a file that is not as it was written can lead to."""


def _attempts(name: str, lines: Iterable[dict[str, Any]]) -> Day:
    openings: dict[Attempt, Opening] = {}
    closings: dict[Attempt, Closing] = {}
    read = 0
    for entry in lines:
        read += 1
        kind = entry.pop("kind", None)
        if kind == "opening":
            opening = opening_from_dict(entry)
            if opening.attempt in openings or names.day(opening.opened_at) != name:
                raise ValueError(f"{opening.attempt} stands there twice, or belongs to another day")
            openings[opening.attempt] = opening
        elif kind == "closing":
            closing = closing_from_dict(entry)
            closings[closing.attempt] = closing
        else:
            raise ValueError(f"a line is of the kind {kind!r}")
    if openings.keys() != closings.keys() or len(openings) + len(closings) != read:
        raise ValueError("an opening has no closing, or a closing no opening")
    return Day(name, openings, closings)


def _losses(name: str, lines: Iterable[dict[str, Any]]) -> LossDay:
    losses: dict[LossKey, Loss] = {}
    for entry in lines:
        if entry.keys() != {"kind", "entry"} or entry["kind"] != "loss":
            raise ValueError(f"a line is no loss: {shown(entry)}")
        loss = loss_from_dict(entry["entry"])
        if loss.key in losses or names.day(loss.stopped_at) != name:
            raise ValueError(f"{loss.key} stands there twice, or belongs to another day")
        losses[loss.key] = loss
    return LossDay(name, losses)


def _sealed(day: str, entries: list[dict[str, Any]]) -> bytes:
    """The lines with their heading and their checksum."""
    heading = {"kind": "day", "v": DAY_VERSION, "day": day, "entries": len(entries)}
    body = b"".join(_line(line) for line in (heading, *entries))
    return body + _line({"kind": "end", "sha256": hashlib.sha256(body).hexdigest()})


def _unsealed(name: str, content: bytes) -> Iterable[dict[str, Any]]:
    """The lines between heading and checksum, if both are right."""
    first, *middle, last = content.splitlines(keepends=True) or [b""]
    body = content[: len(content) - len(last)]
    if json.loads(last or b"null") != {"kind": "end", "sha256": hashlib.sha256(body).hexdigest()}:
        raise ValueError("the checksum at its end does not agree with the lines above")
    heading = {"kind": "day", "v": DAY_VERSION, "day": name, "entries": len(middle)}
    if (found := json.loads(first)) != heading:
        raise ValueError(f"its heading is {shown(found)}, and {heading} was expected")
    return map(json.loads, middle)


def _line(value: Mapping[str, Any]) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode() + b"\n"
