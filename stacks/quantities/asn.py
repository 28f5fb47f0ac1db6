"""Autonomous system numbers of BGP: `65010`, `AS65010`, `"1.10"`.

Whether a cloud accepts a number on its side is a rule of that cloud's part of the file. The canonical form is the
plain number.
"""

from __future__ import annotations

import re
from typing import Annotated, Final

from pydantic import PlainValidator, WithJsonSchema

from stacks.quantities.text import text_of

_LARGEST: Final = 2**32 - 1  # RFC 6793
_PART: Final = 2**16
_PRIVATE: Final = (range(64_512, 65_535), range(4_200_000_000, 4_294_967_295))  # RFC 6996
_ASN: Final = re.compile(r"(?:AS\s*)?(?:([0-9]{1,5})\.)?([0-9]{1,10})", re.IGNORECASE)


def parse_asn(value: object) -> int:
    """Read `65010`, `AS65010` or, in quotes, `1.10` (RFC 5396, high and low sixteen bits).

    Raises:
        ValueError: for what is no number, an unquoted dotted number, and a number out of range.
    """
    if isinstance(value, float):
        raise ValueError('is a decimal number; put a dotted ASN in quotes, for example "1.10", or write 65010')
    if isinstance(value, int) and not isinstance(value, bool):
        return _in_range(value)
    match = _ASN.fullmatch(text_of(value, "an autonomous system number", "65010"))
    if not match:
        raise ValueError("not an autonomous system number; write a number, for example 65010 or AS65010")
    high, low = match.groups()
    if high is None:
        return _in_range(int(low))
    if int(high) >= _PART or int(low) >= _PART:
        raise ValueError('both parts of a dotted ASN must be from 0 to 65535, for example "1.10"')
    return _in_range(int(high) * _PART + int(low))


def is_private_asn(number: int) -> bool:
    """Whether a number is free for private use (RFC 6996)."""
    return any(number in numbers for numbers in _PRIVATE)


def _in_range(number: int) -> int:
    if not 1 <= number <= _LARGEST:
        raise ValueError(f"an autonomous system number is from 1 to {_LARGEST}, for example 65010")
    return number


Asn = Annotated[
    int,
    PlainValidator(parse_asn),
    WithJsonSchema(
        {
            "type": ["integer", "string"],
            "description": "An autonomous system number of BGP.",
            "examples": [65010, "AS65010"],
            "minimum": 1,
            "maximum": _LARGEST,
            "pattern": r"^\s*([Aa][Ss]\s*)?([0-9]{1,5}\.)?[0-9]{1,10}\s*$",
        }
    ),
]
"""An autonomous system number, 1 to 4294967295."""
