"""Pools from nodes: equal nodes of the company's own are one pool, rented nodes one pool per group and market.

It looks up what instance types have but no prices, and judges nothing: what is no legal pool is left out later, with
the validators' own reason (`draft`).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from infra.discovery.findings import CLUSTER, Part
from infra.discovery.mig import layout_of
from infra.discovery.naming import free_name, legal_name
from infra.discovery.nodes import NodeFacts
from infra.discovery.objects import some
from infra.discovery.rented import rented_pool
from stacks.catalogue import catalogue
from stacks.quantities import format_memory, parse_kube_name

_MEMORY_SPREAD: Final = 1.05
"""Equal machines report memory that differs by what firmware and kernel keep; five percent is far below a module."""


class Grouped(NamedTuple):
    """Pools, the pool of each node, and what is left out."""

    pools: list[Part]
    pool_of_node: dict[str, str]
    left_out: list[str]


def pools_of(nodes: Iterable[NodeFacts], limits: Mapping[str, int | None]) -> Grouped:
    """The pools that the nodes make up; `limits` are the most GPUs of Karpenter's NodePools, None without a limit."""
    grouped = Grouped([], {}, [])
    local: dict[tuple[Any, ...], list[NodeFacts]] = defaultdict(list)
    rented: dict[tuple[Any, ...], list[NodeFacts]] = defaultdict(list)
    for node in sorted(nodes, key=lambda one: one.name):
        if node.gpu is None:
            local[None, node.gpu_source].append(node)
        elif node.location == "onprem":
            partition = (node.slices, node.single, node.sharing, node.replicas)
            local[node.pool, node.gpu, node.gpus, node.cpus, partition].append(node)
        else:
            rented[node.pool, node.gpu, node.location, node.market, node.region].append(node)
    for key, group in local.items():
        if key[0] is None:
            names = some([node.name for node in group])
            grouped.left_out.append(
                f"{len(group):,} nodes ({names}) whose GPU model is not known: {key[1]}; "
                "--gpu names the model of such nodes"
            )
            continue
        for alike in _of_like_memory(group):
            _add(grouped, _local_pool(alike), alike)
    for group in rented.values():
        _add(grouped, rented_pool(group, limits), group)
    return grouped


def _add(grouped: Grouped, part: Part | str, nodes: Sequence[NodeFacts]) -> None:
    if isinstance(part, str):
        grouped.left_out.append(part)
        return
    name = free_name(part.name, {pool.name for pool in grouped.pools})
    grouped.pools.append(Part(name, part.settings, part.notes, part.remarks))
    grouped.pool_of_node.update(dict.fromkeys((node.name for node in nodes), name))


def _of_like_memory(nodes: Iterable[NodeFacts]) -> list[list[NodeFacts]]:
    groups: list[list[NodeFacts]] = []
    for node in sorted(nodes, key=lambda one: (one.memory, one.name)):
        if groups and node.memory <= groups[-1][0].memory * _MEMORY_SPREAD:
            groups[-1].append(node)
        else:
            groups.append([node])
    return groups


def _local_pool(nodes: Sequence[NodeFacts]) -> Part | str:
    """One pool of machines of the company's own; the reason where the file cannot hold it."""
    one, names = nodes[0], sorted(node.name for node in nodes)
    model = catalogue().gpus[str(one.gpu)]
    count = one.gpus
    settings: dict[str, Any] = {}
    notes: dict[str, str] = {}
    if one.slices:
        found = layout_of(model, dict(one.slices), one.gpus)
        if found is None:
            shown = ", ".join(f"{number} x {profile}" for profile, number in one.slices)
            where = f"{one.gpus or 'any number of'} {model.id}"
            return f"{len(nodes):,} nodes ({some(names)}): {shown} do not fit on {where}"
        layout, used = found
        count = one.gpus or used
        settings["mig"] = {"strategy": "single" if one.single else "mixed", "layout": layout}
        notes["mig"] = "from the slices that the nodes offer; REVIEW which GPU has which: no label says"
    if one.sharing:
        settings["sharing"] = {one.sharing: {"replicas": one.replicas}}
        notes["sharing"] = "labels nvidia.com/gpu.replicas and nvidia.com/gpu.sharing-strategy"
    legal = all(_is_kube_name(name) for name in names)
    remarks = [f"{len(nodes):,} {'nodes' if len(nodes) > 1 else 'node'} of your own: {some(names)}."]
    if not legal:
        remarks.append("Their names have dots, so pulumi cannot label them by this file; label them yourself with what")
        remarks.append("`gpufleet plan` prints (kubectl label node ...).")
    memory = min(node.memory for node in nodes) // 2**30 * 2**30
    return Part(
        legal_name(one.pool, model.name),
        {
            "cluster": CLUSTER,
            "location": "onprem",
            "gpu": model.id,
            "gpus_per_node": count or 0,
            "nodes": len(nodes),
            **({"node_names": names} if legal else {}),
            "cpus_per_node": one.cpus,
            "memory_per_node": format_memory(memory),
            **settings,
        },
        {
            "gpu": one.gpu_source,
            "gpus_per_node": "what the nodes offer",
            "cpus_per_node": "allocatable",
            "memory_per_node": "allocatable, the least of them, in whole GiB",
            **notes,
        },
        tuple(remarks),
    )


def _is_kube_name(name: str) -> bool:
    try:
        return parse_kube_name(name) == name
    except ValueError:
        return False
