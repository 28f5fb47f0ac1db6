"""What every pool of rented GPUs has, wherever and by whomever its nodes are started."""

from __future__ import annotations

from abc import abstractmethod
from decimal import Decimal
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from stacks.model import Model
from stacks.quantities import GpuName, KubeName, NodeMemory, Price

Market = Literal["spot", "on-demand", "reserved", "capacity-block", "flex-start"]
"""How nodes are bought. `spot` can be taken back at short notice (AWS two minutes, Google Cloud thirty seconds);
`on-demand` costs the list price; `reserved` is capacity that is paid for already; `capacity-block` is AWS capacity
bought for fixed dates; `flex-start` is Google Cloud capacity that starts when there is some, for seven days at most."""


class Shape(Model):
    """What a node has, where no catalogue knows it."""

    gpu: GpuName
    """GPU model, by its catalogue id."""

    gpus_per_node: Annotated[int, Field(strict=True, ge=1, le=64)]
    """GPUs in each node."""

    cpus_per_node: Annotated[int, Field(strict=True, ge=1, le=4_096)]
    """Processor cores of each node."""

    memory_per_node: NodeMemory
    """Memory of each node."""


class CloudPool(Model):
    """Nodes that are rented by the hour: they exist only while a released job needs them."""

    cluster: KubeName
    """The cluster the nodes join."""

    market: Market
    """How the nodes are bought."""

    usd_per_gpu_hour: Price | None = None
    """The most a GPU-hour may cost; what a hard budget commits. Default: the dearest on-demand list price among the
    instance types, less `discount`. Required for spot, where no list price holds."""

    @property
    @abstractmethod
    def flavor_location(self) -> str:
        """The part of the flavor's name that says where: `aws`, `gcp`, or the broker's name."""

    @property
    def partitioned(self) -> bool:
        """Whether pods get anything else than whole GPUs of their own."""
        return False

    @property
    @abstractmethod
    def gpu(self) -> str:
        """GPU model id."""

    @property
    @abstractmethod
    def gpus(self) -> int:
        """Most GPUs at any time."""

    @property
    @abstractmethod
    def gpus_per_node(self) -> int:
        """GPUs of the largest node; a pod cannot ask for more."""

    @property
    @abstractmethod
    def cpus_per_gpu(self) -> float:
        """Cores beside each GPU, on the leanest node."""

    @property
    @abstractmethod
    def memory_per_gpu(self) -> int:
        """Bytes of memory beside each GPU, on the leanest node."""

    @property
    @abstractmethod
    def price(self) -> Decimal:
        """Ceiling price of a GPU-hour in US dollars."""


class NodeRange(Model):
    """How many nodes a pool may have."""

    min: Annotated[int, Field(strict=True, ge=0, le=15_000)] = 0
    """Fewest nodes, there and paid for even when idle."""

    max: Annotated[int, Field(strict=True, ge=1, le=15_000)]
    """Most nodes at any time."""

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.min > self.max:
            raise ValueError(f"min: {self.min} is more than max {self.max}")
        return self
