"""Carries out one action of a decision: on the ledger, the gate, the job, and for people.

Every action is safe to repeat and to cut off after any write, because each leaves a state that the next observation
recognises:

- clear: the opening is recorded, then the verdict written, then the gate answered, both for exactly the Workload that
  was read before. Cut off in between, the job is still at the gate, and the next clear finds the money committed.
- release: see runtime.routing.actuator.
- recall of a job with quota: inactive and marked, in one patch; then, once the quota is gone, back as the actuator does
  it, in a last patch that takes the mark away, so that a later stop by somebody else is never taken for ours.
- requeue: see runtime.routing.actuator. It goes by the marker as it is now: the loss may have been accounted since the
  job was observed, in the same tick.
- move: the annotation, and with it the wish where that is over. The job is left to the sequence of runtime.eviction.
- hold: the annotation, by which the next decision knows that the job was told.
- window queues: one patch.

Conditions and events for people go to the outbox, so that they wait and jobs do not. The condition of a cleared job
goes with the gate's answer, and that a job may use the cloud while it still waits is told by an event alone.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Final

from runtime import metrics
from runtime.cost.ledger import Attempt, Opening
from runtime.errors import Conflict, NotFound
from runtime.eviction.marker import marker_to_json
from runtime.eviction.sequence import sent_on
from runtime.eviction.view import Marker
from runtime.kube import WORKLOADS
from runtime.routing.actuator import Actuator
from runtime.routing.context import Context
from runtime.routing.decision import Adopt, Clear, Close, Decision, Hold, Move, Recall, Release, Requeue, SetQueue
from runtime.routing.explain import sentence, verdict_from_json, verdict_to_json
from runtime.routing.observe import attempt_at_gate
from runtime.routing.outbox import Outbox
from runtime.routing.pace import JobAction
from runtime.routing.release import KEPT_LOCAL_SECONDS
from runtime.routing.snapshot import Job, Stage
from runtime.routing.telling import condition, describe, event_of
from runtime.routing.verdict import Code, Verdict
from runtime.routing.workload import marker_of
from runtime.wire import Raw
from stacks.labels import VERDICT_ANNOTATION

ASK_AGAIN_SECONDS: Final = 10.0
"""Real seconds before the API server is asked again after a Workload that left the fleet and runs on."""

STATUS_TRIES: Final = 3
"""Kueue writes a Workload's status several times around a reservation and its end; each makes our write stale."""

_RUNNING: Final = (Stage.RUNNING_CLOUD, Stage.RUNNING_LOCAL)

log = logging.getLogger(__name__)


