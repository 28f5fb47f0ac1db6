"""Reads an AWS price list offer file: Linux, on-demand prices of the instance types of one region.

It takes both published forms. The CSV is read row by row, whatever its size; the JSON has to be held as a whole, so a
large one is refused. It knows no catalogue: which types are of interest is the caller's matter.

Invariants: a price is in US dollars per instance-hour and more than 0; two different prices of one type are an error,
never a choice.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import date
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import Any, TextIO

from infra.local.errors import LocalError

OFFER = "AmazonEC2"
_MOST_METADATA_LINES = 20  # the CSV has five of them before its heading
_MOST_JSON_BYTES = 512 * 2**20  # json needs about ten times as much memory
_MOST_USD_PER_HOUR = 10_000  # the dearest instance costs a few hundred

# What the plain price of an instance-hour says of itself, by the CSV's heading. Reserved, dedicated, Windows,
# pre-installed software, unused capacity reservations and Capacity Blocks say something else.
_WANTED: Mapping[str, frozenset[str]] = {
    "TermType": frozenset({"OnDemand"}),
    "Unit": frozenset({"Hrs"}),
    "Currency": frozenset({"USD"}),
    "Product Family": frozenset({"Compute Instance", "Compute Instance (bare metal)"}),
    "Operating System": frozenset({"Linux"}),
    "Tenancy": frozenset({"Shared"}),
    "Pre Installed S/W": frozenset({"NA", ""}),
    "CapacityStatus": frozenset({"Used"}),
    "MarketOption": frozenset({"OnDemand", ""}),
}
_MAY_BE_MISSING = frozenset({"MarketOption"})  # lists before 2024 have no such column
_NEEDED = (*(name for name in _WANTED if name not in _MAY_BE_MISSING), "Instance Type", "Region Code", "PricePerUnit")

# The same attributes in the JSON form.
_JSON_ATTRIBUTES: Mapping[str, str] = {
    "Operating System": "operatingSystem",
    "Tenancy": "tenancy",
    "Pre Installed S/W": "preInstalledSw",
    "CapacityStatus": "capacitystatus",
    "MarketOption": "marketoption",
    "Instance Type": "instanceType",
    "Region Code": "regionCode",
    "GPU": "gpu",
}


class PriceListError(LocalError):
    """A price list cannot be had, read or used."""


@dataclass(frozen=True, slots=True)
class PriceList:
    """The prices of one region."""

    region: str
    """AWS region."""

    published: date
    """The day the list was published."""

    version: str
    """AWS's version of the list."""

    usd_per_hour: Mapping[str, Decimal]
    """By instance type, all of the region."""

    with_gpus: frozenset[str]
    """Those of them that have a GPU of any vendor."""


def read_offer(path: Path, region: str) -> PriceList:
    """The prices of a region from an offer file, JSON or CSV.

    Raises:
        PriceListError: not such a file, or it has no price of the region, or more than one of a type.
    """
    try:
        with path.open(encoding="utf-8-sig", newline="") as stream:
            first = stream.read(1)
            stream.seek(0)
            metadata, rows = _json_form(stream, path) if first == "{" else _csv_form(stream)
            if metadata["OfferCode"] != OFFER:
                raise PriceListError(f"{path}: an offer file of {metadata['OfferCode'][:40]!r}; {OFFER} is needed")
            return _collect(path, region, metadata, rows)
    except OSError as error:
        raise PriceListError(f"{path}: {error.strerror or error}") from error
    except (ValueError, csv.Error, KeyError, TypeError, AttributeError, RecursionError, InvalidOperation) as error:
        # What a file of another shape does to the readers below: it is said once, for all of them.
        raise PriceListError(
            f"{path}: not an AWS price list offer file of {OFFER} (index.json or index.csv): {_reason(error)}"
        ) from error


