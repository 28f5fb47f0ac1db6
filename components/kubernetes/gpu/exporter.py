"""What dcgm-exporter measures: a table of DCGM's fields in the form that it reads.

The operator's own table has no total of a GPU's memory, no activity of SMs and NVLink, and no count of XIDs, which
reports, alerts and cost accounting need. Names are DCGM's own, upper case; MIG instances have no `*_UTIL`, so that the
activity ratios (`DCGM_FI_PROF_*`, 0 to 1) are what is comparable.
"""

from __future__ import annotations

from typing import Final

from components.names import Manifest, manifest
from stacks.fleet import Fleet
from stacks.layouts import operator_is_ours

METRICS_NAME: Final = "gpufleet-dcgm-metrics"

_KEY: Final = "dcgm-metrics.csv"
"""The name of the file under which the operator mounts it."""

METRICS: Final = {
    "DCGM_FI_DEV_GPU_UTIL": ("gauge", "Percent of time in which a kernel ran; not of MIG instances"),
    "DCGM_FI_DEV_MEM_COPY_UTIL": (
        "gauge",
        "Percent of time in which memory was read or written; not of MIG",
    ),
    "DCGM_FI_DEV_FB_TOTAL": ("gauge", "Memory in MiB"),
    "DCGM_FI_DEV_FB_FREE": ("gauge", "Free memory in MiB"),
    "DCGM_FI_DEV_FB_USED": ("gauge", "Used memory in MiB"),
    "DCGM_FI_DEV_FB_RESERVED": ("gauge", "Reserved memory in MiB"),
    "DCGM_FI_DEV_SM_CLOCK": ("gauge", "SM clock in MHz"),
    "DCGM_FI_DEV_MEM_CLOCK": ("gauge", "Memory clock in MHz"),
    "DCGM_FI_DEV_GPU_TEMP": ("gauge", "Temperature in degrees Celsius"),
    "DCGM_FI_DEV_MEMORY_TEMP": ("gauge", "Temperature of the memory in degrees Celsius"),
    "DCGM_FI_DEV_POWER_USAGE": ("gauge", "Power draw in W"),
    "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION": ("counter", "Energy since boot in mJ"),
    "DCGM_FI_DEV_XID_ERRORS": ("gauge", "Last XID"),
    "DCGM_EXP_XID_ERRORS_COUNT": ("gauge", "XIDs of the last minutes by number"),
    "DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS": ("counter", "Rows remapped for uncorrectable errors"),
    "DCGM_FI_DEV_CORRECTABLE_REMAPPED_ROWS": ("counter", "Rows remapped for correctable errors"),
    "DCGM_FI_DEV_ROW_REMAP_FAILURE": ("gauge", "Whether a row could not be remapped"),
    "DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL": ("counter", "NVLink bandwidth of all lanes"),
    "DCGM_FI_PROF_GR_ENGINE_ACTIVE": ("gauge", "Ratio of time in which the graphics engine was active"),
    "DCGM_FI_PROF_SM_ACTIVE": ("gauge", "Ratio of cycles in which an SM had a warp"),
    "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE": ("gauge", "Ratio of cycles in which tensor cores were active"),
    "DCGM_FI_PROF_DRAM_ACTIVE": ("gauge", "Ratio of cycles in which memory sent or received"),
    "DCGM_FI_PROF_PCIE_TX_BYTES": ("gauge", "Bytes per second sent over PCIe"),
    "DCGM_FI_PROF_PCIE_RX_BYTES": ("gauge", "Bytes per second received over PCIe"),
    "DCGM_FI_PROF_NVLINK_TX_BYTES": ("gauge", "Bytes per second sent over NVLink"),
    "DCGM_FI_PROF_NVLINK_RX_BYTES": ("gauge", "Bytes per second received over NVLink"),
}
"""Kind and help of each field; the kinds are those of NVIDIA's own table. A comma would end a help text."""


def manifests(fleet: Fleet) -> dict[str, Manifest]:
    """The table, where gpufleet installs the operator."""
    if not operator_is_ours(fleet):
        return {}
    layer = fleet.gpu_layer
    extra = {name: (kind, "Chosen in the fleet file") for name, kind in layer.exporter.extra_metrics.items()}
    lines = [f"{name}, {kind}, {text}" for name, (kind, text) in (METRICS | extra).items()]
    data = {_KEY: "\n".join([*lines, ""])}
    return {"dcgm-metrics": manifest("v1", "ConfigMap", METRICS_NAME, namespace=layer.operator.namespace, data=data)}
