"""What the catalogue says of MIG on a GPU model, and the rule by which profiles are named.

It places nothing: `stacks.mig` does. A figure that no source gives is None, never a guess.

Invariants: profiles are keyed by their names; a profile's starts are in order; `driver_starts` has the same starts.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from datetime import date
from functools import cached_property
from operator import add, le
from typing import Final, Literal

Certainty = Literal["card", "documented", "inferred"]
"""How well placements are known: read from a card, documented by NVIDIA, or inferred from another model."""

_EIGHTHS: Final = 8
"""Profile names count memory in eighths of the GPU, whatever the number of memory units (go-nvlib)."""


@dataclass(frozen=True, slots=True)
class Engines:
    """How many engines of each kind a profile, or several together, have."""

    copy: int
    decoders: int
    encoders: int
    jpeg: int
    optical_flow: int

    @property
    def counts(self) -> tuple[int, int, int, int, int]:
        """How many of each kind, in the order of `ENGINE_KINDS`."""
        return self.copy, self.decoders, self.encoders, self.jpeg, self.optical_flow

    def __add__(self, other: Engines) -> Engines:
        return Engines(*map(add, self.counts, other.counts))

    def within(self, other: Engines) -> bool:
        """Whether there are no more of any kind than the other has."""
        return all(map(le, self.counts, other.counts))


NO_ENGINES: Final = Engines(0, 0, 0, 0, 0)

ENGINE_KINDS: Final = tuple(one.name for one in fields(Engines))
"""Names of the kinds, in their order."""


def most_engines(of: Iterable[Engines]) -> Engines:
    """The most of each kind that any of them has."""
    return Engines(*(max(counts) for counts in zip(*(engines.counts for engines in of), strict=True)))


@dataclass(frozen=True, slots=True)
class MigProfile:
    """One MIG profile of a GPU model."""

    name: str
    """As the driver and the device plugin write it, e.g. `3g.20gb`, `1g.5gb+me`."""

    slices: int
    """Compute slices: the number before the g."""

    starts: tuple[int, ...]
    """Memory units at which it may begin."""

    size: int
    """Memory units that it takes, from its start on."""

    max_count: int
    """How often one GPU can have it."""

    suffix: str
    """What the name ends with: empty, or which engines it has (`+me`, `+me.all`, `-me`) or graphics (`+gfx`)."""

    sms: int | None
    """Streaming multiprocessors; None where not known."""

    memory_mib: int | None
    """Its memory, as nvidia-smi shows it; None where not known. Drivers differ by some hundred MiB."""

    engines: Engines
    """Engines of its own."""

    profile_id: int | None
    """What `nvidia-smi mig -lgip` shows; it means something else on another family. None where no card was seen."""

    number: int
    """NVML's own number of it, NVML_GPU_INSTANCE_PROFILE_*: not the id."""

    driver_starts: tuple[int, ...]
    """Its starts in the order in which the driver is believed to choose, the most wanted first."""


@dataclass(frozen=True)
class MigGeometry:
    """What `stacks.mig` places profiles by."""

    units: int
    """Length of the line of memory units: 8 on A100 and its successors, 4 on A30, 12 on RTX PRO 6000."""

    profiles: Mapping[str, MigProfile] = field(hash=False)
    """By name."""

    mode_change: Literal["reset", "live"]
    """What turning MIG on or off takes: a reset of the GPU (a reboot where a hypervisor forbids that), or nothing."""

    certainty: Certainty
    """How well the placements are known."""

    source: str
    """Where the geometry comes from."""

    as_of: date
    """The day on which the source said so."""

    @cached_property
    def engines(self) -> Engines:
        """Engines of the whole GPU: as many of each kind as the profile with most of them has."""
        return most_engines(profile.engines for profile in self.profiles.values())

    @cached_property
    def slices(self) -> int:
        """Compute slices of the whole GPU."""
        return max(profile.slices for profile in self.profiles.values())


def profile_name(slices: int, size: int, units: int, memory_gib: int, suffix: str = "") -> str:
    """The name of a profile that takes `size` of `units` memory units, e.g. `3g.40gb`.

    As go-nvlib derives it: the share of the memory in eighths, rounded up; its size in whole GB, rounded half up. The
    memory is what the driver reports, rounded up to whole GiB, so names differ between cards of one model that report
    different sizes (GB200: 186 or 189).
    """
    eighths = math.ceil(_EIGHTHS * size / units)
    return f"{slices}g.{math.floor(eighths * memory_gib / _EIGHTHS + 0.5)}gb{suffix}"
