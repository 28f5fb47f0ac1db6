"""The GPUs of a node in the text form of Prometheus: one series for each GPU or MIG device, and who has it.

Shares are from 0 to 1. A figure that is not known has no series, rather than a zero. Temperature, power and health are
those of the whole GPU and stand once, without the label of an instance.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from runtime.gpus.health import State
from runtime.gpus.monitor import Monitor
from runtime.gpus.reader import Gpu, Instance, Usage
from runtime.gpus.survey import Snapshot

_PREFIX: Final = "gpufleet_node_gpu"
_MEBIBYTE: Final = 2**20

_HOLDING: Final = ("namespace", "pod", "container", "resource")

Row = tuple[Mapping[str, object], float | None]


def metrics(monitor: Monitor) -> Iterator[str]:
    """Every metric as text."""
    seen = monitor.snapshot
    up = (({"part": part}, float(is_up)) for part, is_up in sorted(monitor.answering.up.items()))
    yield from _metric("reader_up", "gauge", "Whether a part that is read answered last.", up)
    described = ((_described(seen, *pair), 1.0) for pair in _devices(seen))
    yield from _metric("info", "gauge", "What each device is; always 1.", described)
    yield from _of_devices(seen)
    yield from _of_gpus(seen)
    xids = (({"uuid": uuid, "xid": number}, float(count)) for (uuid, number), count in sorted(monitor.xids.items()))
    yield from _metric("xid_events_total", "counter", "Critical errors that the driver reported.", xids)
    held = (
        ({"uuid": uuid} | {name: getattr(each, name) for name in _HOLDING}, 1.0)
        for uuid, several in seen.holders.items()
        for each in several
    )
    yield from _metric("allocated", "gauge", "Who has a device; always 1.", held)
    wastes = (
        ({"uuid": uuid, "kind": finding.waste.value, "fits": finding.fits or ""}, 1.0)
        for uuid, finding in seen.wastes.items()
    )
    yield from _metric("wasted", "gauge", "Idle, or too large for its pod, and what would do.", wastes)


def _of_devices(seen: Snapshot) -> Iterator[str]:
    def rows(value: str, factor: float = 1.0) -> Iterator[Row]:
        for gpu, device in _devices(seen):
            usage: Usage | None = seen.usage.get(device.uuid)
            found = getattr(usage, value) if usage else None
            yield _named(gpu, device), None if found is None else found * factor

    sizes = ((_named(gpu, device), float(device.memory_mib * _MEBIBYTE)) for gpu, device in _devices(seen))
    yield from _metric("memory_bytes", "gauge", "Memory.", sizes)
    yield from _metric("memory_used_bytes", "gauge", "Memory in use.", rows("memory_used_mib", _MEBIBYTE))
    yield from _metric("active_ratio", "gauge", "Share of the time in which anything ran.", rows("active"))
    yield from _metric("sm_active_ratio", "gauge", "Share of the SMs that were busy.", rows("sm_active"))
    yield from _metric("tensor_active_ratio", "gauge", "Share of tensor cores' time.", rows("tensor_active"))
    yield from _metric("memory_bandwidth_ratio", "gauge", "Share of possible traffic.", rows("memory_bandwidth"))
    yield from _metric("processes", "gauge", "Processes with a context.", rows("processes"))


def _of_gpus(seen: Snapshot) -> Iterator[str]:
    def rows(value: str) -> Iterator[Row]:
        for health in seen.healths:
            found = getattr(health, value)
            yield {"uuid": health.uuid}, None if found is None else float(found)

    yield from _metric("temperature_celsius", "gauge", "Temperature.", rows("celsius"))
    yield from _metric("power_watts", "gauge", "Power.", rows("watts"))
    yield from _metric("remapped_rows", "gauge", "Rows replaced for uncorrectable errors.", rows("remapped_rows"))
    yield from _metric("row_remap_pending", "gauge", "A row waits for a reset.", rows("remap_pending"))
    yield from _metric("row_remap_failed", "gauge", "A row could not be replaced.", rows("remap_failed"))
    yield from _metric("thermal_slowdown", "gauge", "Clocks cut for the temperature.", rows("thermal_slowdown"))
    verdict = seen.verdict
    if verdict is not None:
        states = (
            ({"uuid": health.uuid, "state": state.value}, float(verdict.of(health.uuid) is state))
            for health in seen.healths
            for state in State
        )
        yield from _metric("health", "gauge", "How a GPU is: 1 for its state.", states)


def _devices(seen: Snapshot) -> Iterator[tuple[Gpu, Gpu | Instance]]:
    return ((gpu, device) for gpu in seen.gpus for device in gpu.devices)


def _named(gpu: Gpu, device: Gpu | Instance) -> dict[str, object]:
    profile = device.profile if isinstance(device, Instance) else ""
    return {"gpu": gpu.index, "uuid": device.uuid, "profile": profile}


def _described(seen: Snapshot, gpu: Gpu, device: Gpu | Instance) -> dict[str, object]:
    instance = device.gpu_instance if isinstance(device, Instance) else ""
    more = {"parent": gpu.uuid, "gpu_instance": instance, "model": gpu.name, "pci": gpu.bus_id, "driver": seen.driver}
    return _named(gpu, device) | more


def _metric(name: str, kind: str, text: str, rows: Iterable[Row]) -> Iterator[str]:
    full = f"{_PREFIX}_{name}"
    yield f"# HELP {full} {text}\n# TYPE {full} {kind}\n"
    for labels, value in rows:
        if value is not None:
            shown = ",".join(f'{key}="{_escaped(entry)}"' for key, entry in labels.items())
            yield f"{full}{{{shown}}} {value:.17g}\n"


def _escaped(value: object) -> str:
    return str(value).replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
