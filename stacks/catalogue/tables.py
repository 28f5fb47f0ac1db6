"""Reads `catalog/*.toml` into the values of `stacks.catalogue.facts`.

It checks no figures: tests do, for the shipped tables, so that deployment does not pay for it. MIG tables are read in
`stacks.catalogue.mig_tables`.

Invariants: a row without a source or date of its own has its table's; a price has its own, its region's or the table's.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping
from decimal import Decimal
from functools import cache
from importlib import resources
from typing import Any

from stacks.catalogue.accelerators import Accelerator, PartitionModes
from stacks.catalogue.facts import Catalogue, GpuModel, InstanceType, Provenance
from stacks.catalogue.geometry import MigGeometry
from stacks.catalogue.mig_tables import captured_geometries, geometries

PROVIDERS = ("aws", "gcp")
"""Clouds with a table of instance types."""

_REFERENCE_GPU = "h100-sxm-80gb"  # the model whose relative speed is 1


def read_table(name: str) -> dict[str, Any]:
    """One file of `catalog/`, e.g. `aws`, as it stands."""
    return tomllib.loads(resources.files("stacks").joinpath("catalog", f"{name}.toml").read_text("utf-8"))


def captured_tables() -> list[dict[str, Any]]:
    """What `gpufleet gpu capture` read from cards and somebody put into `catalog/captured/`, by file name."""
    folder = resources.files("stacks").joinpath("catalog", "captured")
    files = [file for file in folder.iterdir() if file.name.endswith(".toml")] if folder.is_dir() else []
    return [tomllib.loads(file.read_text("utf-8")) for file in sorted(files, key=lambda file: file.name)]


@cache
def catalogue() -> Catalogue:
    """The shipped catalogue with what was captured from cards, read once per process.

    Raises:
        KeyError, TypeError, ValueError: when a row lacks a field or has one too many; a packaging defect.
    """
    documents = {name: read_table(name) for name in ("gpus", "mig", "accelerators", *PROVIDERS)}
    mig = geometries(documents["mig"], documents["gpus"])
    for table in captured_tables():
        mig |= captured_geometries(table, documents["gpus"], mig)
    gpus = dict(_gpus(documents["gpus"], mig))
    types = {row.id: row for provider in PROVIDERS for row in _instance_types(provider, documents[provider])}
    prices = [price.as_of for row in types.values() for price in row.price_provenance.values()]
    tables = {name: Provenance(document["source"], document["as_of"]) for name, document in documents.items()}
    return Catalogue(gpus, types, dict(_accelerators(documents["accelerators"])), tables, min(prices))


def _rows(document: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """The rows of a table; one without source or date of its own has the table's."""
    inherited = {"source": document["source"], "as_of": document["as_of"]}
    for key, row in document["types"].items():
        yield key, inherited | row


def _gpus(document: dict[str, Any], mig: Mapping[str, MigGeometry]) -> Iterator[tuple[str, GpuModel]]:
    reference = document["types"][_REFERENCE_GPU]["bf16_tflops"]
    for key, row in _rows(document):
        architecture = document["architectures"][row["architecture"]]
        major, minor = row.pop("capability").split(".")
        yield (
            key,
            GpuModel(
                id=key,
                vendor="nvidia",
                sms=row.pop("sms", None),
                relative_speed=round(row["bf16_tflops"] / reference, 3),
                compute_capability=(int(major), int(minor)),
                pci_device_ids=tuple(row.pop("pci", ())),
                minimum_driver=row.pop("driver", None),
                kernel_modules=tuple(row.pop("modules", architecture["modules"])),
                gpm=architecture.get("gpm", False),
                multi_node_nvlink=row.pop("mnnvl", False),
                mig=mig.get(key),
                **row,
            ),
        )


def _accelerators(document: dict[str, Any]) -> Iterator[tuple[str, Accelerator]]:
    absent: dict[str, Any] = dict.fromkeys(("select", "prepare", "taint", "exporter", "operator"))
    for key, row in _rows(document):
        modes = row.pop("modes", None)
        lists = {name: tuple(row.pop(name, ())) for name in ("shares", "devices")}
        yield key, Accelerator(id=key, modes=modes and _modes(modes), **(absent | lists | row))


def _modes(row: dict[str, Any]) -> PartitionModes:
    only_with = {memory: tuple(compute) for memory, compute in row["only_with"].items()}
    return PartitionModes(row["compute"], tuple(row["memory"]), only_with)


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
