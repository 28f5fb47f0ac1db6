"""The `did you mean` of every message."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches

_MOST_LISTED = 12


def did_you_mean(wrong: str, known: Iterable[str]) -> str:
    """The end of a message: the nearest known name, or the known names where none is near."""
    names = sorted(known)
    by_folded = {name.lower(): name for name in names}
    if near := get_close_matches(wrong.lower(), by_folded, n=1):
        return f"; did you mean {by_folded[near[0]]}?"
    if not names:
        return "; none is defined"
    more = f" and {len(names) - _MOST_LISTED} more" if len(names) > _MOST_LISTED else ""
    return f"; known: {', '.join(names[:_MOST_LISTED])}{more}"
