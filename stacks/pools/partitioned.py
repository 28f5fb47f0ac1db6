"""What pools whose nodes are ours to set up may ask for beyond whole GPUs."""

from __future__ import annotations

from typing import Literal

from stacks.catalogue import GpuModel
from stacks.model import Model
from stacks.partitioning import Mig
from stacks.sharing import Sharing


class Partitioned(Model):
    """MIG and sharing, and for whom."""

    mig: Mig | None = None
    """Cut the GPUs into MIG slices. Default: whole GPUs."""

    sharing: Sharing | None = None
    """Let several pods share a GPU or slice in software. Default: one pod each."""

    tenancy: Literal["trusted", "hostile"] = "trusted"
    """Who shares a GPU. `hostile` tenants get whole GPUs or MIG slices: time-slicing and MPS keep neither memory nor
    faults apart."""

    def check_partitions(self, gpu: GpuModel, gpus_per_node: int) -> None:
        """Raise ValueError unless a node with so many GPUs of this model can be partitioned as asked."""
        if self.sharing is not None and self.tenancy == "hostile":
            raise ValueError("sharing: keeps no tenants apart; with tenancy hostile use mig, or whole GPUs")
        if self.sharing is not None:
            self.sharing.check_on(gpu, self.mig)
        if self.mig is not None:
            self.mig.check_on(gpu, gpus_per_node)

    @property
    def partitioned(self) -> bool:
        """Whether pods get anything else than whole GPUs of their own."""
        return self.mig is not None or self.sharing is not None
