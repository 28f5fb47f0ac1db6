"""Whether a GPU or an instance that a pod holds is idle or too large for what is done on it, and what would do. Pure.

The judgement is of a window of time, and of one holder: who comes anew is measured anew. What suffices is the smallest
MIG profile with room for the most memory that was used and for the SMs that were busy nearly always, with a margin.
The share of time in which anything ran takes the place of busy SMs where those are not told: it is never less.

Invariants: nothing is said before the window is nearly full of readings; a device without figures of use is neither
idle nor under-used; the proposal is always smaller than the device.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Collection, Hashable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from runtime.gpus.reader import Profile, Usage


class Waste(StrEnum):
    """What is wrong with how a device is used."""

    IDLE = "idle"
    UNDERUSED = "underused"


@dataclass(frozen=True, slots=True)
class Limits:
    """What counts as idle and as too little."""

    window_seconds: float = 3_600.0
    filled: float = 0.9
    """Share of the window that readings must span."""
    least_readings: int = 10
    idle_active: float = 0.01
    """At no reading was it active for a larger share of the time."""
    underused_active: float = 0.2
    """Mean of the window, below which a device is under-used."""
    memory_margin: float = 1.15
    sm_margin: float = 1.25
    busy_quantile: float = 0.95
    """The SMs that were busy nearly always: a few bursts may run a little longer."""


DEFAULT_LIMITS: Final = Limits()


@dataclass(frozen=True, slots=True)
class Reading:
    """What is kept of one reading."""

    at: float
    active: float
    busy: float
    """Share of SMs, or `active` where that is not told."""
    memory_used_mib: int | None


@dataclass(frozen=True, slots=True)
class Finding:
    """A device that is idle or under-used."""

    waste: Waste
    fits: str | None
    """The profile that would do; None where none smaller does, or memory is not known."""


class History:
    """The readings of every device in the window, by device and holder."""

    def __init__(self, limits: Limits = DEFAULT_LIMITS) -> None:
        self._limits = limits
        self._readings: dict[str, deque[Reading]] = {}
        self._holders: dict[str, Hashable] = {}

    def add(self, usage: Usage, holder: Hashable, now: float) -> None:
        """Take note of a reading; a device that nobody holds has no history."""
        if holder != self._holders.get(usage.uuid) or not holder:
            self._readings.pop(usage.uuid, None)
        self._holders[usage.uuid] = holder
        if not holder or usage.active is None:
            return
        readings = self._readings.setdefault(usage.uuid, deque())
        busy = usage.active if usage.sm_active is None else usage.sm_active
        readings.append(Reading(now, usage.active, busy, usage.memory_used_mib))
        while now - readings[0].at > self._limits.window_seconds:
            readings.popleft()

    def keep(self, uuids: Collection[str]) -> None:
        """Forget every device but these."""
        for uuid in self._holders.keys() - set(uuids):
            del self._holders[uuid]
            self._readings.pop(uuid, None)

    def of(self, uuid: str) -> Sequence[Reading]:
        """The readings of a device, the oldest first."""
        return self._readings.get(uuid, ())


def judge(
    readings: Sequence[Reading],
    *,
    sms: int | None,
    memory_mib: int,
    profiles: Sequence[Profile],
    limits: Limits = DEFAULT_LIMITS,
) -> Finding | None:
    """What is wrong with how a device of this size is used; `profiles` are those of its GPU."""
    if len(readings) < limits.least_readings:
        return None
    if readings[-1].at - readings[0].at < limits.window_seconds * limits.filled:
        return None
    active = sum(reading.active for reading in readings) / len(readings)
    known = [reading.memory_used_mib for reading in readings if reading.memory_used_mib is not None]
    peak = max(known, default=None)
    if max(reading.active for reading in readings) <= limits.idle_active:
        return Finding(Waste.IDLE, None)
    if active >= limits.underused_active or peak is None or sms is None:
        return None
    busy = sorted(reading.busy for reading in readings)[math.ceil(limits.busy_quantile * len(readings)) - 1]
    fits = smallest(
        profiles, memory_mib=peak * limits.memory_margin, sms=busy * sms * limits.sm_margin, below_mib=memory_mib
    )
    return None if fits is None else Finding(Waste.UNDERUSED, fits)


def smallest(profiles: Sequence[Profile], *, memory_mib: float, sms: float, below_mib: int) -> str | None:
    """The smallest profile with as much memory and as many SMs, and less memory than what there is; None for none.

    Profiles for special work (media engines, graphics) are nobody's size, and that of the whole GPU spares nothing.
    """
    whole = max((profile.size for profile in profiles), default=0)
    usual = [profile for profile in profiles if profile.size < whole and profile.name.endswith("gb")]
    fitting = [profile for profile in usual if memory_mib <= profile.memory_mib < below_mib and profile.sms >= sms]
    best = min(fitting, key=lambda profile: (profile.size, profile.sms, profile.memory_mib), default=None)
    return best.name if best else None
