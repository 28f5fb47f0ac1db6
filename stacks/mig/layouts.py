"""Every layout that a GPU model can have: placed ones, the maximal among them, and the sets of profiles they hold.

A *layout* is a set of placed profiles. It is *maximal* where no profile can be added. Several maximal layouts hold the
same profiles at other places: a *multiset*. A multiset is *set-maximal* where none holds it and more: one that is not
wastes something that another arrangement of the same profiles does not.

Invariants: a layout is legal by the rule of `catalog/mig.toml`; layouts are ordered by start, multisets by the order of
the profiles in the catalogue; each is listed once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from functools import cache

from stacks.catalogue import NO_ENGINES, Engines, GpuModel, MigGeometry, MigProfile
from stacks.mig.placing import Placement, require_profiles

Layout = tuple[Placement, ...]
"""Instances of one GPU, by start."""

Multiset = tuple[str, ...]
"""Profiles of one GPU, each as often as it is there, in the order of the catalogue."""


def placed_layouts(gpu: GpuModel, among: Collection[str] | None = None) -> tuple[Layout, ...]:
    """Every layout but the empty one; `among` are the profiles to use, by default all.

    Raises:
        ValueError: the GPU has no MIG, or a name is not one of its profiles.
    """
    return _placed(gpu, _chosen(gpu, among))


def maximal_layouts(gpu: GpuModel, among: Collection[str] | None = None) -> tuple[Layout, ...]:
    """The layouts to which none of the profiles can be added.

    Raises:
        ValueError: as `placed_layouts`.
    """
    return _maximal(gpu, _chosen(gpu, among))


def multisets(gpu: GpuModel, among: Collection[str] | None = None) -> tuple[Multiset, ...]:
    """What the maximal layouts hold, each once.

    Raises:
        ValueError: as `placed_layouts`.
    """
    geometry = require_profiles(gpu, ())
    return tuple(dict.fromkeys(_multiset(geometry, layout) for layout in maximal_layouts(gpu, among)))


def set_maximal(gpu: GpuModel, among: Collection[str] | None = None) -> tuple[Multiset, ...]:
    """The multisets that no other holds together with more.

    Raises:
        ValueError: as `placed_layouts`.
    """
    return _set_maximal(gpu, _chosen(gpu, among))


def counts_of(profiles: Sequence[str]) -> tuple[tuple[str, int], ...]:
    """Profiles with how often each is there, in the order of their first appearance."""
    return tuple(Counter(profiles).items())


def without_contained(found: Collection[Multiset]) -> tuple[Multiset, ...]:
    """Those that none of the others holds together with more, in their order."""
    counted = {multiset: Counter(multiset) for multiset in found}
    return tuple(
        multiset
        for multiset, counts in counted.items()
        if not any(len(other) > len(multiset) and counts <= others for other, others in counted.items())
    )


@cache
def _placed(gpu: GpuModel, among: tuple[str, ...]) -> tuple[Layout, ...]:
    geometry = require_profiles(gpu, among)
    choices = [(start, geometry.profiles[name]) for name in among for start in geometry.profiles[name].starts]
    choices.sort(key=lambda choice: choice[0])
    return tuple(layout for layout in _grow(gpu, geometry, choices, 0, (), {}, NO_ENGINES, 0) if layout)


@cache
def _maximal(gpu: GpuModel, among: tuple[str, ...]) -> tuple[Layout, ...]:
    found = _placed(gpu, among)
    smaller = {layout[:at] + layout[at + 1 :] for layout in found for at in range(len(layout))}
    return tuple(layout for layout in found if layout not in smaller)


@cache
def _set_maximal(gpu: GpuModel, among: tuple[str, ...]) -> tuple[Multiset, ...]:
    return without_contained(multisets(gpu, among))


def _grow(
    gpu: GpuModel,
    geometry: MigGeometry,
    choices: Sequence[tuple[int, MigProfile]],
    end: int,
    layout: Layout,
    counts: dict[str, int],
    engines: Engines,
    sms: int,
) -> Iterator[Layout]:
    """The layout, and every one that grows from it to the right; each set of placements is met once, by start."""
    yield layout
    for start, profile in choices:
        if start < end or counts.get(profile.name, 0) == profile.max_count:
            continue
        more_engines, more_sms = engines + profile.engines, sms + (profile.sms or 0)
        if not more_engines.within(geometry.engines) or (gpu.sms is not None and more_sms > gpu.sms):
            continue
        placed = (*layout, Placement(profile.name, start, profile.size))
        more_counts = counts | {profile.name: counts.get(profile.name, 0) + 1}
        yield from _grow(gpu, geometry, choices, start + profile.size, placed, more_counts, more_engines, more_sms)


def _multiset(geometry: MigGeometry, layout: Layout) -> Multiset:
    held = Counter(placement.profile for placement in layout)
    return tuple(name for name in geometry.profiles for _ in range(held[name]))


def _chosen(gpu: GpuModel, among: Collection[str] | None) -> tuple[str, ...]:
    """The profiles to use, in the catalogue's order and each once, so that equal questions share an answer."""
    geometry = require_profiles(gpu, () if among is None else tuple(among))
    return tuple(name for name in geometry.profiles if among is None or name in among)
