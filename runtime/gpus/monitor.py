"""Reads the GPUs of a node again and again, judges them, tells the Node, and keeps what /metrics shows.

Two threads: one waits for what the driver reports, the other reads at an interval, or at once when something was
reported. What does not answer (NVML, the exporter, the kubelet, the API server) is logged when that begins and when it
is over; the others go on without it. A node without NVML is asked again now and then, for a driver may come later.

Invariants: a snapshot is replaced in whole, so that who looks on never sees half of one; nothing here ends the process.
"""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections import Counter
from collections.abc import Callable
from typing import Final

from runtime.gpus import health
from runtime.gpus.health import Fault
from runtime.gpus.reader import EventKind, EventReader, GpuEvent, ReaderDown
from runtime.gpus.report import Report
from runtime.gpus.survey import Snapshot, Survey

log = logging.getLogger("runtime.gpus")

INTERVAL_SECONDS: Final = 15.0
"""As often as Prometheus reads by default with the GPU Operator's exporter."""

AWAY_SECONDS: Final = 60.0
EVENT_SECONDS: Final = 5.0
RESTART_SECONDS: Final = 120.0
"""How long a library of another driver may stay, before a fresh process is asked for: an upgrade takes a while."""

_EVENTS: Final = "events"


class Monitor:
    """Of one node; `boot` is that of the machine."""

    def __init__(
        self,
        survey: Survey,
        events: EventReader,
        report: Report,
        *,
        boot: str,
        now: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self.snapshot = Snapshot()
        self.answering = survey.answering
        self.xids: Counter[tuple[str, int]] = Counter()
        """XIDs of all kinds by UUID of the GPU, since the start."""
        self._survey, self._events, self._report = survey, events, report
        self._boot, self._now, self._monotonic = boot, now, monotonic
        self._reported: queue.SimpleQueue[GpuEvent] = queue.SimpleQueue()
        self._faults: tuple[Fault, ...] = ()
        self._hot: dict[str, int] = {}
        self._mismatched_at: float | None = None

    def start(self) -> None:
        """Begin, in two threads that live as long as the process."""
        threading.Thread(target=self._listen, name="gpu-events", daemon=True).start()
        threading.Thread(target=self.run, name="gpus", daemon=True).start()

    def run(self) -> None:
        """Read for as long as the process lives."""
        while True:
            try:
                self.step()
            except Exception:  # the last guard of this thread: a driver may answer anything
                log.exception("reading the GPUs failed; trying on")
            self._rest(INTERVAL_SECONDS if self.answering.up.get("nvml") else AWAY_SECONDS)

    def step(self) -> None:
        """Read once, judge, and tell."""
        self._take_reported()
        self._faults = self._report.known(self._faults)
        try:
            self._read()
        except ReaderDown as error:
            self.answering.note("nvml", str(error))
            self._mismatched_at = (self._mismatched_at or self._monotonic()) if error.restart else None
            self.snapshot = Snapshot()
        else:
            self.answering.note("nvml")
            self._mismatched_at = None
        self._report.publish(self.snapshot.verdict, self._faults)

    def problem(self) -> str | None:
        """Why only a fresh process could go on; None while this one can."""
        if self._mismatched_at is None or self._monotonic() - self._mismatched_at < RESTART_SECONDS:
            return None
        return "NVML is of another version than the driver"

    def listen(self) -> None:
        """Wait once for what the driver reports."""
        for event in self._events.events(EVENT_SECONDS):
            log.warning("a GPU reported", extra={"gpu": event.uuid, "kind": event.kind.value, "xid": event.number})
            self._reported.put(event)

    def _listen(self) -> None:
        while True:
            try:
                self.listen()
                self.answering.note(_EVENTS)
            except ReaderDown as error:
                self.answering.note(_EVENTS, str(error))
                time.sleep(EVENT_SECONDS)
            except Exception:  # the last guard of this thread: a driver may answer anything
                log.exception("waiting for events failed; trying on")
                time.sleep(EVENT_SECONDS)

    def _rest(self, seconds: float) -> None:
        """Wait, but not longer than until something is reported."""
        try:
            self._count(self._reported.get(timeout=seconds))
        except queue.Empty:
            return

    def _take_reported(self) -> None:
        while True:
            try:
                self._count(self._reported.get_nowait())
            except queue.Empty:
                return

    def _count(self, event: GpuEvent) -> None:
        if event.kind is EventKind.XID:
            self.xids[event.uuid, event.number] += 1
        self._faults = (*self._faults, *health.faults_of([event], self._now(), self._boot))

    def _read(self) -> None:
        healths = tuple(self._survey.healths())
        self._faults = health.standing(self._faults, healths, self._now(), self._boot)
        hot = {entry.uuid: bool(entry.thermal_slowdown or entry.power_brake) for entry in healths}
        self._hot = {uuid: self._hot.get(uuid, 0) + 1 for uuid, is_hot in hot.items() if is_hot}
        verdict = health.judge(healths, self._faults, self._hot) if healths else None
        self.snapshot = self._survey.take(healths, verdict, self._now())
