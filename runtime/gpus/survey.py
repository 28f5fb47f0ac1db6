"""One reading of all GPUs of a node: what they are, how they are used, who has them, and what is wasted.

It puts together what NVML, the exporter and the kubelet say. Where one of the two latter does not answer, what it would
have said stays unknown; without NVML there is nothing.

Invariants: a snapshot is a value; what is wasted is said only of devices that somebody has.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from runtime.eviction.sources import SourceDown
from runtime.gpus import exporter, idle
from runtime.gpus.health import Verdict
from runtime.gpus.podresources import Holding, PodsUnknown, holders
from runtime.gpus.reader import Gpu, GpuReader, Health, Profile, ReadingRefused, Usage

log = logging.getLogger("runtime.gpus")


class Exported(Protocol):
    """An exporter beside NVML."""

    def read(self) -> Mapping[exporter.Key, Usage]:
        """What it tells now; SourceDown when it does not."""


class Pods(Protocol):
    """The kubelet."""

    def holdings(self) -> Sequence[Holding]:
        """Who has which device; PodsUnknown when it does not say."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """One reading, and what follows from it."""

    driver: str = ""
    gpus: tuple[Gpu, ...] = ()
    usage: Mapping[str, Usage] = field(default_factory=dict)
    """By UUID of the device."""
    healths: tuple[Health, ...] = ()
    verdict: Verdict | None = None
    """None while the GPUs cannot be read."""
    holders: Mapping[str, tuple[Holding, ...]] = field(default_factory=dict)
    """By UUID of the device."""
    wastes: Mapping[str, idle.Finding] = field(default_factory=dict)
    """By UUID of the device."""


class Answering:
    """Which parts answer; a change is logged, once."""

    def __init__(self) -> None:
        self.up: dict[str, bool] = {}
        """Whether each part answered last."""

    def note(self, part: str, error: str = "") -> None:
        """Note that a part answered, or why it did not."""
        if error and self.up.get(part) is not False:
            log.warning("does not answer; going on without", extra={"part": part, "error": error})
        elif not error and self.up.get(part) is False:
            log.info("answers again", extra={"part": part})
        self.up[part] = not error


class Survey:
    """Of one node, for one thread. `exported` and `pods` are None where nobody is to be asked."""

    def __init__(
        self,
        reader: GpuReader,
        *,
        exported: Exported | None = None,
        pods: Pods | None = None,
        limits: idle.Limits = idle.DEFAULT_LIMITS,
    ) -> None:
        self.answering = Answering()
        self._reader, self._exported, self._pods = reader, exported, pods
        self._profiles: dict[str, Sequence[Profile]] = {}
        self._limits = limits
        self._history = idle.History(limits)

    def healths(self) -> Sequence[Health]:
        """What each GPU says of itself.

        Raises:
            ReaderDown: when nothing can be read.
        """
        return self._reader.health()

    def take(self, healths: tuple[Health, ...], verdict: Verdict | None, now: float) -> Snapshot:
        """Read everything else.

        Raises:
            ReaderDown: when nothing can be read.
        """
        gpus = tuple(self._reader.gpus())
        held = self._holders(gpus)
        usage = self._filled(gpus, {entry.uuid: entry for gpu in gpus for entry in self._reader.usage(gpu)})
        wastes = self._wastes(gpus, usage, held, now)
        return Snapshot(self._reader.driver(), gpus, usage, healths, verdict, held or {}, wastes)

    def _holders(self, gpus: Sequence[Gpu]) -> Mapping[str, tuple[Holding, ...]] | None:
        """None where it is not known who has what."""
        if self._pods is None:
            return None
        try:
            found = holders(self._pods.holdings(), gpus)
        except PodsUnknown as error:
            self.answering.note("pods", str(error))
            return None
        self.answering.note("pods", "")
        return found

    def _filled(self, gpus: Sequence[Gpu], usage: Mapping[str, Usage]) -> dict[str, Usage]:
        """With what the exporter knows, which is asked only where NVML left something open."""
        if self._exported is None or all(entry.active is not None for entry in usage.values()):
            return dict(usage)
        try:
            told = self._exported.read()
        except SourceDown as error:
            self.answering.note("exporter", str(error))
            return dict(usage)
        self.answering.note("exporter", "")
        devices = ((gpu, device) for gpu in gpus for device in gpu.devices if device.uuid in usage)
        return {device.uuid: exporter.filled(usage[device.uuid], gpu, device, told) for gpu, device in devices}

    def _wastes(
        self,
        gpus: Sequence[Gpu],
        usage: Mapping[str, Usage],
        held: Mapping[str, tuple[Holding, ...]] | None,
        now: float,
    ) -> dict[str, idle.Finding]:
        found = {}
        for gpu in gpus:
            for device in gpu.devices:
                if (entry := usage.get(device.uuid)) is None:
                    continue
                if held is None:  # a process is somebody, whoever it is
                    holder = frozenset({("", "")} if entry.processes else ())
                else:
                    holder = frozenset((each.namespace, each.pod) for each in held.get(device.uuid, ()))
                self._history.add(entry, holder, now)
                finding = idle.judge(
                    self._history.of(device.uuid),
                    sms=device.sms,
                    memory_mib=device.memory_mib,
                    profiles=self._profiles_of(gpu),
                    limits=self._limits,
                )
                if finding is not None:
                    found[device.uuid] = finding
        self._history.keep(usage)
        return found

    def _profiles_of(self, gpu: Gpu) -> Sequence[Profile]:
        """Read once: they are the model's."""
        if gpu.uuid not in self._profiles:
            try:
                self._profiles[gpu.uuid] = self._reader.profiles(gpu)
            except ReadingRefused as error:
                log.info("no smaller profile can be proposed", extra={"gpu": gpu.uuid, "error": str(error)})
                self._profiles[gpu.uuid] = ()
        return self._profiles[gpu.uuid]
