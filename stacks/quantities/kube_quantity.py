"""Kubernetes resource quantities: `500m`, `16Gi`, `2`, `1e3`.

The grammar, the rounding and the canonical form are those of `resource.Quantity` in k8s.io/apimachinery, so that the
text we write is the text the API server shows. Unlike there, a negative quantity and one above 2^63-1 are errors, since
no resource can have them. Two quantities are equal when their amounts are.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from decimal import ROUND_UP, Decimal, localcontext
from typing import Annotated, Final

from pydantic import PlainSerializer, PlainValidator, WithJsonSchema

from stacks.quantities.text import LONGEST_TEXT, text_of

_QUANTITY: Final = re.compile(
    r"([+-]?)([0-9]+\.?[0-9]*|\.[0-9]+)\s*(Ki|Mi|Gi|Ti|Pi|Ei|[numkMGTPE]|[eE][+-]?[0-9]{1,3})?"
)
_BINARY: Final = {"Ei": 2**60, "Pi": 2**50, "Ti": 2**40, "Gi": 2**30, "Mi": 2**20, "Ki": 2**10}
_EXPONENTS: Final = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_SUFFIXES: Final = {exponent: suffix for suffix, exponent in _EXPONENTS.items()}
_FINEST: Final = Decimal("1e-9")
_LARGEST: Final = 2**63 - 1
_PRECISION: Final = 2 * LONGEST_TEXT  # enough for any number of that many characters times any unit
_HELP: Final = "write it like 500m, 2 or 16Gi"


@dataclass(frozen=True, slots=True)
class Quantity:
    """An amount of a resource, and its canonical text."""

    amount: Decimal
    text: str = field(compare=False)

    def __str__(self) -> str:
        return self.text


def parse_kube_quantity(value: object) -> Quantity:
    """Read `500m`, `16Gi`, `1e3`, or a number.

    Raises:
        ValueError: for text outside of the grammar, a negative amount, and one that Kubernetes cannot count.
    """
    if isinstance(value, Quantity):
        return value
    match = _QUANTITY.fullmatch(_quantity_text(value))
    if not match:
        without_b = " (Kubernetes writes no B for bytes: 16Gi)" if str(value).endswith("B") else ""
        raise ValueError(f"not a Kubernetes quantity{without_b}; {_HELP}")
    sign, number, suffix = match.group(1), match.group(2), match.group(3) or ""
    with localcontext() as context:
        context.prec = _PRECISION
        amount = Decimal(number) * _factor(suffix)
        if sign == "-" and amount:
            raise ValueError(f"must not be negative; {_HELP}")
        if amount > _LARGEST:
            raise ValueError(f"more than 2^63-1, the most that Kubernetes counts; {_HELP}")
        amount = amount.quantize(_FINEST, rounding=ROUND_UP).normalize()
        return Quantity(amount, _canonical(amount, suffix))


def _quantity_text(value: object) -> str:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return text_of(value, "a Kubernetes quantity", "500m, 2 or 16Gi")
    if not -_LARGEST <= value <= _LARGEST:  # infinity and not-a-number too
        raise ValueError(f"more than 2^63-1, the most that Kubernetes counts; {_HELP}")
    return f"{Decimal(repr(value)):f}"


def _factor(suffix: str) -> Decimal:
    if suffix in _BINARY:
        return Decimal(_BINARY[suffix])
    if suffix in _EXPONENTS:
        return Decimal(1).scaleb(_EXPONENTS[suffix])
    return Decimal(1).scaleb(int(suffix[1:]))


def _canonical(amount: Decimal, suffix: str) -> str:
    """The largest suffix of the same family that leaves a whole number, as apimachinery writes it."""
    if not amount:
        return "0"
    if suffix in _BINARY and amount >= _BINARY["Ki"] and amount == amount.to_integral_value():
        unit = next((unit for unit, size in _BINARY.items() if amount % size == 0), "")
        return f"{int(amount) // _BINARY.get(unit, 1)}{unit}"
    exponent = max(power for power in _SUFFIXES if not amount.scaleb(-power) % 1)
    mantissa = int(amount.scaleb(-exponent))
    if suffix in _BINARY or suffix in _EXPONENTS:
        return f"{mantissa}{_SUFFIXES[exponent]}"
    return f"{mantissa}e{exponent}" if exponent else str(mantissa)


KubeQuantity = Annotated[
    Quantity,
    PlainValidator(parse_kube_quantity),
    PlainSerializer(str, return_type=str),
    WithJsonSchema(
        {
            "type": ["string", "number"],
            "description": "A Kubernetes resource quantity.",
            "examples": ["500m", "16Gi", 2],
            "minimum": 0,
            "pattern": r"^\s*\+?([0-9]+\.?[0-9]*|\.[0-9]+)\s*([KMGTPE]i|[numkMGTPE]|[eE][+-]?[0-9]{1,3})?\s*$",
        }
    ),
]
"""An amount of a Kubernetes resource, zero or more; canonical form as the API server shows it."""
