"""One round of evictions: see what goes, plan, carry out. Beside routing, in the same tick, before it.

It costs nothing while no node has a notice and no job is on its way: then no view is built at all.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Final

from runtime import metrics
from runtime.events import Event
from runtime.eviction.act import Evictor, described
from runtime.eviction.clearing import Clearing
from runtime.eviction.inquiry import Inquiry
from runtime.eviction.observe import evictions_under_way
from runtime.eviction.sequence import plan
from runtime.eviction.steps import Step
from runtime.eviction.view import Phase
from runtime.routing.context import Context
from runtime.routing.snapshot import Job, Stage
from runtime.watching import Watching

LONGEST_WAIT_SECONDS: Final = 1.0
"""Real seconds between ticks while an eviction is under way: steps are due at times of their own, not only when
something changes."""

log = logging.getLogger(__name__)


class Evictions:
    """The evictions of one configuration."""

    def __init__(self, context: Context, watching: Watching, tell: Callable[[Event], None]) -> None:
        self._context = context
        self._watching = watching
        self._evictor = Evictor(context, tell)
        self._inquiry = Inquiry(context.kube, watching.scout, context.clock.real_now)
        self._clearing = Clearing(context, watching.scout)
        self._rehearsed: list[dict[str, str]] = []
        self._awaited: set[str] = set()
        self.under_way = False

    async def tick(self, jobs: Sequence[Job]) -> int:
        """Take the next steps. Returns how many want an early new try."""
        nodes = {node.name: node for node in self._watching.nodes}
        pods = self._watching.pods
        await self._inquiry.look(nodes, pods)
        self._count_returns(jobs)
        self.under_way = bool(self._inquiry.gone) or evictions_under_way(nodes.values(), jobs)
        if not self.under_way and not any(node.cleared for node in nodes.values()):
            return 0
        view = self._watching.scout.view(nodes.values(), pods, jobs, self._inquiry.strangers, self._inquiry.gone)
        steps = plan(view, self._context.clock.real_now())
        if self._context.config.dry_run:
            self._rehearse(steps)
            return 0
        unfinished = await self._evictor.act(steps, {job.uid: job for job in jobs}, view.pods)
        await self._clearing.act(view, jobs)
        return unfinished

    async def close(self) -> None:
        """End what is under way."""
        await self._evictor.close()

    def _count_returns(self, jobs: Sequence[Job]) -> None:
        """Measure how long evicted jobs took until they ran again; one that did so before we looked is not counted."""
        still = set()
        for job in jobs:
            marker = job.eviction
            if marker is None or marker.stopped_at is None or job.stage is Stage.FINISHED:
                continue
            stopped_at = self._context.clock.to_fleet(marker.stopped_at)
            if marker.phase is not Phase.DONE or job.pods_ready_at is None or job.pods_ready_at < stopped_at:
                still.add(job.uid)
            elif job.uid in self._awaited:
                taken = job.pods_ready_at - stopped_at
                metrics.stopped_to_running_seconds.labels(kind=marker.kind.value).observe(taken)
        self._awaited = still

    def _rehearse(self, steps: Sequence[Step]) -> None:
        said = [described(step) for step in steps]
        for fields in said:
            if fields not in self._rehearsed:
                log.info("would evict", extra=fields)
        self._rehearsed = said
