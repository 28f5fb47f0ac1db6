"""Pools on AWS, by who starts their nodes."""

from __future__ import annotations

from typing import Annotated, Final, Literal, Self

from pydantic import Field, model_validator

from stacks.catalogue import catalogue
from stacks.clusters import AwsRegion
from stacks.pools.cloud import NodeRange
from stacks.pools.gpu_nodes import GpuNodes
from stacks.pools.instances import InstancePool
from stacks.pools.partitioned import Partitioned
from stacks.quantities import GpuCount

_LARGEST_BLOCK: Final = 64
"""Instances of one capacity block (AWS's documentation of Capacity Blocks)."""

InstanceTypes = Annotated[tuple[str, ...], Field(min_length=1)]

ZoneIds = tuple[Annotated[str, Field(pattern=r"^[a-z]+[0-9]-az[0-9]+$", examples=["use1-az1"])], ...]
"""Zone ids, which mean the same place in every account; zone names (`us-east-1a`) do not."""

ReservationId = Annotated[str, Field(pattern=r"^cr-[0-9a-f]{8,17}$", examples=["cr-0123456789abcdef0"])]

_INITIALS: Final = {
    "north": "n",
    "south": "s",
    "east": "e",
    "west": "w",
    "central": "c",
    "northeast": "ne",
    "northwest": "nw",
    "southeast": "se",
    "southwest": "sw",
    "gov": "g",
    "iso": "i",
    "isob": "b",
}


def zone_prefix(region: str) -> str:
    """What the ids of a region's zones begin with: `us-east-1` → `use1`, `ap-northeast-2` → `apne2`."""
    continent, *words, number = region.split("-")
    return continent + "".join(_INITIALS.get(word, word[:1]) for word in words) + number


class _AwsPool(InstancePool):
    location: Literal["aws"]
    """`aws`."""

    region: AwsRegion | None = None
    """Region of the nodes, for the list price. Default: the cluster's, where the file says it."""

    instance_types: InstanceTypes
    """Instance types to choose from; all with the same GPU model. More types find more spot capacity."""

    @property
    def provider(self) -> str:
        """`aws`."""
        return self.location

    @property
    def type_names(self) -> tuple[str, ...]:
        """The instance types."""
        return self.instance_types


class _OwnedAwsPool(_AwsPool):
    zones: ZoneIds = ()
    """Zone ids to use, e.g. `[use1-az1, use1-az2]`. Default: all zones of the cluster's network."""

    reservation: ReservationId | None = None
    """The capacity reservation or capacity block to use. Required with those markets, not allowed with others."""

    @model_validator(mode="after")
    def _zones_are_in_the_region(self) -> Self:
        for zone in self.zones:
            if self.region and not zone.startswith(zone_prefix(self.region) + "-"):
                raise ValueError(
                    f"zones: {zone} is not in {self.region}, whose zone ids begin with {zone_prefix(self.region)}-"
                )
        return self

    @model_validator(mode="after")
    def _reservation_goes_with_the_market(self) -> Self:
        paid = self.market in {"reserved", "capacity-block"}
        if paid and self.reservation is None:
            raise ValueError(f"reservation: market {self.market} needs it, the id (e.g. cr-0123456789abcdef0)")
        if not paid and self.reservation is not None:
            raise ValueError(f"reservation: is not used by market {self.market}; leave it out or set market: reserved")
        if paid and len(self.instance_types) != 1:
            raise ValueError("instance_types: a reservation is for one type; name that one")
        if paid and len(self.zones) != 1:
            raise ValueError("zones: a reservation is in one zone; name that one")
        return self


class AwsExistingPool(_AwsPool):
    """Nodes that somebody else's autoscaler starts, labelled as `gpufleet plan` says."""

    provisioner: Literal["existing"]
    """`existing`: an autoscaler that is there starts the nodes."""

    market: Literal["spot", "on-demand", "reserved", "capacity-block"]
    """How the nodes are bought."""

    max_gpus: GpuCount
    """Most GPUs at any time; becomes the quota that Kueue enforces."""

    @property
    def gpus(self) -> int:
        """Most GPUs at any time."""
        return self.max_gpus


class KarpenterPool(GpuNodes, Partitioned, _OwnedAwsPool):
    """Nodes that Karpenter starts for the pods that wait, and removes when they are idle."""

    provisioner: Literal["karpenter"]
    """`karpenter`."""

    market: Literal["spot", "on-demand", "reserved", "capacity-block"]
    """How the nodes are bought. Spot nodes can be taken back at two minutes' notice."""

    max_gpus: GpuCount
    """Most GPUs at any time; the NodePool's limit, and the quota that Kueue enforces."""

    image: Literal["al2023", "bottlerocket"] = "al2023"
    """Operating system of the nodes, both with NVIDIA's driver."""

    @model_validator(mode="after")
    def _karpenter_can_count_the_partitions(self) -> Self:
        if self.mig is not None and self.mig.strategy == "single":
            raise ValueError(
                "mig.strategy: single offers slices as whole GPUs, of which Karpenter counts too few; use mixed"
            )
        if self.partitioned and self.image == "bottlerocket":
            raise ValueError("image: bottlerocket partitions GPUs as it boots, by settings of its own; use al2023")
        if self.partitioned and self.fewest_gpus_per_node != self.gpus_per_node:
            raise ValueError(
                "instance_types: have different numbers of GPUs; partitions are by GPU index, so name equals"
            )
        self.check_partitions(catalogue().gpus[self.gpu], self.fewest_gpus_per_node)
        return self

    @property
    def gpus(self) -> int:
        """Most GPUs at any time."""
        return self.max_gpus


class NodeGroupPool(GpuNodes, Partitioned, _OwnedAwsPool):
    """An EKS managed node group: a fixed range of equal nodes."""

    provisioner: Literal["node-group"]
    """`node-group`."""

    market: Literal["spot", "on-demand", "reserved", "capacity-block"]
    """How the nodes are bought."""

    nodes: NodeRange
    """Fewest and most nodes, e.g. `{min: 0, max: 4}`."""

    image: Literal["al2023", "bottlerocket"] = "al2023"
    """Operating system of the nodes, both with NVIDIA's driver."""

    @model_validator(mode="after")
    def _nodes_are_equal(self) -> Self:
        if self.fewest_gpus_per_node != self.gpus_per_node:
            raise ValueError("instance_types: have different numbers of GPUs; the nodes of a group are equal")
        if self.market == "capacity-block" and self.nodes.max > _LARGEST_BLOCK:
            raise ValueError(f"nodes.max: a capacity block has at most {_LARGEST_BLOCK} instances")
        return self

    @model_validator(mode="after")
    def _partitions_fit(self) -> Self:
        self.check_partitions(catalogue().gpus[self.gpu], self.fewest_gpus_per_node)
        return self

    @property
    def gpus(self) -> int:
        """GPUs of the largest number of nodes."""
        return self.nodes.max * self.gpus_per_node
