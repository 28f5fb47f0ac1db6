"""The agent: keep caches and lease, then observe, decide, act, again and again.

One process, one event loop. A few tasks live as long as the agent: the caches, the lease, the configuration, and the
loop of ticks; a tick comes every `interval`, and early when something changed. Standing by is the same without the
ticks. The only broad `except` is around a tick: whatever goes wrong there is logged, counted and tried again after a
growing pause, because an agent that dies of one bad job would die of it again.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from typing import Final

from runtime import metrics
from runtime.board import Board
from runtime.changeover import Changeover
from runtime.clock import Clock
from runtime.complaints import Complaints
from runtime.errors import KubeError
from runtime.evictions import LONGEST_WAIT_SECONDS, Evictions
from runtime.forecasting import Forecasting
from runtime.gatekeeper import Gatekeeper
from runtime.kube import Kube
from runtime.lease import Lease, Terms
from runtime.measures import Measures
from runtime.relayouts import Relayouts
from runtime.reload import Reload
from runtime.routing.act import Actor, Context
from runtime.routing.alarms import Alarm, AlarmKind, CheckState, cluster_alarms, money_alarms, stray_alarms
from runtime.routing.decide import decide
from runtime.routing.decision import Decision
from runtime.routing.runs import Runs
from runtime.routing.snapshot import Snapshot
from runtime.settings import Settings
from runtime.store import Owner, Store
from runtime.treasury import Treasury
from runtime.watching import Watching
from stacks.agent_config import AgentConfig
from stacks.labels import AGENT_NAME

SHORTEST_TICK_SECONDS: Final = 0.1
"""Least time between ticks, or as long as the tick took: a burst of changes is one decision, not a hundred, and a queue
of 15,000 jobs leaves half of a core to the rest of the agent."""

FIRST_RETRY_SECONDS: Final = 0.3
LONGEST_PAUSE_SECONDS: Final = 30.0

HEALTHY_TICKS: Final = 4
HEALTHY_SECONDS: Final = 60.0
"""A loop that has not ticked for this many intervals, and a minute, is stuck. One that ticks in vain is not: another
process would fail on the same job."""

log = logging.getLogger(__name__)


class Agent:
    """Everything one process does. `run` returns only after `stop` was called."""

    def __init__(self, settings: Settings, kube: Kube, clock: Clock, owner: Owner) -> None:
        self._settings = settings
        self._clock = clock
        self._kube = kube
        self._changed = asyncio.Event()
        self._stopping = asyncio.Event()
        self._complaints = Complaints()
        terms = Terms(settings.namespace, AGENT_NAME, settings.identity, settings.lease_seconds)
        self._lease = Lease(kube, terms, self._changed, clock.real_now)
        self._store = Store(settings.ledger, clock, owner)
        self._treasury = Treasury(kube, self._store, clock, settings.namespace, self._changed)
        self._gatekeeper = Gatekeeper(kube, clock.real_now)
        self._board = Board()
        self._runs = Runs()
        self._measures = Measures()
        self._relayouts = Relayouts(kube, clock, lambda: self._lease.held)
        self._forecasting = Forecasting(kube, clock, lambda: self._lease.held, self._measures.forecast)
        self._current = Changeover(settings.config, self._watch, self._act_for, self._evict_for)
        self._reload = Reload(kube, settings.namespace, settings.config, self._current.accept)
        self._ticked_at: float | None = None
        self._led = False

    @property
    def config(self) -> AgentConfig:
        """The configuration in force."""
        return self._current.config

    def stop(self) -> None:
        """Begin nothing more, finish what has begun, then release the lease and return from `run`."""
        self._stopping.set()
        self._current.actor.stop()
        self._changed.set()

    def healthy(self) -> str | None:
        """None while the loop ticks, be it in vain, else what is wrong."""
        limit = max(HEALTHY_SECONDS, HEALTHY_TICKS * self.config.interval.total_seconds())
        if self._ticked_at is None or asyncio.get_running_loop().time() - self._ticked_at <= limit:
            return None
        return f"no tick for more than {limit:.0f} s"

    def ready(self) -> str | None:
        """None once the caches are complete and, where this replica leads, the ledger is readable."""
        if not self._current.watching.listed:
            return "workloads are not listed yet"
        if self._lease.held and self._store.books is None:
            return "the ledger cannot be read"
        return None

    async def run(self) -> None:
        """Run until stopped."""
        async with asyncio.TaskGroup() as group:
            self._current.start(group)
            others = (self._lease, self._reload, self._treasury.requests)
            background = [group.create_task(task.run()) for task in others]
            await self._ticks()
            await self._current.actor.finish()
            await self._current.evictions.close()
            await self._forecasting.stop()
            self._current.stop()
            for task in background:
                task.cancel()
        try:
            await self._lease.release()
        except KubeError as error:
            log.warning("the lease was not released; it expires by itself", extra={"error": str(error)})

    async def _ticks(self) -> None:
        retry = FIRST_RETRY_SECONDS
        self._ticked_at = asyncio.get_running_loop().time()
        while not self._stopping.is_set():
            self._changed.clear()
            began = asyncio.get_running_loop().time()
            try:
                if await self._current.advance():
                    self._treasury.reconfigure()
                unfinished = await self._tick()
            except Exception as error:
                metrics.errors.labels(kind=type(error).__name__).inc()
                log.exception("a tick failed; the next one starts afresh", extra={"pause": retry})
                self._ticked_at = asyncio.get_running_loop().time()
                await self._pause(retry, retry)
                retry = min(retry * 2, LONGEST_PAUSE_SECONDS)
                continue
            self._ticked_at = asyncio.get_running_loop().time()
            metrics.last_tick.set(self._clock.real_now())
            interval = self.config.interval.total_seconds()
            if self._current.evictions.under_way or self._relayouts.under_way:
                interval = min(interval, LONGEST_WAIT_SECONDS)
            shortest = min(max(SHORTEST_TICK_SECONDS, self._ticked_at - began), interval)
            await self._pause(shortest, min(interval, retry) if unfinished else interval)
            retry = min(retry * 2, LONGEST_PAUSE_SECONDS) if unfinished else FIRST_RETRY_SECONDS

    async def _pause(self, shortest: float, longest: float) -> None:
        """Wait until something changes, but not shorter and not longer than that; a stop ends it at once."""
        started = asyncio.get_running_loop().time()
        if await _happens(self._stopping, shortest):
            return
        await _happens(self._changed, max(0.0, longest - (asyncio.get_running_loop().time() - started)))

    async def _tick(self) -> int:
        """Observe, decide, act. Returns how many actions want an early new try."""
        config = self.config
        if not self._current.watching.complete or not self._lease.held:
            self._stand_by()
            return 0
        self._led = True
        await self._treasury.keep_ledger(self._lease.term)
        if not config.dry_run:
            await self._treasury.record_top_ups(config, self._current.actor.warn)
        seen = self._observe()
        unfinished = await self._current.evictions.tick((*seen.jobs, *self._current.watching.jobs_on_parts))
        now = self._clock.now()
        with metrics.decision_seconds.time():
            decision = decide(seen, config, now, secrets.token_hex(6))
        self._current.evictions.decided(decision.may_leave)
        self._measures.decided(decision)
        if seen.books is not None and not config.dry_run:
            await self._gatekeeper.activate(self._current.watching.checks or ())
        unfinished += await self._current.actor.act(decision)
        await self._relayouts.tick(self._current.watching.layouts, config, self._current.actor.warn)
        await self._tell(seen, decision, now)
        return unfinished

    def _stand_by(self) -> None:
        """Another replica speaks for the fleet: show nothing of what was seen while leading."""
        if self._led and not self._lease.held:
            self._led = False
            self._current.evictions.decided(None)
            metrics.stand_down()
            self._forecasting.stand_down()
        self._board.show(self._own_alarms(), asyncio.get_running_loop().time())

    def _observe(self) -> Snapshot:
        history = self._runs.history(self._current.watching.jobs, asyncio.get_running_loop().time())
        seen = self._current.watching.snapshot(self._store.books, history)
        self._measures.observe(seen.jobs, self.config)
        return seen

    async def _tell(self, seen: Snapshot, decision: Decision, now: float) -> None:
        """Users, metrics, alarms and forecasts: what is for people, after what is for jobs."""
        config = self.config
        for event in self._complaints.for_users(seen.jobs):
            self._current.actor.warn(event)
        self._treasury.look(config, now, self._current.actor.warn)
        metrics.publish_jobs(seen.jobs, config)
        self._board.show(self._all_alarms(seen, decision, now), asyncio.get_running_loop().time())
        if not config.dry_run:
            self._forecasting.begin(seen, config, now, self._treasury.summary)
            await self._treasury.tidy()

    def _own_alarms(self) -> list[Alarm]:
        refused = self._reload.refused
        return [] if refused is None else [Alarm(AlarmKind.CONFIGURATION_REFUSED, AGENT_NAME, refused)]

    def _all_alarms(self, seen: Snapshot, decision: Decision, now: float) -> list[Alarm]:
        checks = self._current.watching.checks
        check = CheckState(exists=True) if checks is None else self._gatekeeper.state(checks)
        missing = self._current.watching.missing_flavors
        found = [*self._own_alarms(), *stray_alarms(decision), *self._relayouts.alarms]
        found += cluster_alarms(seen, self.config, now, check=check, missing_flavors=missing)
        summary = self._treasury.summary
        return found if summary is None else [*found, *money_alarms(summary)]

    def _watch(self, config: AgentConfig) -> Watching:
        return Watching(self._kube, config, self._clock, self._complaints.report, self._changed)

    def _context(self, watching: Watching) -> Context:
        return Context(
            kube=self._kube,
            store=self._store,
            clock=self._clock,
            config=watching.config,
            identity=self._settings.identity,
            leading=lambda: self._lease.held,
            reduce=watching.observer.reduce,
        )

    def _act_for(self, watching: Watching) -> Actor:
        return Actor(self._context(watching))

    def _evict_for(self, watching: Watching, actor: Actor) -> Evictions:
        return Evictions(self._context(watching), watching, actor.warn)


async def _happens(event: asyncio.Event, seconds: float) -> bool:
    """Wait for an event, but not longer than that; says whether it happened."""
    try:
        async with asyncio.timeout(seconds):
            await event.wait()
    except TimeoutError:
        return False
    return True
