"""Remembers that SIGTERM came, and does nothing else about it.

Nothing is saved inside the handler: the session saves at the end of a step, where the state is whole. So a second
signal, or one that arrives in the middle of a save, changes nothing. No signal is lost: one that nobody has acted on is
sent again to the handler that was there before, once the session ends.
"""

from __future__ import annotations

import logging
import os
import signal
import threading
from collections.abc import Callable, Iterable
from types import FrameType
from typing import Final

STOP_SIGNALS: Final = (signal.SIGTERM,)
"""What kubelet, Slurm and torchrun send to end a process gently. SIGINT stays Python's: a person at a terminal."""

log = logging.getLogger(__name__)

_Handler = Callable[[int, FrameType | None], object] | int | None


class Signals:
    """Signals that came since `listen`. `stop` is the only thing to look at; it is never reset."""

    def __init__(self, numbers: Iterable[signal.Signals] = STOP_SIGNALS) -> None:
        self.stop = False
        self.acted_on = False
        self._numbers = tuple(numbers)
        self._came: list[int] = []
        self._before: dict[int, _Handler] = {}
        self._process = 0

    def listen(self) -> None:
        """Take the place of the handlers. Python allows that in the main thread only; elsewhere nothing is heard."""
        if threading.current_thread() is not threading.main_thread():
            log.warning("signals are not listened to: the session was not started in the main thread")
            return
        self._process = os.getpid()
        for number in self._numbers:
            self._before[number] = signal.signal(number, self._take)

    def restore(self) -> None:
        """Give the handlers back."""
        for number, handler in self._before.items():
            signal.signal(number, signal.SIG_DFL if handler is None else handler)
        self._before = {}

    def send_again(self) -> None:
        """Send each kind of signal that came, once, to whoever listens now."""
        for number in dict.fromkeys(self._came):
            os.kill(os.getpid(), number)

    def _take(self, number: int, _frame: FrameType | None) -> None:
        if os.getpid() != self._process:
            # A forked worker of a data loader has inherited this handler, and must end as if there were none.
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)
            return
        self._came.append(number)
        self.stop = True
