"""Amounts of US dollars: `20000 USD`, `$1,250.50`, `60k USD`, `1.10`.

Other currencies are refused: a budget that moves with an exchange rate is none. Commas may only group thousands, since
`20,50` would otherwise be read as two thousand and fifty. An amount is exact, zero or more, and below a quadrillion.
"""

from __future__ import annotations

import re
from decimal import ROUND_HALF_UP, Decimal
from typing import Annotated, Final

from pydantic import BeforeValidator, PlainSerializer, WithJsonSchema

from stacks.quantities.text import plain_number, text_of

_MONEY: Final = re.compile(r"(?:USD|\$)?\s*(-?[0-9][0-9,_.]*)\s?([A-Za-z]?)\s*(?:USD|\$)?", re.IGNORECASE)
_NUMBER: Final = re.compile(r"-?(?:[0-9]+|[0-9]{1,3}(?:,[0-9]{3})+)(?:\.[0-9]+)?")
_FACTORS: Final = {"": 1, "k": 1_000, "K": 1_000, "M": 1_000_000}
_OTHER_CURRENCY: Final = re.compile(
    r"\b(EUR|GBP|JPY|CHF|CNY|INR|AUD|CAD|NZD|SGD|HKD|SEK|NOK|DKK|PLN|CZK|KRW|TWD|BRL|MXN|ZAR|ILS)\b|[€£¥₹₩]",
    re.IGNORECASE,
)
_PATTERN: Final = r"^\s*([Uu][Ss][Dd]|\$)?\s*[0-9][0-9,_.]*\s?[kKmM]?\s*([Uu][Ss][Dd]|\$)?\s*$"
_LIMIT: Final = Decimal(10**15)
_MOST_DECIMALS: Final = 12
"""With fifteen digits before the point it keeps every amount within the 28 digits of decimal arithmetic."""


def parse_usd(value: object) -> Decimal:
    """Read `60000 USD`, `$1,250.50`, `60k USD`, `1.10` or a plain number of US dollars.

    Raises:
        ValueError: for another currency, a negative amount, or text that is not an amount or could be read in two ways.
    """
    if isinstance(value, Decimal):
        return _in_range(value)
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise ValueError("write an amount of US dollars, for example 20000 USD")
    if isinstance(value, int):
        return _in_range(Decimal(value))
    text = text_of(value if isinstance(value, str) else f"{Decimal(repr(value)):f}", "an amount", "20000 USD")
    if other := _OTHER_CURRENCY.search(text):
        raise ValueError(f"{other.group(0)} is not supported; convert to US dollars, for example 20000 USD")
    match = _MONEY.fullmatch(text)
    if not match:
        raise ValueError("not an amount; write it like 20000 USD or 1.10")
    digits, factor = match.group(1).replace("_", ""), match.group(2)
    if not _NUMBER.fullmatch(digits):
        raise ValueError(
            "not an amount, or one that can be read in two ways; a comma groups thousands and a point "
            "starts the cents, for example 20000.50 USD or 20,000.50 USD"
        )
    if factor not in _FACTORS:
        raise ValueError(f"{factor} is no factor; k is thousand and M is million, for example 60k USD or 1.5M USD")
    return _in_range(Decimal(digits.replace(",", "")) * _FACTORS[factor])


def _in_range(amount: Decimal) -> Decimal:
    if not amount.is_finite():
        raise ValueError("not an amount; write it like 20000 USD or 1.10")
    if amount < 0:
        raise ValueError("must not be negative")
    if amount >= _LIMIT:
        raise ValueError("a quadrillion dollars or more; check the amount, for example 20000 USD")
    if amount != round(amount, _MOST_DECIMALS):
        raise ValueError(f"has more than {_MOST_DECIMALS} decimals; round it, for example 1.10 USD")
    return amount


def format_usd(value: Decimal) -> str:
    """Write an amount for a person: two decimals, thousands separated, for example `$1,250.50`."""
    return f"${value.quantize(Decimal('0.01'), rounding=ROUND_HALF_UP):,}"


def _canonical_usd(value: Decimal) -> str:
    return f"{plain_number(value)} USD"


def _parse_price(value: object) -> Decimal:
    amount = parse_usd(value)
    if amount <= 0:
        raise ValueError("must be more than 0; at a price of 0 no budget would ever be used up")
    return amount


def _schema(description: str, examples: list[str | float], lowest: dict[str, int]) -> WithJsonSchema:
    kinds = ["string", "number"]
    return WithJsonSchema(
        {"type": kinds, "description": description, "examples": examples, **lowest, "pattern": _PATTERN}
    )


Usd = Annotated[
    Decimal,
    BeforeValidator(parse_usd),
    PlainSerializer(_canonical_usd, return_type=str),
    _schema("An amount of US dollars.", ["20000 USD", 1.10], {"minimum": 0}),
]
"""An amount of US dollars, zero or more."""

Price = Annotated[
    Decimal,
    BeforeValidator(_parse_price),
    PlainSerializer(_canonical_usd, return_type=str),
    _schema("A price in US dollars.", ["3.50 USD", 3.50], {"exclusiveMinimum": 0}),
]
"""An amount of US dollars above zero."""
