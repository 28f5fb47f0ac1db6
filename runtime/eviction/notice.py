"""A notice: that a node will go, or be taken out of use, in the one form that every source is brought into.

It knows no provider and reads no clock, and needs nothing but the standard library. A notice says what was said, not
what to do about it.

Invariants: a Notice that exists can be written, and what was written can be read; its id is short plain text, and its
times are numbers of real seconds since the epoch.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

LONGEST_JSON_BYTES: Final = 16_384
"""Of the 256 KiB that Kubernetes allows for all annotations of an object."""

LONGEST_ID: Final = 128
LONGEST_SOURCE: Final = 40
LONGEST_DETAIL: Final = 200

MOST_MACHINES: Final = 100_000
"""Far more than one event strikes."""

LATEST_TIME: Final = 253_402_300_800.0
"""The year 10000, where dates as people write them end."""

_ID: Final = re.compile(rf"[A-Za-z0-9][A-Za-z0-9._:/+-]{{0,{LONGEST_ID - 1}}}")
_SOURCE: Final = re.compile(rf"[a-z][a-z0-9-]{{0,{LONGEST_SOURCE - 1}}}")
_NOT_IN_DETAIL: Final = re.compile(r"[^ !#-\[\]-~]+")


class NoticeKind(StrEnum):
    """Why a node will go, or why a job has to leave it."""

    SPOT = "spot-interruption"
    REBALANCE = "rebalance"
    MAINTENANCE = "maintenance"
    SCALE_IN = "scale-in"
    REPAIR = "node-repair"
    LOSS = "node-loss"
    DISRUPTION = "disruption"
    UPGRADE = "driver-upgrade"
    LAYOUT = "layout-change"
    MOVE = "move"
    PREEMPTION = "preemption"


class Certainty(StrEnum):
    """Whether the node goes, or only might."""

    CERTAIN = "certain"
    LIKELY = "likely"


@dataclass(frozen=True, slots=True)
class Notice:
    """What one source says of one node.

    `id` names the event and is the same in every reading of it. `noticed_at` is when it was first read, `deadline` when
    the node goes at the earliest, None where nobody says; both are real seconds since the epoch. `machines` is how many
    the event strikes at once, this one included.
    """

    id: str
    kind: NoticeKind
    source: str
    certainty: Certainty
    noticed_at: float
    deadline: float | None = None
    detail: str = ""
    machines: int = 1

    def __post_init__(self) -> None:
        """Refuse what could not be written, or what would break a label or a line of a log.

        Raises:
            ValueError: naming the field.
        """
        if not _ID.fullmatch(self.id):
            raise ValueError(
                f"id {self.id[:LONGEST_ID]!r}: must be 1 to {LONGEST_ID} characters of A-Z a-z 0-9 . _ : / + -, "
                "the first a letter or a digit"
            )
        if not _SOURCE.fullmatch(self.source):
            raise ValueError(
                f"source {self.source[:LONGEST_SOURCE]!r}: must be 1 to {LONGEST_SOURCE} characters of a-z 0-9 -, "
                "the first a letter"
            )
        for name, value in (("noticed_at", self.noticed_at), ("deadline", self.deadline)):
            if value is not None and not (math.isfinite(value) and 0 <= value < LATEST_TIME):
                raise ValueError(f"{name} {value!r}: must be seconds since 1970, like 1790000000.0")
        if not 1 <= self.machines <= MOST_MACHINES:
            raise ValueError(f"machines {str(self.machines)[:20]}: must be from 1 to {MOST_MACHINES}")
        object.__setattr__(self, "detail", plain(self.detail))


def plain(text: str) -> str:
    """Text of any origin as a detail: printable, without quotes that JSON would have to escape, and not too long."""
    return _NOT_IN_DETAIL.sub(" ", text).strip()[:LONGEST_DETAIL]


def capped(deadline: float | None, noticed_at: float, window_seconds: float) -> float:
    """A provider's deadline, but never further ahead than its notices ever are: our clock may be behind the provider's.

    None means that the provider gave no time, so the whole window is left.
    """
    latest = noticed_at + window_seconds
    return latest if deadline is None else min(deadline, latest)


def worst(notices: Sequence[Notice]) -> Notice:
    """The notice to act on: a certain one before one that is likely, then the earliest deadline, then the id.

    Raises:
        ValueError: when there is none.
    """
    return min(notices, key=urgency)


def urgency(notice: Notice) -> tuple[bool, float, str]:
    """Sorts the notice that matters most first."""
    return (
        notice.certainty is not Certainty.CERTAIN,
        math.inf if notice.deadline is None else notice.deadline,
        notice.id,
    )


def notices_to_json(notices: Sequence[Notice]) -> str:
    """Write notices in the order of their ids, with no more characters than needed.

    Raises:
        ValueError: when they are more than an annotation should hold.
    """
    entries = [_entry(notice) for notice in sorted(notices, key=lambda notice: (notice.id, notice.kind))]
    text = json.dumps(entries, separators=(",", ":"))
    if len(text) > LONGEST_JSON_BYTES:
        raise ValueError(
            f"{len(notices)} notices take {len(text)} bytes, and {LONGEST_JSON_BYTES} is the most; keep the worst ones"
        )
    return text


def notices_from_json(text: str) -> tuple[Notice, ...]:
    """Read what `notices_to_json` wrote, here or in another version: keys that are not known are left out.

    Raises:
        ValueError: in one sentence, when any of it is not a notice; half a list is none.
    """
    entries = json_list(text)
    return tuple(notice_from(entry) for entry in entries)


def json_list(text: str) -> list[Any]:
    """Read a JSON list of a bounded size.

    Raises:
        ValueError: in one sentence.
    """
    if len(text) > LONGEST_JSON_BYTES:
        raise ValueError(f"{len(text)} characters are too many for notices; {LONGEST_JSON_BYTES} is the most")
    try:
        entries = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{text[:60]!r} is not JSON: {error}") from error
    if not isinstance(entries, list):
        raise ValueError(f"notices are a JSON list, and this is {_called(entries)}: {text[:60]!r}")
    return entries


def notice_from(entry: object) -> Notice:
    """Read one notice.

    Raises:
        ValueError: naming the key that is missing or wrong.
    """
    if not isinstance(entry, Mapping):
        raise ValueError(f"a notice is a JSON object, and this is {_called(entry)}: {str(entry)[:60]!r}")
    return Notice(
        id=_text(entry, "id"),
        kind=NoticeKind(_one_of(entry, "kind", NoticeKind)),
        source=_text(entry, "source"),
        certainty=Certainty(_one_of(entry, "certainty", Certainty)),
        noticed_at=_number(entry, "noticed_at"),
        deadline=_number(entry, "deadline") if entry.get("deadline") is not None else None,
        detail=_text(entry, "detail") if "detail" in entry else "",
        machines=_whole(entry, "machines") if "machines" in entry else 1,
    )


def _entry(notice: Notice) -> dict[str, object]:
    entry: dict[str, object] = {
        "id": notice.id,
        "kind": notice.kind.value,
        "source": notice.source,
        "certainty": notice.certainty.value,
        "noticed_at": round(notice.noticed_at, 3),
    }
    if notice.deadline is not None:
        entry["deadline"] = round(notice.deadline, 3)
    if notice.detail:
        entry["detail"] = notice.detail
    if notice.machines > 1:
        entry["machines"] = notice.machines
    return entry


def _text(entry: Mapping[str, Any], key: str) -> str:
    value = entry.get(key)
    if not isinstance(value, str):
        raise ValueError(f"{key}: must be text, and is {_called(value)}")
    return value


def _number(entry: Mapping[str, Any], key: str) -> float:
    value = entry.get(key)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError(f"{key}: must be seconds since 1970, like 1790000000.0, and is {_called(value)}")
    try:
        return float(value)
    except OverflowError as error:
        raise ValueError(f"{key}: must be seconds since 1970, like 1790000000.0, and is far larger") from error


def _whole(entry: Mapping[str, Any], key: str) -> int:
    value = entry.get(key)
    if isinstance(value, bool) or not isinstance(value, int):
        raise ValueError(f"{key}: must be a whole number, and is {_called(value)}")
    return value


def _one_of(entry: Mapping[str, Any], key: str, known: type[StrEnum]) -> str:
    value = _text(entry, key)
    if value not in tuple(known):
        raise ValueError(f"{key} {value[:40]!r}: must be one of {', '.join(known)}")
    return value


def _called(value: object) -> str:
    return (
        "missing"
        if value is None
        else {"dict": "an object", "list": "a list", "str": "text"}.get(
            type(value).__name__, f"{type(value).__name__} {str(value)[:40]!r}"
        )
    )
