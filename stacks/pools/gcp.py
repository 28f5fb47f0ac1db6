"""Pools on Google Cloud, by who starts their nodes."""

from __future__ import annotations

from typing import Annotated, Final, Literal, Self

from pydantic import Field, StrictBool, model_validator

from stacks.catalogue import catalogue
from stacks.clusters import GcpRegion
from stacks.pools.cloud import NodeRange
from stacks.pools.gpu_nodes import GpuNodes
from stacks.pools.instances import InstancePool
from stacks.pools.partitioned import Partitioned
from stacks.quantities import GpuCount

_MOST_CLIENTS: Final = 48
"""Pods on a GPU (`maxSharedClientsPerGPU` of GKE's ComputeClass)."""

_COMPACT_FLEX: Final = ("a3-ultragpu", "a4-")
"""Machine series that flex-start places compactly (preconditions of Google's cluster-toolkit)."""

Zones = tuple[Annotated[str, Field(pattern=r"^[a-z]+-[a-z]+[0-9]+-[a-z]$", examples=["us-central1-a"])], ...]


class _GcpPool(InstancePool):
    location: Literal["gcp"]
    """`gcp`."""

    region: GcpRegion | None = None
    """Region of the nodes, for the list price. Default: the cluster's, where the file says it."""

    machine_type: Annotated[str, Field(min_length=1)]
    """Machine type, e.g. `a3-highgpu-8g`; a node pool has one."""

    market: Literal["spot", "on-demand", "flex-start", "reserved"]
    """How the nodes are bought. Small A3 types are sold as spot and flex-start only."""

    @property
    def types_field(self) -> str:
        """The setting that names it."""
        return "machine_type"

    @property
    def provider(self) -> str:
        """`gcp`."""
        return self.location

    @property
    def type_names(self) -> tuple[str, ...]:
        """The machine type."""
        return (self.machine_type,)


class GcpExistingPool(_GcpPool):
    """Nodes that somebody else's autoscaler starts, labelled as `gpufleet plan` says."""

    provisioner: Literal["existing"]
    """`existing`: an autoscaler that is there starts the nodes."""

    max_gpus: GpuCount
    """Most GPUs at any time; becomes the quota that Kueue enforces."""

    @property
    def gpus(self) -> int:
        """Most GPUs at any time."""
        return self.max_gpus


class GkePool(GpuNodes, Partitioned, _GcpPool):
    """A GKE node pool: a fixed range of equal nodes."""

    provisioner: Literal["node-pool"]
    """`node-pool`."""

    nodes: NodeRange
    """Fewest and most nodes in all zones together, e.g. `{min: 0, max: 4}`."""

    zones: Zones = ()
    """Zones to use, e.g. `[us-central1-a]`. Default: all zones of the region that have the machine type."""

    reservation: Annotated[str, Field(pattern=r"^[a-z]([-a-z0-9]{0,61}[a-z0-9])?$", examples=["a3-block"])] | None = (
        None
    )
    """Name of the reservation to use. Required with market `reserved`, not allowed with others."""

    compact: StrictBool = False
    """Whether nodes stand close together, for jobs over several nodes. Needs exactly one zone."""

    @model_validator(mode="after")
    def _zones_are_in_the_region(self) -> Self:
        for zone in self.zones:
            if self.region and not zone.startswith(self.region + "-"):
                raise ValueError(f"zones: {zone} is not in {self.region}")
        if self.compact and len(self.zones) != 1:
            raise ValueError("compact: needs exactly one zone; name it in zones")
        return self

    @model_validator(mode="after")
    def _market_rules(self) -> Self:
        if self.market == "reserved" and self.reservation is None:
            raise ValueError("reservation: market reserved needs it, the reservation's name")
        if self.market != "reserved" and self.reservation is not None:
            raise ValueError(f"reservation: is not used by market {self.market}; leave it out or set market: reserved")
        if self.market == "flex-start" and self.compact and not self.machine_type.startswith(_COMPACT_FLEX):
            raise ValueError("compact: market flex-start places only a3-ultragpu and a4 machines close together")
        if self.market == "flex-start" and self.nodes.min:
            raise ValueError("nodes.min: must be 0, since market flex-start starts nodes when there is capacity")
        return self

    @model_validator(mode="after")
    def _google_sets_up_the_nodes(self) -> Self:
        if self.device_interface == "dra":
            raise ValueError("device_interface: GKE offers GPUs by a device plugin of its own; leave it out")
        if self.kubelet is not None:
            raise ValueError("kubelet: GKE sets up the kubelets of its nodes; leave it out")
        return self

    @model_validator(mode="after")
    def _partitions_fit(self) -> Self:
        gpu = catalogue().gpus[self.gpu]
        self.check_partitions(gpu, self.fewest_gpus_per_node)
        if self.sharing is not None and self.sharing.replicas > _MOST_CLIENTS:
            raise ValueError(f"sharing: GKE lets at most {_MOST_CLIENTS} pods share a GPU")
        if self.mig is None:
            return self
        if self.mig.strategy != "single":
            raise ValueError("mig.strategy: GKE offers slices as whole GPUs; set single")
        [profile] = set(self.mig.slices)
        most = gpu.mig.profiles[profile].max_count if gpu.mig else 0
        if self.mig.slices[profile] != most * self.gpus_per_node:
            raise ValueError(f"mig.layout: GKE fills every GPU with one profile; write {most}x{profile} for all")
        return self

    @property
    def gpus(self) -> int:
        """GPUs of the largest number of nodes."""
        return self.nodes.max * self.gpus_per_node
