"""Reads `catalog/*.toml` into the values of `stacks.catalogue.facts`.

It checks no figures: tests do, for the shipped tables, so that deployment does not pay for it.

Invariants: a row without a source or date of its own has its table's; a price has its own, its region's or the table's.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from decimal import Decimal
from functools import cache
from importlib import resources
from typing import Any

from stacks.catalogue.facts import Catalogue, GpuModel, InstanceType, MigGeometry, MigProfile, Provenance

PROVIDERS = ("aws", "gcp")
"""Clouds with a table of instance types."""

_REFERENCE_GPU = "h100-sxm-80gb"  # the model whose relative speed is 1


def read_table(name: str) -> dict[str, Any]:
    """One file of `catalog/`, e.g. `aws`, as it stands."""
    return tomllib.loads(resources.files("stacks").joinpath("catalog", f"{name}.toml").read_text("utf-8"))


@cache
def catalogue() -> Catalogue:
    """The shipped catalogue, read once per process.

    Raises:
        KeyError, TypeError, ValueError: when a shipped row lacks a field or has one too many; a packaging defect.
    """
    documents = {name: read_table(name) for name in ("gpus", "mig", *PROVIDERS)}
    geometries = dict(_geometries(documents["mig"]))
    gpus = dict(_gpus(documents["gpus"], geometries))
    types = {row.id: row for provider in PROVIDERS for row in _instance_types(provider, documents[provider])}
    prices = [price.as_of for row in types.values() for price in row.price_provenance.values()]
    tables = {name: Provenance(document["source"], document["as_of"]) for name, document in documents.items()}
    return Catalogue(gpus, types, tables, min(prices))


def _rows(document: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """The rows of a table; one without source or date of its own has the table's."""
    inherited = {"source": document["source"], "as_of": document["as_of"]}
    for key, row in document["types"].items():
        yield key, inherited | row


def _geometries(document: dict[str, Any]) -> Iterator[tuple[str, MigGeometry]]:
    for gpu, row in _rows(document):
        family = document["families"][row["family"]]
        sms = row.get("sms", [None] * len(row["gb"]))
        profiles = [
            MigProfile(
                name=f"{profile['slices']}g.{gb}gb{profile.get('suffix', '')}",
                slices=profile["slices"],
                starts=tuple(profile["starts"]),
                size=profile["size"],
                max_count=profile["max_count"],
                sms=count,
                media=profile.get("media", 0),
            )
            for profile, gb, count in zip(family["profiles"], row["gb"], sms, strict=True)
        ]
        by_name = {profile.name: profile for profile in profiles}
        yield gpu, MigGeometry(family["units"], family["media_engines"], by_name, row["source"], row["as_of"])


def _gpus(document: dict[str, Any], geometries: dict[str, MigGeometry]) -> Iterator[tuple[str, GpuModel]]:
    reference = document["types"][_REFERENCE_GPU]["bf16_tflops"]
    for key, row in _rows(document):
        speed = round(row["bf16_tflops"] / reference, 3)
        fields = {"vendor": "nvidia", "sms": None, "mig": geometries.get(key)} | row
        yield key, GpuModel(id=key, relative_speed=speed, **fields)


def _instance_types(provider: str, document: dict[str, Any]) -> Iterator[InstanceType]:
    unknown_or_none = {"network_gbps": None, "local_nvme_gb": 0, "efa_interfaces": 0, "rdma": False}
    prices = _prices(document["prices"])
    for key, row in _rows(document):
        fields = unknown_or_none | row | {"markets": tuple(row.get("markets", document["markets"]))}
        priced = prices.get(key, {})
        yield InstanceType(
            id=key,
            provider=provider,
            usd_per_hour={region: usd for region, (usd, _) in priced.items()},
            price_provenance={region: provenance for region, (_, provenance) in priced.items()},
            **fields,
        )


def _prices(lists: dict[str, Any]) -> dict[str, dict[str, tuple[Decimal, Provenance]]]:
    """Price and provenance by instance type and region."""
    prices: dict[str, dict[str, tuple[Decimal, Provenance]]] = {}
    common = {key: lists[key] for key in ("source", "as_of") if key in lists}
    for region, rows in lists.items():
        if region in common:
            continue
        inherited = common | rows
        shared = Provenance(inherited["source"], inherited["as_of"])
        for key, price in rows.items():
            if key in ("source", "as_of"):
                continue
            if isinstance(price, str):
                found = Decimal(price), shared
            else:
                found = Decimal(price["usd"]), Provenance(price["source"], price["as_of"])
            prices.setdefault(key, {})[region] = found
    return prices
