"""How `gpufleet mig plan` plans: for GPUs that are there or to come, or for a pool of the stack file."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import typer

from infra.commands import mig_text
from infra.commands.mig_file import change_layout
from infra.commands.project import stack_file
from infra.gpus.demand import Wanted, parse_demand, read_jobs, read_trace_demand
from infra.gpus.errors import DemandError
from infra.gpus.nodes import NodeLayout, nodes_of
from infra.gpus.plan import Solver, plan
from infra.gpus.pool import plan_pool
from infra.gpus.standing import read_standing
from stacks.catalogue import GpuModel, catalogue
from stacks.load import load_file
from stacks.mig.layouts import Multiset
from stacks.partitioning import Mig, indexes_of
from stacks.pools import PartitionedPool
from stacks.quantities import parse_gpu_name
from stacks.suggest import did_you_mean


@dataclass(frozen=True, slots=True)
class Terms:
    """How to plan."""

    solver: Solver
    any_placement: bool
    leave_live: bool


@dataclass(frozen=True, slots=True)
class ChosenPool:
    """A pool of a stack file."""

    file: Path
    name: str
    pool: PartitionedPool

    @property
    def model(self) -> GpuModel:
        """The model of its GPUs."""
        return catalogue().gpus[self.pool.gpu]


def plan_for_gpus(
    model: GpuModel, wanted: Wanted, keep: Path | None, terms: Terms, gpus_per_node: int, as_json: bool
) -> None:
    """Plan GPUs that are there or to come, and print it."""
    standing = read_standing(model, keep) if keep else ()
    started = time.perf_counter()
    found = plan(
        model,
        wanted.demand,
        standing,
        solver=terms.solver,
        any_placement=terms.any_placement,
        leave_live=terms.leave_live,
    )
    seconds, nodes = time.perf_counter() - started, nodes_of(found, gpus_per_node)
    if as_json:
        print_json(mig_text.plan_document(found, wanted, nodes, seconds))
        return
    print_lines([*mig_text.plan_lines(found, wanted, seconds), "", *mig_text.paste_lines(nodes, gpus_per_node)])


def plan_for_pool(chosen: ChosenPool, wanted: Wanted, terms: Terms, write: bool, as_json: bool) -> None:
    """Plan a pool, write it where that is wanted, and print it."""
    pool, per_node = chosen.pool, chosen.pool.gpus_per_node
    started = time.perf_counter()
    made = plan_pool(
        chosen.model,
        wanted.demand,
        pool.gpus // per_node,
        _current(pool.mig, per_node),
        solver=terms.solver,
        any_placement=terms.any_placement,
    )
    seconds = time.perf_counter() - started
    change = None
    if write and made.changed:
        change = change_layout(chosen.file, chosen.name, made.layout, _written(pool.mig))
        change.write()
    if as_json:
        document: dict[str, Any] = mig_text.plan_document(made.node, wanted, (), seconds) | {
            "pool": chosen.name,
            "node_count": made.nodes,
            "gpus_if_nodes_differed": made.unequal,
            "nodes": [{"count": made.nodes, "mig": {"layout": made.layout}}],
            "written": change is not None,
            "diff": "".join(change.diff()) if change else "",
        }
        print_json(document)
        return
    print_lines(mig_text.pool_lines(made, chosen.name, wanted, seconds, per_node))
    if change is not None:
        typer.echo("".join(change.diff()), nl=False)
        typer.echo(f"{chosen.file}: written")
        if pool.mig is not None and pool.mig.former is not None:
            typer.echo(
                "former stays as it was; where nodes have the layout that was replaced already, write that there"
            )
    elif write:
        typer.echo(f"{chosen.file}: says so already")


def known_model(name: str | None) -> GpuModel:
    """The model of a name; wrong usage where there is none."""
    if name is None:
        raise typer.BadParameter("name the GPU model, e.g. --gpu h100-sxm-80gb", param_hint="--gpu")
    try:
        return catalogue().gpus[parse_gpu_name(name)]
    except ValueError as error:
        raise typer.BadParameter(f"{name!r}: {error}", param_hint="--gpu") from None


def wanted_of(gpu: GpuModel, demand: str | None, jobs: Path | None, trace: Path | None) -> Wanted:
    """The demand, from whichever source there is."""
    if gpu.mig is None:
        raise DemandError(f"{gpu.id} has no MIG; give the whole GPU, or share it by time-slicing or MPS")
    if demand is not None:
        return parse_demand(gpu, demand)
    if jobs is not None:
        return read_jobs(gpu, jobs)
    assert trace is not None  # plan
    return read_trace_demand(gpu, trace)


def chosen_pool(file: str, name: str, gpu: str | None) -> ChosenPool:
    """The pool of that name in a stack file; it must be one that can have MIG."""
    path = Path(file) if Path(file).is_file() else stack_file(file, "--file")
    fleet = load_file(path)
    if name not in fleet.pools:
        raise DemandError(f"{path}: there is no pool {name}{did_you_mean(name, fleet.pools)}")
    pool = fleet.pools[name]
    if not isinstance(pool, PartitionedPool):
        raise DemandError(f"{path}: pool {name} cannot have MIG: somebody else sets up its nodes")
    if gpu is not None and known_model(gpu).id != pool.gpu:
        raise typer.BadParameter(f"pool {name} has {pool.gpu}; leave --gpu out", param_hint="--gpu")
    return ChosenPool(path, name, pool)


def _current(mig: Mig | None, gpus_per_node: int) -> list[Multiset]:
    current: list[Multiset] = [() for _ in range(gpus_per_node)]
    for key in mig.layout if mig else ():
        for index in indexes_of(key):
            current[index] = tuple(mig.profiles(key)) if mig else ()
    return current


def _written(mig: Mig | None) -> NodeLayout:
    """The layout as the stack file has it."""
    return {key: list(map(str, items)) for key, items in mig.layout.items()} if mig else {}


def print_lines(lines: Iterable[str]) -> None:
    """Print them."""
    typer.echo("\n".join(lines))


def print_json(value: object) -> None:
    """Print a value for a program."""
    typer.echo(json.dumps(value, indent=2))
