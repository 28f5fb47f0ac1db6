"""Facts about GPU models and instance types, read from `catalog/*.toml`; every row carries its source and date.

It holds no prices that move by the minute: a spot price is the pool's own setting, the on-demand price is a list price.
It fetches nothing: `gpufleet catalog refresh` changes the files, for review, and deployment reads what was reviewed.

Invariants: every instance type's `gpu` is in `gpus`; ids are the providers' own, short names of GPUs are distinct.
"""

from __future__ import annotations

from stacks.catalogue.facts import Catalogue, GpuModel, InstanceType, MigGeometry, MigProfile, Provenance
from stacks.catalogue.tables import PROVIDERS, catalogue

__all__ = [
    "PROVIDERS",
    "Catalogue",
    "GpuModel",
    "InstanceType",
    "MigGeometry",
    "MigProfile",
    "Provenance",
    "catalogue",
]
