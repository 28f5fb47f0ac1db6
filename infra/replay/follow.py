"""Watches a replay until its jobs have ended, and shows it meanwhile.

It polls: one list of Workloads a second, less often where a list takes long. Whether a replay is over is decided from
that list alone, and it always ends: when all jobs ended, when nothing moves any more, or when the time given is over.
"""

from __future__ import annotations

import asyncio
import time
from datetime import timedelta
from typing import Final

from infra.local.errors import KubeError
from infra.replay.books import LedgerReader
from infra.replay.client import Client
from infra.replay.delays import FirstEta
from infra.replay.errors import SubmitError
from infra.replay.live import LiveTable
from infra.replay.observe import holds_quota, view_of
from infra.replay.submit import SubmitReport
from infra.replay.workload import Workload, workload_of
from runtime.clock import Clock
from runtime.routing.verdict import Code
from runtime.simulation.text import from_data
from stacks.fleet import Fleet
from stacks.labels import FORECAST_NAME, MANAGED_BY, MANAGED_BY_LABEL

WORKLOAD_API: Final = "kueue.x-k8s.io/v1beta2"

_POLL_SECONDS: Final = 1.0
_POLL_SHARE: Final = 4  # a poll that takes long is not repeated before this many times as long
_STALLED_SECONDS: Final = 20.0  # real; nothing holds quota and nothing changes: what waits will not start
_LEDGER_SECONDS: Final = 10.0  # real; the agent closes an attempt within its interval and a write
_MOST_FAILURES: Final = 15  # polls in a row


class Follower:
    """Follows one replay; times are on the event loop's clock.

    `told` has the first start that the agent's forecasts named for each job, by namespace and Workload.
    """

    def __init__(
        self,
        client: Client,
        fleet: Fleet,
        clock: Clock,
        run_id: str,
        report: SubmitReport,
        books: LedgerReader,
        table: LiveTable,
    ) -> None:
        self._client, self._fleet, self._clock = client, fleet, clock
        self._run_id, self._report, self._books, self._table = run_id, report, books, table
        self.told: dict[tuple[str, str], FirstEta] = {}
        self._workloads: list[Workload] = []
        self._failures = 0
        self._state: frozenset[tuple[str, bool, bool, str]] = frozenset()
        self._unchanged_since = 0.0

    async def follow(self, drain: timedelta | None) -> list[str]:
        """Show the replay until it is over; return what there is to say about its end.

        Args:
            drain: Real time to wait for the end after the last submission; None for as long as anything moves.

        Raises:
            SubmitError: when the API server does not answer for long.
            EvidenceError: when the ledger cannot be read.
        """
        loop = asyncio.get_running_loop()
        begin = self._unchanged_since = loop.time()
        submitted_at: float | None = None
        while True:
            polled = loop.time()
            await self._poll()
            own = [one for one in self._workloads if one.job is not None and one.job.endswith(f"-{self._run_id}")]
            ended = sum(map(_ended, own))
            self._show(loop.time() - begin, ended)
            if self._report.complete:
                submitted_at = loop.time() if submitted_at is None else submitted_at
                if len(own) >= self._report.in_cluster and ended == len(own):
                    return await self._await_ledger(own)
                left = self._report.in_cluster - ended
                if drain is not None and loop.time() - submitted_at > drain.total_seconds():
                    return [f"{left} jobs had not ended {drain.total_seconds():g} s after the last submission"]
                if self._stalled():
                    return [f"{left} jobs still wait and nothing moved for {_STALLED_SECONDS:g} s: see their verdicts"]
            await asyncio.sleep(max(_POLL_SECONDS, _POLL_SHARE * (loop.time() - polled)))

    async def _poll(self) -> None:
        try:
            self._workloads = [workload_of(raw) for raw in await self._client.list(WORKLOAD_API, "Workload")]
            await self._note_forecasts()
            self._failures = 0
        except KubeError as error:
            self._failures += 1
            if self._failures >= _MOST_FAILURES:
                raise SubmitError(f"the API server failed {self._failures} times in a row: {error}") from error
        state = frozenset(
            (one.uid, holds_quota(one), one.finished_at is not None, one.queue) for one in self._workloads
        )
        if state != self._state:
            self._state, self._unchanged_since = state, asyncio.get_running_loop().time()

    async def _note_forecasts(self) -> None:
        for config_map in await self._client.list("v1", "ConfigMap", f"{MANAGED_BY_LABEL}={MANAGED_BY}"):
            said = from_data(config_map.get("data")) if config_map["metadata"]["name"] == FORECAST_NAME else None
            for name, forecast in (said.jobs if said else {}).items():
                if said and forecast.start_at is not None:
                    first = FirstEta(said.at, forecast.start_at)
                    self.told.setdefault((config_map["metadata"]["namespace"], name), first)

    def _show(self, elapsed: float, ended: int) -> None:
        view = view_of(self._workloads, self._books.read().books, self._fleet, self._clock, time.time())
        self._table.show(view, elapsed, f"{self._report.in_cluster} submitted, {ended} ended")

    def _stalled(self) -> bool:
        quiet = asyncio.get_running_loop().time() - self._unchanged_since
        return quiet > _STALLED_SECONDS and not any(map(holds_quota, self._workloads))

    async def _await_ledger(self, own: list[Workload]) -> list[str]:
        """Wait until the agent has closed every attempt of the jobs that ended."""
        uids = {one.uid for one in own}
        deadline = asyncio.get_running_loop().time() + _LEDGER_SECONDS
        while True:
            current = self._books.read().books
            missing = [one for one in current.openings if one.workload_uid in uids and one not in current.closings]
            if not missing:
                return []
            if asyncio.get_running_loop().time() > deadline:
                return [
                    f"{len(missing)} attempts of ended jobs are still open in the ledger after {_LEDGER_SECONDS:g} s"
                ]
            await asyncio.sleep(self._fleet.agent.interval.total_seconds())


def _ended(one: Workload) -> bool:
    """Whether a job is over: finished, or stopped by somebody (not: on its way back to its queue)."""
    recalling = one.verdict is not None and one.verdict.code is Code.RECALLED
    return one.finished_at is not None or (not one.active and not recalling)
