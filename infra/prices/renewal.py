"""The AWS table of the catalogue with the prices of a price list: what would change, and writing it.

Invariant: the table is replaced as a whole or not at all.
"""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from pathlib import Path

from infra.files import write_atomically
from infra.prices.offer import OFFER, PriceList, PriceListError
from infra.prices.table import prices_in, with_prices
from stacks.catalogue import catalogue


@dataclass(frozen=True, slots=True)
class Renewal:
    """The text of a table before and after."""

    before: str
    after: str
    changed: tuple[str, ...]
    """Types of the catalogue whose price in the region is new, another or gone."""
    unknown: tuple[str, ...]
    """Types with a GPU that the list has and the catalogue does not."""

    def diff(self, shown: str) -> str:
        """The change of the table, as git would show it; empty where there is none."""
        lines = difflib.unified_diff(
            self.before.splitlines(), self.after.splitlines(), f"a/{shown}", f"b/{shown}", lineterm=""
        )
        return "\n".join(lines)


def renewal(before: str, prices: PriceList) -> Renewal:
    """What a price list makes of a table.

    Raises:
        PriceListError: the list is older than the table, has nothing of the catalogue, or the table is laid out
            otherwise than the shipped one.
    """
    known = [row for row in catalogue().instance_types.values() if row.provider == "aws"]
    dates = [row.price_provenance[prices.region].as_of for row in known if prices.region in row.price_provenance]
    if dates and prices.published < min(dates):
        raise PriceListError(
            f"the price list of {prices.region} is of {prices.published}, and the table has prices of {min(dates)}; "
            "take a newer list"
        )
    if not any(row.id in prices.usd_per_hour for row in known):
        raise PriceListError(f"the price list has no price of any type of the catalogue in {prices.region}")
    source = f"AWS price list {OFFER} {prices.region}, version {prices.version}"
    after = with_prices(before, prices.region, prices.usd_per_hour, source, prices.published)
    old, new = prices_in(before, prices.region), prices_in(after, prices.region)
    return Renewal(
        before,
        after,
        changed=tuple(sorted(name for name in old.keys() | new.keys() if old.get(name) != new.get(name))),
        unknown=tuple(sorted(prices.with_gpus - set(catalogue().instance_types))),
    )


def save(table: Path, text: str) -> None:
    """Replace the table, with the rights that it has.

    Raises:
        PriceListError: it cannot be written.
    """
    path = table.resolve()  # a link stays a link
    try:
        write_atomically(path, text, path.stat().st_mode & 0o777)
    except OSError as error:
        raise PriceListError(f"{table}: cannot be written ({error.strerror}); apply the diff with git apply") from error
