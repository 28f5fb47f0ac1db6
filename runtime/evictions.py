"""One round of evictions: see what goes, plan, carry out. Beside routing, in the same tick, before it.

It costs nothing while no node has a notice and no job is on its way: then no view is built at all. A job that no plan
can be made for, be it by a bug, is left out, and keeps no other from being planned.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Final

from runtime import metrics
from runtime.events import Event
from runtime.eviction.act import Evictor, described
from runtime.eviction.clearing import Clearing
from runtime.eviction.inquiry import Inquiry
from runtime.eviction.notice import NoticeKind
from runtime.eviction.observe import Run, evictions_under_way, run_of
from runtime.eviction.sequence import plan
from runtime.eviction.steps import Step
from runtime.eviction.view import HeldWorkload, Phase, PodView, View
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
        self._runs: dict[str, Run] = {}
        self._may_leave: frozenset[tuple[str, str]] | None = None
        self._odd: set[str] = set()
        self.under_way = False

    def decided(self, may_leave: frozenset[tuple[str, str]] | None) -> None:
        """Keep which jobs may be moved now, and by which wish; None where that is not known any more."""
        self._may_leave = may_leave

    async def tick(self, jobs: Sequence[Job]) -> int:
        """Take the next steps. Returns how many want an early new try."""
        nodes = {node.name: node for node in self._watching.nodes}
        pods = self._watching.pods
        await self._inquiry.look(nodes, pods)
        self._count_returns(jobs)
        preempted = self._remember_runs(jobs)
        may_leave = self._may_leave or frozenset()
        self.under_way = bool(self._inquiry.gone or may_leave) or preempted
        self.under_way = self.under_way or evictions_under_way(nodes.values(), jobs)
        if not self.under_way and not any(node.cleared for node in nodes.values()):
            return 0
        view = self._watching.scout.view(
            nodes.values(), pods, jobs, self._inquiry.strangers, self._inquiry.gone, may_leave, self._runs
        )
        if self._may_leave is None:
            # The first tick since we lead: a move that was begun is neither called off nor ended before it is judged.
            judged = [workload for workload in view.workloads if not _is_being_moved(workload)]
            view = replace(view, workloads=judged)
        steps = self._plan(view)
        if self._context.config.dry_run:
            self._rehearse(steps)
            return 0
        unfinished = await self._evictor.act(steps, {job.uid: job for job in jobs}, view.pods)
        await self._clearing.act(view, jobs)
        return unfinished

    async def close(self) -> None:
        """End what is under way."""
        await self._evictor.close()

    def _plan(self, view: View) -> Sequence[Step]:
        now = self._context.clock.real_now()
        before, self._odd = self._odd, set()
        try:
            return plan(view, now)
        except Exception:
            # The guard of one plan: an odd job must not take the others down with it. Who is odd is found one by one.
            for one, alone in _each(view):
                try:
                    plan(alone, now)
                except Exception as error:
                    self._odd.add(one.uid)
                    _complain(one, error, again=one.uid in before)
            if not self._odd:
                raise
        workloads = [workload for workload in view.workloads if workload.uid not in self._odd]
        pods = [pod for pod in view.pods if pod.uid not in self._odd]
        return plan(replace(view, workloads=workloads, pods=pods), now)

    def _remember_runs(self, jobs: Sequence[Job]) -> bool:
        """Remember what runs, because Kueue forgets it as it preempts; says whether a preemption is to be recorded."""
        runs, preempted = {}, False
        for job in jobs:
            if job.preempted_at is not None:
                preempted = preempted or self._watching.scout.preemption_of(job) is not None
                if job.uid in self._runs:
                    runs[job.uid] = self._runs[job.uid]
            elif job.stage is not Stage.FINISHED and (run := run_of(job)) is not None:
                runs[job.uid] = run
        self._runs = runs
        return preempted

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


def _each(view: View) -> Iterator[tuple[HeldWorkload | PodView, View]]:
    """Every job with its pods, and every pod by itself, as a view of its own."""
    pods: dict[tuple[str, str], list[PodView]] = defaultdict(list)
    for pod in view.pods:
        pods[pod.namespace, pod.workload].append(pod)
        yield pod, replace(view, workloads=(), pods=(pod,))
    for workload in view.workloads:
        yield workload, replace(view, workloads=(workload,), pods=pods[workload.namespace, workload.name])


def _complain(one: HeldWorkload | PodView, error: Exception, *, again: bool) -> None:
    """Count what cannot be planned, and log it once."""
    metrics.errors.labels(kind=type(error).__name__).inc()
    fields = {"namespace": one.namespace, "workload": one.workload if isinstance(one, PodView) else one.name}
    if not again:
        log.error("no eviction can be planned; other jobs go on", extra={**fields, "uid": one.uid}, exc_info=error)


def _is_being_moved(workload: HeldWorkload) -> bool:
    marker = workload.marker
    return marker is not None and marker.kind is NoticeKind.MOVE and marker.phase is Phase.ASKED
