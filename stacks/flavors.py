"""Flavors, derived from the pools: GPU model × location [× market].

Teams' quotas name flavors and not pools, so that a second rack of the same GPUs changes no team.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal

from stacks.catalogue import catalogue
from stacks.labels import FLAVOR_LABEL
from stacks.pools import CloudPool, OnPremPool, Pool


@dataclass(frozen=True, slots=True)
class Flavor:
    """One kind of GPU in one place: what Kueue calls a ResourceFlavor.

    `gpus`, `cpus` (cores) and `memory` (bytes) are the sums over its pools; `gpus_per_node` and `usd_per_gpu_hour` are
    the largest of them.
    """

    name: str
    gpu: str
    location: str
    market: str | None
    gpus: int
    gpus_per_node: int
    cpus: int
    memory: int
    usd_per_gpu_hour: Decimal
    pools: tuple[str, ...]

    @property
    def cloud(self) -> bool:
        """Whether a job on it costs money and must pass the gate."""
        return self.market is not None

    @property
    def node_labels(self) -> dict[str, str]:
        """The label by which its nodes are found."""
        return {FLAVOR_LABEL: self.name}


def flavor_name(pool: Pool) -> str:
    """The flavor a pool belongs to, e.g. `h100-onprem` or `h100-aws-spot`."""
    parts = [catalogue().gpus[pool.gpu].name, pool.location]
    if isinstance(pool, CloudPool):
        parts.append(pool.market)
    return "-".join(parts)


def flavors_of_pools(pools: Mapping[str, Pool]) -> dict[str, Flavor]:
    """All flavors, local ones first, otherwise in the order of the file."""
    flavors: dict[str, Flavor] = {}
    for name, pool in sorted(pools.items(), key=lambda item: isinstance(item[1], CloudPool)):
        one = _flavor_of(name, pool)
        flavors[one.name] = _merged(flavors[one.name], one) if one.name in flavors else one
    return flavors


def burst_flavors(pools: Mapping[str, Pool], order: Sequence[str]) -> list[Flavor]:
    """The cloud flavors in the order they are tried, given the order of the pools."""
    flavors = flavors_of_pools(pools)
    return [flavors[name] for name in dict.fromkeys(flavor_name(pools[pool]) for pool in order)]


def _flavor_of(name: str, pool: Pool) -> Flavor:
    if isinstance(pool, OnPremPool):
        market, cpus, memory = None, pool.nodes * pool.cpus_per_node, pool.nodes * pool.memory_per_node
        price = pool.usd_per_gpu_hour
    else:
        market, price = pool.market, pool.price
        cpus, memory = int(pool.gpus * pool.cpus_per_gpu), pool.gpus * pool.memory_per_gpu
    return Flavor(
        flavor_name(pool), pool.gpu, pool.location, market, pool.gpus, pool.gpus_per_node, cpus, memory, price, (name,)
    )


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
        max(left.usd_per_gpu_hour, right.usd_per_gpu_hour),
        left.pools + right.pools,
    )
