"""The lines that `gpufleet catalog show` and `search` print of the catalogue's rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from infra.commands.columns import ABSENT, columns
from stacks.catalogue import Accelerator, GpuModel, InstanceType, MigGeometry, PartitionModes, catalogue
from stacks.catalogue.geometry import Certainty

_LABEL_WIDTH = 20
_CERTAINTY: Final[Mapping[Certainty, str]] = {
    "card": "read from cards",
    "documented": "documented by NVIDIA",
    "inferred": "inferred from another model; `gpufleet gpu diff` on a node settles it",
}


def gpu_text(gpu: GpuModel) -> list[str]:
    """All that is known of a GPU model."""
    sold = [row.id for row in catalogue().instance_types.values() if row.gpu == gpu.id]
    lines = [
        f"{gpu.id}: {gpu.vendor} GPU, {gpu.name} in flavor names",
        *_facts(
            ("architecture", gpu.architecture),
            ("memory", f"{gpu.memory_gib} GiB"),
            ("SMs", gpu.sms),
            ("NVLink", f"{_yes(gpu.nvlink)}, across nodes too" if gpu.multi_node_nvlink else _yes(gpu.nvlink)),
            ("BF16, dense", f"{gpu.bf16_tflops:g} TFLOPS"),
            ("relative speed", f"{gpu.relative_speed:g} (H100 SXM = 1; for placement choices only)"),
            ("compute capability", ".".join(map(str, gpu.compute_capability))),
            ("kernel modules", " or ".join(gpu.kernel_modules)),
            ("oldest driver", gpu.minimum_driver),
            ("MPS clients", gpu.mps_clients),
            ("PCI device ids", ", ".join(gpu.pci_device_ids)),
            ("instance types", ", ".join(sold)),
            ("source", f"{gpu.source} ({gpu.as_of})"),
            ("MIG", "no" if gpu.mig is None else f"{gpu.mig.units} memory units, {len(gpu.mig.profiles)} profiles"),
        ),
    ]
    return lines if gpu.mig is None else [*lines, *_mig_facts(gpu), "", *_mig_text(gpu.mig)]


def accelerator_text(row: Accelerator) -> list[str]:
    """A family of accelerators for people."""
    modes = row.modes
    return [
        f"{row.id}: {row.name}",
        *_facts(
            ("resource", row.resource),
            ("of parts", ", ".join(row.shares)),
            ("other resources", ", ".join(row.devices)),
            ("partitioned by", row.partition),
            ("compute modes", modes and ", ".join(f"{mode} ({parts} parts)" for mode, parts in modes.compute.items())),
            ("memory modes", modes and ", ".join(f"{mode}{_only(modes, mode)}" for mode in modes.memory)),
            ("chosen by label", row.select),
            ("prepared by taint", row.prepare),
            ("node labels", ", ".join(f"{label} ({what})" for what, label in row.labels.items())),
            ("taint", row.taint),
            ("operator", row.operator),
            ("exporter", row.exporter),
            ("resource claims", "instead of the plugin" if row.dra == "alternative" else "no"),
            ("certainty", row.certainty),
            ("source", f"{row.source} ({row.as_of})"),
        ),
    ]


def _only(modes: PartitionModes, memory: str) -> str:
    compute = modes.only_with.get(memory)
    return f" (with {', '.join(compute)} only)" if compute else ""


def instance_text(row: InstanceType) -> list[str]:
    """All that is known of an instance type, and its price in each region."""
    lines = [
        f"{row.id}: {row.provider} instance type",
        *_facts(
            ("GPUs", f"{row.gpus} x {row.gpu}"),
            ("vCPUs", row.cpus),
            ("memory", f"{row.memory_gib} GiB"),
            ("network", _gbps(row)),
            ("local NVMe", f"{row.local_nvme_gb} GB" if row.local_nvme_gb else "none, or an option"),
            ("EFA interfaces", row.efa_interfaces if row.provider == "aws" else None),
            ("RDMA", _yes(row.rdma)),
            ("markets", ", ".join(row.markets)),
            ("source", f"{row.source} ({row.as_of})"),
        ),
    ]
    if not row.usd_per_hour:
        return [*lines, *_facts(("on-demand prices", "not known; set usd_per_gpu_hour on the pool"))]
    origins = sorted({(provenance.source, provenance.as_of) for provenance in row.price_provenance.values()})
    lines += _facts(*(("on-demand prices", f"{source} ({as_of})") for source, as_of in origins))
    heading = ("REGION", "USD/HOUR", "USD/GPU-HOUR", "AS-OF")
    prices = [
        (region, f"{usd:8.4f}", f"{usd / row.gpus:8.4f}", row.price_provenance[region].as_of)
        for region, usd in sorted(row.usd_per_hour.items())
    ]
    return [*lines, "", *columns(heading, prices)]


def search_text(found: Sequence[tuple[InstanceType, str | None]]) -> list[str]:
    """One line for each type, with its price in the region named beside it."""
    heading = ("TYPE", "CLOUD", "GPU", "GPUS", "CPUS", "GIB", "NETWORK", "RDMA", "USD/GPU-HOUR", "REGION", "MARKETS")
    return columns(heading, [_cells(row, region) for row, region in found])


def _cells(row: InstanceType, region: str | None) -> tuple[object, ...]:
    usd = None if region is None else row.usd_per_gpu_hour(region)
    return (
        row.id,
        row.provider,
        row.gpu,
        row.gpus,
        row.cpus,
        row.memory_gib,
        (_gbps(row) or "").replace(" ", ""),
        _yes(row.rdma),
        None if usd is None else f"{usd:8.4f}",
        region,
        ",".join(row.markets),
    )


def _mig_facts(gpu: GpuModel) -> list[str]:
    assert gpu.mig is not None  # gpu_text
    change = "resets the GPU, or needs a reboot" if gpu.mig.mode_change == "reset" else "needs no reset"
    by = "NVML" if gpu.gpm else "DCGM's profiling only"
    return _facts(
        ("MIG mode change", change),
        ("use of instances by", by),
        ("MIG placements", _CERTAINTY[gpu.mig.certainty]),
        ("MIG source", _source(gpu.mig)),
    )


def _mig_text(mig: MigGeometry) -> list[str]:
    heading = ("PROFILE", "SLICES", "UNITS", "MOST", "SMS", "MIB", "DECODERS", "ENCODERS", "JPEG", "STARTS")
    rows = [
        (
            profile.name,
            profile.slices,
            profile.size,
            profile.max_count,
            profile.sms,
            profile.memory_mib,
            profile.engines.decoders,
            profile.engines.encoders,
            profile.engines.jpeg,
            ",".join(map(str, profile.starts)),
        )
        for profile in mig.profiles.values()
    ]
    return columns(heading, rows)


def _facts(*facts: tuple[str, object]) -> list[str]:
    return [f"  {label:<{_LABEL_WIDTH}}{ABSENT if value in (None, '') else value}" for label, value in facts]


def _source(row: MigGeometry) -> str:
    return f"{row.source} ({row.as_of})"


def _gbps(row: InstanceType) -> str | None:
    return None if row.network_gbps is None else f"{row.network_gbps:g} Gbps"


def _yes(value: bool) -> str:
    return "yes" if value else "no"
