"""A plan: which GPU gets which layout, what that offers beyond the demand, and how good it is.

It asks the solver, and packs without one where that is not installed or has found nothing in its time; either way the
plan says what is proven.

Invariants: the plan meets the whole demand; live instances stand where they stood; the order of GPUs and layouts
follows from the question alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Literal

from infra.gpus import exact, heuristic
from infra.gpus.errors import DemandError
from infra.gpus.model import Column, Model, StandingGpu, State, model_of
from stacks.catalogue import GpuModel
from stacks.mig import Layout, Reach, creation_order, driver_placement, exposure, place, reach
from stacks.mig.layouts import Multiset

Solver = Literal["auto", "exact", "heuristic"]


@dataclass(frozen=True, slots=True)
class Group:
    """GPUs with the same layout."""

    gpus: tuple[str, ...]
    """Names of those that are there; empty for GPUs to add."""

    count: int
    profiles: Multiset
    """In the order of the catalogue."""

    layout: Layout
    """Where the instances stand, or are believed to stand where the driver chooses."""

    live: Layout
    """Of these, the instances in use."""

    changed: bool
    """Whether it is a reconfiguration."""

    reach: Reach
    """How the layout comes about; beside live instances by explicit placement alone, as mig-parted clears a GPU."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What to lay out."""

    gpu: GpuModel
    demand: Mapping[str, int] = field(hash=False)
    """Instances that were asked for, by profile."""

    groups: tuple[Group, ...]
    """Those with live instances first, then the others that are there, then those to add; the most numerous first."""

    lower_bound: int
    """GPUs that every plan uses at least."""

    optimal: bool
    """Whether it is proven best in GPUs, then SMs, then stranded memory, then changes."""

    solver: str
    """`HiGHS`, or `first fit` with what else was done."""

    note: str = ""
    """Why another solver was not used."""

    @property
    def gpus(self) -> int:
        """GPUs that it uses."""
        return sum(group.count for group in self.groups)

    @property
    def added(self) -> int:
        """GPUs of these that are not there yet."""
        return sum(group.count for group in self.groups if not group.gpus)

    @property
    def reconfigurations(self) -> int:
        """GPUs that are there and are laid out anew."""
        return sum(group.count for group in self.groups if group.changed and group.gpus)

    @property
    def offered(self) -> dict[str, int]:
        """Instances by profile."""
        offered: dict[str, int] = {}
        for group in self.groups:
            for name in group.profiles:
                offered[name] = offered.get(name, 0) + group.count
        return offered

    @property
    def spare(self) -> dict[str, int]:
        """Instances beyond the demand, by profile."""
        spare = {name: count - self.demand.get(name, 0) for name, count in self.offered.items()}
        return {name: count for name, count in spare.items() if count}

    @property
    def sm_share(self) -> float:
        """Share of the SMs of its GPUs that instances have; of compute slices where SMs are not known."""
        exposed = [(group.count, exposure(self.gpu, group.profiles)) for group in self.groups]
        every = sum(count * one.all_sms for count, one in exposed)
        return sum(count * one.sms for count, one in exposed) / every if every else 0.0

    @property
    def stranded_units(self) -> int:
        """Memory units of its GPUs that no instance has."""
        return sum(group.count * exposure(self.gpu, group.profiles).stranded_units for group in self.groups)


def plan(
    gpu: GpuModel,
    demand: Mapping[str, int],
    standing: Sequence[StandingGpu] = (),
    *,
    solver: Solver = "auto",
    any_placement: bool = False,
    leave_live: bool = False,
) -> Plan:
    """Find the fewest GPUs, then the most SMs, then the least stranded memory, then the fewest changes.

    Args:
        gpu: The model of all GPUs.
        demand: Instances by profile, live ones among them.
        standing: GPUs that are there; more of the model may be added.
        solver: `exact` insists on HiGHS, `heuristic` does without.
        any_placement: Allow layouts that mig-parted is not believed to reach.
        leave_live: Add nothing on GPUs with live instances.

    Raises:
        DemandError: the GPU has no MIG, a profile is not one of its, instances cannot stand where they are said to, or
            HiGHS is insisted on and there is none.
    """
    try:
        model = model_of(gpu, demand, standing, any_placement=any_placement, leave_live=leave_live)
    except ValueError as error:
        raise DemandError(str(error)) from None
    packed, note = (None, "") if solver == "heuristic" else _solved(model, insist=solver == "exact")
    if packed is not None:
        how, packing, bound, optimal = "HiGHS", packed.packing, packed.bound, packed.optimal
    else:
        packing, bound = heuristic.heuristic(model), heuristic.lower_bound(model)
        how, optimal = "first fit and emptying GPUs", False
    return Plan(gpu, dict(demand), tuple(_groups(model, packing)), bound, optimal, how, note)


def first_fit(gpu: GpuModel, demand: Mapping[str, int]) -> int:
    """GPUs that first fit with the larger instances first needs, for comparison.

    Raises:
        DemandError: as `plan`.
    """
    try:
        return heuristic.gpus_of(heuristic.first_fit(model_of(gpu, demand)))
    except ValueError as error:
        raise DemandError(str(error)) from None


def _solved(model: Model, *, insist: bool) -> tuple[exact.Packed | None, str]:
    try:
        packed = exact.solve(model)
    except exact.NoSolverError as error:
        if insist:
            raise DemandError(f"HiGHS is not installed ({error}); install highspy, or use --solver heuristic") from None
        return None, "HiGHS is not installed; install highspy for a proven plan"
    return packed, "" if packed else "HiGHS found nothing in its time"


def _groups(model: Model, packing: heuristic.Packing) -> Iterator[Group]:
    for at, state in enumerate(model.states):
        names = iter(state.gpus or ())
        chosen = sorted(((count, -index) for (of, index), count in packing.items() if of == at), reverse=True)
        for count, index in chosen:
            yield _group(model.gpu, state, state.columns[-index], count, tuple(islice(names, count)))


def _group(gpu: GpuModel, state: State, column: Column, count: int, names: tuple[str, ...]) -> Group:
    changed = state.changes(column)
    if not changed:
        how, layout = Reach.CERTAIN, tuple(sorted((*state.live, *state.idle), key=lambda instance: instance.start))
    elif state.live:
        how, layout = Reach.EXPLICIT, place(gpu, _rest(column.profiles, state.live), beside=state.live)
    else:
        how, order = reach(gpu, column.profiles), creation_order(gpu, column.profiles)
        layout = (order and driver_placement(gpu, order)) or place(gpu, column.profiles)
    return Group(names, count, column.profiles, layout, state.live, changed, how)


def _rest(profiles: Multiset, live: Layout) -> list[str]:
    rest = list(profiles)
    for instance in live:
        rest.remove(instance.profile)
    return rest
