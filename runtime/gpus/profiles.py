"""The MIG profiles of a card, as NVML tells them: sizes, engines, and where each may be placed.

NVML has two numbers for a profile: one that asks for its description, and the id in the answer, which asks for its
placements. They are easily taken for each other, and both are valid more often than not.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Sequence
from typing import Any, Final

from runtime.gpus.library import INSUFFICIENT_SIZE, NO_PERMISSION, Library
from runtime.gpus.reader import Gpu, Profile, ReadingRefused

_EIGHTHS: Final = 8
_MEBIBYTES_OF_GIBIBYTE: Final = 1_024

_SUFFIXES: Final = {
    "1_SLICE_REV1": "+me",
    "2_SLICE_REV1": "+me",
    "1_SLICE_GFX": "+gfx",
    "2_SLICE_GFX": "+gfx",
    "3_SLICE_GFX": "+gfx",
    "4_SLICE_GFX": "+gfx",
    "1_SLICE_NO_ME": "-me",
    "2_SLICE_NO_ME": "-me",
    "1_SLICE_ALL_ME": "+me.all",
    "2_SLICE_ALL_ME": "+me.all",
}
"""What follows the memory in a name, by the end of NVML_GPU_INSTANCE_PROFILE_*; nothing for the others."""


def profiles_of(library: Library, handle: Any, gpu: Gpu) -> tuple[Profile, ...]:
    """Every profile that a GPU knows, in the order of NVML's numbers.

    Raises:
        GpuAway, ReaderDown: as for every question.
        ReadingRefused: when placements are not told.
    """
    suffixes = {
        getattr(library.functions, f"NVML_GPU_INSTANCE_PROFILE_{end}", None): suffix
        for end, suffix in _SUFFIXES.items()
    }
    found = []
    for number in range(library.functions.NVML_GPU_INSTANCE_PROFILE_COUNT):
        information = library.ask("nvmlDeviceGetGpuInstanceProfileInfo", handle, number) or library.ask(
            "nvmlDeviceGetGpuInstanceProfileInfo", handle, number, 1
        )
        if information is None:
            continue  # another family's
        placements = _placements(library, handle, information.id, gpu)
        if not placements:
            continue
        name = str(getattr(information, "name", "")).removeprefix("MIG ")
        derived = profile_name(information.sliceCount, information.memorySizeMB, gpu.memory_mib)
        found.append(
            Profile(
                name=name or derived + suffixes.get(number, ""),
                slices=information.sliceCount,
                profile_id=information.id,
                number=number,
                starts=tuple(sorted(start for start, _ in placements)),
                size=max(size for _, size in placements),
                max_count=information.instanceCount,
                sms=information.multiprocessorCount,
                memory_mib=information.memorySizeMB,
                copy_engines=information.copyEngineCount,
                decoders=information.decoderCount,
                encoders=information.encoderCount,
                jpeg_engines=information.jpegCount,
                ofa_engines=information.ofaCount,
            )
        )
    return tuple(found)


def profile_name(slices: int, memory_mib: int, total_mib: int) -> str:
    """The name that NVIDIA's tools derive: the memory as eighths of the GPU, rounded up, of its whole GiB.

    From github.com/NVIDIA/go-nvlib, pkg/nvlib/device/mig_profile.go.
    """
    eighths = math.ceil(_EIGHTHS * memory_mib / total_mib) / _EIGHTHS
    gibibytes = eighths * math.ceil(total_mib / _MEBIBYTES_OF_GIBIBYTE)
    return f"{slices}g.{math.floor(gibibytes + 0.5)}gb"  # halves go up, as in Go; not to even, as in Python


def _placements(library: Library, handle: Any, profile_id: int, gpu: Gpu) -> Sequence[tuple[int, int]]:
    """Starts and sizes."""
    functions, count = library.functions, ctypes.c_uint(0)
    ask = functions.nvmlDeviceGetGpuInstancePossiblePlacements
    try:
        try:
            ask(handle, profile_id, None, ctypes.byref(count))
        except functions.NVMLError as error:
            if error.value != INSUFFICIENT_SIZE:
                raise
        places = (functions.c_nvmlGpuInstancePlacement_t * count.value)()
        if count.value:
            ask(handle, profile_id, places, ctypes.byref(count))
    except functions.NVMLError as error:
        library.sort(error.value)
        remedy = "run as root" if error.value == NO_PERMISSION else "turn MIG on, or take a newer driver"
        text = f"{gpu.name}: places of MIG profile {profile_id} are not told ({error}); {remedy}"
        raise ReadingRefused(text) from error
    return [(place.start, place.size) for place in places[: count.value]]
