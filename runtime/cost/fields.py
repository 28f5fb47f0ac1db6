"""How single fields of the ledger's entries are read back from JSON: strictly, by the type that the entry declares.

Each reader returns the value, or raises a ValueError whose text says what must stand there.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from decimal import Decimal, InvalidOperation
from typing import Any, Final

LATEST_SECONDS: Final = 32_503_680_000.0
"""The year 3000: the calendar ends before a float does."""
_MOST_GPUS: Final = 10**9
_MOST_USD: Final = Decimal(10**21)
"""With six places it is within the 28 digits of decimal arithmetic."""
_LONGEST_AMOUNT: Final = 64


def text(value: object) -> str:
    """A text, of any length."""
    if not isinstance(value, str):
        raise ValueError("must be text")
    return value


def _flag(value: object) -> bool:
    if not isinstance(value, bool):
        raise ValueError("must be true or false")
    return value


def whole(value: object) -> int:
    """A whole number, of any size."""
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise ValueError("must be a whole number, zero or more")
    return value


def _count(value: object) -> int:
    number = whole(value)
    if number > _MOST_GPUS:
        raise ValueError(f"must be at most {_MOST_GPUS:,}")
    return number


def _seconds(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError("must be a number of seconds")
    if not (0 <= value <= LATEST_SECONDS) or not math.isfinite(value):
        raise ValueError("must be a finite number of seconds, from zero to the year 3000")
    return float(value)


def _amount(value: object) -> Decimal:
    written = text(value)
    try:
        amount = Decimal(written)
    except InvalidOperation:
        raise ValueError('must be an amount as text, for example "12.5"') from None
    if not amount.is_finite() or not 0 <= amount < _MOST_USD or len(written) > _LONGEST_AMOUNT:
        raise ValueError(f"must be a finite amount, zero or more and below {_MOST_USD:.0e}")
    return amount


def _gpu_seconds(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError("must be a number of GPU-seconds")
    if not 0 <= value <= _MOST_GPUS * LATEST_SECONDS:
        raise ValueError("must be a finite number of GPU-seconds, zero or more")
    return float(value)


def _texts(value: object) -> tuple[str, ...]:
    if not isinstance(value, list):
        raise ValueError("must be a list of texts")
    return tuple(map(text, value))


def _or_none(read: Callable[[object], Any]) -> Callable[[object], Any]:
    return lambda value: None if value is None else read(value)


READERS: Final[Mapping[str, Callable[[object], Any]]] = {
    "str": text,
    "bool": _flag,
    "int": _count,
    "float": _seconds,
    "Decimal": _amount,
    "int | None": _or_none(whole),
    "float | None": _or_none(_seconds),
    "tuple[str, ...]": _texts,
    "GpuSeconds": _gpu_seconds,
}
"""By the type of the field, as it is written in the source."""
