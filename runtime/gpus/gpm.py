"""Utilisation by NVML's GPU performance monitoring (GPM), per GPU and per GPU instance: Hopper and later.

A figure is that of the time between two samples, so a device has none at its first reading. It costs two samples in the
driver for each device, which are given back with the device.

Invariant: a device that is not there any more holds no sample.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from typing import Any, Final, NamedTuple

from runtime.gpus.library import Library

# Numbers of metrics, nvmlGpmMetricId_t; all in percent.
_GRAPHICS: Final = 1
_SM: Final = 2
_TENSOR: Final = 5
_MEMORY_BANDWIDTH: Final = 10
_METRICS: Final = (_GRAPHICS, _SM, _TENSOR, _MEMORY_BANDWIDTH)

_PERCENT: Final = 100.0


class Shares(NamedTuple):
    """What it gives of a device, from 0 to 1; None where it does not."""

    active: float | None = None
    sm_active: float | None = None
    tensor_active: float | None = None
    memory_bandwidth: float | None = None


class Gpm:
    """Keeps the last sample of each device."""

    def __init__(self, library: Library) -> None:
        self._library = library
        self._last: dict[str, Any] = {}
        self._opening = 0
        self._request: Any = None

    def shares(self, uuid: str, parent: Any, gpu_instance: int | None) -> Shares:
        """How a device was used since it was asked for last; `parent` is the handle of its GPU.

        Raises:
            GpuAway, ReaderDown: as for every question.
        """
        ask = self._library.ask
        self._forget_void()
        support = None if parent is None else ask("nvmlGpmQueryDeviceSupport", parent)
        if support is None or not support.isSupportedDevice:
            return Shares()
        sample = ask("nvmlGpmSampleAlloc")
        if sample is None:
            return Shares()
        if gpu_instance is None:
            taken = ask("nvmlGpmSampleGet", parent, sample)
        else:
            taken = ask("nvmlGpmMigSampleGet", parent, gpu_instance, sample)
        if taken is None:
            ask("nvmlGpmSampleFree", sample)
            return Shares()
        before = self._last.get(uuid)
        self._last[uuid] = sample
        if before is None:
            return Shares()
        found = self._between(before, sample)
        ask("nvmlGpmSampleFree", before)
        return found

    def keep(self, uuids: Collection[str]) -> None:
        """Forget every device but these."""
        self._forget_void()
        for uuid in self._last.keys() - set(uuids):
            self._library.ask("nvmlGpmSampleFree", self._last.pop(uuid))

    def _forget_void(self) -> None:
        """Samples of before the library was closed are gone with it."""
        if self._opening != self._library.openings:
            self._opening = self._library.openings
            self._last.clear()

    def _between(self, before: Any, after: Any) -> Shares:
        functions = self._library.functions
        if self._request is None:  # it has room for every metric there is, so one of them is enough
            self._request = functions.c_nvmlGpmMetricsGet_t()
        request = self._request
        request.version = functions.NVML_GPM_METRICS_GET_VERSION
        request.numMetrics, request.sample1, request.sample2 = len(_METRICS), before, after
        for place, number in enumerate(_METRICS):
            request.metrics[place].metricId = number
        if self._library.ask("nvmlGpmMetricsGet", request) is None:
            return Shares()
        answers = (request.metrics[place] for place in range(len(_METRICS)))
        return Shares(*(None if answer.nvmlReturn else _share(answer.value) for answer in answers))


def _share(percent: float) -> float | None:
    """From 0 to 1; a driver says NaN for what it did not measure."""
    return min(max(percent / _PERCENT, 0.0), 1.0) if math.isfinite(percent) else None
