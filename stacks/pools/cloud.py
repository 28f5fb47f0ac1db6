"""What every pool of rented GPUs has, wherever and by whomever its nodes are started."""

from __future__ import annotations

from abc import abstractmethod
from decimal import Decimal
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from stacks.catalogue import InstanceType, catalogue
from stacks.model import Model
from stacks.quantities import GpuName, KubeName, NodeMemory, Percentage, Price
from stacks.suggest import did_you_mean

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


class InstancePool(CloudPool):
    """A pool whose nodes are instance types of a cloud."""

    region: str | None = None
    """Region of the nodes, for the list price. Default: the cluster's, where the file says it."""

    discount: Percentage | None = None
    """Negotiated discount off the on-demand list price, e.g. `25%`. Not for spot, which has no list price."""

    shape: Shape | None = None
    """What a node has, where an instance type is not in the catalogue. `gpufleet check` warns about such types."""

    @property
    @abstractmethod
    def provider(self) -> str:
        """The cloud, as the catalogue calls it."""

    @property
    def types_field(self) -> str:
        """The setting that names them."""
        return "instance_types"

    @property
    @abstractmethod
    def type_names(self) -> tuple[str, ...]:
        """Names of the instance types to choose from."""

    @model_validator(mode="after")
    def _instance_types_are_known(self) -> Self:
        known = {name: one for name, one in catalogue().instance_types.items() if one.provider == self.provider}
        for name in self.unknown_types:
            if self.shape is None:
                raise ValueError(
                    f"{self.types_field}: {name} is not in the catalogue of {self.provider}; if it is right, say in "
                    f"`shape` what it has{did_you_mean(name, known)}"
                )
        if self.shape is not None and not self.unknown_types:
            raise ValueError("shape: the catalogue knows these instance types; leave shape out")
        models = {one.gpu for one in self.known_types} | ({self.shape.gpu} if self.shape else set())
        if len(models) > 1:
            raise ValueError(
                f"{self.types_field}: {', '.join(sorted(models))} are several GPU models; make one pool per model"
            )
        if len(set(self.type_names)) < len(self.type_names):
            raise ValueError(f"{self.types_field}: names a type twice; each type once")
        return self

    @model_validator(mode="after")
    def _market_is_offered(self) -> Self:
        for one in self.known_types:
            if self.market not in one.markets:
                raise ValueError(
                    f"market: {one.id} is not sold as {self.market}; its markets: {', '.join(one.markets)}"
                )
        return self

    @model_validator(mode="after")
    def _price_is_said_once(self) -> Self:
        if self.discount is not None and self.usd_per_gpu_hour is not None:
            raise ValueError("discount: has no effect beside usd_per_gpu_hour; leave one of them out")
        if self.discount == 1:
            raise ValueError("discount: must be less than 100%; at a price of 0 no budget would ever be used up")
        if self.market in ("reserved", "capacity-block") and self.usd_per_gpu_hour is None:
            raise ValueError(
                f"usd_per_gpu_hour: market {self.market} is paid for apart from the list; say what a GPU-hour counts "
                "against budgets (e.g. 2.10 USD)"
            )
        if self.market == "spot" and self.usd_per_gpu_hour is None:
            raise ValueError(
                "usd_per_gpu_hour: a spot pool needs the most you will pay, as spot has no list price (e.g. 3.50 USD)"
            )
        if self.unknown_types and self.usd_per_gpu_hour is None:
            raise ValueError(f"usd_per_gpu_hour: no list price of {', '.join(self.unknown_types)}; set it on the pool")
        return self

    @property
    def unlisted_types(self) -> tuple[str, ...]:
        """The instance types whose list price is needed and not known in the pool's region."""
        if self.usd_per_gpu_hour is not None:
            return ()
        return tuple(one.id for one in self.known_types if self.region not in one.usd_per_hour)

    @property
    def unknown_types(self) -> tuple[str, ...]:
        """The instance types that the catalogue does not have for this cloud."""
        known = catalogue().instance_types
        return tuple(name for name in self.type_names if name not in known or known[name].provider != self.provider)

    @property
    def known_types(self) -> list[InstanceType]:
        """The others."""
        known = catalogue().instance_types
        return [known[name] for name in self.type_names if name in known and known[name].provider == self.provider]

    @property
    def flavor_location(self) -> str:
        """The cloud."""
        return self.provider

    @property
    def gpu(self) -> str:
        """GPU model id of the instance types."""
        return self.shape.gpu if self.shape else self.known_types[0].gpu

    @property
    def gpus_per_node(self) -> int:
        """GPUs of the largest instance type; a pod cannot ask for more."""
        return max(gpus for gpus, _, _ in self._nodes())

    @property
    def fewest_gpus_per_node(self) -> int:
        """GPUs of the smallest instance type."""
        return min(gpus for gpus, _, _ in self._nodes())

    @property
    def cpus_per_gpu(self) -> float:
        """Cores beside each GPU, on the leanest instance type."""
        return min(cpus / gpus for gpus, cpus, _ in self._nodes())

    @property
    def memory_per_gpu(self) -> int:
        """Bytes of memory beside each GPU, on the leanest instance type."""
        return min(memory // gpus for gpus, _, memory in self._nodes())

    @property
    def price(self) -> Decimal:
        """Ceiling price of a GPU-hour in US dollars; 0 where a list price is not known, which a rule refuses."""
        if self.usd_per_gpu_hour is not None:
            return self.usd_per_gpu_hour
        listed = [one.usd_per_hour.get(self.region or "", Decimal(0)) / one.gpus for one in self.known_types]
        return max(listed) * (1 - Decimal(str(self.discount or 0)))

    def _nodes(self) -> list[tuple[int, int, int]]:
        """GPUs, cores and bytes of memory of a node of each type."""
        nodes = [(one.gpus, one.cpus, one.memory_gib * 2**30) for one in self.known_types]
        if self.shape is not None:
            nodes.append((self.shape.gpus_per_node, self.shape.cpus_per_node, self.shape.memory_per_node))
        return nodes


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
