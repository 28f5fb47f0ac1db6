"""Whether MIG profiles fit on a GPU together, and where: exact, from the placement table of the catalogue.

It does not say whether the driver finds the placement on its own: `stacks.mig.driver` does.

Invariants: pure; the same profiles give the same placement; what `place` returns obeys every rule of `catalog/mig.toml`
(starts, disjoint memory units, counts, SMs where known, engines), and it refuses what no placement obeys.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Final

from stacks.catalogue import NO_ENGINES, GpuModel, MigGeometry, MigProfile
from stacks.suggest import did_you_mean

_NAME_PARTS: Final = re.compile(r"([0-9]+g)\.[0-9]+gb(.*)")
_ENGINE_NAMES: Final = {
    "copy": "copy engines",
    "decoders": "decoders",
    "encoders": "encoders",
    "jpeg": "JPEG engines",
    "optical_flow": "optical-flow engines",
}


@dataclass(frozen=True, slots=True)
class Placement:
    """One profile at its place on the line of memory units."""

    profile: str
    """Name of the profile."""

    start: int
    """First memory unit that it takes."""

    size: int
    """Memory units that it takes."""

    @property
    def end(self) -> int:
        """The first memory unit after it."""
        return self.start + self.size

    def overlaps(self, other: Placement) -> bool:
        """Whether they share a memory unit."""
        return self.start < other.end and other.start < self.end

    def __str__(self) -> str:
        """As people write it: `3g.40gb@4`."""
        return f"{self.profile}@{self.start}"


def place(gpu: GpuModel, profiles: Sequence[str], *, beside: Sequence[Placement] = ()) -> tuple[Placement, ...]:
    """A placement of all profiles on one GPU, by start: the larger ones first, each as far left as the rest allows.

    Args:
        gpu: The model.
        profiles: Names of profiles, one for each instance.
        beside: Instances that stand already and stay where they are; they are part of the result.

    Raises:
        ValueError: the GPU has no MIG, a profile is not one of its, or they do not fit together; it says why.
    """
    geometry = require_profiles(gpu, [*profiles, *(instance.profile for instance in beside)])
    names = [*(instance.profile for instance in beside), *profiles]
    for name, count in Counter(names).items():
        most = geometry.profiles[name].max_count
        if count > most:
            raise ValueError(f"{count} x {name} on one {gpu.id}; it takes at most {most}")
    _require_sound(gpu, geometry, beside)
    found = _search(gpu, geometry, profiles, beside)
    if found is None:
        raise ValueError(_why_not(gpu, geometry, profiles, beside))
    return found


def require_profiles(gpu: GpuModel, names: Sequence[str]) -> MigGeometry:
    """The geometry of the model.

    Raises:
        ValueError: the GPU has no MIG, or a name is not one of its profiles.
    """
    if gpu.mig is None:
        raise ValueError(f"{gpu.id} has no MIG; give the whole GPU, or share it by time-slicing or MPS")
    for name in names:
        if name not in gpu.mig.profiles:
            raise ValueError(f"{name} is not a MIG profile of {gpu.id}{_nearest(name, gpu.mig)}")
    return gpu.mig


def _require_sound(gpu: GpuModel, geometry: MigGeometry, beside: Sequence[Placement]) -> None:
    """Refuse instances that cannot stand as they are said to."""
    for index, instance in enumerate(beside):
        profile = geometry.profiles[instance.profile]
        if instance.start not in profile.starts or instance.size != profile.size:
            starts = ", ".join(map(str, profile.starts))
            raise ValueError(f"{instance} cannot be on a {gpu.id}: {profile.name} starts at {starts}")
        for other in beside[:index]:
            if instance.overlaps(other):
                raise ValueError(f"{other} and {instance} cannot both be on one {gpu.id}: they share memory units")
    short = _short_of(gpu, geometry, [geometry.profiles[instance.profile] for instance in beside])
    if short:
        raise ValueError(f"{', '.join(map(str, beside))} cannot be on one {gpu.id}: {short}")


def _search(
    gpu: GpuModel, geometry: MigGeometry, names: Sequence[str], beside: Sequence[Placement] = ()
) -> tuple[Placement, ...] | None:
    """Depth first over the starts; the line is short (12 units at most), so trying all of it costs next to nothing."""
    wanted = _larger_first(geometry.profiles[name] for name in names)
    standing = [geometry.profiles[instance.profile] for instance in beside]
    every = [*standing, *wanted]
    if any(count > geometry.profiles[name].max_count for name, count in Counter(one.name for one in every).items()):
        return None
    if _short_of(gpu, geometry, every):
        return None
    placed = _fit(wanted, tuple(beside), -1)
    return None if placed is None else tuple(sorted(placed, key=lambda placement: placement.start))


def _short_of(gpu: GpuModel, geometry: MigGeometry, wanted: Sequence[MigProfile]) -> str:
    """What the profiles need more of than the GPU has, wherever they stand; empty where it suffices."""
    engines = reduce(lambda total, profile: total + profile.engines, wanted, NO_ENGINES)
    totals: list[tuple[str, int, int | None]] = [
        ("memory units", sum(profile.size for profile in wanted), geometry.units),
        ("SMs", sum(profile.sms or 0 for profile in wanted), gpu.sms),
    ]
    totals += [(what, getattr(engines, kind), getattr(geometry.engines, kind)) for kind, what in _ENGINE_NAMES.items()]
    short = [f"{needed} {what}, and it has {has}" for what, needed, has in totals if has is not None and needed > has]
    return f"together they need {short[0]}" if short else ""


def _larger_first(profiles: Iterable[MigProfile]) -> list[MigProfile]:
    return sorted(profiles, key=lambda profile: (-profile.size, profile.name))


def _fit(wanted: Sequence[MigProfile], placed: tuple[Placement, ...], twin: int) -> tuple[Placement, ...] | None:
    """Place them all; `twin` is where the last one stands if it is equal to the first, which then goes to its right."""
    if not wanted:
        return placed
    profile, rest = wanted[0], wanted[1:]
    for start in profile.starts:
        candidate = Placement(profile.name, start, profile.size)
        if start > twin and not any(candidate.overlaps(other) for other in placed):
            found = _fit(rest, (*placed, candidate), start if rest and rest[0] is profile else -1)
            if found is not None:
                return found
    return None


def _why_not(gpu: GpuModel, geometry: MigGeometry, names: Sequence[str], beside: Sequence[Placement]) -> str:
    """Name the first profile, in the order given, that no longer fits, and what would still fit in its stead."""
    count = next(at for at in range(1, len(names) + 1) if _search(gpu, geometry, names[:at], beside) is None)
    fitting, refused = list(names[: count - 1]), geometry.profiles[names[count - 1]]
    others = Counter([*map(str, beside), *fitting])
    shown = ", ".join(name if times == 1 else f"{times} x {name}" for name, times in others.items())
    starts = ", ".join(map(str, refused.starts))
    asked = [geometry.profiles[name] for name in names[:count]]
    every = [*(geometry.profiles[one.profile] for one in beside), *asked]
    reason = _short_of(gpu, geometry, every)
    if (
        sum(profile.size for profile in every) <= geometry.units
        and _fit(_larger_first(asked), tuple(beside), -1) is None
    ):
        reason = f"wherever those stand, none of its starts ({starts}) has room for its size of {refused.size}"
    room = [name for name in geometry.profiles if _search(gpu, geometry, [*fitting, name], beside) is not None]
    return (
        f"{refused.name} does not fit on one {gpu.id} beside {shown}: {reason}; "
        f"beside those there is room for {' or '.join(room) if room else 'no other profile'}"
    )


def _nearest(name: str, geometry: MigGeometry) -> str:
    """The profile with as many slices is what was meant, if there is one: only its memory differs between models."""
    parts = _NAME_PARTS.fullmatch(name)
    for known in geometry.profiles:
        theirs = _NAME_PARTS.fullmatch(known)
        if parts and theirs and parts.groups() == theirs.groups():
            return f"; did you mean {known}?"
    return did_you_mean(name, geometry.profiles)
