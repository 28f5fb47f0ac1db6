"""The alarms that stand: counted for Prometheus, logged when they appear and when they go.

Invariant: an alarm is logged once for each time it appears, however often its text changes while it stands.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable
from typing import Final

from runtime import metrics
from runtime.routing.alarms import Alarm, AlarmKind

STRAY_SECONDS: Final = 900.0
"""A stray is mended in the moment it is found; so long it is shown, so that somebody sees it and asks why."""

MOST_KEPT: Final = 1_000
"""Alarms shown at once; a fleet with more is told so by any of them."""

log = logging.getLogger(__name__)
_Key = tuple[AlarmKind, str]


class Board:
    """What stands now."""

    def __init__(self) -> None:
        self._standing: dict[_Key, Alarm] = {}
        self._strays: dict[_Key, tuple[Alarm, float]] = {}

    @property
    def standing(self) -> Collection[Alarm]:
        """Every alarm that stands."""
        return self._standing.values()

    def show(self, alarms: Iterable[Alarm], monotonic: float) -> None:
        """These alarms stand now and no others, but strays of a while ago."""
        found: dict[_Key, Alarm] = {}
        for alarm in alarms:
            if len(found) < MOST_KEPT:
                found[alarm.kind, alarm.subject] = alarm
        self._strays = {key: kept for key, kept in self._strays.items() if kept[1] > monotonic}
        new = {key: alarm for key, alarm in found.items() if alarm.kind is AlarmKind.STRAY}
        self._strays |= {key: (alarm, monotonic + STRAY_SECONDS) for key, alarm in new.items()}
        found |= {key: alarm for key, (alarm, _) in self._strays.items()}
        for key in found.keys() - self._standing.keys():
            alarm = found[key]
            log.error("alarm", extra={"kind": alarm.kind.value, "subject": alarm.subject, "text": alarm.text})
        for key in self._standing.keys() - found.keys():
            alarm = self._standing[key]
            log.info("alarm ended", extra={"kind": alarm.kind.value, "subject": alarm.subject})
        self._standing = found
        metrics.publish_alarms(found.values())
