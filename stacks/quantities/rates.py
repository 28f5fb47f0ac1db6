"""Percentages and network bandwidths: `20%`, `1.25 Gbps`.

A bare number is refused for both: 0.2 could be a fifth or a fifth of a percent, and 10 could be any unit. Bits and
bytes per second are told apart by the exact spelling, so the spellings that people use for both are refused.
"""

from __future__ import annotations

import re
from decimal import Decimal
from typing import Annotated, Final

from pydantic import PlainSerializer, PlainValidator

from stacks.quantities.text import plain_number, text_of, text_schema

_PERCENTAGE: Final = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*%")

_PREFIXES: Final = {"T": 10**12, "G": 10**9, "M": 10**6, "k": 10**3, "": 1}
_BITS: Final = ("bps", "bit/s", "Bit/s", "b/s")
_BIT_UNITS: Final = {f"{prefix}{bits}": factor for prefix, factor in _PREFIXES.items() for bits in _BITS}
_LOWER_UNITS: Final = {f"{prefix.lower()}{bits}": factor for prefix, factor in _PREFIXES.items() for bits in _BITS[:2]}
_UNITS: Final = _BIT_UNITS | _LOWER_UNITS | {"MB/s": 8 * 10**6, "GB/s": 8 * 10**9}
_RATE: Final = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*([A-Za-z/]+)")
_FASTEST: Final = 10**16  # ten thousand Tbps; the fastest GPU instances have 6.4


def parse_percentage(value: object) -> float:
    """Read `20%` or `20 %`; the result is the fraction 0.0 to 1.0.

    Raises:
        ValueError: for a bare number, text without %, and anything outside 0% to 100%.
    """
    if isinstance(value, int | float) and not isinstance(value, bool):
        raise ValueError("a bare number can be read as a fraction or a percentage; write it with %, for example 20%")
    match = _PERCENTAGE.fullmatch(text_of(value, "a percentage", "20%"))
    if not match:
        raise ValueError("not a percentage; write a number from 0 to 100 and a %, for example 20%")
    fraction = Decimal(match.group(1)) / 100
    if fraction > 1:
        raise ValueError("more than 100%; write a share of the whole, for example 20%")
    return float(fraction)


def format_percentage(value: float) -> str:
    """Write a fraction in its canonical form, for example `20%` or `12.5%`."""
    return f"{plain_number(Decimal(repr(value)) * 100)}%"


def parse_rate(value: object) -> int:
    """Read `1.25 Gbps`, `10Gbit/s`, `500 Mb/s` or, for bytes, exactly `GB/s` and `MB/s`; the result is bits per second.

    Raises:
        ValueError: for a bare number, an unknown or ambiguous unit, zero, and a rate beyond any network.
    """
    match = _RATE.fullmatch(text_of(value, "a bandwidth with its unit", "1.25 Gbps"))
    if not match:
        raise ValueError("not a bandwidth; write a number and bps, kbps, Mbps, Gbps or Tbps, for example 1.25 Gbps")
    if match.group(2) not in _UNITS:
        raise ValueError(
            f"{match.group(2)} is no unit, or one that can mean bits or bytes; write bits as Mbps or Gbps and "
            "bytes as MB/s or GB/s, for example 1.25 Gbps"
        )
    bits = Decimal(match.group(1)) * _UNITS[match.group(2)]
    if bits > _FASTEST:
        raise ValueError("more than 10,000 Tbps; check the unit, for example 1.25 Gbps")
    if not bits or bits != bits.to_integral_value():
        raise ValueError("must be a whole number of bits per second, at least 1, for example 1.25 Gbps")
    return int(bits)


def format_rate(value: int) -> str:
    """Write bits per second with the largest unit that leaves at least one, for example `1.25 Gbps`."""
    prefix = next((prefix for prefix, factor in _PREFIXES.items() if value >= factor), "")
    return f"{plain_number(Decimal(value) / _PREFIXES[prefix])} {prefix}bps"


Percentage = Annotated[
    float,
    PlainValidator(parse_percentage),
    PlainSerializer(format_percentage, return_type=str),
    text_schema("A share of the whole, 0% to 100%.", ["20%", "12.5%"], r"^\s*[0-9]+(\.[0-9]+)?\s*%\s*$"),
]
"""A fraction 0.0 to 1.0, written with a percent sign; canonical form `20%`."""

Rate = Annotated[
    int,
    PlainValidator(parse_rate),
    PlainSerializer(format_rate, return_type=str),
    text_schema(
        "A network bandwidth in bits per second; GB/s and MB/s are bytes.",
        ["1.25 Gbps", "500 Mbps"],
        r"^\s*[0-9]+(\.[0-9]+)?\s*([kMGTmgt]?(bps|[bB]it/s)|[kMGT]?b/s|[MG]B/s)\s*$",
    ),
]
"""A network bandwidth in bits per second, above zero; canonical form `1.25 Gbps`."""
