"""What can be read of the GPUs of a node, as values, and who reads it; and the table of MIG profiles that a card has.

It judges nothing: `health` and `idle` do. A figure that a card does not give is None, never a guess or a zero: many
cards, drivers and rights give only some of them.

Invariants: values are immutable; a GPU and an instance are told apart by their UUIDs, because indices change when a GPU
falls away or is laid out anew; sizes are in MiB, shares are from 0 to 1.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol


class ReaderDown(Exception):
    """The GPUs cannot be read at all now; the text says why, and what would help.

    `restart` is whether a process that is started anew could read them, because its library is that of another driver.
    """

    def __init__(self, text: str, *, restart: bool = False) -> None:
        super().__init__(text)
        self.restart = restart


class ReadingRefused(Exception):
    """One thing cannot be read of a card; the text says which, why, and what would help."""


@dataclass(frozen=True, slots=True)
class Instance:
    """One MIG device: a compute instance of a GPU instance."""

    uuid: str
    index: int
    """Among the MIG devices of its GPU; indices have gaps."""
    gpu_instance: int
    """Id of its GPU instance."""
    compute_instance: int
    """Id within the GPU instance."""
    profile: str
    """As the driver names it, e.g. `1g.10gb`, `1c.3g.40gb`."""
    sms: int
    memory_mib: int


@dataclass(frozen=True, slots=True)
class Gpu:
    """One physical GPU."""

    uuid: str
    index: int
    name: str
    """Product name, as the driver writes it."""
    bus_id: str
    """PCI address."""
    pci_id: int
    """PCI device id and, in the lower half, vendor: 0x233010DE is an H100."""
    memory_mib: int
    compute_capability: tuple[int, int]
    sms: int | None
    """Streaming multiprocessors; None where the driver does not say."""
    mig: bool | None
    """Whether MIG is on; None where the GPU cannot be partitioned."""
    mig_pending: bool | None
    """What it becomes at the next reset."""
    instances: tuple[Instance, ...] = ()
    """The MIG devices, by index; empty while MIG is off."""

    @property
    def devices(self) -> tuple[Gpu | Instance, ...]:
        """What jobs can be given: its MIG devices where MIG is on, else itself."""
        return self.instances if self.mig else (self,)


@dataclass(frozen=True, slots=True)
class Usage:
    """How a GPU or an instance is used, over the time since it was read last."""

    uuid: str
    memory_used_mib: int | None
    active: float | None
    """Share of the time in which anything ran on it."""
    sm_active: float | None
    """Share of its SMs that were busy, on average: at most `active`. None where only `active` is known."""
    tensor_active: float | None
    memory_bandwidth: float | None
    """Share of the possible traffic to its memory."""
    processes: int | None
    """Processes with a context on it; None where that may not be read."""


@dataclass(frozen=True, slots=True)
class Health:
    """What a GPU says of itself. Temperature, power and clocks belong to the whole GPU, whatever runs on instances."""

    uuid: str
    lost: bool = False
    """It does not answer any more."""
    reset_required: bool = False
    """It answers everything with the demand for a reset."""
    recovery: str | None = None
    """What NVIDIA's driver asks for: `none`, `gpu-reset`, `node-reboot` …; older ones say None."""
    remapped_rows: int | None = None
    """Rows of memory with uncorrectable errors that were replaced."""
    remap_pending: bool | None = None
    """A row is to be replaced at the next reset. For cards before Ampere: a page is to be retired."""
    remap_failed: bool | None = None
    """A row could not be replaced; the card should be."""
    celsius: int | None = None
    watts: float | None = None
    thermal_slowdown: bool | None = None
    """The hardware has cut the clocks to half or less, for the temperature."""
    power_brake: bool | None = None
    """The same, by a signal of the power supply."""


class EventKind(StrEnum):
    """What a driver reports by itself."""

    XID = "xid"
    """A critical error; the number says which."""
    DOUBLE_BIT = "double-bit-ecc"
    UNAVAILABLE = "unavailable"
    RECOVERY = "recovery-action"


@dataclass(frozen=True, slots=True)
class GpuEvent:
    """One report of a driver."""

    uuid: str
    """Of the GPU, also where it is about an instance; empty where the GPU does not say any more which it is."""
    kind: EventKind
    number: int
    """Of an XID; 0 for other kinds."""
    gpu_instance: int | None = None


@dataclass(frozen=True, slots=True)
class Profile:
    """A MIG profile as a card describes it."""

    name: str
    slices: int
    profile_id: int
    """What `nvidia-smi mig -lgip` shows; it means something else on another family of GPUs."""
    number: int
    """NVML's own number of the profile, NVML_GPU_INSTANCE_PROFILE_*: not the id."""
    starts: tuple[int, ...]
    """Memory units at which it may begin."""
    size: int
    """Memory units that it takes."""
    max_count: int
    sms: int
    memory_mib: int
    copy_engines: int
    decoders: int
    encoders: int
    jpeg_engines: int
    ofa_engines: int


@dataclass(frozen=True, slots=True)
class CapturedGpu:
    """What a catalogue says of a model, read from a card."""

    name: str
    pci_id: int
    memory_mib: int
    sms: int | None
    compute_capability: tuple[int, int]
    driver: str
    units: int
    """Length of the line of memory units."""
    profiles: tuple[Profile, ...]
    """In the order of NVML's numbers."""


class GpuReader(Protocol):
    """Reads the GPUs of this node; for one thread."""

    def driver(self) -> str:
        """Version of the driver, e.g. `595.91.07`.

        Raises:
            ReaderDown: when nothing can be read.
        """

    def gpus(self) -> Sequence[Gpu]:
        """Every GPU with its MIG devices, by index, enumerated anew. One that is lost is missing.

        Raises:
            ReaderDown: when nothing can be read.
        """

    def usage(self, gpu: Gpu) -> Sequence[Usage]:
        """How each of its devices is used, in their order; one that is gone since it was enumerated is missing.

        Raises:
            ReaderDown: when nothing can be read.
        """

    def health(self) -> Sequence[Health]:
        """What each GPU says of itself, the lost ones too, as far as they were ever seen.

        Raises:
            ReaderDown: when nothing can be read.
        """

    def profiles(self, gpu: Gpu) -> Sequence[Profile]:
        """Its MIG profiles; none where it cannot be partitioned.

        Raises:
            ReaderDown: when nothing can be read.
            ReadingRefused: when the card or the rights do not allow it.
        """

    def close(self) -> None:
        """Let go of the driver."""


class EventReader(Protocol):
    """Waits for what the driver reports; for one thread, which it holds up."""

    def events(self, seconds: float) -> Sequence[GpuEvent]:
        """What was reported since the last call; waits up to that long for the first.

        Raises:
            ReaderDown: when nothing can be read.
        """

    def close(self) -> None:
        """Let go of the driver."""


def capture(reader: GpuReader) -> tuple[CapturedGpu, ...]:
    """Every model with MIG on this node, as its cards describe it; equal cards once, by index.

    Raises:
        ReaderDown: when nothing can be read.
        ReadingRefused: when a card or the rights do not allow it.
    """
    driver, found = reader.driver(), dict[tuple[object, ...], CapturedGpu]()
    for gpu in reader.gpus():
        profiles = tuple(reader.profiles(gpu)) if gpu.mig is not None else ()
        if profiles:
            units = max(profile.size + max(profile.starts, default=0) for profile in profiles)
            facts = (gpu.name, gpu.pci_id, gpu.memory_mib, gpu.sms, gpu.compute_capability)
            found.setdefault((*facts, profiles), CapturedGpu(*facts, driver, units, profiles))
    return tuple(found.values())
