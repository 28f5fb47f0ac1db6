"""What the catalogue says of a GPU model and of an instance type: plain values, read by `stacks.catalogue.tables`.

They hold no judgement: what a figure means for a pool is the validators' matter; where a MIG profile fits is
`stacks.mig`'s.

Invariants: what a table leaves out is not known, and is None or an empty mapping here, never a guess.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import date
from decimal import Decimal
from typing import Final, Literal

from stacks.catalogue.accelerators import Accelerator
from stacks.catalogue.geometry import MigGeometry

KernelModule = Literal["open", "proprietary"]

_MPS_CLIENTS: Final = 48  # of one GPU, by NVIDIA's MPS documentation and the device plugin
_MPS_CLIENTS_BEFORE_TURING: Final = 16  # the device plugin's bound below compute capability 7.5
_TURING: Final = (7, 5)


@dataclass(frozen=True, slots=True)
class Provenance:
    """Where a row comes from."""

    source: str
    """Document, table or price list."""

    as_of: date
    """The day on which the source said so."""


@dataclass(frozen=True, slots=True)
class GpuModel:
    """One GPU model."""

    id: str
    """What the fleet file calls it, e.g. `h100-sxm-80gb`."""

    name: str
    """The short form used in flavor names."""

    vendor: str
    """Who makes it, in lower case."""

    architecture: str
    """E.g. `hopper`, in lower case."""

    memory_gib: int
    """What it is sold as; for a model with MIG, the size that profile names derive from."""

    sms: int | None
    """Streaming multiprocessors; None where not known."""

    nvlink: bool
    """Whether NVLink or NVSwitch joins every GPU of a full node."""

    bf16_tflops: float
    """Dense BF16 tensor TFLOPS of the data sheet (FP16 where the model has no BF16)."""

    relative_speed: float
    """`bf16_tflops` in proportion to H100 SXM; for placement choices only, it predicts no run."""

    compute_capability: tuple[int, int]
    """CUDA's, e.g. (9, 0) for Hopper."""

    pci_device_ids: tuple[str, ...]
    """PCI device ids in upper case, e.g. `2330`; empty where not known."""

    minimum_driver: str | None
    """The oldest driver with MIG on the model; None where not known."""

    kernel_modules: tuple[KernelModule, ...]
    """Kernel modules of the driver that support it."""

    gpm: bool
    """Whether NVML samples the utilisation of each MIG instance; elsewhere only DCGM's profiling does."""

    multi_node_nvlink: bool
    """Whether NVLink reaches across nodes."""

    mig: MigGeometry | None
    """None where the model cannot be partitioned."""

    source: str
    """Where the row comes from."""

    as_of: date
    """The day on which the source said so."""

    @property
    def mps_clients(self) -> int:
        """Most MPS clients of one GPU that the device plugin takes."""
        return _MPS_CLIENTS if self.compute_capability >= _TURING else _MPS_CLIENTS_BEFORE_TURING


@dataclass(frozen=True, slots=True)
class InstanceType:
    """One cloud instance type with whole GPUs."""

    id: str
    """The provider's name of it."""

    provider: str
    """`aws` or `gcp`."""

    gpu: str
    """Id of the GPU model."""

    gpus: int
    """GPUs of one instance."""

    cpus: int
    """vCPUs."""

    memory_gib: int
    """Main memory."""

    network_gbps: float | None
    """Network bandwidth; None where not known."""

    local_nvme_gb: int
    """Local NVMe that always comes with it, in 10⁹ bytes; 0 where there is none or it is an option."""

    efa_interfaces: int
    """Elastic Fabric Adapters; 0 outside AWS."""

    rdma: bool
    """Whether an instance can read another's memory over the network: EFA with RDMA read, or RoCE."""

    markets: tuple[str, ...]
    """How it can be bought: of `spot`, `on-demand`, `reserved`, `capacity-block`, `flex-start`."""

    usd_per_hour: Mapping[str, Decimal] = field(hash=False)
    """On-demand list price of an instance-hour by region; a region that is missing is not known."""

    price_provenance: Mapping[str, Provenance] = field(hash=False)
    """Where each price comes from, by region."""

    source: str
    """Where the row comes from, prices excepted."""

    as_of: date
    """The day on which the source said so."""

    def usd_per_gpu_hour(self, region: str) -> Decimal | None:
        """On-demand list price of one GPU for an hour, None where not known."""
        price = self.usd_per_hour.get(region)
        return None if price is None else price / self.gpus


@dataclass(frozen=True, slots=True)
class Catalogue:
    """All tables."""

    gpus: Mapping[str, GpuModel]
    """By id."""

    instance_types: Mapping[str, InstanceType]
    """By id, of all providers."""

    accelerators: Mapping[str, Accelerator]
    """Families of accelerators, by id; also of vendors whose models are not in `gpus`."""

    tables: Mapping[str, Provenance]
    """Source and date of each table; a row may say its own."""

    prices_as_of: date
    """Date of the oldest price."""
