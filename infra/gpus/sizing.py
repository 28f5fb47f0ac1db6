"""Which profile a job needs, from its memory and SMs.

Where the memory or the SMs of a profile are not known, they are taken as the least part of its share that any card that
was read gives, so that a job gets rather too large a profile than too small a one.
"""

from __future__ import annotations

from typing import Final

from stacks.catalogue import GpuModel, MigProfile
from stacks.mig import require_profiles

_MIB_PER_GIB: Final = 1024
_USABLE: Final = 0.91  # of a profile's share of memory: the least that nvidia-smi shows of any card that was read
_USABLE_SMS: Final = 0.84  # of a profile's share of SMs, likewise: an H100 gives 16 of 132 for one slice of seven


def smallest_profile(gpu: GpuModel, memory_mib: float, sms: int = 0) -> MigProfile | None:
    """The smallest plain profile with this memory and so many SMs; None where only more than the largest would do.

    Raises:
        ValueError: the GPU has no MIG.
    """
    geometry = require_profiles(gpu, ())
    able = [
        profile
        for profile in geometry.profiles.values()
        if not profile.suffix and usable_mib(gpu, profile) >= memory_mib and (_sms(gpu, profile) or 0) >= sms
    ]
    return min(able, key=lambda profile: (profile.size, profile.slices, profile.name), default=None)


def usable_mib(gpu: GpuModel, profile: MigProfile) -> int:
    """Memory of a profile: as read from a card, else the least that its share can be expected to hold."""
    if profile.memory_mib is not None:
        return profile.memory_mib
    units = require_profiles(gpu, ()).units
    return int(_USABLE * gpu.memory_gib * _MIB_PER_GIB * profile.size / units)


def exceeds(gpu: GpuModel, memory_mib: float, sms: int) -> str:
    """What a job needs more of than a whole GPU has, and how much that is; empty where the GPU suffices."""
    if memory_mib > gpu.memory_gib * _MIB_PER_GIB:
        return f"{gpu.memory_gib} GiB"
    return f"{gpu.sms} SMs" if gpu.sms is not None and sms > gpu.sms else ""


def _sms(gpu: GpuModel, profile: MigProfile) -> int | None:
    """SMs of a profile: as read from a card, else the least that its compute slices can be expected to hold."""
    if profile.sms is not None or gpu.sms is None:
        return profile.sms
    return int(_USABLE_SMS * gpu.sms * profile.slices / require_profiles(gpu, ()).slices)
