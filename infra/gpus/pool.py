"""A plan for a pool: its nodes are equal, so every node has its part of the demand, rounded up.

That costs GPUs where the demand does not divide by the nodes; the plan says how many, so that one can split the pool.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from infra.gpus.errors import DemandError
from infra.gpus.model import StandingGpu
from infra.gpus.nodes import NodeLayout, node_layout
from infra.gpus.plan import Plan, Solver, plan
from stacks.catalogue import GpuModel
from stacks.mig import place
from stacks.mig.layouts import Multiset

_MOST_NODES: Final = 15_000  # of a pool, as in the stack file


@dataclass(frozen=True, slots=True)
class PoolPlan:
    """The same layout for every node of a pool."""

    nodes: int
    node: Plan
    """Of one node."""

    layout: NodeLayout = field(hash=False)
    """As the stack file takes it."""

    changed: bool
    """Whether any GPU of a node is laid out otherwise than before, or whole now."""

    unequal: int
    """GPUs that would do if nodes need not be equal."""


def plan_pool(
    gpu: GpuModel,
    demand: Mapping[str, int],
    nodes: int,
    current: Sequence[Multiset],
    *,
    solver: Solver = "auto",
    any_placement: bool = False,
) -> PoolPlan:
    """Plan a pool of so many nodes; `current` is what each GPU of a node is laid out as, empty for a whole one.

    Raises:
        DemandError: as `plan`, and where the pool is too small.
    """
    standing = [StandingGpu(str(index), idle=place(gpu, profiles)) for index, profiles in enumerate(current)]
    node = plan(gpu, share_of(demand, nodes), standing, solver=solver, any_placement=any_placement)
    if node.added:
        raise DemandError(_too_small(gpu, demand, nodes, len(current), node.gpus, any_placement=any_placement))
    by_index = {int(name): group.profiles for group in node.groups for name in group.gpus}
    laid_out = [tuple(reversed(by_index.get(index, ()))) for index in range(len(current))]
    used = {key: profiles for key, profiles in node_layout(laid_out).items() if profiles}
    changed = any(sorted(old) != sorted(new) for old, new in zip(current, laid_out, strict=True))
    unequal = plan(gpu, demand, solver=solver, any_placement=any_placement).gpus
    return PoolPlan(nodes, node, used, changed, unequal)


def share_of(demand: Mapping[str, int], nodes: int) -> dict[str, int]:
    """What each of so many equal nodes must have."""
    return {name: -(-count // nodes) for name, count in demand.items()}


def _too_small(
    gpu: GpuModel, demand: Mapping[str, int], nodes: int, per_node: int, needed: int, *, any_placement: bool
) -> str:
    low, high = nodes, nodes
    while high <= _MOST_NODES and _needs(gpu, demand, high, any_placement) > per_node:
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if _needs(gpu, demand, middle, any_placement) > per_node else (low, middle)
    fix = f"{high:,} nodes would do" if high <= _MOST_NODES else "no number of such nodes would do"
    has = f"{nodes:,} equal nodes need {needed:,} GPUs each and have {per_node}"
    return f"the pool is too small: {has}; {fix}, or ask for less"


def _needs(gpu: GpuModel, demand: Mapping[str, int], nodes: int, any_placement: bool) -> int:
    return plan(gpu, share_of(demand, nodes), any_placement=any_placement).gpus
