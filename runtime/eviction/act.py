"""Carries out the steps of evictions, several side by side; what fails is planned again.

Every write to a Workload holds only if its marker and its being active are still what the step was planned from, and
only for the version in which that was read. Asking writes the marker first, so that a pod is never shown a request that
nobody knows of; a loss is in the ledger before the marker says so. It judges nothing.

Invariants: nothing is written by a replica that does not lead, however long ago the step or the call began; what one
step raises, be it a bug, keeps no other from being carried out.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

from prometheus_client import Histogram

from runtime import events, metrics
from runtime.errors import AgentError, Conflict, Forbidden, NotFound, NotLeading, Rejected, Unreachable
from runtime.events import Event
from runtime.eviction.hooks import Hooks
from runtime.eviction.marker import answer_to_json, marker_to_json, request_to_json
from runtime.eviction.notice import NoticeKind
from runtime.eviction.record import loss_of, was_answered
from runtime.eviction.steps import Account, Ask, EvictPod, Mark, Resume, Step, Stop
from runtime.eviction.view import Answer, HeldWorkload, Marker, PodView
from runtime.kube import WORKLOADS
from runtime.routing.context import Context
from runtime.routing.snapshot import Job
from runtime.routing.workload import marker_of
from runtime.wire import Raw
from stacks.labels import CHECKPOINT_ANSWER_ANNOTATION, CHECKPOINT_REQUEST_ANNOTATION

PARALLEL_STEPS: Final = 16
"""More than for routing: all of a node's jobs have the same two minutes."""

KEEP_AGAIN_SECONDS: Final = 1.0
"""Until an answer that the API server could not take is written once more."""

log = logging.getLogger(__name__)


