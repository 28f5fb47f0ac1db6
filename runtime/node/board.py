"""What the sources of a node said last, and what follows for the node as a whole.

Sources write here from their threads, and one thread reads. Nothing is forgotten because a source fails: what it said
last stays in force until it says something else.

Invariant: a notice that stands on the node since before a restart is taken back only by the source that it is from,
once that has answered; or when that source is not used any more.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Sequence
from typing import Final

from runtime.eviction.notice import Notice
from runtime.node.patch import merged

SOURCES: Final = (
    "aws-spot",
    "aws-rebalance",
    "aws-maintenance",
    "aws-lifecycle",
    "gcp-preemption",
    "gcp-maintenance",
    "azure",
    "file",
)
"""Every source that a node agent may have; a notice on the node from any other is somebody else's, and stays."""


class Board:
    """For the sources with these names."""

    def __init__(self, names: Collection[str], monotonic: Callable[[], float] = time.monotonic) -> None:
        self._names = names
        self._monotonic = monotonic
        self._lock = threading.Lock()
        self._said: dict[str, tuple[Notice, ...]] = {}
        self._changed_at: float | None = None
        self._changed = threading.Event()

    def put(self, name: str, notices: Sequence[Notice]) -> None:
        """Replace what a source said."""
        with self._lock:
            if self._said.get(name) == tuple(notices):
                return
            self._said[name] = tuple(notices)
            self._changed_at = self._changed_at or self._monotonic()
            self._changed.set()

    def wait(self, seconds: float) -> None:
        """Wait until something changes, but no longer than this."""
        self._changed.wait(seconds)

    def take(self) -> float | None:
        """Note that what is there now is being carried out; since when it waits for that, None if nothing does."""
        with self._lock:
            self._changed.clear()
            return self._changed_at

    def done(self, changed_at: float | None) -> None:
        """Note that it was carried out, unless more has come since."""
        with self._lock:
            if not self._changed.is_set() and self._changed_at == changed_at:
                self._changed_at = None

    def wanted(self, noted: Sequence[Notice]) -> tuple[Notice, ...]:
        """What the node should say, given what it says now."""
        with self._lock:
            said = dict(self._said)
        kept = [notice for notice in noted if self._stands(notice, said)]
        return merged([*kept, *(notice for notices in said.values() for notice in notices)])

    def counts(self) -> dict[str, int]:
        """How many notices each source has in force."""
        with self._lock:
            return {name: len(notices) for name, notices in self._said.items()}

    def _stands(self, notice: Notice, said: Collection[str]) -> bool:
        if notice.source not in SOURCES:
            return True
        return notice.source in self._names and notice.source not in said
