"""What only people read, written beside the ticks: verdicts of jobs that stay where they are, conditions, events.

Jobs wait for ticks, so a tick writes nothing that no job waits for. One task writes here, one request after another: a
slow API server is asked less, not more. The task ends when nothing is left and begins again with what comes next.
Nothing is kept for long. Holds are those of the newest decision, which lists again what is not written yet; of the
rest, the oldest is dropped when too much is waiting. Nothing is told by a replica that does not lead.

Invariant: no verdict of a holding job is written while an action of that job is carried out, so that an old word never
replaces a new one.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from typing import Final

from runtime import metrics
from runtime.events import Event
from runtime.routing.decision import Decision, Hold
from runtime.routing.pace import JobAction, Memory, Ration
from runtime.routing.telling import Teller
from runtime.routing.verdict import Verdict
from runtime.wire import Raw

MOST_TELLINGS: Final = 1_000

log = logging.getLogger(__name__)


class Outbox:
    """Writes for one Actor; `hold` writes one verdict, and never raises an error that was to be expected."""

    def __init__(
        self,
        teller: Teller,
        hold: Callable[[Decision, Hold], Awaitable[object]],
        memory: Memory,
        now: Callable[[], float],
        leading: Callable[[], bool],
    ) -> None:
        self._teller = teller
        self._hold = hold
        self._memory = memory
        self._leading = leading
        self._ration = Ration(now)
        self._tellings: deque[Callable[[], Awaitable[object]]] = deque(maxlen=MOST_TELLINGS)
        self._decision: Decision | None = None
        self._holds: Iterator[Hold] = iter(())
        self._held: str | None = None
        self._writing = asyncio.Lock()
        self._task: asyncio.Task[None] | None = None
        self._stopped = False

    async def decided(self, decision: Decision) -> None:
        """Forget the holds of the former decision; returns once none is written about a job that is acted upon now."""
        self._decision, self._holds = decision, iter(())
        actions: tuple[JobAction, ...] = (
            *decision.clears, *decision.recalls, *decision.requeues, *decision.releases, *decision.moves
        )  # fmt: skip
        if self._held in {action.job.uid for action in actions}:
            async with self._writing:
                pass
        self._holds = iter(decision.holds)
        if decision.holds:
            self._begin()

    def tell(self, event: Event) -> None:
        """Write an event."""
        self._add(partial(self._teller.event, event))

    def explain(self, raw: Raw, verdict: Verdict) -> None:
        """Say the verdict in a condition of the Workload, as it was read or written last."""
        self._add(partial(self._teller.condition, raw, verdict))

    def stop(self) -> None:
        """Begin nothing more."""
        self._stopped = True

    async def finish(self) -> None:
        """Wait until all is written, or what had begun if it was stopped."""
        if self._task is not None:
            await self._task

    def _add(self, telling: Callable[[], Awaitable[object]]) -> None:
        self._tellings.append(telling)
        self._begin()

    def _begin(self) -> None:
        if not self._stopped and (self._task is None or self._task.done()):
            self._task = asyncio.create_task(self._work())

    async def _work(self) -> None:
        while not self._stopped and self._leading():
            try:
                if self._tellings:
                    await self._tellings.popleft()()
                elif not await self._hold_next():
                    return
            except Exception as error:
                # The task would end without a word, and nobody would be told anything again.
                metrics.errors.labels(kind=type(error).__name__).inc()
                log.exception("people were not told")

    async def _hold_next(self) -> bool:
        """Write the next hold, as soon as the ration allows; says whether there was one."""
        holds, decision = self._holds, self._decision
        hold = next((one for one in holds if not self._memory.knows(one)), None)
        if hold is None or decision is None:
            return False
        await asyncio.sleep(self._ration.take())
        if holds is self._holds and not self._stopped and self._leading():
            async with self._writing:
                self._held = hold.job.uid
                try:
                    await self._hold(decision, hold)
                finally:
                    self._held = None
        return True
