"""What the test NVML (nvml.c) shows: a node's GPUs with their MIG instances, made from the catalogue's own table."""

from __future__ import annotations

import itertools
import os
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from stacks.catalogue import GpuModel, MigProfile, catalogue

_WRITTEN = itertools.count(1)

SOURCE = Path(__file__).with_name("nvml.c")
SONAME = "libnvidia-ml.so.1"
VARIABLE = "GPUFLEET_TEST_NVML"

DRIVER_NOT_LOADED, NO_PERMISSION, NOT_SUPPORTED, FUNCTION_NOT_FOUND, GPU_IS_LOST, RESET_REQUIRED = 9, 4, 3, 13, 15, 16
VERSION_MISMATCH, UNKNOWN = 18, 999


def build(compiler: str, directory: Path) -> Path:
    """Compile the library; takes less than a second."""
    library = directory / SONAME
    flags = ["-shared", "-fPIC", "-O1", "-Wall", "-Wextra", "-Werror", f"-Wl,-soname,{SONAME}"]
    subprocess.run([compiler, *flags, "-o", str(library), str(SOURCE), "-lpthread"], check=True)
    return library


@dataclass
class Mig:
    """One MIG device; its index may be any, as on real cards after some were destroyed."""

    index: int
    gi: int
    profile: str
    ci: int = 0
    used: int = 0
    gpm: Mapping[int, float] = field(default_factory=dict)
    uuid: str = ""


@dataclass
class Card:
    """One GPU of a model of the catalogue; `settings` are further fields of its line."""

    model: str
    mig: bool | None = None
    instances: Sequence[Mig] = ()
    processes: Sequence[tuple[int, int | None, int | None]] = ()
    """Process id, GPU instance, compute instance."""
    settings: Mapping[str, object] = field(default_factory=dict)
    gpm: Mapping[int, float] = field(default_factory=dict)

    @property
    def gpu(self) -> GpuModel:
        return catalogue().gpus[self.model]


@dataclass
class Scenario:
    """Writes the file that the library reads; `write` replaces it at once."""

    path: Path
    cards: list[Card]
    driver: str = "595.91.07"
    down: int = 0
    errors: list[tuple[str, int, int]] = field(default_factory=list)
    """Function, code, and GPU (-1 for any)."""

    @property
    def events(self) -> Path:
        return self.path.with_suffix(".events")

    def write(self) -> None:
        self.events.touch()
        lines = [_line("driver", version=self.driver, down=self.down), _line("events", path=self.events)]
        for function, code, gpu in self.errors:
            lines.append(_line("error", function=function, code=code, gpu=gpu))
        for index, card in enumerate(self.cards):
            lines += _card(index, card)
        fresh = self.path.with_suffix(".new")
        fresh.write_text("".join(lines))
        written = next(
            _WRITTEN
        )  # the library tells files apart by their times, which the kernel counts in coarse steps
        os.utime(fresh, ns=(written, written))
        fresh.replace(self.path)

    def report(self, gpu: int, kind: int, number: int = 0, gi: int = -1) -> None:
        """An event, as the driver reports it."""
        with self.events.open("a") as file:
            file.write(f"{gpu} {kind} {number} {gi} -1\n")


def gpu_uuid(index: int) -> str:
    return f"GPU-00000000-0000-0000-0000-{index:012d}"


def mig_uuid(index: int, mig: Mig) -> str:
    return mig.uuid or f"MIG-{index:08d}-0000-0000-0000-{mig.gi:06d}{mig.ci:06d}"


def memory_of(gpu: GpuModel) -> int:
    """MiB of a card, a little less than its name says."""
    return gpu.memory_gib * 1024 - 361


def memory_mib(gpu: GpuModel, profile: MigProfile) -> int:
    """MiB of a profile; where the catalogue does not know them, its share."""
    assert gpu.mig is not None
    return profile.memory_mib or memory_of(gpu) * profile.size // gpu.mig.units


def _card(index: int, card: Card) -> list[str]:
    gpu = card.gpu
    major, minor = gpu.compute_capability
    known = {
        "uuid": gpu_uuid(index),
        "name": f"NVIDIA {card.model.upper()}",
        "bus": f"00000000:{index + 1:02X}:00.0",
        "pci": f"0x{(gpu.pci_device_ids or ('0001',))[0]}10DE",
        "memory": memory_of(gpu),
        "major": major,
        "minor": minor,
        "correctable": 0 if major >= 8 else -1,
        "gpm": _metrics(card.gpm),
    }
    if gpu.sms is not None:  # as CUDA counts cores: 64 of an SM for data centre cards up to A100, 128 of the others
        known["cores"] = gpu.sms * (64 if gpu.compute_capability <= (8, 0) else 128)
    if card.mig is not None:
        assert gpu.mig is not None
        known["mig"] = int(card.mig)
        known["max"] = max(gpu.mig.slices, *(instance.index + 1 for instance in card.instances), 0)
    lines = [_line("gpu", **(known | dict(card.settings)))]
    for profile in gpu.mig.profiles.values() if gpu.mig else ():
        lines.append(_profile(gpu, profile))
    for instance in card.instances:
        assert gpu.mig is not None
        lines.append(_instance(index, gpu, instance))
    for pid, gi, ci in card.processes:
        lines.append(_line("process", pid=pid, used=512, gi=-1 if gi is None else gi, ci=-1 if ci is None else ci))
    return lines


def _profile(gpu: GpuModel, profile: MigProfile) -> str:
    engines = profile.engines
    return _line(
        "profile",
        number=profile.number,
        id=profile.number + 100 if profile.profile_id is None else profile.profile_id,
        name=profile.name,
        slices=profile.slices,
        count=profile.max_count,
        sms=profile.sms or 0,
        memory=memory_mib(gpu, profile),
        starts=",".join(map(str, profile.starts)),
        size=profile.size,
        ce=engines.copy,
        dec=engines.decoders,
        enc=engines.encoders,
        jpeg=engines.jpeg,
        ofa=engines.optical_flow,
    )


def _instance(index: int, gpu: GpuModel, mig: Mig) -> str:
    assert gpu.mig is not None
    compute, _, rest = mig.profile.partition("c.")
    name = rest or compute
    profile = gpu.mig.profiles[name]
    return _line(
        "instance",
        index=mig.index,
        gi=mig.gi,
        ci=mig.ci,
        uuid=mig_uuid(index, mig),
        name=mig.profile,
        slices=profile.slices,
        ci_slices=int(compute) if rest else profile.slices,
        sms=profile.sms or 0,
        memory=memory_mib(gpu, profile),
        used=mig.used,
        gpm=_metrics(mig.gpm),
    )


def _metrics(gpm: Mapping[int, float]) -> str:
    return ",".join(f"{number}:{percent}" for number, percent in gpm.items())


def _line(kind: str, **fields: object) -> str:
    return "\t".join([kind, *(f"{key}={value}" for key, value in fields.items())]) + "\n"
