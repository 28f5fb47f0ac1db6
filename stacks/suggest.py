"""The `did you mean` of every message."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches
from typing import Final

_MOST_LISTED: Final = 20  # names; nobody reads a longer list to the end


def nearest(wrong: str, known: Iterable[str]) -> list[str]:
    """The known name that was probably meant, or nothing."""
    by_folded = {name.lower(): name for name in known}
    return [by_folded[near] for near in get_close_matches(wrong.lower(), by_folded, n=1)]


def did_you_mean(wrong: str, known: Iterable[str]) -> str:
    """The end of a message: the nearest known name, or the known names where none is near and they are few.

    Names stay in their order; those of a set, which has none, are sorted.
    """
    names = sorted(known) if isinstance(known, set | frozenset) else list(dict.fromkeys(known))
    for near in nearest(wrong, names):
        return f"; did you mean {near}?"
    if not names:
        return "; none is defined"
    return f"; known: {', '.join(names)}" if len(names) <= _MOST_LISTED else ""
