"""Amounts of memory and data in bytes: `512Gi`, `1Ti`, `500 GB`.

Bits are no size (see rates). Both types hold the exact number of bytes; they differ in their canonical form: memory is
a Kubernetes quantity, data is written the way disks and data sets are sold.
"""

from __future__ import annotations

import re
from decimal import Decimal
from typing import Annotated, Final

from pydantic import BeforeValidator, Field, PlainSerializer, PlainValidator, WithJsonSchema

from stacks.quantities.text import text_of, text_schema

_BINARY: Final = {"Pi": 2**50, "Ti": 2**40, "Gi": 2**30, "Mi": 2**20, "Ki": 2**10}
_DECIMAL: Final = {"P": 10**15, "T": 10**12, "G": 10**9, "M": 10**6, "k": 10**3}
_UNITS: Final = _BINARY | _DECIMAL
_SIZE: Final = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*(Ki|Mi|Gi|Ti|Pi|k|M|G|T|P)B?")
_PLAIN_BYTES: Final = re.compile(r"([0-9]+)\s*B")
_LARGEST: Final = 2**63 - 1  # what Kubernetes keeps in a resource quantity


def parse_memory(value: object) -> int:
    """Read `1Ti`, `2048Gi`, `512 GB` or a number of bytes; the result is bytes.

    Raises:
        ValueError: for text without a proper unit, and for more than Kubernetes can count.
    """
    if isinstance(value, int) and not isinstance(value, bool):
        return _countable(Decimal(value), "memory", "512Gi")
    text = text_of(value, "an amount of memory", "512Gi") if isinstance(value, str) else ""
    if match := _PLAIN_BYTES.fullmatch(text):
        return _countable(Decimal(match.group(1)), "memory", "512Gi")
    match = _SIZE.fullmatch(text)
    if not match:
        raise ValueError("not an amount of memory; write it with a unit, for example 1Ti or 512Gi")
    return _countable(Decimal(match.group(1)) * _UNITS[match.group(2)], "memory", "512Gi")


def format_memory(value: int) -> str:
    """Write bytes as a Kubernetes quantity with the largest binary unit that keeps it exact."""
    count, unit = _whole(value, _BINARY)
    return f"{count}{unit}"


def _canonical_memory(value: int) -> str:
    """As format_memory, with a unit in any case, since text without one is not read back."""
    text = format_memory(value)
    return f"{text}B" if text.isdigit() else text


def parse_data_size(value: object) -> int:
    """Read `500 GB`, `10 TB`, `2Ti` or `1.5 TiB`; the result is bytes.

    Raises:
        ValueError: for a bare number, for bits, for a part of a byte, and for more than 8 EiB.
    """
    text = text_of(value, "a size with its unit", "500 GB")
    if match := _PLAIN_BYTES.fullmatch(text):
        return _countable(Decimal(match.group(1)), "data", "500 GB")
    match = _SIZE.fullmatch(text)
    if not match:
        raise ValueError(
            "not a size; write a number and one of kB, MB, GB, TB, PB, KiB, MiB, GiB, TiB, PiB "
            "(B is bytes; capital letters matter), for example 500 GB or 2 TiB"
        )
    size = Decimal(match.group(1)) * _UNITS[match.group(2)]
    if size != size.to_integral_value():
        raise ValueError("not a whole number of bytes; round it, for example 500 GB")
    return _countable(size, "data", "500 GB")


def format_data_size(value: int) -> str:
    """Write bytes as a whole number of the largest unit; the shorter of decimal and binary, decimal where equal."""
    decimal_count, decimal_unit = _whole(value, _DECIMAL)
    binary_count, binary_unit = _whole(value, _BINARY)
    count, unit = (decimal_count, decimal_unit) if decimal_count <= binary_count else (binary_count, binary_unit)
    return f"{count} {unit}B"


def _whole(value: int, units: dict[str, int]) -> tuple[int, str]:
    for unit, size in units.items():
        if value and value % size == 0:
            return value // size, unit
    return value, ""


def _countable(size: Decimal, what: str, example: str) -> int:
    if size > _LARGEST:
        raise ValueError(f"8 EiB of {what} or more; check the unit, for example {example}")
    return int(size)


Memory = Annotated[
    int,
    BeforeValidator(parse_memory),
    Field(gt=0),
    PlainSerializer(_canonical_memory, return_type=str),
    WithJsonSchema(
        {
            "type": ["string", "integer"],
            "description": "An amount of memory, as Kubernetes writes it.",
            "examples": ["1Ti", "512Gi"],
            "exclusiveMinimum": 0,
            "pattern": r"^\s*[0-9]+(\.[0-9]+)?\s*(([KMGTP]i|[kMGTP])B?)?\s*$",
        }
    ),
]
"""An amount of memory in bytes; canonical form `1Ti`."""

NodeMemory = Annotated[Memory, Field(le=64 * 2**40)]
"""Memory of one machine: 64Ti at most, so that the sum over a fleet stays a number that Kubernetes can count."""

DataSize = Annotated[
    int,
    PlainValidator(parse_data_size),
    PlainSerializer(format_data_size, return_type=str),
    text_schema(
        "An amount of data with its unit; decimal (GB) or binary (GiB).",
        ["500 GB", "10 TB", "2 TiB"],
        r"^\s*[0-9]+(\.[0-9]+)?\s*(([KMGTP]i|[kMGTP])B?|B)\s*$",
    ),
]
"""An amount of data in bytes, zero or more; canonical form `500 GB`, or `2 TiB` where that is the rounder number."""
