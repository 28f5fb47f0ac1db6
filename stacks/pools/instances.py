"""Pools of a cloud's instance types: what the catalogue knows of them, and what the file must say itself."""

from __future__ import annotations

from abc import abstractmethod
from decimal import Decimal
from typing import Self

from pydantic import model_validator

from stacks.catalogue import InstanceType, catalogue
from stacks.pools.cloud import CloudPool, Shape
from stacks.quantities import Percentage
from stacks.suggest import did_you_mean


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
