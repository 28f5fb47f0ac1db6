"""NCCL topology files for the teams' jobs: how GPUs and network cards of a machine are joined, where it hides that.

The text is the file's: gpufleet has no source for the topologies of instance families, and a wrong one is slower than
none. Jobs mount the ConfigMap and name the file in `NCCL_TOPO_FILE` (docs/gpu-layer.md).
"""

from __future__ import annotations

from typing import Final

from components.names import Manifest, manifest
from stacks.fleet import Fleet
from stacks.labels import POOL_LABEL
from stacks.pools import PartitionedPool

FILE: Final = "topology.xml"


def manifests(fleet: Fleet, team: str) -> dict[str, Manifest]:
    """A ConfigMap in the team's namespace for each pool with a topology."""
    return {
        f"nccl-{name}-{team}": manifest(
            "v1",
            "ConfigMap",
            f"gpufleet-nccl-{name}",
            namespace=fleet.teams[team].namespace or team,
            labels={POOL_LABEL: name},
            data={FILE: pool.nccl_topology},
        )
        for name, pool in fleet.pools.items()
        if isinstance(pool, PartitionedPool) and pool.nccl_topology is not None
    }
