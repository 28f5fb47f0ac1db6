"""Families of accelerators: the resources that pods ask for, and which family a request belongs to.

It knows no models but NVIDIA's, which are in `gpus`: other vendors' rows say how to ask and how to find nodes, nothing
of speed or memory.

Invariants: a resource name belongs to one family at most.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import date
from typing import Final, Literal

PartitionScheme = Literal["mig", "modes", "cores", "slices", "none"]

_BLANK: Final = re.compile(r"\\\{[a-z]+\\\}")
_FILLING: Final = r"[a-z0-9][-a-z0-9.]*"  # of a resource name; `+` is not allowed in one, and plugins write a dot


@dataclass(frozen=True, slots=True)
class PartitionModes:
    """Modes of a card that is partitioned as a whole."""

    compute: Mapping[str, int] = field(hash=False)
    """Parts that the card has in each compute mode."""

    memory: tuple[str, ...]
    """Memory modes."""

    only_with: Mapping[str, tuple[str, ...]] = field(hash=False)
    """Compute modes that a memory mode goes with, where not with all."""


@dataclass(frozen=True, slots=True)
class Accelerator:
    """One family of accelerators."""

    id: str
    """E.g. `amd`, `google-tpu`."""

    name: str
    """For people."""

    resource: str
    """Extended resource of a whole device."""

    shares: tuple[str, ...]
    """Extended resources of parts of a device, with `{…}` where the kind of part stands."""

    devices: tuple[str, ...]
    """Other names by which pods get devices."""

    partition: PartitionScheme
    """How devices are partitioned."""

    modes: PartitionModes | None
    """Modes of the scheme `modes`; None elsewhere."""

    select: str | None
    """Node label that chooses a named partitioning or topology."""

    prepare: str | None
    """Taint that a node must carry while it is partitioned anew."""

    labels: Mapping[str, str] = field(hash=False)
    """Node labels by what they say: product, memory, count, family, driver."""

    taint: str | None
    """Taint of its nodes by custom."""

    exporter: str | None
    """What exports its metrics."""

    operator: str | None
    """What installs its driver and plugin."""

    dra: Literal["alternative", "none"]
    """Whether resource claims can stand in for the device plugin."""

    certainty: Literal["source", "documented", "recalled"]
    """How well the row is known."""

    source: str
    """Where the row comes from."""

    as_of: date
    """The day on which the source said so."""

    def offers(self, resource: str) -> bool:
        """Whether pods that ask for this resource ask for devices of this family, or for parts of them."""
        return resource in (self.resource, *self.devices) or self.is_share(resource)

    def is_share(self, resource: str) -> bool:
        """Whether it is a part of a device."""
        return any(re.fullmatch(_pattern(share), resource) for share in self.shares)


def accelerator_of(requests: Iterable[str], known: Mapping[str, Accelerator]) -> Accelerator | None:
    """The family that a pod with requests for these resources needs; None where it needs none.

    Raises:
        ValueError: they belong to several families, which no node has together.
    """
    wanted: dict[str, Accelerator] = {}
    for resource in requests:
        family = next((one for one in known.values() if one.offers(resource)), None)
        if family is not None:
            wanted[resource] = family
    if len({one.id for one in wanted.values()}) > 1:
        shown = ", ".join(f"{resource} ({one.name})" for resource, one in wanted.items())
        raise ValueError(f"asks for accelerators of several makers: {shown}; a node has one kind, so ask for one")
    return next(iter(wanted.values()), None)


def _pattern(share: str) -> str:
    return _BLANK.sub(_FILLING, re.escape(share))
