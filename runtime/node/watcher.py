"""A thread that reads one source, again and again, and puts what it says on the board.

It never ends by itself: whatever a source meets is counted, logged when it begins and when it is over, and tried again.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable

from runtime.eviction.sources import Source, SourceDown
from runtime.node.board import Board

log = logging.getLogger("runtime.node")


class Watcher(threading.Thread):
    """Reads one source. `reads`, `failures`, `up` and `answered_at` are for whoever looks on."""

    def __init__(self, source: Source, board: Board, sleep: Callable[[float], object] = time.sleep) -> None:
        super().__init__(name=source.name, daemon=True)
        self.source = source
        self.reads = 0
        self.failures = 0
        self.up: bool | None = None
        self.answered_at: float | None = None
        self._board = board
        self._sleep = sleep

    def run(self) -> None:
        """Read for as long as the process lives."""
        while True:
            self.step()
            self._sleep(self.source.rest())

    def step(self) -> None:
        """Read once."""
        self.reads += 1
        try:
            notices = self.source.read()
        except SourceDown as error:
            self._failed(str(error))
        except Exception as error:  # the last guard of this thread: a notice may come after any answer
            self._failed(f"{type(error).__name__}: {error}")
        else:
            if self.up is False:
                log.info("source answers again", extra={"source": self.name})
            self.up, self.answered_at = True, time.time()
            self._board.put(self.name, notices)

    def _failed(self, reason: str) -> None:
        self.failures += 1
        if self.up is not False:
            log.warning(
                "source is down; what it said last stays in force", extra={"source": self.name, "error": reason}
            )
        self.up = False
