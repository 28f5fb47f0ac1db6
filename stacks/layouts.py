"""The names under which nodes find their MIG layout and their device plugin's configuration, and what stands there.

A name holds a digest of its content, so that a change of the file is a change of the node's label, which is what the
MIG manager and the device plugin watch: neither looks again at a configuration that changes under its name.

Invariants: equal content has equal names, however the file writes it; each name fits a label where the pool's name
leaves room.
"""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING, Any, Final

from stacks.clusters import Part
from stacks.devices import Layout, devices_of_node
from stacks.partitioning import by_gpu
from stacks.pools import GkePool, PartitionedPool

if TYPE_CHECKING:
    from stacks.fleet import Fleet

MIG_CONFIG_LABEL: Final = "nvidia.com/mig.config"
"""Node label: the named layout that the MIG manager carries out."""

PLUGIN_CONFIG_LABEL: Final = "nvidia.com/device-plugin.config"
"""Node label: the named configuration of the device plugin and of GPU feature discovery."""

ALL_DISABLED: Final = "all-disabled"
"""The layout without MIG; the operator gives it to nodes that have no other."""

PLUGIN_DEFAULT: Final = "default"
"""The configuration of nodes without the label."""

LONGEST_LABEL_VALUE: Final = 63

_DIGEST_LENGTH: Final = 8

LONGEST_POOL_NAME: Final = LONGEST_LABEL_VALUE - 1 - _DIGEST_LENGTH
"""Characters of the name of a pool with MIG or sharing, so that the names made from it fit a label."""


def served_pools(fleet: Fleet) -> dict[str, PartitionedPool]:
    """The pools whose GPUs NVIDIA's own operator offers, managed or existing: all that are ours but those on GKE."""
    return {
        name: pool
        for name, pool in fleet.pools.items()
        if isinstance(pool, PartitionedPool) and not isinstance(pool, GkePool) and operator_part(fleet, name) != "skip"
    }


def operator_part(fleet: Fleet, pool: str) -> Part:
    """Who is responsible for the GPU Operator on the pool's cluster; `skip` where the file does not define that."""
    cluster = fleet.clusters.get(fleet.pools[pool].cluster)
    return cluster.software.gpu_operator if cluster is not None else "skip"


def operator_is_ours(fleet: Fleet) -> bool:
    """Whether gpufleet installs the GPU Operator in the cluster of the pools."""
    home = fleet.clusters.get(fleet.home_name)
    return home is not None and home.software.gpu_operator == "managed"


def layout_name(name: str, pool: PartitionedPool, layout: Layout) -> str:
    """What a layout of a pool is called; the value of a node label."""
    return _named(name, mig_entries(layout, pool.gpus_per_node))


def mig_entries(layout: Layout, gpus_per_node: int) -> list[dict[str, Any]]:
    """A layout as mig-parted reads it: equal GPUs together, in the order of the first, those that stay whole last."""
    per_gpu = by_gpu(layout)
    entries: list[dict[str, Any]] = []
    for index in sorted(per_gpu):
        equal = next((entry for entry in entries if entry["mig-devices"] == per_gpu[index]), None)
        if equal is None:
            equal = {"devices": [], "mig-enabled": True, "mig-devices": dict(sorted(per_gpu[index].items()))}
            entries.append(equal)
        equal["devices"].append(index)
    if whole := [index for index in range(gpus_per_node) if index not in per_gpu]:
        entries.append({"devices": whole, "mig-enabled": False})
    return entries


def mig_configs(fleet: Fleet) -> dict[str, list[dict[str, Any]]]:
    """Every named layout of the fleet, wanted and former, with the one without MIG, as mig-parted reads them."""
    found: dict[str, list[dict[str, Any]]] = {ALL_DISABLED: [{"devices": "all", "mig-enabled": False}]}
    for name, pool in served_pools(fleet).items():
        for layout in pool.mig.layouts.values() if pool.mig else ():
            found[layout_name(name, pool, layout)] = mig_entries(layout, pool.gpus_per_node)
    return found


def plugin_config(pool: PartitionedPool) -> dict[str, Any]:
    """The device plugin's configuration of a pool's nodes, those that still have the former layout included.

    They would otherwise lose what the jobs on them share.
    """
    config: dict[str, Any] = {"version": "v1", "flags": {"migStrategy": pool.mig.strategy if pool.mig else "none"}}
    layouts = list(pool.mig.layouts.values()) if pool.mig else [None]
    devices = [device for layout in layouts for device in devices_of_node(pool, layout)]
    replicas = {device.resource: device.replicas for device in devices if device.replicas > 1}
    if pool.sharing is not None and replicas:
        way = "mps" if pool.sharing.mps is not None else "timeSlicing"
        shared = [{"name": resource, "replicas": replicas[resource]} for resource in sorted(replicas)]
        # Under the name of whole GPUs a job for four would get four turns on one; a second turn brings a pod nothing.
        settings = {"renameByDefault": True, "failRequestsGreaterThanOne": True, "resources": shared}
        config["sharing"] = {way: settings}
    return config


def plugin_configs(fleet: Fleet) -> dict[str, dict[str, Any]]:
    """Every configuration of the device plugin by its name."""
    found: dict[str, dict[str, Any]] = {PLUGIN_DEFAULT: {"version": "v1", "flags": {"migStrategy": "none"}}}
    for name, pool in served_pools(fleet).items():
        if pool.partitioned:
            found[plugin_config_name(name, pool)] = plugin_config(pool)
    return found


def plugin_config_name(name: str, pool: PartitionedPool) -> str:
    """What the device plugin's configuration of a pool is called; the value of a node label."""
    return _named(name, plugin_config(pool))


def node_labels(fleet: Fleet, name: str) -> dict[str, str]:
    """The labels by which nodes of a pool find their configuration; the agent's is left out (`gpu_layer.relayout`)."""
    pool = served_pools(fleet).get(name)
    if pool is None or not pool.partitioned:
        return {}
    labels = {PLUGIN_CONFIG_LABEL: plugin_config_name(name, pool)}
    if pool.mig is not None and fleet.gpu_layer.relayout is None:
        labels[MIG_CONFIG_LABEL] = layout_name(name, pool, pool.mig.layout)
    return labels


def _named(pool: str, content: object) -> str:
    canonical = json.dumps(content, sort_keys=True)
    return f"{pool}-{hashlib.sha256(canonical.encode()).hexdigest()[:_DIGEST_LENGTH]}"
