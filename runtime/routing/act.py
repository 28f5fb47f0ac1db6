"""Carries out decisions: what comes first, what may go on side by side, and what an error stops.

Kinds of action follow each other in the order of Decision, up to eight actions at a time. What only people read is
left to runtime.routing.outbox, so that no job waits for it. An error of one job never stops another; a lost lease, a
stop, or a decision that has grown old stops everything that has not begun. It decides nothing, and what fails or is
left is decided again next time. How one action is carried out is runtime.routing.carry's business.

In a dry run nothing is written, neither to the cluster nor to the ledger: each action that a decision brings up anew is
logged. This is the only place that looks at `dry_run`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from typing import Final, TypeVar

from runtime import metrics
from runtime.errors import AgentError, Conflict, Forbidden, NotFound, Rejected
from runtime.events import Event
from runtime.routing.actuator import Actuator, TwinQueues
from runtime.routing.carry import Carrier
from runtime.routing.context import Context
from runtime.routing.decision import Adopt, Clear, Close, Decision, Hold, Move, Recall, Release, Requeue, SetQueue
from runtime.routing.explain import sentence
from runtime.routing.outbox import Outbox
from runtime.routing.pace import Memory
from runtime.routing.telling import Action, Teller, describe

__all__ = ["Actor", "Context"]

PARALLEL_ACTIONS: Final = 8
"""Keeps the API server's share of one client small; Kueue itself writes with ten workers."""

LONGEST_SECONDS: Final = 10.0
"""A decision is acted upon for so long; a new one knows better, and a loop that ticks no more is taken for stuck."""

log = logging.getLogger(__name__)
One = TypeVar("One", bound=Action)


class Actor:
    """Carries out one decision at a time, under one configuration."""

    def __init__(self, context: Context, actuator: Actuator | None = None) -> None:
        self._context = context
        self._dry_run = context.config.dry_run
        self._limit = asyncio.Semaphore(PARALLEL_ACTIONS)
        self._memory = Memory(_loop_time)
        teller = Teller(context.kube, context.clock, context.identity)
        self._outbox = Outbox(teller, self._hold, self._memory, _loop_time, context.leading)
        self._carrier = Carrier(context, actuator or TwinQueues(context.kube, context.config), self._outbox)
        self._rehearsed: frozenset[str] = frozenset()
        self._stopped = False
        self._until = 0.0
        self._left = 0

    def stop(self) -> None:
        """Begin no more actions; what has begun is finished."""
        self._stopped = True
        self._outbox.stop()

    async def finish(self) -> None:
        """Wait until people were told everything, or what had begun if this was stopped."""
        await self._outbox.finish()

    async def act(self, decision: Decision) -> int:
        """Carry out everything, in order. Returns how many actions are still to be done, and worth an early new try.

        Raises:
            ExceptionGroup: after everything was tried, what no action should ever raise.
        """
        if self._dry_run:
            self._rehearse(decision)
            return 0
        self._until, self._left = _loop_time() + LONGEST_SECONDS, 0
        carrier = self._carrier
        await self._outbox.decided(decision)
        outcomes = [
            *await self._all(decision, decision.closes, carrier.close),
            *await self._all(decision, decision.adoptions, carrier.adopt),
            *await self._all(decision, decision.clears, carrier.clear),
            *await self._all(decision, decision.recalls, carrier.recall),
            *await self._all(decision, decision.requeues, carrier.requeue),
            *await self._all(decision, decision.releases, carrier.release),
            *await self._all(decision, decision.moves, carrier.move),
            *await self._all(decision, decision.queues, carrier.set_queue),
        ]
        if self._left:
            log.info("left for the next decision", extra={"decision": decision.id, "actions": self._left})
        if surprises := [outcome for outcome in outcomes if isinstance(outcome, Exception)]:
            raise ExceptionGroup(f"decision {decision.id}", surprises)
        return outcomes.count(False)

    def warn(self, event: Event) -> None:
        """Tell people something that is no action; never fails."""
        if self._dry_run:
            log.info("would tell", extra={"reason": event.reason, "why": event.note})
        else:
            self._outbox.tell(event)

    def _rehearse(self, decision: Decision) -> None:
        said = set()
        for action in _actions(decision):
            fields = {"action": type(action).__name__.lower(), **describe(action)}
            said.add(line := repr(fields))
            if line not in self._rehearsed:
                if not isinstance(action, Close | Adopt | SetQueue):
                    fields["why"] = sentence(action.verdict)
                log.info("would act", extra={"decision": decision.id, **fields})
        self._rehearsed = frozenset(said)

    async def _all(
        self, decision: Decision, actions: Iterable[One], one: Callable[[Decision, One], Awaitable[bool]]
    ) -> list[bool | Exception]:
        tried = (self._guarded(decision, action, one) for action in actions)
        outcomes: list[bool | Exception] = []
        for outcome in await asyncio.gather(*tried, return_exceptions=True):
            if isinstance(outcome, BaseException) and not isinstance(outcome, Exception):
                raise outcome
            outcomes.append(outcome)
        return outcomes

    async def _guarded(self, decision: Decision, action: One, one: Callable[[Decision, One], Awaitable[bool]]) -> bool:
        """Whether the action is done with, as far as this decision goes."""
        job_action = action if isinstance(action, Clear | Recall | Requeue | Release | Move) else None
        async with self._limit:
            if job_action is not None and self._memory.knows(job_action):
                return True
            if self._stopped or not self._context.leading() or _loop_time() > self._until:
                self._left += 1
                return False
            done = await self._try(decision, action, one)
            if done and job_action is not None:
                self._memory.keep(job_action)
            return done

    async def _hold(self, decision: Decision, hold: Hold) -> None:
        await self._try(decision, hold, self._carrier.hold)
        self._memory.keep(hold)  # be it in vain: it is tried again, but not at once

    async def _try(self, decision: Decision, action: One, one: Callable[[Decision, One], Awaitable[bool]]) -> bool:
        fields = {"decision": decision.id, "action": type(action).__name__.lower(), **describe(action)}
        try:
            return await one(decision, action)
        except NotFound:
            log.info("gone before it could be acted upon", extra=fields)
            return True
        except (Forbidden, Rejected, Conflict) as error:
            # Kueue reserved quota meanwhile, or a person changed the job: the next observation tells.
            metrics.errors.labels(kind=type(error).__name__).inc()
            log.warning("refused", extra={**fields, "error": str(error)})
        except AgentError as error:
            metrics.errors.labels(kind=type(error).__name__).inc()
            log.error("failed", extra={**fields, "error": str(error)})
        return False


def _actions(decision: Decision) -> tuple[Action, ...]:
    return (
        *decision.closes, *decision.adoptions, *decision.clears, *decision.recalls, *decision.requeues,
        *decision.releases, *decision.moves, *decision.holds, *decision.queues,
    )  # fmt: skip


def _loop_time() -> float:
    return asyncio.get_running_loop().time()
