"""What `gpufleet mig` prints: plans, pictures of slices on the line of memory units, and what a layout comes to."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from infra.gpus.demand import Wanted
from infra.gpus.nodes import NodeLayout, Nodes
from infra.gpus.plan import Group, Plan
from infra.gpus.pool import PoolPlan
from stacks.catalogue import GpuModel
from stacks.mig import Layout, Reach, counts_of, exposure

_CELLS: Final = 72
"""Characters of a picture; with its indentation it fits 80 columns."""
_FREE: Final = "·"
_MEMORY: Final = re.compile(r"\.[0-9]+gb")

HOW: Final[Mapping[Reach, str]] = {
    Reach.CERTAIN: "mig-parted reaches it, whatever starts the driver chooses",
    Reach.LIKELY: "mig-parted reaches it if the driver chooses starts as it has been seen to",
    Reach.EXPLICIT: "needs explicit placement: mig-parted is not believed to reach it",
}


def picture(gpu: GpuModel, layout: Layout) -> str:
    """The line of memory units with its instances: `[1g.10gb][3g.40gb ······]`, a dot for each that nobody has."""
    assert gpu.mig is not None  # layouts are placed
    width = _CELLS // gpu.mig.units
    line, at = [], 0
    for instance in layout:
        line.append(_FREE * (width * (instance.start - at)))
        inner = width * instance.size - 2
        name = instance.profile if len(instance.profile) <= inner else _MEMORY.sub("", instance.profile)
        line.append(f"[{name[:inner]:^{inner}}]")
        at = instance.end
    line.append(_FREE * (width * (gpu.mig.units - at)))
    return "".join(line)


def names(profiles: Iterable[str]) -> str:
    """Profiles as people write them: `3g.40gb + 4x1g.10gb`, the larger first."""
    counted = counts_of(list(profiles))
    return " + ".join(name if times == 1 else f"{times}x{name}" for name, times in reversed(counted)) or "nothing"


def layout_yaml(layout: NodeLayout) -> str:
    """A layout on one line, as the stack file takes it."""
    pairs = (f"{json.dumps(key)}: [{', '.join(items)}]" for key, items in layout.items())
    return "{" + ", ".join(pairs) + "}"


def plan_lines(plan: Plan, wanted: Wanted, seconds: float) -> Iterator[str]:
    """A plan for a terminal, without the part to paste."""
    if wanted.report is not None:
        yield from wanted.report.lines()
        yield f"demand: {wanted.note}"
    if wanted.whole:
        yield f"beside the plan: {_gpus(wanted.whole, 'whole ')} for jobs that get no profile"
    if not plan.groups:
        yield "no instance is wanted, so no GPU is to be cut"
        return
    yield _headline(plan, seconds)
    yield f"  {_shares(plan)}"
    if plan.spare:
        yield f"  spare: {_counts(plan.spare)}"
    if plan.note:
        yield f"  {plan.note}"
    for group in plan.groups:
        yield ""
        yield from _group(plan.gpu, group)


def _headline(plan: Plan, seconds: float) -> str:
    number = sum(plan.demand.values())
    if plan.optimal:
        proof = "proven: no plan needs fewer, and none with as few exposes more SMs"
    elif plan.gpus == plan.lower_bound:
        proof = "no plan needs fewer"
    else:
        proof = f"at most {plan.gpus - plan.lower_bound} too many: at least {plan.lower_bound} are needed"
    instances = f"{number:,} instance{'' if number == 1 else 's'}"
    return f"{instances} on {plan.gpus:,} x {plan.gpu.id}; {proof} ({plan.solver}, {seconds:.2f} s)"


def _shares(plan: Plan) -> str:
    slices = any(exposure(plan.gpu, group.profiles).counts_slices for group in plan.groups)
    what = "compute slices (SMs of its profiles are not known)" if slices else "SMs"
    parts = [f"{plan.sm_share:.0%} of {what} exposed", f"{_units(plan.stranded_units)} stranded"]
    if any(group.gpus for group in plan.groups):
        parts.append(f"{_gpus(plan.reconfigurations)} laid out anew, {plan.added:,} added")
    return ", ".join(parts)


def _units(number: int) -> str:
    return f"{number:,} memory unit{'' if number == 1 else 's'}"


def _gpus(number: int, which: str = "") -> str:
    return f"{number:,} {which}GPU{'' if number == 1 else 's'}"


def _group(gpu: GpuModel, group: Group) -> Iterator[str]:
    which = _listed(group.gpus) if group.gpus else ""
    kept = "" if group.changed else ", as it is"
    yield f"{group.count:,} x {names(group.profiles)}{kept}{f' ({which})' if which else ''}"
    yield f"  {picture(gpu, group.layout)}"
    if group.live and group.changed:
        yield "  beside live instances: needs explicit placement, as mig-parted clears the GPU first"
    elif group.changed and group.reach is not Reach.CERTAIN:
        yield f"  {HOW[group.reach]}"


def _listed(gpus: Sequence[str], most: int = 6) -> str:
    more = f" and {len(gpus) - most:,} more" if len(gpus) > most else ""
    return ", ".join(gpus[:most]) + more


def _counts(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{count:,} x {name}" for name, count in counts.items())


def paste_lines(nodes: Sequence[Nodes], gpus_per_node: int) -> Iterator[str]:
    """What to paste into a pool of the stack file; several pools where nodes differ."""
    for each in nodes:
        whole = gpus_per_node - each.used
        left = f", {whole} of them whole" if whole else ""
        plural = "node" if each.count == 1 else "nodes"
        yield f"# {each.count:,} {plural} with {gpus_per_node} GPUs{left}"
        yield f"mig: {{strategy: mixed, layout: {layout_yaml(each.layout)}}}"


def plan_document(plan: Plan, wanted: Wanted, nodes: Sequence[Nodes], seconds: float) -> dict[str, Any]:
    """A plan for a program to read."""
    return {
        "gpu": plan.gpu.id,
        "demand": dict(plan.demand),
        "whole_gpus": wanted.whole,
        "gpus": plan.gpus,
        "gpus_added": plan.added,
        "lower_bound": plan.lower_bound,
        "optimal": plan.optimal,
        "solver": plan.solver,
        "seconds": round(seconds, 3),
        "sm_share": round(plan.sm_share, 4),
        "stranded_memory_units": plan.stranded_units,
        "reconfigurations": plan.reconfigurations,
        "spare": plan.spare,
        "groups": [
            {
                "count": group.count,
                "gpus": list(group.gpus),
                "profiles": dict(counts_of(group.profiles)),
                "placements": list(map(str, group.layout)),
                "live": list(map(str, group.live)),
                "changed": group.changed,
                "reach": group.reach,
            }
            for group in plan.groups
        ],
        "nodes": [{"count": each.count, "mig": {"strategy": "mixed", "layout": each.layout}} for each in nodes],
    }


def pool_lines(made: PoolPlan, pool: str, wanted: Wanted, seconds: float, gpus_per_node: int) -> Iterator[str]:
    """A pool's plan for a terminal."""
    yield from plan_lines(made.node, wanted, seconds)
    total = made.nodes * made.node.gpus
    yield ""
    yield f"pool {pool}: {made.nodes:,} equal nodes with this each, {total:,} GPUs"
    if made.unequal < total:
        yield f"  were nodes not equal, {made.unequal:,} GPUs would do: split the pool where that is worth it"
    whole = gpus_per_node - made.node.gpus
    if whole:
        yield f"  {_gpus(whole)} of each node {'stays' if whole == 1 else 'stay'} whole"
    yield f"mig: {{strategy: mixed, layout: {layout_yaml(made.layout)}}}"
