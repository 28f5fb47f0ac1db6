"""Which parts of the file components carry out, so that nothing which was asked for is left out silently.

It imports no SDK: `gpufleet plan` says the same as `pulumi preview`, in a tenth of the time.
"""

from __future__ import annotations

from typing import Final

from stacks.clusters import ExistingCluster
from stacks.fleet import Fleet
from stacks.pools import GkePool, KarpenterPool, NodeGroupPool

_INSTALLED: Final = frozenset({"gpu_operator"})
"""Software that components install in a cluster that is there."""


def parts_without_components(fleet: Fleet) -> list[str]:
    """What the file asks for and no component can make yet, by its path in the file."""
    found = [
        f"clusters.{name}: kind {cluster.kind}"
        for name, cluster in fleet.clusters.items()
        if not isinstance(cluster, ExistingCluster)
    ]
    for name, cluster in fleet.clusters.items():
        parts = cluster.software.model_dump() if isinstance(cluster, ExistingCluster) else {}
        missing = [part for part, how in parts.items() if how == "managed" and part not in _INSTALLED]
        found += [f"clusters.{name}.software.{part}: managed" for part in missing]
    found += [
        f"pools.{name}: provisioner {pool.provisioner}"
        for name, pool in fleet.pools.items()
        if isinstance(pool, KarpenterPool | NodeGroupPool | GkePool)
    ]
    found += [
        f"pools.{name}: device_interface {pool.device_interface}"
        for name, pool in fleet.onprem_pools.items()
        if pool.device_interface != "device-plugin"
    ]
    found += [f"links.{name}: kind {link.kind}" for name, link in fleet.links.items() if link.kind != "existing"]
    return found + [f"scaling.{name}" for name in fleet.scaling]
