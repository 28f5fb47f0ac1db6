"""Puts the prices of one region into the text of a catalogue table.

It edits lines, so that comments and the other regions stay as they are, and it writes no file.

Invariants: the result is valid TOML, and differs from the old text in the region's section only.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping
from datetime import date
from decimal import Decimal
from typing import Any

from infra.prices.offer import PriceListError

_ORIGIN = ("as_of", "source")
_DECIMALS = 6  # as in AWS's own tables; a price with more keeps them


def with_prices(text: str, region: str, usd_per_hour: Mapping[str, Decimal], source: str, as_of: date) -> str:
    """The table's text with the region's section replaced, or added where it had none.

    Types stand in the order of the table; the prices of types that the table does not have are left out.

    Raises:
        PriceListError: the table is not laid out as the shipped one.
    """
    before = tomllib.loads(text)
    types = [name for name in before["types"] if name in usd_per_hour]
    width = max(len(json.dumps(name)) for name in before["types"])
    section = [
        f"[prices.{region}]",
        f"as_of = {as_of.isoformat()}",
        f"source = {json.dumps(source)}",
        *(f'{json.dumps(name):<{width}} = "{format_price(usd_per_hour[name])}"' for name in types),
    ]
    lines = text.splitlines()
    begin, end = _place(lines, region)
    if begin == end:
        section = ["", *section] if begin == len(lines) else [*section, ""]
    after = "\n".join([*lines[:begin], *section, *lines[end:]]) + "\n"
    if not _differs_only_in(region, before, after):
        raise PriceListError(f"the section [prices.{region}] of the table cannot be told apart; edit it by hand")
    return after


def prices_in(text: str, region: str) -> dict[str, Decimal]:
    """The price of each type that the table's text has in the region."""
    section = tomllib.loads(text)["prices"].get(region, {})
    prices = {
        name: row["usd"] if isinstance(row, dict) else row for name, row in section.items() if name not in _ORIGIN
    }
    return {name: Decimal(usd) for name, usd in prices.items()}


def format_price(usd: Decimal) -> str:
    """At least six decimals, so that equal prices read alike whatever the list writes."""
    exact = f"{usd.normalize():f}"
    return exact if len(exact.partition(".")[2]) > _DECIMALS else f"{usd:.{_DECIMALS}f}"


def _place(lines: list[str], region: str) -> tuple[int, int]:
    """First and end line of the region's section; equal where a new one belongs, in the order of the regions."""
    starts = [at for at, line in enumerate(lines) if line.startswith("[prices.")]
    for at in starts:
        name = lines[at].partition("]")[0].removeprefix("[prices.")
        if name == region:
            end = next((later for later in range(at + 1, len(lines)) if lines[later].startswith("[")), len(lines))
            while not lines[end - 1].strip() or lines[end - 1].startswith("#"):  # they belong to the next section
                end -= 1
            return at, end
        if name > region:
            return at, at
    return len(lines), len(lines)


def _differs_only_in(region: str, before: dict[str, Any], text: str) -> bool:
    try:
        after = tomllib.loads(text)
    except tomllib.TOMLDecodeError:
        return False
    left, right = (document | {"prices": document["prices"] | {region: None}} for document in (before, after))
    return left == right
