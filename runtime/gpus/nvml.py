"""Reads the GPUs of this node through NVML: devices and MIG devices, use, health, and the profiles of a card.

Handles are never kept, because those of MIG devices go stale with every new layout: devices are enumerated anew, and
looked up by their UUIDs. Indices of MIG devices have gaps, which end nothing. On a GPU with MIG NVML gives no
utilisation but by GPM (Hopper and later); elsewhere it stays None, and `exporter` may know it.

Invariant: what NVML does not give is None; a card that is lost is missing among the GPUs and present in the health.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any, Final

from runtime.gpus.gpm import Gpm
from runtime.gpus.library import GpuAway, Library
from runtime.gpus.profiles import profile_name, profiles_of
from runtime.gpus.reader import Gpu, Health, Instance, Profile, ReaderDown, Usage
from runtime.gpus.vitals import health_of

_MEBIBYTE: Final = 2**20
_PERCENT: Final = 100.0

_CORES_OF_AN_SM: Final = {
    **dict.fromkeys([(7, 0), (7, 2), (7, 5), (8, 0)], 64),
    **dict.fromkeys([(8, 6), (8, 7), (8, 9), (9, 0), (10, 0), (10, 1), (10, 3), (11, 0), (12, 0), (12, 1)], 128),
}
"""By compute capability: CUDA samples, Common/helper_cuda.h, _ConvertSMVer2Cores. NVML counts no SMs of a whole GPU."""

_PROFILE: Final = re.compile(r"\bMIG ([0-9][0-9a-z.+-]*)")


class Nvml:
    """A GpuReader over NVML."""

    def __init__(self) -> None:
        self._library = Library()
        self._gpm = Gpm(self._library)
        self._uuids: dict[int, str] = {}

    def driver(self) -> str:
        """Version of the driver."""
        return str(self._library.ask("nvmlSystemGetDriverVersion") or "")

    def gpus(self) -> Sequence[Gpu]:
        """Every GPU with its MIG devices."""
        found = []
        for index, handle in self._handles():
            try:
                if not isinstance(handle, GpuAway) and (gpu := self._gpu(index, handle)) is not None:
                    found.append(gpu)
            except GpuAway:
                continue
        self._gpm.keep({device.uuid for gpu in found for device in gpu.devices})
        return found

    def usage(self, gpu: Gpu) -> Sequence[Usage]:
        """How each of its devices is used."""
        found = []
        for device in gpu.devices:
            try:
                if usage := self._usage(gpu, device):
                    found.append(usage)
            except GpuAway:
                continue
        return found

    def health(self) -> Sequence[Health]:
        """What each GPU says of itself."""
        return [self._health(index, handle) for index, handle in self._handles()]

    def profiles(self, gpu: Gpu) -> Sequence[Profile]:
        """Its MIG profiles."""
        try:
            handle = self._library.ask("nvmlDeviceGetHandleByUUID", gpu.uuid)
            return profiles_of(self._library, handle, gpu) if handle is not None and gpu.mig is not None else ()
        except GpuAway as away:
            raise ReaderDown(f"{gpu.name} {gpu.uuid}: {away}") from away

    def close(self) -> None:
        """Let go of the driver."""
        self._gpm.keep(set())
        self._library.close()

    def _handles(self) -> Iterator[tuple[int, Any]]:
        """Every index with its handle; with a GpuAway for a card that does not give even that."""
        for index in range(self._library.ask("nvmlDeviceGetCount") or 0):
            try:
                handle = self._library.ask("nvmlDeviceGetHandleByIndex", index)
            except GpuAway as away:
                handle = away
            yield index, GpuAway(reset=False) if handle is None else handle

    def _gpu(self, index: int, handle: Any) -> Gpu | None:
        ask = self._library.ask
        uuid, memory = ask("nvmlDeviceGetUUID", handle), self._memory(handle)
        if uuid is None or memory is None:
            return None
        self._uuids[index] = uuid
        pci, mode = ask("nvmlDeviceGetPciInfo", handle), ask("nvmlDeviceGetMigMode", handle)
        capability = ask("nvmlDeviceGetCudaComputeCapability", handle) or (0, 0)
        total_mib = memory.total // _MEBIBYTE
        return Gpu(
            uuid=uuid,
            index=index,
            name=ask("nvmlDeviceGetName", handle) or "",
            bus_id=pci.busId if pci else "",
            pci_id=pci.pciDeviceId if pci else 0,
            memory_mib=total_mib,
            compute_capability=capability,
            sms=_sms(ask("nvmlDeviceGetNumGpuCores", handle), capability),
            mig=bool(mode[0]) if mode else None,
            mig_pending=bool(mode[1]) if mode else None,
            instances=tuple(self._instances(handle, total_mib)) if mode and mode[0] else (),
        )

    def _instances(self, parent: Any, total_mib: int) -> Iterator[Instance]:
        ask = self._library.ask
        for index in range(ask("nvmlDeviceGetMaxMigDeviceCount", parent) or 0):
            handle = ask("nvmlDeviceGetMigDeviceHandleByIndex", parent, index)
            if handle is None:
                continue  # a gap: the next index may be there
            uuid, attributes = ask("nvmlDeviceGetUUID", handle), ask("nvmlDeviceGetAttributes", handle)
            gpu_instance = ask("nvmlDeviceGetGpuInstanceId", handle)
            compute_instance = ask("nvmlDeviceGetComputeInstanceId", handle)
            if None in (uuid, gpu_instance, compute_instance) or attributes is None:
                continue  # it went while it was looked at
            named = _PROFILE.search(ask("nvmlDeviceGetName", handle) or "")
            yield Instance(
                uuid=uuid,
                index=index,
                gpu_instance=gpu_instance,
                compute_instance=compute_instance,
                profile=named[1] if named else _derived(attributes, total_mib),
                sms=attributes.multiprocessorCount,
                memory_mib=attributes.memorySizeMB,
            )

    def _usage(self, gpu: Gpu, device: Gpu | Instance) -> Usage | None:
        ask = self._library.ask
        handle = ask("nvmlDeviceGetHandleByUUID", device.uuid)
        if handle is None:
            return None
        memory, processes = self._memory(handle), ask("nvmlDeviceGetComputeRunningProcesses", handle)
        if isinstance(device, Instance):
            parent = ask("nvmlDeviceGetHandleByUUID", gpu.uuid)
            shares = self._gpm.shares(device.uuid, parent, device.gpu_instance)
        else:
            shares = self._gpm.shares(device.uuid, handle, None)
        active = shares.active
        if active is None and not isinstance(device, Instance):
            rates = ask("nvmlDeviceGetUtilizationRates", handle)
            active = rates.gpu / _PERCENT if rates else None
        return Usage(
            uuid=device.uuid,
            memory_used_mib=memory.used // _MEBIBYTE if memory else None,
            active=active,
            sm_active=shares.sm_active,
            tensor_active=shares.tensor_active,
            memory_bandwidth=shares.memory_bandwidth,
            processes=None if processes is None else len(processes),
        )

    def _health(self, index: int, handle: Any) -> Health:
        """Under the UUID that it had when it still answered, for a GPU that does not any more."""
        if not isinstance(handle, GpuAway):
            try:
                if uuid := self._library.ask("nvmlDeviceGetUUID", handle):
                    self._uuids[index] = uuid
            except GpuAway as away:
                handle = away
        return health_of(self._library, self._uuids.get(index) or f"index-{index}", handle)

    def _memory(self, handle: Any) -> Any:
        return self._library.ask("nvmlDeviceGetMemoryInfo", handle, self._library.functions.nvmlMemory_v2)


def _sms(cores: int | None, capability: tuple[int, int]) -> int | None:
    of_one = _CORES_OF_AN_SM.get(capability)
    return cores // of_one if cores and of_one else None


def _derived(attributes: Any, total_mib: int) -> str:
    """The name of a device's profile, where the driver has none: without what it says of engines."""
    slices, own = attributes.gpuInstanceSliceCount, attributes.computeInstanceSliceCount
    name = profile_name(slices, attributes.memorySizeMB, total_mib)
    return name if own == slices else f"{own}c.{name}"
