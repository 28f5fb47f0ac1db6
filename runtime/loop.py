"""The agent: keep caches and lease, then observe, decide, act, again and again.

One process, one event loop. Four tasks live as long as the agent: two caches, the lease, and the loop of ticks; a tick
comes every `interval`, and early when something changed. Standing by is the same without the ticks. The only broad
`except` is around a tick: whatever goes wrong there is logged, counted and tried again after a growing pause, because
an agent that dies of one bad job would die of it again.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from runtime import events, metrics
from runtime.cache import Cache
from runtime.clock import Clock, parse_time
from runtime.errors import KubeError, StoreDown
from runtime.kube import ADMISSION_CHECKS, NAMESPACES, WORKLOADS, Kube
from runtime.lease import Lease, Terms
from runtime.routing.act import Actor, Context
from runtime.routing.decide import decide
from runtime.routing.observe import BAD_EXPECTED_RUNTIME, Observer, snapshot
from runtime.routing.snapshot import Job
from runtime.settings import Settings
from runtime.store import Owner, Store
from runtime.wire import Raw
from stacks.agent_config import AgentConfig
from stacks.labels import AGENT_NAME, GATE_CONTROLLER

FIRST_NAMESPACE: Final = "kube-system"
"""Every cluster has it from its beginning to its end, so its UID names the cluster."""

SHORTEST_TICK_SECONDS: Final = 0.1
"""Least time between ticks: a burst of changes is one decision, not a hundred."""

FIRST_RETRY_SECONDS: Final = 0.3
LONGEST_PAUSE_SECONDS: Final = 30.0
CLUSTER_PAUSE_SECONDS: Final = 5.0
"""As in runtime.cache: the agent should be back soon after the API server is."""

LEDGER_RETRY_SECONDS: Final = 2.0
LEDGER_REFRESH_SECONDS: Final = 600.0
"""Only this agent writes the ledger; reading it again finds what people moved."""

HEALTHY_TICKS: Final = 4
"""A loop that has not ticked for this many intervals, and a minute, is stuck."""

COMPLAINTS_LIMIT: Final = 10_000
log = logging.getLogger(__name__)


async def read_cluster(kube: Kube, settings: Settings) -> tuple[Clock, Owner]:
    """The clock of this fleet, whose origin is when the agent's namespace was created, and who owns its ledger.

    Waits for the cluster.
    """
    speed = settings.config.replay_speed
    pause = FIRST_RETRY_SECONDS
    while True:
        try:
            own = await kube.get(NAMESPACES, settings.namespace)
            first = await kube.get(NAMESPACES, FIRST_NAMESPACE)
            clock = Clock(parse_time(own["metadata"]["creationTimestamp"]), speed)
            return clock, Owner(first["metadata"]["uid"], speed)
        except KubeError as error:
            log.warning("waiting for the cluster", extra={"error": str(error)})
            await asyncio.sleep(pause)
            pause = min(pause * 2, CLUSTER_PAUSE_SECONDS)


@dataclass(frozen=True, slots=True)
class _Check:
    """Our AdmissionCheck, and whether Kueue knows that it is answered."""

    name: str
    generation: int
    active: bool


class Agent:
    """Everything one process does. `run` returns only after `stop` was called."""

    def __init__(self, settings: Settings, kube: Kube, clock: Clock, owner: Owner) -> None:
        self._settings = settings
        self._config: AgentConfig = settings.config
        self._clock = clock
        self._kube = kube
        self._changed = asyncio.Event()
        self._stopping = asyncio.Event()
        self._observer = Observer(self._config, clock, self._complain)
        self._jobs: Cache[Job] = Cache(kube, WORKLOADS, self._observer.reduce, self._changed)
        self._checks: Cache[_Check] = Cache(kube, ADMISSION_CHECKS, self._our_check, self._changed)
        terms = Terms(settings.namespace, AGENT_NAME, settings.identity, settings.lease_seconds)
        self._lease = Lease(kube, terms, self._changed, clock.real_now)
        self._store = Store(settings.ledger, clock, owner)
        self._ledger_term = 0
        self._ledger_read_at = float("-inf")
        self._actor = Actor(
            Context(
                kube=kube,
                store=self._store,
                clock=clock,
                config=self._config,
                identity=settings.identity,
                leading=lambda: self._lease.held,
                reduce=self._observer.reduce,
            )
        )
        self._complaints: dict[str, str] = {}
        self._complained: set[str] = set()
        self._ticked_at: float | None = None

    def stop(self) -> None:
        """Finish the tick under way, then release the lease and return from `run`."""
        self._stopping.set()
        self._changed.set()

    def healthy(self) -> str | None:
        """None while the loop ticks, else what is wrong."""
        limit = max(60.0, HEALTHY_TICKS * self._config.interval.total_seconds())
        if self._ticked_at is None or asyncio.get_running_loop().time() - self._ticked_at <= limit:
            return None
        return f"no tick for more than {limit:.0f} s"

    def ready(self) -> str | None:
        """None once the caches are complete and, where this replica leads, the ledger is readable."""
        if not self._jobs.synced.is_set():
            return "workloads are not listed yet"
        if self._lease.held and self._store.books is None:
            return "the ledger cannot be read"
        return None

    async def run(self) -> None:
        """Run until stopped."""
        async with asyncio.TaskGroup() as group:
            background = [group.create_task(task.run()) for task in (self._jobs, self._checks, self._lease)]
            await self._ticks()
            for task in background:
                task.cancel()
        try:
            await self._lease.release()
        except KubeError as error:
            log.warning("the lease was not released; it expires by itself", extra={"error": str(error)})

    async def _ticks(self) -> None:
        interval = self._config.interval.total_seconds()
        retry = FIRST_RETRY_SECONDS
        while not self._stopping.is_set():
            self._changed.clear()
            try:
                unfinished = await self._tick()
            except Exception as error:
                metrics.errors.labels(kind=type(error).__name__).inc()
                log.exception("a tick failed; the next one starts afresh", extra={"pause": retry})
                await self._pause(retry, retry)
                retry = min(retry * 2, LONGEST_PAUSE_SECONDS)
                continue
            self._ticked_at = asyncio.get_running_loop().time()
            metrics.last_tick.set(self._clock.real_now())
            await self._pause(SHORTEST_TICK_SECONDS, min(interval, retry) if unfinished else interval)
            retry = min(retry * 2, LONGEST_PAUSE_SECONDS) if unfinished else FIRST_RETRY_SECONDS

    async def _pause(self, shortest: float, longest: float) -> None:
        """Wait until something changes, but not shorter and not longer than that; a stop ends it at once."""
        started = asyncio.get_running_loop().time()
        if await _happens(self._stopping, shortest):
            return
        await _happens(self._changed, max(0.0, longest - (asyncio.get_running_loop().time() - started)))

    async def _tick(self) -> int:
        """Observe, decide, act. Returns how many actions want an early new try."""
        if not self._jobs.synced.is_set() or not self._lease.held:
            return 0
        await self._keep_ledger()
        seen = snapshot(self._jobs.values(), self._store.books)
        now = self._clock.now()
        with metrics.decision_seconds.time():
            decision = decide(seen, self._config, now, secrets.token_hex(6))
        if seen.books is not None:
            await self._activate_check()
        unfinished = await self._actor.act(decision)
        await self._warn_users(seen.jobs)
        metrics.publish(seen.jobs, seen.books, self._config, now)
        return unfinished

    async def _keep_ledger(self) -> None:
        """Read the ledger when it is due: when a term begins, soon after a failure, and now and then."""
        now = asyncio.get_running_loop().time()
        patience = LEDGER_RETRY_SECONDS if self._store.books is None else LEDGER_REFRESH_SECONDS
        if self._ledger_term == self._lease.term and now - self._ledger_read_at < patience:
            return
        self._ledger_term, self._ledger_read_at = self._lease.term, now
        try:
            await self._store.refresh()
        except StoreDown as error:
            metrics.errors.labels(kind="StoreDown").inc()
            log.error("the ledger is down; the gate holds", extra={"error": str(error)})

    async def _activate_check(self) -> None:
        """Tell Kueue that our AdmissionCheck is answered, whenever it exists and does not say so yet."""
        for check in self._checks.values():
            if not check.active:
                try:
                    await self._kube.activate_check(check.name, check.generation, self._clock.real_now())
                    log.info("the admission check is active", extra={"check": check.name})
                except KubeError as error:
                    metrics.errors.labels(kind=type(error).__name__).inc()
                    log.error("the admission check was not activated", extra={"error": str(error)})

    def _our_check(self, raw: Raw) -> _Check | None:
        metadata, spec, status = raw.get("metadata") or {}, raw.get("spec") or {}, raw.get("status") or {}
        if spec.get("controllerName") != GATE_CONTROLLER or metadata.get("name") != self._config.gate:
            return None
        generation = metadata.get("generation") or 0
        active = any(
            condition.get("type") == "Active"
            and condition.get("status") == "True"
            and condition.get("observedGeneration") == generation
            for condition in status.get("conditions") or ()
        )
        return _Check(metadata["name"], generation, active)

    def _complain(self, reason: str, raw: Mapping[str, Any], message: str) -> None:
        """Called for each Workload that is odd in some way: counted, logged once, and told to its user."""
        metadata = raw.get("metadata") or {}
        uid = str(metadata.get("uid"))
        metrics.skipped_workloads.labels(reason=reason).inc()
        if uid in self._complained:
            return
        if len(self._complained) >= COMPLAINTS_LIMIT:
            self._complained.clear()
        self._complained.add(uid)
        log.warning(message, extra={"reason": reason, "workload": metadata.get("name")})
        if reason == BAD_EXPECTED_RUNTIME:
            self._complaints[uid] = message

    async def _warn_users(self, jobs: Iterable[Job]) -> None:
        if not self._complaints:
            return
        complaints, self._complaints = self._complaints, {}
        for job in jobs:
            if (message := complaints.get(job.uid)) is not None:
                await self._actor.warn(events.bad_expected_runtime(job, message))


async def _happens(event: asyncio.Event, seconds: float) -> bool:
    """Wait for an event, but not longer than that; says whether it happened."""
    try:
        async with asyncio.timeout(seconds):
            await event.wait()
    except TimeoutError:
        return False
    return True
