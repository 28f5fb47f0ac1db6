"""Facts about accelerators and instance types, read from `catalog/*.toml`; every row carries its source and date.

It holds no prices that move by the minute: a spot price is the pool's own setting, the on-demand price is a list price.
It fetches nothing: `gpufleet catalog refresh` changes the files, for review, and deployment reads what was reviewed.
What `gpufleet gpu capture` read from a card stands in `catalog/captured/` and goes before the shipped MIG table.

Invariants: every instance type's `gpu` is in `gpus`; ids are the providers' own, short names of GPUs are distinct.
"""

from __future__ import annotations

from stacks.catalogue.accelerators import Accelerator, PartitionModes, accelerator_of
from stacks.catalogue.facts import Catalogue, GpuModel, InstanceType, Provenance
from stacks.catalogue.geometry import NO_ENGINES, Engines, MigGeometry, MigProfile, profile_name
from stacks.catalogue.tables import PROVIDERS, catalogue

__all__ = [
    "NO_ENGINES",
    "PROVIDERS",
    "Accelerator",
    "Catalogue",
    "Engines",
    "GpuModel",
    "InstanceType",
    "MigGeometry",
    "MigProfile",
    "PartitionModes",
    "Provenance",
    "accelerator_of",
    "catalogue",
    "profile_name",
]
