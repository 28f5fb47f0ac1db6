"""The wish that a running job goes on elsewhere in the cloud, as an administrator writes it on a Workload.

It only says where to and until when; whether the job may go is decided in runtime.routing.moves, and the job leaves by
the same sequence as from a node that goes. What cannot be read is a wish too: one that is refused, so that whoever
wrote it is told.

Invariant: a wish that is read names an event, as notices do; the sequence takes it for one.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from runtime.eviction.notice import Certainty, Notice, NoticeKind, plain

VERSION: Final = 1
SOURCE: Final = "move"

LONGEST_JSON_BYTES: Final = 1_024
LONGEST_SECONDS: Final = 604_800.0
"""A week: who still wants it then may ask again."""

LONGEST_TARGET: Final = 253
"""Characters, as of any name in Kubernetes."""


@dataclass(frozen=True, slots=True)
class MoveWish:
    """A wish. `to` is a market or a flavor, empty for any other flavor than the present one.

    `asked_at` and `until` are fleet time on a job, and real seconds as they are written. `problem` says why it cannot
    be read; the rest is then nothing. `told` is the cause that the verdict on the job gave last, for whatever it says.
    """

    id: str
    to: str
    asked_at: float
    until: float
    reason: str = ""
    problem: str = ""
    told: str = ""


def wish_to_json(wish: MoveWish) -> str:
    """The text of the annotation."""
    values = {
        "version": VERSION,
        "id": wish.id,
        "to": wish.to,
        "at": round(wish.asked_at, 3),
        "until": round(wish.until, 3),
        "reason": wish.reason,
    }
    return json.dumps(values, separators=(",", ":"))


def wish_from_json(text: str) -> MoveWish:
    """Read the annotation; one that is no wish comes back with its problem."""
    try:
        return _read(text)
    except (ValueError, OverflowError, RecursionError) as error:
        return MoveWish("unreadable", "", 0.0, 0.0, problem=plain(str(error)))


def notice_of(wish: MoveWish, asked_at: float) -> Notice:
    """The notice that the sequence acts upon; `asked_at` in real seconds. It has no deadline: the job may run on.

    Raises:
        ValueError: naming the field that no notice can have.
    """
    return Notice(wish.id, NoticeKind.MOVE, SOURCE, Certainty.CERTAIN, asked_at, None, wish.reason)


def _read(text: str) -> MoveWish:
    if len(text) > LONGEST_JSON_BYTES:
        raise ValueError(f"it has {len(text)} characters, and {LONGEST_JSON_BYTES} is the most")
    entry = json.loads(text)
    if not isinstance(entry, Mapping):
        raise ValueError("it is no JSON object")
    version = entry.get("version", VERSION)
    if version != VERSION:
        raise ValueError(f"its version is {str(version)[:20]}, and this agent reads {VERSION}")
    at, until = _number(entry, "at"), _number(entry, "until")
    if not 0 < until - at <= LONGEST_SECONDS:
        raise ValueError(f"until must be after at, by a week at most ({LONGEST_SECONDS:.0f} s)")
    wish = MoveWish(_text(entry, "id"), _text(entry, "to"), at, until, plain(_text(entry, "reason")))
    notice_of(wish, at)
    return wish


def _text(entry: Mapping[str, Any], key: str) -> str:
    value = entry.get(key, "")
    if not isinstance(value, str) or len(value) > LONGEST_TARGET:
        raise ValueError(f"{key} must be a text of at most {LONGEST_TARGET} characters")
    return value


def _number(entry: Mapping[str, Any], key: str) -> float:
    value = entry.get(key)
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise ValueError(f"{key} must be seconds since 1970, like 1790000000.0")
    return float(value)
