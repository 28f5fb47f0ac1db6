"""NVML by way of `pynvml`: opened when it is first needed, and again after it was lost; errors told apart.

`pynvml` is imported here only, and only then: a node without GPUs has it neither installed nor in memory. The open
library keeps the driver in use, so that a driver cannot be unloaded nor MIG be switched meanwhile.

Invariants: an error of one card never hides the others; an error of the driver closes the library, and the next
question opens it anew.
"""

from __future__ import annotations

import importlib
from typing import Any, Final

from runtime.gpus.reader import ReaderDown

# Values of nvmlReturn_t, nvml.h.
_UNINITIALIZED: Final = 1
NO_PERMISSION: Final = 4
INSUFFICIENT_SIZE: Final = 7
_DRIVER_NOT_LOADED: Final = 9
TIMEOUT: Final = 10
_LIBRARY_NOT_FOUND: Final = 12
_GPU_IS_LOST: Final = 15
_RESET_REQUIRED: Final = 16
_VERSION_MISMATCH: Final = 18

_DOWN: Final = {
    _UNINITIALIZED: "it was closed",
    NO_PERMISSION: "this process may not use the driver; give it the devices /dev/nvidia*",
    _DRIVER_NOT_LOADED: "the driver is not loaded on this node",
    _LIBRARY_NOT_FOUND: "libnvidia-ml.so.1 is not here: the node has no NVIDIA driver, or the pod no access to it",
    _VERSION_MISMATCH: "the library and the loaded driver are of different versions, as after an upgrade of the "
    "driver; reload the driver or restart the pod",
}


class GpuAway(Exception):
    """A card answers nothing but this: it fell off the bus, or demands a reset."""

    def __init__(self, *, reset: bool) -> None:
        super().__init__("it demands a reset" if reset else "it is lost")
        self.reset = reset


class Library:
    """The functions of `pynvml`; for one thread. The driver counts who has it open, so that several can."""

    def __init__(self) -> None:
        self.openings = 0
        """How often it was opened or closed: whatever the driver gave out before the last time is void."""
        self._module: Any = None

    @property
    def functions(self) -> Any:
        """The module `pynvml`, with the library open.

        Raises:
            ReaderDown: when it cannot be opened; the text says why.
        """
        if self._module is None:
            try:
                module = importlib.import_module("pynvml")
            except ImportError as error:
                raise ReaderDown(f"NVML: {error}; install nvidia-ml-py") from error
            try:
                module.nvmlInit()
            except module.NVMLError as error:
                restart = error.value == _VERSION_MISMATCH
                raise ReaderDown(f"NVML: {_DOWN.get(error.value, str(error))}", restart=restart) from error
            self._module = module
            self.openings += 1
        return self._module

    def ask(self, name: str, *arguments: Any) -> Any:
        """What a function answers; None where the card, the driver or the rights do not give it.

        Raises:
            GpuAway: when the card is lost or demands a reset.
            ReaderDown: when the driver is gone.
        """
        functions = self.functions
        try:
            return getattr(functions, name)(*arguments)
        except functions.NVMLError as error:
            self.sort(error.value)
            return None

    def sort(self, code: int) -> None:
        """Raise what an error means, unless it means only that this one thing is not given.

        Raises:
            GpuAway: when the card is lost or demands a reset.
            ReaderDown: when the driver is gone.
        """
        if code in (_GPU_IS_LOST, _RESET_REQUIRED):
            raise GpuAway(reset=code == _RESET_REQUIRED)
        if code in (_UNINITIALIZED, _DRIVER_NOT_LOADED, _VERSION_MISMATCH):
            self.close()
            raise ReaderDown(f"NVML: {_DOWN[code]}", restart=code == _VERSION_MISMATCH)

    def close(self) -> None:
        """Close the library."""
        module, self._module = self._module, None
        if module is not None:
            self.openings += 1
            try:
                module.nvmlShutdown()
            except module.NVMLError:
                return  # it was closed already, with the driver
