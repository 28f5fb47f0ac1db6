"""Top-ups as administrators ask for them: entries of the ConfigMap gpufleet-top-ups, read strictly.

The name of an entry is the top-up's id, its value a JSON object with exactly the fields of `to_text`. What stands there
is a request: the agent writes each one into the ledger once, and only what is in the ledger counts. So a request that
is deleted or changed afterwards changes nothing. This module does no I/O.

Invariant: reading what was written gives an equal value, and one bad entry never hides a good one.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any, Final

from runtime.cost.ledger import MICRO_USD, TopUp

TOP_UP_VERSION: Final = 1
"""Version of the written form; a reader refuses any other."""

MOST_USD: Final = Decimal(10**12)
"""More than any budget; keeps a mistyped amount out of the ledger, where nothing is ever changed."""

MOST_REASON_CHARACTERS: Final = 500

_ID: Final = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?")
"""A DNS label: it names an entry of a ConfigMap and an object of the ledger."""
_SCOPE: Final = re.compile(r"fleet|(?:team|project) [^\s/]{1,253}")
_AMOUNT: Final = re.compile(r"[0-9]{1,13}(?:\.[0-9]{1,6})?")
_MOST_AUTHOR_CHARACTERS: Final = 1_024
"""Service accounts and users of an identity provider have long names; no real one is longer than this."""
_MOST_TEXT_CHARACTERS: Final = 4_096
_MOST_SHOWN_CHARACTERS: Final = 60
_FIELDS: Final = frozenset({"v", "scope", "usd", "reason", "author", "granted_at", "expires_at"})


def parse(data: Mapping[str, str]) -> tuple[tuple[TopUp, ...], tuple[str, ...]]:
    """Read the `data` of the ConfigMap: its valid top-ups by id, and a sentence for each entry that is none.

    Whether a scope exists is for the caller to say, who knows the fleet. No value of `data` makes this raise.
    """
    found: list[TopUp] = []
    problems: list[str] = []
    for name, text in sorted(data.items()):
        try:
            found.append(from_text(name, text))
        except ValueError as error:
            problems.append(f"top-up {shown(name)}: {error}")
    return tuple(found), tuple(problems)


def from_text(name: str, text: str) -> TopUp:
    """Read one entry.

    Raises:
        ValueError: when it is no top-up of this version; the message says what must be where.
    """
    if len(text) > _MOST_TEXT_CHARACTERS:
        raise ValueError(f"is longer than {_MOST_TEXT_CHARACTERS:,} characters; no top-up is")
    try:
        entry = json.loads(text)
    except (ValueError, RecursionError):
        raise ValueError(f"is not JSON (got {shown(text)}); use `gpufleet budget top-up`") from None
    if not isinstance(entry, dict):
        raise ValueError(f"must be a JSON object (got {shown(text)}); use `gpufleet budget top-up`")
    if entry.get("v") != TOP_UP_VERSION:
        raise ValueError(f"version {shown(entry.get('v'))} is not {TOP_UP_VERSION}; written by another release?")
    if wrong := sorted(_FIELDS ^ entry.keys()):
        raise ValueError(f"missing or unknown fields {', '.join(map(shown, wrong))}")
    amount = _text_of(entry, "usd")
    if not _AMOUNT.fullmatch(amount):
        raise ValueError(f'usd must be an amount as text, for example "500" or "12.50" (got {shown(amount)})')
    return check(
        TopUp(
            id=name,
            scope=_text_of(entry, "scope"),
            usd=Decimal(amount),
            reason=_text_of(entry, "reason"),
            author=_text_of(entry, "author"),
            granted_at=_moment_of(entry, "granted_at"),
            expires_at=_moment_of(entry, "expires_at"),
        )
    )


def to_text(top_up: TopUp) -> str:
    """The value of a top-up's entry: one line of JSON, amounts as text, times in UTC to the second."""
    entry = {
        "v": TOP_UP_VERSION,
        "scope": top_up.scope,
        "usd": f"{top_up.usd:f}",
        "reason": top_up.reason,
        "author": top_up.author,
        "granted_at": _written(top_up.granted_at),
        "expires_at": _written(top_up.expires_at),
    }
    return json.dumps(entry, ensure_ascii=False)


def check(top_up: TopUp) -> TopUp:
    """Return the top-up if it can be one.

    Raises:
        ValueError: when a field is empty, too long or out of range; the message says what is allowed.
    """
    if not _ID.fullmatch(top_up.id):
        raise ValueError("the name of the entry must be 1 to 63 of a-z, 0-9 and inner hyphens")
    if not _SCOPE.fullmatch(top_up.scope):
        raise ValueError(f"scope must be `fleet`, `team NAME` or `project NAME` (got {shown(top_up.scope)})")
    if not top_up.usd.is_finite() or not 0 < top_up.usd <= MOST_USD:
        raise ValueError(f"usd must be above 0 and at most {MOST_USD:,} (got {shown(str(top_up.usd))})")
    if top_up.usd != top_up.usd.quantize(MICRO_USD):
        raise ValueError(f"usd has more than six decimals (got {shown(str(top_up.usd))})")
    _check_words("reason", top_up.reason, MOST_REASON_CHARACTERS)
    _check_words("author", top_up.author, _MOST_AUTHOR_CHARACTERS)
    if not 0 <= top_up.granted_at < top_up.expires_at:
        raise ValueError("expires_at must be later than granted_at")
    return top_up


def shown(value: object) -> str:
    """A value in a message: on one line, and never long."""
    text = repr(value)
    return text if len(text) <= _MOST_SHOWN_CHARACTERS else f"{text[: _MOST_SHOWN_CHARACTERS - 3]}..."


def _check_words(field: str, text: str, most: int) -> None:
    if not text.strip() or len(text) > most or not text.isprintable():
        raise ValueError(f"{field} must be 1 to {most:,} characters on one line (got {shown(text)})")


def _text_of(entry: Mapping[str, Any], field: str) -> str:
    value = entry[field]
    if not isinstance(value, str):
        raise ValueError(f"{field} must be text (got {shown(value)})")
    return value


def _moment_of(entry: Mapping[str, Any], field: str) -> float:
    text = _text_of(entry, field)
    try:
        moment = datetime.fromisoformat(text)
        if moment.tzinfo is not None:
            return moment.timestamp()
    except (ValueError, OverflowError):
        pass
    raise ValueError(f"{field} must be a time with its offset, for example 2026-11-21T08:00:00Z (got {shown(text)})")


def _written(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
