"""Typed quantities: each reads forgiving spellings, has one canonical form, and fails with an example.

Durations, money and memory are values with a unit; a bare number is refused wherever it could be misread.
"""

from __future__ import annotations

import re
from datetime import timedelta
from decimal import ROUND_HALF_UP, Decimal, InvalidOperation
from typing import Annotated, Final

from pydantic import BeforeValidator, Field, PlainSerializer, WithJsonSchema

_DURATION_UNITS: Final = {"d": 86_400.0, "h": 3_600.0, "m": 60.0, "s": 1.0, "ms": 0.001}
_DURATION_PART: Final = re.compile(r"(\d+(?:\.\d+)?)(ms|d|h|m|s)")
_DURATION_SCHEMA: Final = {
    "type": "string",
    "examples": ["90s", "4m30s", "2h"],
    "pattern": r"^([0-9.]+\s*(ms|d|h|m|s)\s*)+$",
}
_LONGEST: Final = timedelta(days=3_650)
_SHORTEST: Final = timedelta(milliseconds=1)

_MEMORY_UNITS: Final = {
    "Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40, "Pi": 2**50,
    "k": 10**3, "M": 10**6, "G": 10**9, "T": 10**12, "P": 10**15,
}  # fmt: skip
_MEMORY: Final = re.compile(r"(\d+(?:\.\d+)?)\s*(Ki|Mi|Gi|Ti|Pi|k|M|G|T|P)B?")

_MONEY: Final = re.compile(r"(?:USD|\$)?\s*(-?\d[\d,_]*(?:\.\d+)?)\s*(?:USD|\$)?", re.IGNORECASE)
_OTHER_CURRENCY: Final = re.compile(r"\b(EUR|GBP|JPY|CHF|CNY|INR|AUD|CAD)\b|[€£¥]", re.IGNORECASE)


def parse_duration(value: object) -> timedelta:
    """Read `90s`, `4m30s`, `1h 30m`, `2d` or a timedelta.

    Raises:
        ValueError: for a bare number, an unknown unit, a negative or an absurdly long duration.
    """
    if isinstance(value, timedelta):
        return value
    if isinstance(value, bool) or not isinstance(value, str):
        raise ValueError("write a duration with its unit, for example 90s, 4m30s or 2h")
    text = value.replace(" ", "").lower()
    parts = _DURATION_PART.findall(text)
    if not parts or "".join(number + unit for number, unit in parts) != text:
        raise ValueError("not a duration; write it with units d, h, m or s, for example 90s, 4m30s or 2h")
    try:
        duration = timedelta(seconds=sum(float(number) * _DURATION_UNITS[unit] for number, unit in parts))
    except OverflowError:
        duration = timedelta.max
    if duration > _LONGEST:
        raise ValueError("longer than ten years; check the unit, for example 90s, 4m30s or 2h")
    return duration


