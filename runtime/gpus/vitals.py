"""What one GPU says of its health through NVML.

Invariant: what a card does not give is None; a card that is lost or demands a reset says so, and nothing else.
"""

from __future__ import annotations

from typing import Any, Final

from runtime.gpus.library import GpuAway, Library
from runtime.gpus.reader import Health

_TEMPERATURE_GPU: Final = 0
_HARDWARE_THERMAL: Final = 0x40  # nvmlClocksEventReasonHwThermalSlowdown
_POWER_BRAKE: Final = 0x80  # nvmlClocksEventReasonHwPowerBrakeSlowdown

_RECOVERY: Final = (
    *("none", "gpu-reset", "node-reboot", "drain-p2p", "drain-and-reset"),
    *("recover-imex-domain", "bus-reset", "system-reboot"),
)
"""Names of NVML_GPU_RECOVERY_ACTION_*, by value."""


def health_of(library: Library, uuid: str, handle: Any) -> Health:
    """The health of a GPU; in the place of its handle a GpuAway for one that does not give even that."""
    ask = library.ask
    try:
        if isinstance(handle, GpuAway):
            raise handle
        reasons = ask("nvmlDeviceGetCurrentClocksEventReasons", handle)
        milliwatts = ask("nvmlDeviceGetPowerUsage", handle)
        remapped = ask("nvmlDeviceGetRemappedRows", handle)
        retiring = None if remapped else ask("nvmlDeviceGetRetiredPagesPendingStatus", handle)
        return Health(
            uuid=uuid,
            recovery=_recovery(library, handle),
            remapped_rows=remapped[1] if remapped else None,
            remap_pending=bool(remapped[2]) if remapped else None if retiring is None else bool(retiring),
            remap_failed=bool(remapped[3]) if remapped else None,
            celsius=_celsius(library, handle),
            watts=None if milliwatts is None else milliwatts / 1_000,
            thermal_slowdown=None if reasons is None else bool(reasons & _HARDWARE_THERMAL),
            power_brake=None if reasons is None else bool(reasons & _POWER_BRAKE),
        )
    except GpuAway as away:
        return Health(uuid, lost=not away.reset, reset_required=away.reset)


def _celsius(library: Library, handle: Any) -> int | None:
    """By its name of today, else by that of drivers before."""
    names = ("nvmlDeviceGetTemperatureV", "nvmlDeviceGetTemperature")
    found = (library.ask(name, handle, _TEMPERATURE_GPU) for name in names)
    return next((value for value in found if value is not None), None)


def _recovery(library: Library, handle: Any) -> str | None:
    field = library.functions.NVML_FI_DEV_GET_GPU_RECOVERY_ACTION
    values = library.ask("nvmlDeviceGetFieldValues", handle, [field])
    if not values or values[0].nvmlReturn:
        return None
    action = values[0].value.uiVal
    return _RECOVERY[action] if action < len(_RECOVERY) else f"action-{action}"
