"""Facts about GPU models and instance types, read from `catalog/*.toml`; every table carries its source and date.

It holds no prices that move by the minute: a spot price is the pool's own setting, the on-demand price is a list price.
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from functools import cache
from importlib import resources
from typing import Any


@dataclass(frozen=True, slots=True)
class GpuModel:
    """One GPU model; `name` is the short form used in flavor names."""

    id: str
    name: str
    memory_gib: int


@dataclass(frozen=True, slots=True)
class InstanceType:
    """One cloud instance type with GPUs; prices in US dollars per instance-hour, on-demand, by region."""

    id: str
    provider: str
    gpu: str
    gpus: int
    cpus: int
    memory_gib: int
    usd_per_hour: dict[str, Decimal]


@dataclass(frozen=True, slots=True)
class Catalogue:
    """All tables, with the date of the price table."""

    gpus: dict[str, GpuModel]
    instance_types: dict[str, InstanceType]
    prices_as_of: date


def _table(name: str) -> tuple[dict[str, dict[str, Any]], date]:
    document = tomllib.loads(resources.files("stacks").joinpath("catalog", f"{name}.toml").read_text("utf-8"))
    as_of, _source = document.pop("as_of"), document.pop("source")
    return document, as_of


@cache
def catalogue() -> Catalogue:
    """The shipped catalogue, read once per process.

    Raises:
        KeyError: when a shipped table lacks its `source` or `as_of`; a packaging defect.
    """
    gpu_rows, _ = _table("gpus")
    aws_rows, as_of = _table("aws")
    gpus = {key: GpuModel(id=key, **row) for key, row in gpu_rows.items()}
    types = {
        key: InstanceType(
            id=key,
            provider="aws",
            usd_per_hour={region: Decimal(price) for region, price in row.pop("usd_per_hour").items()},
            **row,
        )
        for key, row in aws_rows.items()
    }
    return Catalogue(gpus, types, as_of)