def _collect(path: Path, region: str, metadata: Mapping[str, str], rows: Iterator[dict[str, str]]) -> PriceList:
    prices: dict[str, Decimal] = {}
    with_gpus: set[str] = set()
    regions: set[str] = set()
    for row in rows:
        if not all(row.get(name, "") in values for name, values in _WANTED.items()):
            continue
        regions.add(row["Region Code"])
        price, name = Decimal(row["PricePerUnit"]), row["Instance Type"]
        if row["Region Code"] != region or not price:
            continue
        if not 0 < price < _MOST_USD_PER_HOUR:
            raise PriceListError(f"{path}: {name} costs {price} USD an hour; that cannot be right")
        if prices.setdefault(name, price) != price:
            raise PriceListError(f"{path}: two prices of {name} in {region}: {prices[name]:f} and {price:f} USD")
        if row.get("GPU", "") not in ("", "NA", "0"):
            with_gpus.add(name)
    if not prices:
        known = f"it has {', '.join(sorted(regions)[:20])}" if regions else "it has no Linux on-demand prices at all"
        raise PriceListError(f"{path}: no price of {region}; {known}")
    published = date.fromisoformat(metadata["Publication Date"][:10])
    return PriceList(region, published, metadata["Version"], prices, frozenset(with_gpus))


def _csv_form(stream: TextIO) -> tuple[Mapping[str, str], Iterator[dict[str, str]]]:
    """Metadata lines of two cells, a heading, and one row for each price."""
    lines = csv.reader(stream)
    metadata: dict[str, str] = {}
    for _ in range(_MOST_METADATA_LINES):
        cells = next(lines, None)
        if cells is None:
            break
        if cells[:1] == ["SKU"]:
            missing = [name for name in _NEEDED if name not in cells]
            if missing:
                raise ValueError(f"no column {missing[0]}")
            return metadata, _csv_rows(cells, lines)
        if len(cells) == 2:
            metadata[cells[0]] = cells[1]
    raise ValueError("no heading that begins with SKU")


def _csv_rows(heading: list[str], lines: Iterator[list[str]]) -> Iterator[dict[str, str]]:
    for number, row in enumerate(lines, 1):
        if len(row) != len(heading):
            raise ValueError(f"row {number} has {len(row)} cells for {len(heading)} columns; is the file cut short?")
        yield dict(zip(heading, row, strict=True))


def _json_form(stream: TextIO, path: Path) -> tuple[Mapping[str, str], Iterator[dict[str, str]]]:
    if (size := path.stat().st_size) > _MOST_JSON_BYTES:
        raise PriceListError(
            f"{path}: {size / 2**20:.0f} MiB of JSON is too much to hold; take index.csv from the same place"
        )
    document = json.load(stream)
    metadata = {
        "OfferCode": document["offerCode"],
        "Publication Date": document["publicationDate"],
        "Version": document["version"],
    }
    return metadata, _json_rows(document)


def _json_rows(document: dict[str, Any]) -> Iterator[dict[str, str]]:
    """The rows that the CSV would have: products are looked up by the SKU of each on-demand term."""
    for sku, terms in document["terms"]["OnDemand"].items():
        product = document["products"].get(sku)
        if product is None or "instanceType" not in product["attributes"]:
            continue
        about = {ours: product["attributes"].get(theirs, "") for ours, theirs in _JSON_ATTRIBUTES.items()}
        for term in terms.values():
            for dimension in term["priceDimensions"].values():
                for currency, price in dimension["pricePerUnit"].items():
                    yield about | {
                        "TermType": "OnDemand",
                        "Product Family": product.get("productFamily", ""),
                        "Unit": dimension["unit"],
                        "Currency": currency,
                        "PricePerUnit": price,
                    }


def _reason(error: Exception) -> str:
    if isinstance(error, KeyError):
        return f"no {error.args[0]}"
    if isinstance(error, UnicodeDecodeError):
        return "it is not text"
    if isinstance(error, RecursionError):
        return "it is nested too deeply"
    if isinstance(error, InvalidOperation):
        return "a price is not a number"
    return str(error)
