"""Whether a layout comes about by NVIDIA's driver choosing the places, or needs places to be given.

mig-parted, and with it the GPU Operator, says how many of which profile; it clears the GPU, creates the instances one
after another and lets the driver choose each start. Where one does not fit any more it begins anew with the next order,
until it has tried every distinct one. Only the DRA driver and NVML's CreateGpuInstanceWithPlacement take a start.

What is certain: the search over the orders (read in mig-parted v0.15), and therefore `Reach.CERTAIN`, which holds
whatever the driver chooses, and that an illegal layout is never reached. What is believed: which start the driver
chooses (`driver` in `catalog/mig.toml`). That order agrees with the mixed layouts of NVIDIA's MIG user guide and with
transcripts of A100, A30, H100 and RTX PRO 6000 cards, but for two: on an H100 NVL 3g went to 0 instead of 4, and on an
A100 80GB seven 1g came in another order. NVIDIA promises none. So `Reach.LIKELY` may fail on a card; mig-parted then
reports `failed`.

Invariants: pure; `reach` presumes a legal layout and refuses others.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from enum import StrEnum
from functools import cache

from stacks.catalogue import GpuModel, MigProfile
from stacks.mig.placing import Placement, place, require_profiles


class Reach(StrEnum):
    """How a layout comes about."""

    CERTAIN = "certain"
    """Some order of creation succeeds whatever starts the driver chooses."""

    LIKELY = "likely"
    """Some order of creation succeeds if the driver chooses as it has been seen to."""

    EXPLICIT = "explicit"
    """Only by explicit placement, as far as the driver's choice is known."""


def reach(gpu: GpuModel, profiles: Sequence[str]) -> Reach:
    """How the layout comes about.

    Raises:
        ValueError: as `place`.
    """
    place(gpu, profiles)
    return _reach(gpu, tuple(sorted(profiles)))


def creation_order(gpu: GpuModel, profiles: Sequence[str]) -> tuple[str, ...] | None:
    """An order of creation that leads to the layout, the most certain there is; None where it needs explicit placement.

    Raises:
        ValueError: as `place`.
    """
    place(gpu, profiles)
    return _order(gpu, tuple(sorted(profiles)))[1]


def driver_placement(gpu: GpuModel, order: Sequence[str]) -> tuple[Placement, ...] | None:
    """Where the driver is believed to put profiles that are created in this order; None where one finds no place.

    Raises:
        ValueError: the GPU has no MIG, or a name is not one of its profiles.
    """
    geometry = require_profiles(gpu, order)
    placed: list[Placement] = []
    for name in order:
        profile = geometry.profiles[name]
        wanted = (Placement(name, start, profile.size) for start in profile.driver_starts)
        found = next((one for one in wanted if not any(one.overlaps(other) for other in placed)), None)
        if found is None:
            return None
        placed.append(found)
    return tuple(sorted(placed, key=lambda placement: placement.start))


def _reach(gpu: GpuModel, profiles: tuple[str, ...]) -> Reach:
    return _order(gpu, profiles)[0]


@cache
def _order(gpu: GpuModel, profiles: tuple[str, ...]) -> tuple[Reach, tuple[str, ...] | None]:
    geometry = require_profiles(gpu, profiles)
    likely: tuple[str, ...] | None = None
    # The larger first: the order in which most layouts come about, and the one that mig-parted's users see.
    by_size = sorted(profiles, key=lambda name: (-geometry.profiles[name].size, -geometry.profiles[name].slices, name))
    for order in _orders(Counter(by_size)):
        if _always_fits([geometry.profiles[name] for name in order]):
            return Reach.CERTAIN, order
        if likely is None and driver_placement(gpu, order) is not None:
            likely = order
    return (Reach.EXPLICIT, None) if likely is None else (Reach.LIKELY, likely)


def _orders(left: Counter[str]) -> Iterator[tuple[str, ...]]:
    """Every distinct order, each once."""
    if not left.total():
        yield ()
    for name in [name for name, times in left.items() if times]:
        left[name] -= 1
        for rest in _orders(left):
            yield (name, *rest)
        left[name] += 1


def _always_fits(order: Sequence[MigProfile]) -> bool:
    """Whether each finds a place, whatever free start each before it was given."""

    @cache
    def fits(index: int, taken: int) -> bool:
        if index == len(order):
            return True
        profile = order[index]
        masks = [((1 << profile.size) - 1) << start for start in profile.starts]
        free = [mask for mask in masks if not mask & taken]
        return bool(free) and all(fits(index + 1, taken | mask) for mask in free)

    return fits(0, 0)
