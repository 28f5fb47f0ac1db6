"""A MIG layout from the slices that a node offers.

Labels and resources say how many slices of each profile a node has, not which GPU they are on. The layout returned is
one that the GPUs can have (`stacks.mig`), equal on all GPUs where that is possible.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from infra.gpus.nodes import NodeLayout, node_layout
from stacks.catalogue import GpuModel
from stacks.mig import place

_MOST_GPUS: Final = 64
"""GPUs of a node that the fleet file takes; what claims to need more is no layout."""
_MOST_SLICES: Final = 7 * _MOST_GPUS


def layout_of(model: GpuModel, slices: Mapping[str, int], gpus: int | None) -> tuple[NodeLayout, int] | None:
    """A layout with these slices on so many GPUs, as few as possible where None, and how many GPUs it uses.

    None where the slices do not fit.
    """
    total = sum(slices.values())
    if model.mig is None or not 0 < total <= _MOST_SLICES or (gpus is not None and not 0 < gpus <= _MOST_GPUS):
        return None
    if any(profile not in model.mig.profiles for profile in slices):
        return None
    if gpus and all(count % gpus == 0 for count in slices.values()):
        equal = [profile for profile, count in slices.items() for _ in range(count // gpus)]
        if _fits(model, equal):
            return node_layout([equal] * gpus), gpus
    packed = _packed(model, slices, gpus or _MOST_GPUS)
    return None if packed is None else (node_layout(packed), len(packed))


def _packed(model: GpuModel, slices: Mapping[str, int], most: int) -> list[list[str]] | None:
    """First fit, the larger slices first."""
    assert model.mig is not None  # layout_of
    sizes = {profile: model.mig.profiles[profile].size for profile in slices}
    bins: list[list[str]] = []
    for profile in sorted(slices, key=lambda one: (-sizes[one], one)):
        for _ in range(slices[profile]):
            target = next((one for one in bins if _fits(model, [*one, profile])), None)
            if target is None:
                if len(bins) == most:
                    return None
                bins.append(target := [])
            target.append(profile)
    return bins


def _fits(model: GpuModel, profiles: list[str]) -> bool:
    try:
        place(model, profiles)
    except ValueError:
        return False
    return True
