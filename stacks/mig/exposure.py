"""What a layout offers of a GPU and what it strands: SMs and memory units.

SMs are counted, not compute slices: on Hopper and Blackwell a small slice has fewer SMs than its share, so 7 x 1g
leaves 15 % of an H100 idle where 2 x 3g leaves 9 %. Where the SMs of a model's profiles are not known, compute slices
stand in for them, and the result says so.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from stacks.catalogue import GpuModel
from stacks.mig.placing import Placement, place, require_profiles


@dataclass(frozen=True, slots=True)
class Exposure:
    """What instances have of a GPU."""

    sms: int
    """SMs of the instances; compute slices where `counts_slices`."""

    all_sms: int
    """SMs of the GPU; compute slices where `counts_slices`."""

    units: int
    """Memory units of the instances."""

    all_units: int
    """Memory units of the GPU."""

    counts_slices: bool
    """Whether compute slices stand in for SMs, as those are not known."""

    @property
    def sm_share(self) -> float:
        """Share of the GPU's SMs that the instances have."""
        return self.sms / self.all_sms

    @property
    def stranded_sms(self) -> int:
        """SMs that no instance has."""
        return self.all_sms - self.sms

    @property
    def stranded_units(self) -> int:
        """Memory units that no instance has."""
        return self.all_units - self.units


def exposure(gpu: GpuModel, profiles: Sequence[str]) -> Exposure:
    """What these profiles have of one GPU; whether they fit is not asked.

    Raises:
        ValueError: the GPU has no MIG, or a name is not one of its profiles.
    """
    geometry = require_profiles(gpu, profiles)
    chosen = [geometry.profiles[name] for name in profiles]
    units = sum(profile.size for profile in chosen)
    known = [profile.sms for profile in geometry.profiles.values() if profile.sms is not None]
    if gpu.sms is None or len(known) < len(geometry.profiles):
        slices = sum(profile.slices for profile in chosen)
        return Exposure(slices, geometry.slices, units, geometry.units, counts_slices=True)
    return Exposure(sum(profile.sms or 0 for profile in chosen), gpu.sms, units, geometry.units, counts_slices=False)


def room_beside(gpu: GpuModel, profiles: Sequence[str], *, placed: Sequence[Placement] = ()) -> tuple[str, ...]:
    """The profiles of which one more would fit beside these, wherever they stand, and beside those that stand already.

    Raises:
        ValueError: as `place`.
    """
    geometry = require_profiles(gpu, profiles)
    place(gpu, profiles, beside=placed)
    return tuple(name for name in geometry.profiles if _fits(gpu, [*profiles, name], placed))


def _fits(gpu: GpuModel, profiles: Sequence[str], placed: Sequence[Placement]) -> bool:
    try:
        place(gpu, profiles, beside=placed)
    except ValueError:
        return False
    return True
