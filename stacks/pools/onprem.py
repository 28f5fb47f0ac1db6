"""On-prem pools: equal machines that the company owns."""

from __future__ import annotations

from collections import Counter
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from stacks.catalogue import catalogue
from stacks.pools.gpu_nodes import ADDRESSES_PER_NODE, GpuNodes, PoolDriver, Rdma
from stacks.pools.partitioned import Partitioned
from stacks.quantities import GpuName, KubeName, NodeMemory, Usd


class OnPremPool(GpuNodes, Partitioned):
    """Nodes that the company owns: always there, paid for whether used or not."""

    cluster: KubeName
    """The cluster whose nodes these are."""

    location: Literal["onprem"]
    """`onprem`."""

    gpu: GpuName
    """GPU model, by its catalogue id, e.g. `h100-sxm-80gb`."""

    gpus_per_node: Annotated[int, Field(strict=True, ge=1, le=64)]
    """GPUs in each node."""

    nodes: Annotated[int, Field(strict=True, ge=1, le=15_000)]
    """Number of nodes."""

    node_names: tuple[KubeName, ...] = ()
    """Names of the nodes, one per node. When given, `pulumi up` labels them; otherwise label them yourself
    with `gpufleet.dev/flavor` and `gpufleet.dev/pool` (`gpufleet plan` prints the values)."""

    cpus_per_node: Annotated[int, Field(strict=True, ge=1, le=4_096)] = 96
    """Processor cores that jobs may use in each node; bounds the CPU quota beside the GPUs."""

    memory_per_node: NodeMemory = Field(default="1Ti", validate_default=True)
    """Memory that jobs may use in each node; bounds the memory quota beside the GPUs."""

    driver: PoolDriver | None = None
    """The driver of its nodes, where it is not the fleet's."""

    rdma: Rdma | None = None
    """Network cards by which jobs on several of its nodes exchange data. Default: none that pods may use."""

    usd_per_gpu_hour: Usd
    """What an owned GPU costs per hour (depreciation, power, space); used in reports, never against a budget."""

    @model_validator(mode="after")
    def _gpus_come_with_cores_and_memory(self) -> Self:
        if self.cpus_per_node < self.gpus_per_node:
            raise ValueError(f"cpus_per_node: is less than a core for each of {self.gpus_per_node} GPUs")
        if self.memory_per_node < self.gpus_per_node * 2**30:
            raise ValueError(f"memory_per_node: is less than 1Gi for each of {self.gpus_per_node} GPUs")
        return self

    @model_validator(mode="after")
    def _one_name_per_node(self) -> Self:
        if self.node_names and len(self.node_names) != self.nodes:
            raise ValueError(
                f"node_names: has {len(self.node_names)} names for {self.nodes} nodes; name every node or leave it out"
            )
        twice = [name for name, times in Counter(self.node_names).items() if times > 1]
        if twice:
            raise ValueError(f"node_names: lists {twice[0]} twice; each node once")
        return self

    @model_validator(mode="after")
    def _partitions_fit(self) -> Self:
        self.check_partitions(catalogue().gpus[self.gpu], self.gpus_per_node)
        if self.rdma is not None and self.mig is not None:
            raise ValueError("rdma: reaches whole GPUs only, and a MIG slice has no peers; leave rdma or mig out")
        if self.rdma is not None and self.rdma.addresses is not None:
            needed, there = self.nodes * ADDRESSES_PER_NODE, self.rdma.addresses.num_addresses
            if needed > there:
                raise ValueError(
                    f"rdma.addresses: has {there}, and {self.nodes} nodes take {ADDRESSES_PER_NODE} each; widen it"
                )
        return self

    @property
    def gpus(self) -> int:
        """GPUs of the whole pool."""
        return self.nodes * self.gpus_per_node
