"""What NVIDIA's dcgm-exporter on the same node tells of use, where NVML does not: MIG on A100 and A30, above all.

Series are matched by the UUID of the GPU and the id of the GPU instance (`UUID`, `GPU_I_ID`); the exporter's own names
of hosts changed between releases and are never used. `DCGM_FI_DEV_GPU_UTIL` does not exist for MIG, and is in percent;
`DCGM_FI_PROF_*` are shares from 0 to 1, and `DCGM_FI_DEV_FB_*` are MiB.

Invariants: a line that cannot be read is passed over; of several series for one device (one for each pod that shares
it) the largest value counts, because they repeat that of the device.
"""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Iterator, Mapping
from typing import Final

from runtime.eviction.sources import SourceDown
from runtime.eviction.sources.connection import Connection
from runtime.gpus.reader import Gpu, Instance, Usage

Key = tuple[str, int | None]
"""UUID of the GPU, and id of the GPU instance; None for the whole GPU."""

LONGEST_PAGE: Final = 8 * 2**20
"""Bytes. Eight GPUs in seven instances with every metric that DCGM has are below one MiB."""

TIMEOUT_SECONDS: Final = 5.0

_FIELDS: Final[Mapping[str, tuple[str, float]]] = {
    "DCGM_FI_PROF_GR_ENGINE_ACTIVE": ("active", 1.0),
    "DCGM_FI_DEV_GPU_UTIL": ("active", 100.0),
    "DCGM_FI_PROF_SM_ACTIVE": ("sm_active", 1.0),
    "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE": ("tensor_active", 1.0),
    "DCGM_FI_PROF_DRAM_ACTIVE": ("memory_bandwidth", 1.0),
}
"""By metric: the field of `Usage`, and what its values are divided by."""

_USED: Final = "memory_used_mib"
_MEMORY_USED: Final = "DCGM_FI_DEV_FB_USED"
_LINE: Final = re.compile(r"([A-Za-z_:][A-Za-z0-9_:]*)\{(.*)\}\s+(\S+)(?:\s+-?[0-9]+)?")
_LABEL: Final = re.compile(r'([A-Za-z_][A-Za-z0-9_]*)="((?:[^"\\]|\\.)*)"')


class Exporter:
    """One exporter; for one thread."""

    def __init__(self, url: str) -> None:
        """Take the URL of its metrics, e.g. `http://127.0.0.1:9400/metrics`.

        Raises:
            ValueError: when the URL cannot be used.
        """
        self._connection = Connection(url, LONGEST_PAGE)

    def read(self) -> Mapping[Key, Usage]:
        """What it tells now.

        Raises:
            SourceDown: when it does not answer.
        """
        response = self._connection.request("GET", "", timeout=TIMEOUT_SECONDS)
        if response.status != 200:
            raise SourceDown(f"dcgm-exporter answered {response.status}")
        return exported(response.text())


def exported(text: str) -> Mapping[Key, Usage]:
    """Use by device, of a page of metrics."""
    found: dict[Key, dict[str, float]] = {}
    for name, labels, value in _samples(text):
        uuid, instance = labels.get("UUID", ""), labels.get("GPU_I_ID", "")
        if not uuid or (instance and not (instance.isascii() and instance.isdecimal())):
            continue
        fields = found.setdefault((uuid, int(instance) if instance else None), {})
        field, whole, limit = (_USED, 1.0, math.inf) if name == _MEMORY_USED else (*_FIELDS[name], 1.0)
        fields[field] = max(fields.get(field, 0.0), min(max(value / whole, 0.0), limit))
    return {key: _usage(key[0], fields) for key, fields in found.items()}


def filled(usage: Usage, gpu: Gpu, device: Gpu | Instance, told: Mapping[Key, Usage]) -> Usage:
    """What was read of a device, and what the exporter tells of it where nothing was."""
    other = told.get((gpu.uuid, device.gpu_instance if isinstance(device, Instance) else None))
    if other is None:
        return usage
    missing = {
        field.name: getattr(other, field.name)
        for field in dataclasses.fields(usage)
        if getattr(usage, field.name) is None
    }
    return dataclasses.replace(usage, **missing)


def _usage(uuid: str, fields: Mapping[str, float]) -> Usage:
    used = fields.get(_USED)
    return Usage(
        uuid=uuid,
        memory_used_mib=None if used is None else round(used),
        active=fields.get("active"),
        sm_active=fields.get("sm_active"),
        tensor_active=fields.get("tensor_active"),
        memory_bandwidth=fields.get("memory_bandwidth"),
        processes=None,
    )


def _samples(text: str) -> Iterator[tuple[str, Mapping[str, str], float]]:
    for line in text.splitlines():
        if not line.startswith("DCGM_FI_"):
            continue
        match = _LINE.fullmatch(line.rstrip())
        if match is None or (match[1] not in _FIELDS and match[1] != _MEMORY_USED):
            continue
        try:
            value = float(match[3])
        except ValueError:
            continue
        if math.isfinite(value):
            yield match[1], dict(_LABEL.findall(match[2])), value