class Carrier:
    """Carries out single actions. Each method says whether the action is done with, as far as this decision goes."""

    def __init__(self, context: Context, actuator: Actuator, outbox: Outbox) -> None:
        self._context = context
        self._kube = context.kube
        self._actuator = actuator
        self._outbox = outbox
        self._running_on: dict[Attempt, float] = {}

    async def close(self, decision: Decision, action: Close) -> bool:
        """Record an end; that of a vanished Workload only if the API server has none of it either."""
        if action.vanished is not None and await self._runs_on(action.vanished):
            return True
        closing = await self._context.store.close(action.closing)
        metrics.closes.inc()
        fields = {"decision": decision.id, "workload": closing.attempt.workload_uid, "usd": str(closing.usd)}
        log.info("closed", extra={**fields, "reason": closing.reason})
        return True

    async def adopt(self, decision: Decision, action: Adopt) -> bool:
        """Write what already runs into the ledger."""
        await self._context.store.open(action.opening)
        metrics.adoptions.labels(team=action.job.team).inc()
        log.error("runs in the cloud and was not in the ledger", extra={"decision": decision.id, **describe(action)})
        return True

    async def clear(self, decision: Decision, action: Clear) -> bool:
        """Commit the money, then open the gate."""
        job, gate, mark = action.job, self._context.config.gate, _mark(decision, action)
        for last in (False,) * (STATUS_TRIES - 1) + (True,):
            seen = await self._context.as_decided(job)
            if seen is None or attempt_at_gate(seen, gate) != action.opening.attempt.reserved_at:
                # Evicted, answered or changed meanwhile, or Kueue is yet to list our check.
                log.debug("not waiting at the gate", extra={"decision": decision.id, **describe(action)})
                return False
            await self._context.store.open(action.opening)
            self._context.must_lead()
            try:
                version = seen["metadata"]["resourceVersion"]
                raw = await self._kube.patch_workload(job.namespace, job.name, verdict=mark, resource_version=version)
                await self._kube.answer_gate(
                    job.namespace,
                    job.name,
                    check=gate,
                    message=sentence(action.verdict),
                    resource_version=raw["metadata"]["resourceVersion"],
                    now=self._context.clock.real_now(),
                    condition=condition(raw, action.verdict, self._context.clock.real_now()),
                )
            except Conflict:
                if last:
                    raise
            else:
                break
        metrics.clears.labels(team=job.team, job_class=job.job_class, flavor=action.opening.flavor).inc()
        facts = action.verdict.facts
        if isinstance(waited := facts.get("waited_s"), float) and isinstance(limit := facts.get("limit_s"), float):
            metrics.eligible_to_cleared_seconds.labels(team=job.team).observe(max(0.0, waited - limit))
        self._tell("cleared", decision, action, None)
        return True

    async def release(self, decision: Decision, action: Release) -> bool:
        """Let the job use one cloud flavor."""
        job = action.job
        seen = await self._context.as_decided(job)
        if seen is None or _released_since(seen, job):
            # A label that moves after Kueue reserved quota is accepted, moves nothing, and is wrong from then on.
            return False
        moves_on = job.stage is Stage.RELEASED and action.target != job.target
        version = seen["metadata"]["resourceVersion"] if moves_on else None
        await self._actuator.release(job, action.target, _mark(decision, action), version)
        metrics.releases.labels(team=job.team, job_class=job.job_class).inc()
        self._tell("released", decision, action, None)
        return True

    async def recall(self, decision: Decision, action: Recall) -> bool:
        """Take the next step of a recall."""
        job, mark = action.job, _mark(decision, action)
        if job.stage is Stage.RECALLING and job.reserved_at is not None:
            return True
        if job.stage is not Stage.RECALLING and job.reserved_at is not None:
            if (raw := await self._context.as_decided(job)) is None:
                return False
            version = raw["metadata"]["resourceVersion"]
            raw = await self._kube.patch_workload(
                job.namespace, job.name, verdict=mark, resource_version=version, active=False
            )
        else:
            raw = await self._actuator.take_back(job, mark, self._last_mark(decision, action))
        metrics.recalls.labels(team=job.team, job_class=job.job_class).inc()
        if job.stage is Stage.RECALLING:
            log.info("back in its queue", extra={"decision": decision.id, **describe(action)})
        else:
            self._tell("recalled", decision, action, raw)
        return True

    async def requeue(self, decision: Decision, action: Requeue) -> bool:
        """Let a job run again whose nodes were taken away."""
        job, mark = action.job, _mark(decision, action)
        for last in (False,) * (STATUS_TRIES - 1) + (True,):
            seen = await self._context.as_decided(job)
            marker = None if seen is None else marker_of(seen["metadata"])
            if seen is None or marker is None or not _same_stop(marker, job.eviction):
                log.debug("sent on, or taken over by somebody", extra={"decision": decision.id, **describe(action)})
                return False
            self._context.must_lead()
            over = marker_to_json(sent_on(marker, self._context.clock.real_now()))
            try:
                version = seen["metadata"]["resourceVersion"]
                await self._actuator.requeue(job, action.target, mark, over, version, moved=action.moved)
            except Conflict:
                if last:
                    raise
            else:
                break
        self._tell("requeued", decision, action, None)
        return True

    async def move(self, decision: Decision, action: Move) -> bool:
        """Say of a running job whether it goes where somebody wants it, or take the wish away.

        The verdict of a job that waits stays: others go by it, and write it.
        """
        job = action.job
        mark = _mark(decision, action) if job.stage in _RUNNING else None
        if (seen := await self._context.as_decided(job)) is None:
            return False
        version = seen["metadata"]["resourceVersion"]
        raw = await self._kube.patch_workload(
            job.namespace, job.name, verdict=mark, clear_move=action.over, resource_version=version
        )
        self._tell("move", decision, action, None if mark is None else raw)
        return True

    async def hold(self, decision: Decision, action: Hold) -> bool:
        """Say why the job stays where it is."""
        job = action.job
        raw = await self._kube.patch_workload(job.namespace, job.name, verdict=_mark(decision, action), uid=job.uid)
        self._tell("held", decision, action, raw)
        return True

    async def set_queue(self, decision: Decision, action: SetQueue) -> bool:
        """Hold a window's queue, or let it go."""
        await self._kube.hold_local_queue(action.namespace, action.queue, action.held)
        log.info("queue held" if action.held else "queue let go", extra={"decision": decision.id, **describe(action)})
        return True

    def _last_mark(self, decision: Decision, action: Recall) -> str | None:
        """What stays on a job that is back: nothing, or that an administrator wants it local."""
        reason = action.job.recall_reason
        if reason is None:
            return None
        until = decision.decided_at + KEPT_LOCAL_SECONDS * self._context.config.replay_speed
        verdict = Verdict(Code.KEPT_LOCAL, {"until": round(until), "reason": reason})
        return verdict_to_json(verdict, decision.id, decision.decided_at)

    def _tell(self, what: str, decision: Decision, action: JobAction, raw: Raw | None) -> None:
        log.info(what, extra={"decision": decision.id, **describe(action), "why": sentence(action.verdict)})
        if raw is not None:
            self._outbox.explain(raw, action.verdict)
        if (event := event_of(action)) is not None:
            self._outbox.tell(event)

    async def _runs_on(self, opening: Opening) -> bool:
        """Whether a Workload that was not seen is there all the same, as that of a team that left the fleet."""
        now, attempt = asyncio.get_running_loop().time(), opening.attempt
        asked_at = self._running_on.get(attempt)
        if asked_at is not None and now - asked_at < ASK_AGAIN_SECONDS:
            return True
        try:
            raw = await self._kube.get(WORKLOADS, opening.workload, opening.namespace)
            there = raw["metadata"]["uid"] == attempt.workload_uid
        except NotFound:
            there = False
        if not there:
            self._running_on.pop(attempt, None)
            return False
        if asked_at is None:
            fields = {"namespace": opening.namespace, "workload": opening.workload}
            log.warning("still there, but not the fleet's any more; its cost stays committed", extra=fields)
        self._running_on[attempt] = now
        return True


def _released_since(raw: Raw, job: Job) -> bool:
    """Whether the job was released after it was judged: the copy that was decided upon is behind our own writes."""
    recorded = verdict_from_json((raw["metadata"].get("annotations") or {}).get(VERDICT_ANNOTATION))
    return recorded is not None and recorded.verdict.code is Code.RELEASED and recorded.at != job.verdict_at


def _same_stop(marker: Marker, former: Marker | None) -> bool:
    """Whether two markers are of one eviction whose pods are gone: `gone_at` is set once for each stop."""
    return former is not None and (marker.attempts, marker.gone_at) == (former.attempts, former.gone_at)


def _mark(decision: Decision, action: JobAction) -> str:
    return verdict_to_json(action.verdict, decision.id, decision.decided_at)
