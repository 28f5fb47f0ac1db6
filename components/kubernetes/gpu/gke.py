"""What a GKE node pool is made with instead: there Google partitions and shares GPUs, by settings of the node pool.

The name of the accelerator is the caller's to add: the catalogue knows models, not Google's names of them.
"""

from __future__ import annotations

from typing import Any

from stacks.pools import GkePool


def guest_accelerator(pool: GkePool) -> dict[str, Any]:
    """Number, partition and sharing of `node_config.guest_accelerators`; all that nodes offer is `nvidia.com/gpu`."""
    accelerator: dict[str, Any] = {"count": pool.gpus_per_node}
    if pool.mig is not None:
        [profile] = set(pool.mig.slices)  # one on all GPUs: the pool's model checks it
        accelerator["gpu_partition_size"] = profile
    if pool.sharing is not None:
        strategy = "MPS" if pool.sharing.mps is not None else "TIME_SHARING"
        accelerator["gpu_sharing_config"] = {
            "gpu_sharing_strategy": strategy,
            "max_shared_clients_per_gpu": pool.sharing.replicas,
        }
    return accelerator
