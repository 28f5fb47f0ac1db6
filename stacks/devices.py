"""What the nodes of a pool offer to pods: extended resources and how many of each.

The one place that knows the device plugin's names, so that queues, the autoscaler, the plugin's configuration and the
agent agree with what a node will really have.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from stacks.labels import GPU_RESOURCE
from stacks.partitioning import indexes_of, slices_of
from stacks.pools import GkePool, PartitionedPool, Pool
from stacks.quantities import MigProfiles

Layout = Mapping[str, tuple[MigProfiles, ...]]
"""Profiles on each GPU of a node, by GPU index."""

SHARED_SUFFIX = ".shared"
"""What the device plugin adds to the name of a shared resource (`renameByDefault`)."""


@dataclass(frozen=True, slots=True)
class Device:
    """One kind of device of a node, before sharing."""

    resource: str
    """Name without sharing, as the device plugin's configuration names it."""

    count: int
    """How many a node has."""

    replicas: int
    """Pods on each; 1 where it is not shared."""

    @property
    def offered(self) -> str:
        """The name that pods ask for."""
        return f"{self.resource}{SHARED_SUFFIX}" if self.replicas > 1 else self.resource


def slice_resource(profile: str) -> str:
    """The resource of a MIG profile with strategy mixed: a resource name takes no plus."""
    return f"nvidia.com/mig-{profile.replace('+', '.')}"


def devices_of_node(pool: Pool, layout: Layout | None = None) -> tuple[Device, ...]:
    """What NVIDIA's device plugin finds on a node of the pool, which may have another MIG layout than the wanted."""
    if not isinstance(pool, PartitionedPool):
        return (Device(GPU_RESOURCE, pool.gpus_per_node, 1),)
    sharing, cut = pool.sharing, layout or (pool.mig.layout if pool.mig else {})
    single = pool.mig is not None and pool.mig.strategy == "single"
    found = [
        Device(
            GPU_RESOURCE if single else slice_resource(profile), count, sharing.replicas_of(profile) if sharing else 1
        )
        for profile, count in slices_of(cut).items()
    ]
    whole = pool.gpus_per_node - len({index for key in cut for index in indexes_of(key)})
    if whole:
        found.append(Device(GPU_RESOURCE, whole, sharing.replicas_of(None) if sharing else 1))
    return tuple(found)


def node_capacity(pool: Pool, layout: Layout | None = None) -> dict[str, int]:
    """What a node of the pool offers, by resource."""
    devices = devices_of_node(pool, layout)
    if isinstance(pool, GkePool):  # GKE calls slices and shares whole GPUs; node labels tell them apart
        return {GPU_RESOURCE: sum(device.count * device.replicas for device in devices)}
    capacity: Counter[str] = Counter()
    for device in devices:
        capacity[device.offered] += device.count * device.replicas
    return dict(capacity)