class Evictor:
    """Carries out steps under one configuration; `tell` writes an event for people, and never fails."""

    def __init__(self, context: Context, tell: Callable[[Event], None]) -> None:
        self._context = context
        self._kube = context.kube
        self._tell = tell
        self._limit = asyncio.Semaphore(PARALLEL_STEPS)
        self._hooks = Hooks(self._answered)
        self._evicted: set[str] = set()
        self._delayed: set[str] = set()

    async def act(self, steps: Sequence[Step], jobs: Mapping[str, Job], pods: Iterable[PodView]) -> int:
        """Carry out everything; `jobs` by UID. Returns how many steps want an early new try."""
        there = {pod.uid for pod in pods}
        self._hooks.keep_only(there)
        self._evicted &= there
        self._delayed &= there
        done = await asyncio.gather(*(self._guarded(step, jobs) for step in steps))
        return done.count(False)

    async def close(self) -> None:
        """End what is under way."""
        await self._hooks.close()

    async def _guarded(self, step: Step, jobs: Mapping[str, Job]) -> bool:
        fields = described(step)
        async with self._limit:
            if not self._context.leading():
                return False
            try:
                await self._carry_out(step, jobs)
            except NotFound:
                log.info("gone before it could be acted upon", extra=fields)
            except (Conflict, NotLeading) as error:
                # Kueue writes a Workload several times as it stops, and its pods as they end: the next plan knows.
                log.debug("planned anew", extra={**fields, "error": str(error)})
                return False
            except (Forbidden, Rejected) as error:
                metrics.errors.labels(kind=type(error).__name__).inc()
                log.warning("refused", extra={**fields, "error": str(error)})
                return False
            except AgentError as error:
                metrics.errors.labels(kind=type(error).__name__).inc()
                log.error("failed", extra={**fields, "error": str(error)})
                return False
            except Exception as error:
                # The guard of one step: a job with which something is odd must not take the others down with it.
                metrics.errors.labels(kind=type(error).__name__).inc()
                log.exception("failed", extra=fields)
                return False
        return True

    async def _carry_out(self, step: Step, jobs: Mapping[str, Job]) -> None:
        match step:
            case Ask():
                await self._ask(step, jobs.get(step.workload.uid))
            case Stop():
                await self._write(step.workload, step.marker, active=False)
                log.info("stopped", extra=described(step))
                if (job := jobs.get(step.workload.uid)) is not None:
                    self._tell(events.evicted(job, _why(step.marker), step.marker.attempts))
            case Mark():
                await self._write(step.workload, step.marker)
            case Resume():
                await self._write(step.workload, step.marker, active=True)
                log.info("queued again", extra=described(step))
            case EvictPod():
                await self._evict(step)
            case Account():
                context, job = self._context, jobs[step.workload.uid]
                loss = loss_of(step, job, context.store.books, context.clock, context.config.replay_speed)
                await context.store.lose(loss)
                await self._write(step.workload, step.marker)
                if was_answered(step.marker):
                    taken = step.marker.asked_at, step.marker.answer_at
                    self._took(metrics.asked_to_answered_seconds, step.marker, *taken)

    def _took(self, metric: Histogram, marker: Marker, since: float | None, until: float | None) -> None:
        if since is not None and until is not None:
            seconds = self._context.clock.duration_to_fleet(max(0.0, until - since))
            metric.labels(kind=marker.kind.value).observe(seconds)

    async def _ask(self, step: Ask, job: Job | None) -> None:
        if step.workload.marker != step.marker:
            await self._write(step.workload, step.marker)
            log.info("asked to save", extra=described(step))
            self._took(metrics.notice_to_asked_seconds, step.marker, step.marker.noticed_at, step.marker.asked_at)
            if job is not None:
                self._tell(events.asked_to_save(job, _why(step.marker), step.request.id))
        unasked = (pod for pod in step.pods if pod.asked != step.request.id)
        shown = await asyncio.gather(*(self._show(pod, step) for pod in unasked), return_exceptions=True)
        self._context.must_lead()
        for pod in step.pods:
            if pod.hook and (pod.answer is None or pod.answer.request != step.request.id):
                self._hooks.call(pod, step.request)
        for outcome in shown:
            if outcome is not None:
                raise outcome

    async def _show(self, pod: PodView, step: Ask) -> None:
        self._context.must_lead()
        try:
            await self._kube.annotate_pod(
                pod.namespace, pod.name, pod.uid, CHECKPOINT_REQUEST_ANNOTATION, request_to_json(step.request)
            )
        except (NotFound, Conflict):
            log.debug("a pod was gone before it could be asked", extra={"pod": pod.name})

    async def _answered(self, pod: PodView, answer: Answer) -> bool:
        """Keep what a hook answered on its pod, where a restarted agent finds it; as often as it takes."""
        fields = {"namespace": pod.namespace, "pod": pod.name}
        complained = False
        while self._context.leading():
            try:
                await self._kube.annotate_pod(
                    pod.namespace, pod.name, pod.uid, CHECKPOINT_ANSWER_ANNOTATION, answer_to_json(answer)
                )
            except (NotFound, Conflict):
                log.debug("a pod was gone before its answer was kept", extra=fields)
            except AgentError as error:
                metrics.errors.labels(kind=type(error).__name__).inc()
                log.log(
                    logging.DEBUG if complained else logging.WARNING,
                    "an answer was not kept",
                    extra={**fields, "error": str(error)},
                )
                complained = True
                if isinstance(error, Unreachable):
                    await asyncio.sleep(KEEP_AGAIN_SECONDS)
                    continue
            return True
        return False

    async def _evict(self, step: EvictPod) -> None:
        """Evict a pod, once; a disruption budget that does not allow it is no error, however long it lasts."""
        pod = step.pod
        if pod.uid in self._evicted:
            return
        self._context.must_lead()
        try:
            await self._kube.evict_pod(pod.namespace, pod.name, pod.uid)
        except Unreachable as error:
            level = logging.DEBUG if pod.uid in self._delayed else logging.WARNING
            self._delayed.add(pod.uid)
            log.log(level, "a pod is not evicted yet", extra={**described(step), "error": str(error)})
        else:
            self._evicted.add(pod.uid)
            log.info("pod evicted", extra=described(step))

    async def _write(self, workload: HeldWorkload, marker: Marker | None, *, active: bool | None = None) -> None:
        raw = await self._kube.get(WORKLOADS, workload.name, workload.namespace)
        if not _is_as_planned(raw, workload):
            raise Conflict(f"Workload {workload.namespace}/{workload.name} changed since it was looked at")
        self._context.must_lead()
        await self._kube.patch_workload(
            workload.namespace,
            workload.name,
            eviction="" if marker is None else marker_to_json(marker),
            active=active,
            resource_version=raw["metadata"]["resourceVersion"],
        )


def _is_as_planned(raw: Raw, workload: HeldWorkload) -> bool:
    metadata, active = raw["metadata"], (raw.get("spec") or {}).get("active") is not False
    same = metadata.get("uid") == workload.uid and active == workload.active
    return same and marker_of(metadata) == workload.marker


def _why(marker: Marker) -> str:
    if marker.kind is NoticeKind.MOVE:
        return "an administrator moves it to another flavor"
    nodes = ", ".join(marker.nodes[:3]) + (" and others" if len(marker.nodes) > 3 else "")
    return f"{marker.kind.value} of {nodes or 'its nodes'}"


def described(step: Step) -> dict[str, str]:
    """The step, for logs: the same for each plan that wants the same."""
    fields = {"step": type(step).__name__.lower()}
    if isinstance(step, EvictPod):
        return {**fields, "namespace": step.pod.namespace, "pod": step.pod.name, "notice": step.notice.id}
    fields |= {"namespace": step.workload.namespace, "workload": step.workload.name}
    if step.marker is not None:
        fields |= {"notice": step.marker.notice, "phase": step.marker.phase.value}
    return fields
