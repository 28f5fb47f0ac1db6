"""Flavors, derived from the pools: GPU model [× partitioned] × location [× market].

Teams' quotas name flavors and not pools, so that a second rack of the same GPUs changes no team.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal

from stacks.catalogue import catalogue
from stacks.classes import Place
from stacks.devices import node_capacity
from stacks.labels import FLAVOR_LABEL, GPU_LABEL, GPU_RESOURCE
from stacks.pools import CloudPool, OnPremPool, PartitionedPool, Pool


@dataclass(frozen=True, slots=True)
class Flavor:
    """One kind of GPU in one place: what Kueue calls a ResourceFlavor.

    `gpus`, `cpus` (cores), `memory` (bytes) and `devices` (what pods can ask for, by resource name) are the sums over
    its pools; `gpus_per_node` and `usd_per_gpu_hour` are the largest of them.
    """

    name: str
    gpu: str
    location: str
    market: Place | None
    gpus: int
    gpus_per_node: int
    cpus: int
    memory: int
    devices: Mapping[str, int]
    usd_per_gpu_hour: Decimal
    pools: tuple[str, ...]

    @property
    def whole(self) -> bool:
        """Whether its devices are whole GPUs, one for one."""
        return self.devices == {GPU_RESOURCE: self.gpus}

    def devices_of(self, resource: str, gpus: int) -> int:
        """How many of a device the first so many of its GPUs stand for, rounded down."""
        return self.devices.get(resource, 0) * gpus // self.gpus if self.gpus else 0

    @property
    def cloud(self) -> bool:
        """Whether a job on it costs money and must pass the gate."""
        return self.market is not None

    @property
    def node_labels(self) -> dict[str, str]:
        """The labels by which its nodes are found; a job may insist on the model."""
        return {FLAVOR_LABEL: self.name, GPU_LABEL: catalogue().gpus[self.gpu].name}


def flavor_name(pool: Pool) -> str:
    """The flavor a pool belongs to, e.g. `h100-onprem`, `a100-40gb-mig-onprem` or `h100-aws-spot`."""
    parts = [catalogue().gpus[pool.gpu].name]
    if isinstance(pool, PartitionedPool) and pool.partitioned:
        parts.append("mig" if pool.mig else "shared")
    if isinstance(pool, CloudPool):
        parts += [pool.flavor_location, pool.market]
    else:
        parts.append(pool.location)
    return "-".join(parts)


def flavors_of_pools(pools: Mapping[str, Pool]) -> dict[str, Flavor]:
    """All flavors, local ones first, otherwise in the order of the file."""
    flavors: dict[str, Flavor] = {}
    for name, pool in sorted(pools.items(), key=lambda item: isinstance(item[1], CloudPool)):
        one = _flavor_of(name, pool)
        flavors[one.name] = _merged(flavors[one.name], one) if one.name in flavors else one
    return flavors


def _flavor_of(name: str, pool: Pool) -> Flavor:
    if isinstance(pool, OnPremPool):
        market, price = None, pool.usd_per_gpu_hour
        cpus, memory = pool.nodes * pool.cpus_per_node, pool.nodes * pool.memory_per_node
    else:
        market, price = pool.market, pool.price
        cpus, memory = int(pool.gpus * pool.cpus_per_gpu), pool.gpus * pool.memory_per_gpu
    return Flavor(
        flavor_name(pool),
        pool.gpu,
        pool.flavor_location if isinstance(pool, CloudPool) else pool.location,
        market,
        pool.gpus,
        pool.gpus_per_node,
        cpus,
        memory,
        _devices(pool),
        price,
        (name,),
    )


def _devices(pool: Pool) -> dict[str, int]:
    """What pods can ask for on all of the pool's nodes."""
    if not isinstance(pool, PartitionedPool) or not pool.partitioned:
        return {GPU_RESOURCE: pool.gpus}  # its nodes may differ in size
    nodes = pool.gpus // pool.gpus_per_node
    return {resource: nodes * count for resource, count in node_capacity(pool).items()}


def _merged(left: Flavor, right: Flavor) -> Flavor:
    return Flavor(
        left.name,
        left.gpu,
        left.location,
        left.market,
        left.gpus + right.gpus,
        max(left.gpus_per_node, right.gpus_per_node),
        left.cpus + right.cpus,
        left.memory + right.memory,
        {name: left.devices.get(name, 0) + right.devices.get(name, 0) for name in {**left.devices, **right.devices}},
        max(left.usd_per_gpu_hour, right.usd_per_gpu_hour),
        left.pools + right.pools,
    )
