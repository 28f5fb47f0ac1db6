"""Pools of rented nodes: from nodes that are there, or from what somebody wants to rent."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from infra.discovery.findings import CLUSTER, Part
from infra.discovery.naming import legal_name
from infra.discovery.nodes import NodeFacts
from infra.discovery.objects import remark, some
from stacks.catalogue import InstanceType, catalogue
from stacks.quantities import format_memory

_CLOUDS: Final = ("aws", "gcp")


def rented_pool(nodes: Sequence[NodeFacts], limits: Mapping[str, int | None]) -> Part | str:
    """One pool of rented nodes; the reason where the file cannot hold it."""
    one, names = nodes[0], [node.name for node in nodes]
    model = catalogue().gpus[str(one.gpu)]
    there = sum(node.gpus or 0 for node in nodes)
    if any(node.slices or node.sharing for node in nodes):
        return (
            f"{len(nodes):,} {one.location} nodes ({some(names)}) with MIG or sharing: burst jobs ask for whole GPUs, "
            "and pools with provisioner: existing have nothing else"
        )
    most, source = there, f"GPUs of the {len(nodes):,} nodes that are there; REVIEW: the most that may be rented"
    if one.pool_source == "Karpenter NodePool" and limits.get(one.pool) is not None:
        most, source = limits[one.pool] or 0, f"limit of Karpenter NodePool {one.pool}"
    started_by = f", started by {one.pool_source} {remark(one.pool)}" if one.pool and not one.ours else ""
    settings, notes = rented_settings(one.location, one.market, one.region, [_type_of(node) for node in nodes], most)
    notes |= {"max_gpus": source, "market": one.market_source}
    if not any(node.instance_type for node in nodes):
        notes |= dict.fromkeys(
            {"instance_types", "machine_type"} & settings.keys(),
            "REVIEW: no label says the type; the catalogue's smallest with this GPU and as many of them",
        )
    if _needs_shape(one.location, settings):
        settings["shape"] = _shape(nodes)
        notes["shape"] = "what the leanest of the nodes offers; the catalogue does not know the type"
    remarks = [f"{len(nodes):,} rented {'nodes' if len(nodes) > 1 else 'node'}{started_by}: {some(names)}."]
    if not one.ours:
        remarks.append(
            "Its nodes need the labels and the taint that `gpufleet plan` prints; add them to what starts them."
        )
    name = legal_name(one.pool, f"{model.name}-{one.location}-{one.market}")
    return Part(name, settings, notes, tuple(remarks))


def rented_settings(
    location: str, market: str, region: str, types: Iterable[str], most: int
) -> tuple[dict[str, Any], dict[str, str]]:
    """The settings of a pool whose nodes somebody else's autoscaler starts, and notes on them."""
    settings: dict[str, Any] = {"cluster": CLUSTER, "location": location, "provisioner": "existing", "market": market}
    notes: dict[str, str] = {}
    names = sorted({name for name in types if name})
    if region:
        settings["region"] = region
        notes["region"] = "for the list price"
    if location == "gcp":
        settings["machine_type"] = names[0] if names else ""
        if len(names) > 1:
            notes["machine_type"] = f"REVIEW: there are also {some(names[1:])}; a pool on Google Cloud has one"
    elif location == "aws":
        settings["instance_types"] = names
    else:
        del settings["provisioner"]
        settings |= {"location": "broker", "provider": location}
    settings["max_gpus"] = most
    return settings, notes


def type_like(provider: str, gpu: str, gpus: int) -> InstanceType | None:
    """The leanest instance type of the catalogue with so many GPUs of the model."""
    fitting = [
        one for one in catalogue().instance_types.values() if (one.provider, one.gpu, one.gpus) == (provider, gpu, gpus)
    ]
    return min(fitting, key=lambda one: (one.cpus, one.memory_gib, one.id), default=None)


def _type_of(node: NodeFacts) -> str:
    if node.instance_type or node.location not in _CLOUDS:
        return node.instance_type
    guess = type_like(node.location, str(node.gpu), node.gpus or 0)
    return guess.id if guess else ""


def _needs_shape(location: str, settings: Mapping[str, Any]) -> bool:
    known = catalogue().instance_types
    types = settings.get("instance_types") or [settings.get("machine_type", "")]
    return not any(types) or any(name not in known or known[name].provider != location for name in types)


def _shape(nodes: Sequence[NodeFacts]) -> dict[str, Any]:
    return {
        "gpu": nodes[0].gpu,
        "gpus_per_node": min(node.gpus or 0 for node in nodes),
        "cpus_per_node": min(node.cpus for node in nodes),
        "memory_per_node": format_memory(min(node.memory for node in nodes) // 2**30 * 2**30),
    }
