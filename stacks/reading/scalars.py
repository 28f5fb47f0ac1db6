"""What a plain YAML scalar means, exactly as Pulumi reads it.

Pulumi reads stack files with Go's gopkg.in/yaml.v3 and hands the values on as JSON. That reader is closer to YAML 1.2
than PyYAML is: `yes`, `off` and `22:00` are text, `010` and `0o10` are 8, `1_000` is 1000. `gpufleet check` and
`pulumi preview` must see one object, so this module follows yaml.v3's resolve.go, not PyYAML's resolvers.

A date is where the two could not agree on anything useful (Go hands on `2026-01-01 00:00:00 +0000 UTC`); the reader
refuses it and asks for quotes. So it does with infinity and not-a-number, which JSON cannot carry.
"""

from __future__ import annotations

import math
import re
from decimal import Decimal
from typing import Final, Literal

Kind = Literal["null", "bool", "int", "float", "timestamp", "str"]

_WORDS: Final[dict[str, tuple[Kind, bool | float | None]]] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL"), ("null", None)),
    **dict.fromkeys(("true", "True", "TRUE"), ("bool", True)),
    **dict.fromkeys(("false", "False", "FALSE"), ("bool", False)),
    **dict.fromkeys((".nan", ".NaN", ".NAN"), ("float", math.nan)),
    **dict.fromkeys((".inf", ".Inf", ".INF", "+.inf", "+.Inf", "+.INF"), ("float", math.inf)),
    **dict.fromkeys(("-.inf", "-.Inf", "-.INF"), ("float", -math.inf)),
}
_MEANINGFUL_FIRST: Final = frozenset("+-.0123456789~nNtTfF")
_TIMESTAMP: Final = re.compile(
    r"\d{4}-\d{1,2}-\d{1,2}"
    r"(?:[Tt]\d{1,2}:\d{1,2}:\d{1,2}(?:[.,]\d+)?(?:Z|[+-]\d\d:\d\d)| \d{1,2}:\d{1,2}:\d{1,2}(?:[.,]\d+)?)?",
    re.ASCII,
)
_INTEGER: Final = re.compile(r"([+-]?)(?:0[xX]([0-9a-fA-F]+)|0[bB]([01]+)|0[oO]?([0-7]+)|(0|[1-9][0-9]*))", re.ASCII)
_FLOAT: Final = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?", re.ASCII)
_LOOSE_UNDERSCORE: Final = re.compile(r"(?<![0-9])_|_(?![0-9])", re.ASCII)

_INTEGERS: Final = range(-(2**63), 2**64)  # what Go's int64 and uint64 hold; beyond, yaml.v3 reads a float
_EXPONENT_FROM: Final = 1e21  # Go's JSON writes smaller whole floats without point or exponent: they arrive as integers


def resolve(text: str) -> tuple[Kind, bool | int | float | str | None]:
    """Kind and value of a plain scalar without a tag."""
    if text and text[0] not in _MEANINGFUL_FIRST:
        return "str", text
    if text in _WORDS:
        return _WORDS[text]
    if _TIMESTAMP.fullmatch(text):
        return "timestamp", text
    loose = text.startswith(".") and _LOOSE_UNDERSCORE.search(text)  # which Go's ParseFloat refuses after all
    digits = text if loose else text.replace("_", "")
    if (found := _INTEGER.fullmatch(digits)) and (value := _integer(found)) is not None:
        return "int", value
    if _FLOAT.fullmatch(digits) and math.isfinite(number := float(digits)):
        return "float", int(Decimal(repr(number))) if number.is_integer() and abs(number) < _EXPONENT_FROM else number
    return "str", text


def _integer(found: re.Match[str]) -> int | None:
    sign, *spellings = found.groups()
    for digits, base in zip(spellings, (16, 2, 8, 10), strict=True):
        if digits and len(digits.lstrip("0")) <= _INTEGERS.stop.bit_length():
            value = int(sign + digits, base)
            return value if value in _INTEGERS and not (sign == "+" and value > 2**63 - 1) else None
    return None
