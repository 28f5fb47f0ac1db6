"""GPU pools: groups of equal nodes, on-prem or in a cloud.

A pool says how many GPUs there are and what they cost; who may use them is the teams' matter.
"""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from stacks.catalogue import InstanceType, catalogue
from stacks.model import Model
from stacks.quantities import GpuCount, KubeName, Memory, Price, Usd
from stacks.suggest import did_you_mean


class OnPremPool(Model):
    """Nodes that the company owns: always there, paid for whether used or not."""

    cluster: KubeName
    """The cluster whose nodes these are."""

    location: Literal["onprem"]
    """`onprem`."""

    gpu: str
    """GPU model, by its catalogue id, e.g. `h100-sxm-80gb`."""

    gpus_per_node: Annotated[int, Field(ge=1, le=64)]
    """GPUs in each node."""

    nodes: Annotated[int, Field(ge=1, le=15_000)]
    """Number of nodes."""

    node_names: tuple[KubeName, ...] = ()
    """Names of the nodes, one per node. When given, `pulumi up` labels them; otherwise label them yourself
    with `gpufleet.dev/flavor` and `gpufleet.dev/pool` (`gpufleet plan` prints the values)."""

    cpus_per_node: Annotated[int, Field(ge=1, le=4_096)] = 96
    """Processor cores that jobs may use in each node; bounds the CPU quota beside the GPUs."""

    memory_per_node: Memory = Field(default="1Ti", validate_default=True)
    """Memory that jobs may use in each node; bounds the memory quota beside the GPUs."""

    usd_per_gpu_hour: Usd
    """What an owned GPU costs per hour (depreciation, power, space); used in reports, never against a budget."""

    @model_validator(mode="after")
    def _gpu_is_known(self) -> Self:
        require_gpu(self.gpu)
        return self

    @model_validator(mode="after")
    def _gpus_come_with_cores_and_memory(self) -> Self:
        if self.cpus_per_node < self.gpus_per_node:
            raise ValueError(f"cpus_per_node is less than a core for each of {self.gpus_per_node} GPUs")
        if self.memory_per_node < self.gpus_per_node * 2**30:
            raise ValueError(f"memory_per_node is less than 1Gi for each of {self.gpus_per_node} GPUs")
        return self

    @model_validator(mode="after")
    def _one_name_per_node(self) -> Self:
        if self.node_names and len(self.node_names) != self.nodes:
            raise ValueError(
                f"node_names has {len(self.node_names)} names for {self.nodes} nodes; name every node or leave it out"
            )
        if len(set(self.node_names)) != len(self.node_names):
            raise ValueError("node_names lists a node twice; each node once")
        return self

    @property
    def gpus(self) -> int:
        """GPUs of the whole pool."""
        return self.nodes * self.gpus_per_node


class CloudPool(Model):
    """Nodes that a cloud lends by the hour: they exist only while a released job needs them."""

    cluster: KubeName
    """The cluster the nodes join."""

    location: Literal["aws"]
    """The cloud."""

    provisioner: Literal["existing"]
    """Who starts the nodes: `existing` = an autoscaler that is there and labels them as `gpufleet plan` says."""

    market: Literal["spot", "on-demand"]
    """How the nodes are bought. Spot nodes can be taken back at two minutes' notice."""

    region: str = "us-east-1"
    """Region, for the list price."""

    instance_types: Annotated[tuple[str, ...], Field(min_length=1)]
    """Instance types to choose from; all with the same GPU model."""

    max_gpus: GpuCount
    """Most GPUs at any time; becomes the quota that Kueue enforces."""

    usd_per_gpu_hour: Price | None = None
    """The most a GPU-hour may cost; what a hard budget commits. Default: the dearest on-demand list price among
    `instance_types`. Required for spot, where no list price holds."""

    @model_validator(mode="after")
    def _instance_types_are_known(self) -> Self:
        known = catalogue().instance_types
        for name in self.instance_types:
            if name not in known:
                raise ValueError(f"instance type {name} is not in the catalogue{did_you_mean(name, known)}")
        models = {known[name].gpu for name in self.instance_types}
        if len(models) > 1:
            raise ValueError(f"instance_types mixes GPU models ({', '.join(sorted(models))}); make one pool per model")
        return self

    @model_validator(mode="after")
    def _price_is_known(self) -> Self:
        if self.usd_per_gpu_hour is not None:
            return self
        if self.market == "spot":
            raise ValueError(
                "a spot pool needs usd_per_gpu_hour, the most you will pay: spot has no list price (e.g. 3.50 USD)"
            )
        missing = [t.id for t in self._types() if self.region not in t.usd_per_hour]
        if missing:
            raise ValueError(
                f"no list price of {', '.join(missing)} in {self.region}; set usd_per_gpu_hour on the pool"
            )
        return self

    def _types(self) -> list[InstanceType]:
        return [catalogue().instance_types[name] for name in self.instance_types]

    @property
    def gpu(self) -> str:
        """GPU model id of the instance types."""
        return self._types()[0].gpu

    @property
    def gpus(self) -> int:
        """Most GPUs at any time."""
        return self.max_gpus

    @property
    def gpus_per_node(self) -> int:
        """GPUs of the largest instance type; a pod cannot ask for more."""
        return max(t.gpus for t in self._types())

    @property
    def cpus_per_gpu(self) -> float:
        """Cores beside each GPU, on the leanest instance type."""
        return min(t.cpus / t.gpus for t in self._types())

    @property
    def memory_per_gpu(self) -> int:
        """Bytes of memory beside each GPU, on the leanest instance type."""
        return min(t.memory_gib * 2**30 // t.gpus for t in self._types())

    @property
    def price(self) -> Usd:
        """Ceiling price of a GPU-hour in US dollars."""
        if self.usd_per_gpu_hour is not None:
            return self.usd_per_gpu_hour
        return max(t.usd_per_hour[self.region] / t.gpus for t in self._types())


Pool = Annotated[OnPremPool | CloudPool, Field(discriminator="location")]
"""One pool, told apart by `location`."""


def require_gpu(name: str) -> None:
    """Raise ValueError, with the nearest names, unless the catalogue knows the GPU model."""
    if name not in catalogue().gpus:
        raise ValueError(f"GPU model {name} is not in the catalogue{did_you_mean(name, catalogue().gpus)}")
