"""What providers write, read strictly: JSON, and times in their two forms.

Everything that is not as documented is a ValueError with a sentence, however deep, long or odd it is; a time without an
offset is refused rather than guessed.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime
from email.utils import parsedate_to_datetime
from typing import Any

from runtime.eviction.notice import plain


def shown(value: object) -> str:
    """The beginning of anything, for an error."""
    return repr(plain(str(value)[:80])[:40])


def parse_json(text: str) -> Any:
    """Read JSON.

    Raises:
        ValueError: also for a thousand brackets, which Python calls something else.
    """
    try:
        return json.loads(text)
    except RecursionError as error:
        raise ValueError(f"{shown(text)} is nested too deeply") from error
    except ValueError as error:
        raise ValueError(f"{shown(text)} is not JSON: {error}") from error


def parse_object(text: str) -> Mapping[str, Any]:
    """Read a JSON object.

    Raises:
        ValueError: when it is anything else.
    """
    return as_object(parse_json(text))


def as_object(value: object) -> Mapping[str, Any]:
    """Take a value that must be a JSON object.

    Raises:
        ValueError: when it is anything else.
    """
    if not isinstance(value, dict):
        raise ValueError(f"{shown(value)} is not a JSON object")
    return value


def as_list(value: object) -> list[Any]:
    """Take a value that must be a JSON list.

    Raises:
        ValueError: when it is anything else.
    """
    if not isinstance(value, list):
        raise ValueError(f"{shown(value)} is not a JSON list")
    return value


def parse_time(text: object) -> float:
    """Read `2026-11-21T08:00:00Z` or `[Mon, ]21 Jan 2019 09:00:43 GMT` into seconds since the epoch.

    Raises:
        ValueError: when it is neither, or says no offset from UTC.
    """
    if not isinstance(text, str) or not text:
        raise ValueError(f"{shown(text)} is not a time like 2026-11-21T08:00:00Z")
    try:
        moment = datetime.fromisoformat(text) if text[:4].isdecimal() else parsedate_to_datetime(text)
        if moment.tzinfo is None:
            raise ValueError("it says no offset from UTC")
        return moment.timestamp()
    except (ValueError, TypeError, IndexError, OverflowError) as error:
        raise ValueError(f"{shown(text)} is not a time like 2026-11-21T08:00:00Z: {error}") from error
