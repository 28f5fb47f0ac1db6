"""Amounts of memory in bytes: `512Gi`, `1Ti`, `500 GB`.

Bits are no size (see rates). The value is the exact number of bytes; its canonical form is a Kubernetes quantity.
"""

from __future__ import annotations

import re
from decimal import Decimal
from typing import Annotated, Final

from pydantic import BeforeValidator, Field, PlainSerializer, WithJsonSchema

from stacks.quantities.text import text_of

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