def format_duration(value: timedelta) -> str:
    """Write a duration in its canonical form: largest units first, no zero parts, `0s` for none."""
    milliseconds = round(value.total_seconds() * 1000)
    sign, milliseconds = ("-", -milliseconds) if milliseconds < 0 else ("", milliseconds)
    parts = []
    for unit, size in (("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1_000), ("ms", 1)):
        count, milliseconds = divmod(milliseconds, size)
        if count:
            parts.append(f"{count}{unit}")
    return sign + ("".join(parts) or "0s")


def parse_usd(value: object) -> Decimal:
    """Read `60000 USD`, `$1,250.50`, `1.10` or a plain number of US dollars.

    Raises:
        ValueError: for another currency, a negative amount, or text that is not an amount.
    """
    if isinstance(value, bool) or not isinstance(value, int | float | str | Decimal):
        raise ValueError("write an amount of US dollars, for example 20000 USD")
    text = str(value).strip()
    if other := _OTHER_CURRENCY.search(text):
        raise ValueError(f"{other.group(0)} is not supported; convert to US dollars, for example 20000 USD")
    match = _MONEY.fullmatch(text)
    if not match:
        raise ValueError("not an amount; write it like 20000 USD or 1.10")
    try:
        amount = Decimal(match.group(1).replace(",", "").replace("_", ""))
    except InvalidOperation:
        raise ValueError("not an amount; write it like 20000 USD or 1.10") from None
    if amount < 0:
        raise ValueError("must not be negative")
    return amount


def format_usd(value: Decimal) -> str:
    """Write an amount for a person: two decimals, thousands separated, for example `$1,250.50`."""
    return f"${value.quantize(Decimal('0.01'), rounding=ROUND_HALF_UP):,}"


def _canonical_usd(value: Decimal) -> str:
    return f"{value.normalize():f} USD"


def parse_memory(value: object) -> int:
    """Read `1Ti`, `2048Gi`, `512 GB` or a number of bytes; the result is bytes."""
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    match = _MEMORY.fullmatch(value.strip()) if isinstance(value, str) else None
    if not match:
        raise ValueError("not an amount of memory; write it with a unit, for example 1Ti or 512Gi")
    return int(float(match.group(1)) * _MEMORY_UNITS[match.group(2)])


def format_memory(value: int) -> str:
    """Write bytes as a Kubernetes quantity with the largest binary unit that keeps it exact."""
    for unit in ("Pi", "Ti", "Gi", "Mi", "Ki"):
        if value and value % _MEMORY_UNITS[unit] == 0:
            return f"{value // _MEMORY_UNITS[unit]}{unit}"
    return str(value)


def _positive(value: timedelta) -> timedelta:
    if value < _SHORTEST:
        raise ValueError("must be at least 1ms, for example 500ms, 90s or 2h")
    return value


Duration = Annotated[
    timedelta,
    BeforeValidator(parse_duration),
    PlainSerializer(format_duration, return_type=str),
    WithJsonSchema(
        {"type": "string", "examples": ["90s", "4m30s", "2h"], "pattern": r"^([0-9.]+\s*(ms|d|h|m|s)\s*)+$"}
    ),
]
"""A length of time, zero or more; canonical form `1h30m`."""

PositiveDuration = Annotated[
    timedelta,
    BeforeValidator(lambda value: _positive(parse_duration(value))),
    PlainSerializer(format_duration, return_type=str),
    WithJsonSchema(
        {"type": "string", "examples": ["90s", "4m30s", "2h"], "pattern": r"^([0-9.]+\s*(ms|d|h|m|s)\s*)+$"}
    ),
]
"""A length of time above zero."""


def _above_zero(value: Decimal) -> Decimal:
    if value <= 0:
        raise ValueError("must be more than 0; at a price of 0 no budget would ever be used up")
    return value


Usd = Annotated[
    Decimal,
    BeforeValidator(parse_usd),
    PlainSerializer(_canonical_usd, return_type=str),
    WithJsonSchema({"type": ["string", "number"], "examples": ["20000 USD", 1.10], "minimum": 0}),
]
"""An amount of US dollars, zero or more."""

Price = Annotated[
    Decimal,
    BeforeValidator(lambda value: _above_zero(parse_usd(value))),
    PlainSerializer(_canonical_usd, return_type=str),
    WithJsonSchema({"type": ["string", "number"], "examples": ["3.50 USD", 3.50], "exclusiveMinimum": 0}),
]
"""An amount of US dollars above zero."""

Memory = Annotated[
    int,
    BeforeValidator(parse_memory),
    Field(gt=0),
    PlainSerializer(format_memory, return_type=str),
    WithJsonSchema({"type": "string", "examples": ["1Ti", "512Gi"]}),
]
"""An amount of memory in bytes; canonical form `1Ti`."""

_KUBE_NAME: Final = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")


def parse_kube_name(value: object) -> str:
    """Check an RFC 1123 label, the form Kubernetes asks of names that become labels and namespaces.

    Raises:
        ValueError: naming the form and the nearest legal name.
    """
    if not isinstance(value, str):
        raise ValueError("must be text; quote it if it looks like a number")
    if not _KUBE_NAME.fullmatch(value):
        hint = re.sub(r"[^a-z0-9]+", "-", value.lower()).strip("-")[:63]
        fix = f"; try {hint}" if hint else ""
        raise ValueError(f"not a Kubernetes name (1 to 63 of a-z, 0-9 and '-', no '-' at the ends){fix}")
    return value


KubeName = Annotated[
    str,
    BeforeValidator(parse_kube_name),
    WithJsonSchema({"type": "string", "pattern": "^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$"}),
]
"""A name that Kubernetes accepts as a namespace, label value and object name."""

GpuCount = Annotated[int, Field(ge=0, le=1_000_000, strict=True)]
"""A number of whole GPUs."""
