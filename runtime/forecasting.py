"""Publishes when jobs are expected to start: runs the queue forward beside the loop, and tells each team its part.

A forecast takes part of a second of pure arithmetic, so it runs in a thread, one at a time, and a tick never waits for
it. It stands in a ConfigMap of the team's namespace, where its users may read it, and is written only when it says
something new, or when what it says has grown old.

Invariant: nothing is written once the lease is lost.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Final

from runtime import metrics
from runtime.clock import Clock
from runtime.cost.scopes import FLEET, project_scope, team_scope
from runtime.cost.standing import Summary
from runtime.errors import KubeError
from runtime.kube import Kube
from runtime.routing.snapshot import Snapshot
from runtime.simulation.forecast import forecast
from runtime.simulation.text import TeamForecast, team_forecast, to_data
from runtime.simulation.told import Forecast
from stacks.agent_config import AgentConfig
from stacks.labels import FORECAST_NAME

FORECAST_SECONDS: Final = 30.0
"""Between forecasts, in real time."""

STALE_SECONDS: Final = 120.0
"""Real seconds after which an unchanged forecast is written again, so that readers see that it still holds."""

log = logging.getLogger(__name__)


class Forecasting:
    """One forecast at a time; `learn` is called with each."""

    def __init__(
        self,
        kube: Kube,
        clock: Clock,
        leading: Callable[[], bool],
        learn: Callable[[Mapping[str, Forecast]], None],
    ) -> None:
        self._kube = kube
        self._clock = clock
        self._leading = leading
        self._learn = learn
        self._due_at = float("-inf")
        self._task: asyncio.Task[None] | None = None
        self._written: dict[str, TeamForecast] = {}
        self._failing: set[str] = set()

    def begin(self, seen: Snapshot, config: AgentConfig, now: float, found: Summary | None) -> None:
        """Begin a forecast from this snapshot, if one is due and none is under way."""
        at = asyncio.get_running_loop().time()
        if at < self._due_at or (self._task is not None and not self._task.done()):
            return
        self._due_at = at + FORECAST_SECONDS
        self._task = asyncio.create_task(self._guarded(seen, config, now, found))

    def stand_down(self) -> None:
        """Another replica writes from now on: what this one wrote is no guide to what stands there."""
        self._written.clear()

    async def stop(self) -> None:
        """Let go of the forecast under way."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    async def _guarded(self, seen: Snapshot, config: AgentConfig, now: float, found: Summary | None) -> None:
        try:
            await self._publish(seen, config, now, found)
        except Exception as error:
            # A top-level guard: a forecast is a comfort, and the agent goes on without it.
            metrics.errors.labels(kind=type(error).__name__).inc()
            log.exception("a forecast failed; the next one starts afresh")

    async def _publish(self, seen: Snapshot, config: AgentConfig, now: float, found: Summary | None) -> None:
        real_now = self._clock.real_now()
        with metrics.forecast_seconds.time():
            forecasts = await asyncio.to_thread(forecast, seen, config, now)
        self._learn(forecasts)
        for team, settings in config.teams.items():
            said = team_forecast(
                team,
                seen.jobs,
                forecasts,
                at=now,
                real_at=real_now,
                speed=self._clock.speed,
                left_usd=left_usd(team, config, found),
            )
            if self._is_new(said):
                await self._write(settings.namespace, said)

    def _is_new(self, said: TeamForecast) -> bool:
        before = self._written.get(said.team)
        if before is None or not 0 <= said.real_at - before.real_at < STALE_SECONDS:
            return True
        return (said.jobs, said.left_usd) != (before.jobs, before.left_usd)

    async def _write(self, namespace: str, said: TeamForecast) -> None:
        if not self._leading():
            return
        try:
            await self._kube.patch_config_map(namespace, FORECAST_NAME, to_data(said))
            self._written[said.team] = said
            self._failing.discard(namespace)
        except KubeError as error:
            metrics.errors.labels(kind=type(error).__name__).inc()
            level = logging.DEBUG if namespace in self._failing else logging.WARNING
            log.log(level, "a forecast was not written", extra={"namespace": namespace, "error": str(error)})
            self._failing.add(namespace)


def left_usd(team: str, config: AgentConfig, found: Summary | None) -> dict[str, dict[str, Decimal]]:
    """What is left of every budget that applies to the team's jobs, by scope and period."""
    if found is None:
        return {}
    scopes = {FLEET, team_scope(team)}
    scopes |= {project_scope(name) for name, one in config.projects.items() if one.teams is None or team in one.teams}
    left = {
        scope: {str(period): standing.left for period, standing in one.standings() if standing.left is not None}
        for scope, one in found.scopes()
        if scope in scopes
    }
    return {scope: amounts for scope, amounts in left.items() if amounts}
