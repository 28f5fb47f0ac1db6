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


@dataclass(frozen=True, slots=True)
class Provenance:
    """Where a row comes from."""

    source: str
    """Document, table or price list."""

    as_of: date
    """The day on which the source said so."""


@dataclass(frozen=True, slots=True)
class MigProfile:
    """One MIG profile of a GPU model."""

    name: str
    """As the driver and the device plugin write it, e.g. `3g.20gb`, `1g.5gb+me`."""

    slices: int
    """Compute slices: the number before the g."""

    starts: tuple[int, ...]
    """Memory units at which it may begin."""

    size: int
    """Memory units that it takes, from its start on."""

    max_count: int
    """How often one GPU can have it."""

    sms: int | None
    """Streaming multiprocessors; None where not known."""

    media: int
    """Shares of the GPU's media engines."""


@dataclass(frozen=True, slots=True)
class MigGeometry:
    """What `stacks.mig` places profiles by."""

    units: int
    """Length of the line of memory units: 8 on A100 and its successors, 4 on A30, 12 on RTX PRO 6000."""

    media_engines: int
    """Shares of media engines that the profiles of one GPU have together."""

    profiles: Mapping[str, MigProfile] = field(hash=False)
    """By name."""

    source: str
    """Where the geometry comes from."""

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

    mig: MigGeometry | None
    """None where the model cannot be partitioned."""

    source: str
    """Where the row comes from."""

    as_of: date
    """The day on which the source said so."""


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

    tables: Mapping[str, Provenance]
    """Source and date of each table; a row may say its own."""

    prices_as_of: date
    """Date of the oldest price."""
