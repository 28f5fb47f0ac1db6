"""What pools with a fixed set of nodes may ask for beyond whole GPUs."""

from __future__ import annotations

from stacks.catalogue import GpuModel
from stacks.model import Model
from stacks.partitioning import Mig, Sharing


class Partitioned(Model):
    """MIG and sharing. Pools that an autoscaler sizes by simulating pods cannot have them: it would not see slices."""

    mig: Mig | None = None
    """Cut the GPUs into MIG slices. Default: whole GPUs."""

    sharing: Sharing | None = None
    """Let several pods share a GPU or slice in software. Default: one pod each."""

    def check_partitions(self, gpu: GpuModel, gpus_per_node: int) -> None:
        """Raise ValueError unless a node with so many GPUs of this model can be partitioned as asked."""
        if self.mig is None:
            return
        if self.sharing is not None and self.sharing.mps is not None:
            raise ValueError("sharing.mps: does not go with mig; share slices with time_slicing, or leave one out")
        self.mig.check_on(gpu, gpus_per_node)

    @property
    def partitioned(self) -> bool:
        """Whether pods get anything else than whole GPUs of their own."""
        return self.mig is not None or self.sharing is not None
