"""Waits for what the driver reports of a GPU: critical XIDs, uncorrectable errors of memory, a GPU that went away.

An application's fault is an XID too; `health` tells them apart. What is reported while nobody waits is not kept by the
driver for long, and nothing of before the start is told.

Invariant: an event names its GPU by UUID, however the driver names it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from runtime.gpus.library import TIMEOUT, GpuAway, Library
from runtime.gpus.reader import EventKind, GpuEvent, ReaderDown

# nvmlEventType*, nvml.h.
_XID: Final = 0x8
_KINDS: Final = {
    0x2: EventKind.DOUBLE_BIT,
    _XID: EventKind.XID,
    0x4000: EventKind.UNAVAILABLE,
    0x8000: EventKind.RECOVERY,
}
_NO_INSTANCE: Final = 0xFFFFFFFF
_MOST_AT_ONCE: Final = 256
"""Read in one go: a card that reports without end must not keep anybody from hearing of it."""


class NvmlEvents:
    """An EventReader over NVML."""

    def __init__(self) -> None:
        self._library = Library()
        self._set: Any = None
        self._opening = 0

    def events(self, seconds: float) -> Sequence[GpuEvent]:
        """What was reported since the last call."""
        functions = self._library.functions
        if self._set is None or self._opening != self._library.openings:
            self._register()
        found: list[GpuEvent] = []
        wait = round(seconds * 1_000)
        while len(found) < _MOST_AT_ONCE:
            try:
                data = functions.nvmlEventSetWait(self._set, wait)
            except functions.NVMLError as error:
                if error.value != TIMEOUT:
                    self._failed(error, found)
                break
            if kind := _KINDS.get(data.eventType):
                found.append(self._event(kind, data))
            wait = 0
        return found

    def close(self) -> None:
        """Let go of the driver."""
        self._drop()
        self._library.close()

    def _failed(self, error: Any, found: Sequence[GpuEvent]) -> None:
        self._drop()  # made anew at the next call, without the GPU that was lost
        if not found:
            raise ReaderDown(f"NVML: waiting for events failed: {error}")

    def _drop(self) -> None:
        if self._set is not None and self._opening == self._library.openings:
            self._library.ask("nvmlEventSetFree", self._set)
        self._set = None

    def _register(self) -> None:
        ask = self._library.ask
        self._set = ask("nvmlEventSetCreate")
        self._opening = self._library.openings
        if self._set is None:
            raise ReaderDown("NVML: this driver reports no events")
        for index in range(ask("nvmlDeviceGetCount") or 0):
            try:
                handle = ask("nvmlDeviceGetHandleByIndex", index)
                supported = None if handle is None else ask("nvmlDeviceGetSupportedEventTypes", handle)
                if wanted := (supported or 0) & sum(_KINDS):
                    ask("nvmlDeviceRegisterEvents", handle, wanted, self._set)
            except GpuAway:
                continue

    def _event(self, kind: EventKind, data: Any) -> GpuEvent:
        try:
            uuid = self._library.ask("nvmlDeviceGetUUID", data.device) or ""
        except GpuAway:
            uuid = ""
        number = data.eventData if kind is EventKind.XID else 0
        return GpuEvent(uuid, kind, number, None if data.gpuInstanceId == _NO_INSTANCE else data.gpuInstanceId)
