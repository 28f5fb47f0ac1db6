"""The packing problem: how many instances of which profiles, on GPUs that are there or that may be added.

GPUs in the same state are interchangeable, so a state is listed once with how many are in it: a plan for a thousand
GPUs is no larger than one for ten. What a GPU in a state can become are the state's columns: layouts to which nothing
can be added, because a layout with more in it is never worse.

Invariants: counts follow `names`; a GPU with live instances has only columns that hold these where they stand, and is
always part of the plan.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from stacks.catalogue import GpuModel
from stacks.mig import Layout, Reach, exposure, maximal_layouts, place, reach, require_profiles, set_maximal
from stacks.mig.layouts import Multiset, without_contained

_ALL_MEDIA: Final = "+me.all"
_NO_MEDIA: Final = "-me"

Counts = tuple[int, ...]
"""Instances by profile, in the order of `Model.names`."""


@dataclass(frozen=True, slots=True)
class StandingGpu:
    """A GPU that is there."""

    name: str
    """What people call it, e.g. `node-1/3`."""

    live: Layout = ()
    """Instances in use, which stay where they stand."""

    idle: Layout = ()
    """Instances that nobody uses: they may stay or go."""

    @property
    def profiles(self) -> Multiset:
        """What it is laid out as, live and idle, by name."""
        return tuple(sorted(instance.profile for instance in (*self.live, *self.idle)))


@dataclass(frozen=True, slots=True)
class Column:
    """One layout that a GPU can have, without places."""

    profiles: Multiset
    """Each as often as it is there."""

    counts: Counts
    sms: int
    """SMs exposed; compute slices where SMs are not known."""

    stranded: int
    """Memory units that nobody has."""


@dataclass(frozen=True, slots=True)
class State:
    """GPUs that are interchangeable."""

    gpus: tuple[str, ...] | None
    """Their names; None for GPUs to add, of which there are as many as needed."""

    live: Layout
    """Instances in use, the same on each."""

    idle: Layout
    """Instances that nobody uses, the same on each."""

    current: Multiset | None
    """What they are laid out as, by name; None for GPUs to add."""

    columns: tuple[Column, ...]
    """What they can become."""

    def changes(self, column: Column) -> bool:
        """Whether becoming so is a reconfiguration."""
        return self.current != tuple(sorted(column.profiles))


@dataclass(frozen=True, slots=True)
class Model:
    """A packing problem."""

    gpu: GpuModel
    names: tuple[str, ...]
    """Profiles that may be used, in the order of the catalogue."""

    demand: Counts
    """Instances that there shall be at least, live ones among them."""

    states: tuple[State, ...]
    """GPUs with live instances first, then the others that are there, then those to add."""


def model_of(
    gpu: GpuModel,
    demand: Mapping[str, int],
    standing: Sequence[StandingGpu] = (),
    *,
    any_placement: bool = False,
    leave_live: bool = False,
) -> Model:
    """State the problem.

    Args:
        gpu: The model of all GPUs.
        demand: Instances by profile, live ones among them.
        standing: GPUs that are there; more of the model may be added.
        any_placement: Allow layouts that mig-parted is not believed to reach.
        leave_live: Add nothing on GPUs with live instances.

    Raises:
        ValueError: the GPU has no MIG, a profile is not one of its, or instances cannot stand where they are said to.
    """
    require_profiles(gpu, tuple(demand))
    asked = {*demand, *(instance.profile for one in standing for instance in (*one.live, *one.idle))}
    among = _usable(gpu, asked)
    groups: dict[tuple[Layout, Layout], list[StandingGpu]] = {}
    for one in standing:
        place(gpu, (), beside=(*one.live, *one.idle))
        groups.setdefault((one.live, one.idle), []).append(one)
    fresh = _columns(gpu, asked, set_maximal(gpu, among) if any_placement else reachable(gpu, among))
    states = []
    for (on, idle), equal in groups.items():
        columns = _beside(gpu, asked, on, equal[0].profiles, leave_live) if on else fresh
        states.append(State(tuple(one.name for one in equal), on, idle, equal[0].profiles, columns))
    states.sort(key=lambda state: not state.live)
    wanted = tuple(demand.get(name, 0) for name in among)
    return Model(gpu, among, wanted, (*states, State(None, (), (), None, fresh)))


def reachable(gpu: GpuModel, among: Collection[str]) -> tuple[Multiset, ...]:
    """The largest multisets that mig-parted is believed to reach: none of them is held by another one.

    Raises:
        ValueError: the GPU has no MIG, or a name is not one of its profiles.
    """
    waiting, seen, found = list(set_maximal(gpu, among)), set[Multiset](), list[Multiset]()
    while waiting:
        multiset = waiting.pop()
        if multiset in seen:
            continue
        seen.add(multiset)
        if reach(gpu, multiset) is not Reach.EXPLICIT:
            found.append(multiset)
        else:
            waiting += {multiset[:at] + multiset[at + 1 :] for at in range(len(multiset))} - {()}
    return tuple(sorted(without_contained(found)))


def _usable(gpu: GpuModel, asked: Collection[str]) -> tuple[str, ...]:
    """Plain profiles and those asked for; with one that takes all media engines, also those that need none."""
    profiles = require_profiles(gpu, tuple(asked)).profiles
    fillers = _NO_MEDIA if any(name.endswith(_ALL_MEDIA) for name in asked) else ""
    return tuple(name for name, one in profiles.items() if one.suffix in ("", fillers) or name in asked)


def _beside(gpu: GpuModel, asked: Collection[str], live: Layout, current: Multiset, leave: bool) -> tuple[Column, ...]:
    """What a GPU with live instances can become."""
    if leave:
        return _columns(gpu, asked, [current])
    held = [layout for layout in maximal_layouts(gpu, _usable(gpu, asked)) if set(live) <= set(layout)]
    multisets = dict.fromkeys(tuple(sorted(instance.profile for instance in layout)) for layout in held)
    return _columns(gpu, asked, without_contained(multisets))


def _columns(gpu: GpuModel, asked: Collection[str], multisets: Collection[Multiset]) -> tuple[Column, ...]:
    among = _usable(gpu, asked)
    columns = []
    for multiset in multisets:
        if not _needs_its_fillers(multiset, asked):
            continue
        counted, exposed = Counter(multiset), exposure(gpu, multiset)
        counts = tuple(counted[name] for name in among)
        profiles = tuple(name for name in among for _ in range(counted[name]))
        columns.append(Column(profiles, counts, exposed.sms, exposed.stranded_units))
    return tuple(columns)


def _needs_its_fillers(multiset: Multiset, asked: Collection[str]) -> bool:
    """Whether profiles without media engines are there only because another takes them all; else plain ones do."""
    fillers = [name for name in multiset if name.endswith(_NO_MEDIA) and name not in asked]
    return not fillers or any(name.endswith(_ALL_MEDIA) for name in multiset)
