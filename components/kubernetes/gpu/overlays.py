"""NodeOverlays: what nodes with MIG or sharing offer, for Karpenter, which knows instance types with whole GPUs only.

An overlay adds resources to what Karpenter expects of a node; it needs Karpenter's feature gate `NodeOverlay`. It is
limited to the NodePool of its pool, so that two pools of one instance type may differ.
"""

from __future__ import annotations

from components.names import Manifest, manifest
from stacks.devices import node_capacity
from stacks.fleet import Fleet
from stacks.labels import GPU_RESOURCE
from stacks.layouts import served_pools
from stacks.pools import KarpenterPool


def manifests(fleet: Fleet) -> dict[str, Manifest]:
    """One for each partitioned pool that Karpenter sizes."""
    return {
        f"overlay-{name}": _overlay(name, pool)
        for name, pool in served_pools(fleet).items()
        if isinstance(pool, KarpenterPool) and pool.partitioned
    }


def _overlay(name: str, pool: KarpenterPool) -> Manifest:
    added = {resource: str(count) for resource, count in node_capacity(pool).items() if resource != GPU_RESOURCE}
    requirements = [
        {"key": "karpenter.sh/nodepool", "operator": "In", "values": [name]},
        {"key": "node.kubernetes.io/instance-type", "operator": "In", "values": list(pool.instance_types)},
    ]
    spec = {"requirements": requirements, "capacity": added}
    return manifest("karpenter.sh/v1alpha1", "NodeOverlay", f"gpufleet-{name}", spec=spec)
