"""Whether MIG profiles fit on a GPU together, and where: exact, from the placement table of the catalogue.

It does not say whether the driver finds the placement on its own: a driver that is only given names chooses starts
itself, and may need the larger profiles first. It knows no nodes and no configuration files.

Invariants: pure; the same profiles give the same placement; what `place` returns obeys every rule of `catalog/mig.toml`
(starts, disjoint memory units, counts, SMs where known, media engines).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from stacks.catalogue import GpuModel, MigGeometry, MigProfile
from stacks.suggest import did_you_mean

_NAME_PARTS = re.compile(r"([0-9]+g)\.[0-9]+gb(.*)")


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


def place(gpu: GpuModel, profiles: Sequence[str]) -> tuple[Placement, ...]:
    """A placement of all profiles on one GPU, by start: the larger ones first, each as far left as the rest allows.

    Raises:
        ValueError: the GPU has no MIG, a profile is not one of its, or they do not fit together; it says why.
    """
    geometry = gpu.mig
    if geometry is None:
        raise ValueError(f"{gpu.id} has no MIG; give the whole GPU, or share it by time-slicing or MPS")
    for name in profiles:
        if name not in geometry.profiles:
            raise ValueError(f"{name} is not a MIG profile of {gpu.id}{_nearest(name, geometry)}")
    for name, count in Counter(profiles).items():
        most = geometry.profiles[name].max_count
        if count > most:
            raise ValueError(f"{count} x {name} on one {gpu.id}; it takes at most {most}")
    found = _search(gpu, geometry, profiles)
    if found is None:
        raise ValueError(_why_not(gpu, geometry, profiles))
    return found


def _search(gpu: GpuModel, geometry: MigGeometry, names: Sequence[str]) -> tuple[Placement, ...] | None:
    """Depth first over the starts; the line is short (12 units at most), so trying all of it costs next to nothing."""
    wanted = sorted((geometry.profiles[name] for name in names), key=lambda profile: (-profile.size, profile.name))
    if any(count > geometry.profiles[name].max_count for name, count in Counter(names).items()):
        return None
    if _short_of(gpu, geometry, wanted):
        return None
    placed = _fit(wanted, ())
    return None if placed is None else tuple(sorted(placed, key=lambda placement: placement.start))


def _short_of(gpu: GpuModel, geometry: MigGeometry, wanted: Sequence[MigProfile]) -> str:
    """What the profiles need more of than the GPU has, wherever they stand; empty where it suffices."""
    totals = (
        ("memory units", sum(profile.size for profile in wanted), geometry.units),
        ("shares of the media engines", sum(profile.media for profile in wanted), geometry.media_engines),
        ("SMs", sum(profile.sms or 0 for profile in wanted), gpu.sms),
    )
    short = [f"{needed} {what}, and it has {has}" for what, needed, has in totals if has is not None and needed > has]
    return f"together they need {short[0]}" if short else ""


def _fit(wanted: Sequence[MigProfile], placed: tuple[Placement, ...]) -> tuple[Placement, ...] | None:
    if not wanted:
        return placed
    profile, rest = wanted[0], wanted[1:]
    # Equal profiles are interchangeable: the next of them only goes to the right of the last.
    twin = placed[-1].start if placed and placed[-1].profile == profile.name else -1
    for start in profile.starts:
        candidate = Placement(profile.name, start, profile.size)
        if start > twin and all(candidate.end <= other.start or other.end <= start for other in placed):
            found = _fit(rest, (*placed, candidate))
            if found is not None:
                return found
    return None


def _why_not(gpu: GpuModel, geometry: MigGeometry, names: Sequence[str]) -> str:
    """Name the first profile, in the order given, that no longer fits, and what would still fit in its stead."""
    count = next(at for at in range(1, len(names) + 1) if _search(gpu, geometry, names[:at]) is None)
    fitting, refused = list(names[: count - 1]), geometry.profiles[names[count - 1]]
    beside = ", ".join(name if times == 1 else f"{times} x {name}" for name, times in Counter(fitting).items())
    starts = ", ".join(map(str, refused.starts))
    reason = _short_of(gpu, geometry, [geometry.profiles[name] for name in names[:count]]) or (
        f"wherever those stand, none of its starts ({starts}) has room for its size of {refused.size}"
    )
    room = [name for name in geometry.profiles if _search(gpu, geometry, [*fitting, name]) is not None]
    return (
        f"{refused.name} does not fit on one {gpu.id} beside {beside}: {reason}; "
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
