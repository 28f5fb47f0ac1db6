"""An event loop whose clock jumps to the next timer whenever nothing else is to be done: hours pass in milliseconds.

Only for code whose every wait is a timer or another coroutine. Threads and sockets work, but are not waited for while a
timer is pending.
"""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Coroutine
from typing import Any, TypeVar

Result = TypeVar("Result")


class _SkippingSelector(selectors.SelectSelector):
    now = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None:
            raise AssertionError("nothing will ever happen again: the code under test waits for itself")
        ready = super().select(0)
        if not ready:
            self.now += timeout
        return ready


class FakeTimeLoop(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        self._skipping = _SkippingSelector()
        super().__init__(self._skipping)

    def time(self) -> float:
        return self._skipping.now


def run(coroutine: Coroutine[Any, Any, Result], *, limit_seconds: float = 100_000) -> Result:
    """Run to the end in fake time; fails if that takes more than `limit_seconds` of it."""
    with asyncio.Runner(loop_factory=FakeTimeLoop) as runner:
        return runner.run(asyncio.wait_for(coroutine, limit_seconds))
