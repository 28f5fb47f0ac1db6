"""Fake time: what is to happen when, in order."""

from __future__ import annotations

import heapq
from collections.abc import Callable


class Agenda:
    """Actions by time; those of one moment run in the order in which they were entered."""

    def __init__(self) -> None:
        self.now = 0.0
        self._entered = 0
        self._heap: list[tuple[float, int, Callable[[], None]]] = []

    def at(self, time: float, action: Callable[[], None]) -> None:
        """Enter an action; a time that has passed means now."""
        self._entered += 1
        heapq.heappush(self._heap, (max(time, self.now), self._entered, action))

    def after(self, seconds: float, action: Callable[[], None]) -> None:
        """Enter an action, from now on."""
        self.at(self.now + seconds, action)

    def run(self, until: float) -> None:
        """Let time pass; what falls on the last moment itself still happens."""
        while self._heap and self._heap[0][0] <= until:
            self.now, _, action = heapq.heappop(self._heap)
            action()
        self.now = until
