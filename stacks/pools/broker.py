"""Pools of a GPU broker: nodes that somebody rents out and joins to the cluster by means of their own."""

from __future__ import annotations

from decimal import Decimal
from typing import Literal, Self

from pydantic import model_validator

from stacks.pools.cloud import CloudPool, Shape
from stacks.quantities import GpuCount, KubeName, Price


class BrokerPool(CloudPool):
    """Rented nodes described by what they have, whoever rents them out; gpufleet does not start them.

    The broker's own agent, or a virtual kubelet, starts nodes for pods that wait and labels them as `gpufleet plan`
    says.
    """

    location: Literal["broker"]
    """`broker`."""

    provider: KubeName
    """Short name of the broker, e.g. `lambda`; part of the flavor's name."""

    market: Literal["spot", "on-demand", "reserved"]
    """How the nodes are bought."""

    shape: Shape
    """What a node has."""

    max_gpus: GpuCount
    """Most GPUs at any time; becomes the quota that Kueue enforces."""

    usd_per_gpu_hour: Price
    """The most a GPU-hour may cost; what a hard budget commits."""

    @model_validator(mode="after")
    def _name_is_free(self) -> Self:
        if self.provider in {"aws", "gcp", "onprem"}:
            raise ValueError(f"provider: {self.provider} is no broker; use location: {self.provider}")
        return self

    @property
    def flavor_location(self) -> str:
        """The broker's name."""
        return self.provider

    @property
    def gpu(self) -> str:
        """GPU model id."""
        return self.shape.gpu

    @property
    def gpus(self) -> int:
        """Most GPUs at any time."""
        return self.max_gpus

    @property
    def gpus_per_node(self) -> int:
        """GPUs in each node."""
        return self.shape.gpus_per_node

    @property
    def cpus_per_gpu(self) -> float:
        """Cores beside each GPU."""
        return self.shape.cpus_per_node / self.shape.gpus_per_node

    @property
    def memory_per_gpu(self) -> int:
        """Bytes of memory beside each GPU."""
        return self.shape.memory_per_node // self.shape.gpus_per_node

    @property
    def price(self) -> Decimal:
        """Ceiling price of a GPU-hour in US dollars."""
        return self.usd_per_gpu_hour
