"""The written form of one packed day: JSON lines with a heading, the day's entries, and a checksum at the end.

    {"kind":"day","v":1,"day":"2026-11-19","entries":2}
    {"kind":"opening","v":2,"workload_uid":…}
    {"kind":"closing","v":2,"workload_uid":…}
    {"kind":"end","sha256":"…"}        of every byte above this line

Equal days give equal bytes. A reader refuses a file as a whole: one damaged line could be any.

Invariant: reading what was written gives equal entries, and each attempt of a day has its opening and its closing.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from runtime.cost.entries import EntryError, closing_from_dict, closing_to_dict, opening_from_dict, opening_to_dict
from runtime.cost.ledger import Attempt, Closing, Opening
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


def to_bytes(day: Day) -> bytes:
    """The content of a day's file."""
    order = sorted(day.openings, key=lambda attempt: (attempt.workload_uid, attempt.reserved_at))
    lines: list[dict[str, Any]] = [
        {"kind": "day", "v": DAY_VERSION, "day": day.day, "entries": len(day.openings) + len(day.closings)}
    ]
    for attempt in order:
        lines.append({"kind": "opening"} | opening_to_dict(day.openings[attempt]))
        lines.append({"kind": "closing"} | closing_to_dict(day.closings[attempt]))
    body = b"".join(_line(line) for line in lines)
    return body + _line({"kind": "end", "sha256": hashlib.sha256(body).hexdigest()})


def from_bytes(name: str, content: bytes) -> Day:
    """Read a day's file; `name` is the day that it must hold.

    Raises:
        CorruptEntry: when anything in it is not as it was written.
    """
    try:
        return _read(name, content)
    except (EntryError, ValueError, TypeError, AttributeError, RecursionError) as error:
        raise CorruptEntry(f"{names.day_path(name)}: {error}") from error


def _read(name: str, content: bytes) -> Day:
    first, *middle, last = content.splitlines(keepends=True) or [b""]
    body = content[: len(content) - len(last)]
    if json.loads(last or b"null") != {"kind": "end", "sha256": hashlib.sha256(body).hexdigest()}:
        raise ValueError("the checksum at its end does not agree with the lines above")
    heading = {"kind": "day", "v": DAY_VERSION, "day": name, "entries": len(middle)}
    if (found := json.loads(first)) != heading:
        raise ValueError(f"its heading is {shown(found)}, and {heading} was expected")
    openings: dict[Attempt, Opening] = {}
    closings: dict[Attempt, Closing] = {}
    for line in middle:
        entry = json.loads(line)
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
    if openings.keys() != closings.keys() or len(openings) + len(closings) != len(middle):
        raise ValueError("an opening has no closing, or a closing no opening")
    return Day(name, openings, closings)


def _line(value: Mapping[str, Any]) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode() + b"\n"
