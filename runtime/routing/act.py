"""Carries out decisions on the cluster and the ledger. It decides nothing; what fails is decided again next time.

Every action is safe to repeat and to cut off after any write, because each leaves a state that the next observation
recognises:

- clear: the opening is recorded, then the gate is answered for exactly the Workload that was read before. Cut off in
  between, the job is still at the gate, and the next clear finds the money committed.
- release: the verdict, then the Job's queue label. Cut off in between, the job is still queued and is released again.
- recall of a job with quota: inactive and marked, in one patch; then, once the quota is gone, the label; then queue and
  active again, in one patch that takes the mark away, so that a later stop by somebody else is never taken for ours.
- recall of a job without quota: the label, then the Workload's queue.

Kinds of action follow each other in the order of Decision, up to eight actions at a time. Verdicts of holding jobs come
last and are rationed. An error of one job never stops another; a lost lease stops everything that has not begun.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from runtime import events, metrics
from runtime.clock import Clock
from runtime.cost.ledger import Opening
from runtime.errors import AgentError, Conflict, Forbidden, KubeError, NotFound, NotLeading, Rejected
from runtime.kube import WORKLOADS, Kube
from runtime.routing.decision import Adopt, Clear, Close, Decision, Hold, Recall, Release
from runtime.routing.explain import sentence, verdict_to_json
from runtime.routing.observe import attempt_at_gate
from runtime.routing.policy import wait_limit
from runtime.routing.snapshot import Job, Stage
from runtime.routing.verdict import Code, Verdict
from runtime.store import Store
from runtime.wire import Raw
from stacks.agent_config import AgentConfig

PARALLEL_ACTIONS: Final = 8
"""Keeps the API server's share of one client small; Kueue itself writes with ten workers."""

HOLDS_PER_SECOND: Final = 20.0
"""Verdicts of holding jobs are for people. A full queue of 15,000 new jobs is explained within 13 minutes, while
releases and clears, which are not rationed, keep their latency."""

HOLD_BURST: Final = 100.0
GATE_TRIES: Final = 3
"""Kueue writes a Workload's status several times around a reservation; each makes our answer stale."""

FORGET_SECONDS: Final = 5.0
"""How long the same action on the same observation is taken for done; the watch is normally milliseconds behind."""

log = logging.getLogger(__name__)
Action = TypeVar("Action", Close, Adopt, Clear, Recall, Release, Hold)


@dataclass(frozen=True, slots=True)
class Context:
    """What acting needs of the rest of the agent."""

    kube: Kube
    store: Store
    clock: Clock
    config: AgentConfig
    identity: str
    leading: Callable[[], bool]
    reduce: Callable[[Raw], Job | None]


class Actor:
    """Carries out one decision at a time."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._kube = context.kube
        self._limit = asyncio.Semaphore(PARALLEL_ACTIONS)
        self._hold_tokens = HOLD_BURST
        self._hold_tokens_at = 0.0
        self._done: dict[str, tuple[Job, Code, float]] = {}

    async def act(self, decision: Decision) -> int:
        """Carry out everything, in order. Returns how many actions are still to be done, and worth an early new try.

        Raises:
            ExceptionGroup: after everything was tried, what no action should ever raise.
        """
        outcomes = [
            *await self._all(decision, decision.closes, self._close),
            *await self._all(decision, decision.adoptions, self._adopt),
            *await self._all(decision, decision.clears, self._clear),
            *await self._all(decision, decision.recalls, self._recall),
            *await self._all(decision, decision.releases, self._release),
            *await self._all(decision, self._affordable(decision.holds), self._hold),
        ]
        if surprises := [outcome for outcome in outcomes if isinstance(outcome, Exception)]:
            raise ExceptionGroup(f"decision {decision.id}", surprises)
        return outcomes.count(False)

    async def warn(self, event: events.Event) -> None:
        """Tell the user something that is no action; never fails."""
        await self._tell(event)

    async def _all(
        self, decision: Decision, actions: Iterable[Action], one: Callable[[Decision, Action], Awaitable[bool]]
    ) -> list[bool | Exception]:
        tried = (self._guarded(decision, action, one) for action in actions)
        outcomes: list[bool | Exception] = []
        for outcome in await asyncio.gather(*tried, return_exceptions=True):
            if isinstance(outcome, BaseException) and not isinstance(outcome, Exception):
                raise outcome
            outcomes.append(outcome)
        return outcomes

    async def _guarded(
        self, decision: Decision, action: Action, one: Callable[[Decision, Action], Awaitable[bool]]
    ) -> bool:
        """Whether the action is done with, as far as this decision goes."""
        fields = {"decision": decision.id, "action": type(action).__name__.lower(), **_describe(action)}
        async with self._limit:
            if not isinstance(action, Close | Adopt) and self._is_done(action.job, action.verdict):
                return True
            try:
                self._must_lead()
                done = await one(decision, action)
            except NotFound:
                log.info("gone before it could be acted upon", extra=fields)
                return True
            except (Forbidden, Rejected, Conflict) as error:
                # Kueue reserved quota meanwhile, or a person changed the job: the next observation tells.
                metrics.errors.labels(kind=type(error).__name__).inc()
                log.warning("refused", extra={**fields, "error": str(error)})
                return False
            except AgentError as error:
                metrics.errors.labels(kind=type(error).__name__).inc()
                log.error("failed", extra={**fields, "error": str(error)})
                return False
            if done and not isinstance(action, Close | Adopt):
                self._remember(action.job, action.verdict)
            return done

    def _must_lead(self) -> None:
        if not self._context.leading():
            raise NotLeading("the lease was lost before the write")

    async def _close(self, decision: Decision, action: Close) -> bool:
        if action.vanished is not None and await self._still_there(action.vanished):
            fields = {"namespace": action.vanished.namespace, "workload": action.vanished.workload}
            log.warning("still there, but not the fleet's any more; its cost stays committed", extra=fields)
            return True
        closing = await self._context.store.close(action.closing)
        metrics.closes.inc()
        fields = {"decision": decision.id, "workload": closing.attempt.workload_uid, "usd": str(closing.usd)}
        log.info("closed", extra={**fields, "reason": closing.reason})
        return True

    async def _still_there(self, opening: Opening) -> bool:
        try:
            raw = await self._kube.get(WORKLOADS, opening.workload, opening.namespace)
        except NotFound:
            return False
        return bool(raw["metadata"]["uid"] == opening.attempt.workload_uid)

    async def _adopt(self, decision: Decision, action: Adopt) -> bool:
        await self._context.store.open(action.opening)
        metrics.adoptions.labels(team=action.job.team).inc()
        log.error("runs in the cloud and was not in the ledger", extra={"decision": decision.id, **_describe(action)})
        return True

    async def _clear(self, decision: Decision, action: Clear) -> bool:
        job, gate = action.job, self._context.config.gate
        for last in (False,) * (GATE_TRIES - 1) + (True,):
            raw = await self._as_decided(job)
            if raw is None or attempt_at_gate(raw, gate) != action.opening.attempt.reserved_at:
                # Evicted, answered or changed meanwhile, or Kueue is yet to list our check.
                log.debug("not waiting at the gate", extra={"decision": decision.id, **_describe(action)})
                return False
            await self._context.store.open(action.opening)
            self._must_lead()
            try:
                await self._kube.answer_gate(
                    job.namespace,
                    job.name,
                    check=gate,
                    message=sentence(action.verdict),
                    resource_version=raw["metadata"]["resourceVersion"],
                    now=self._context.clock.real_now(),
                )
            except Conflict:
                if last:
                    raise
            else:
                break
        metrics.clears.labels(team=job.team, job_class=job.job_class, flavor=action.opening.flavor).inc()
        waited = decision.decided_at - job.created_at - wait_limit(job, self._context.config).seconds
        metrics.eligible_to_cleared_seconds.labels(team=job.team).observe(max(0.0, waited))
        log.info("cleared", extra={"decision": decision.id, **_describe(action)})
        await self._write_verdict(decision, job, action.verdict)
        await self._tell(events.cleared(job, sentence(action.verdict)))
        return True

    async def _release(self, decision: Decision, action: Release) -> bool:
        job = action.job
        queue = self._context.config.teams[job.team].burst_queue
        await self._write_verdict(decision, job, action.verdict)
        await self._kube.set_job_queue(job.namespace, job.owner_name, queue)
        if job.released_quota_at is not None:
            # Kueue does not carry the label of a job that was evicted before over to its Workload.
            await self._kube.patch_workload(job.namespace, job.name, queueName=queue)
        metrics.releases.labels(team=job.team, job_class=job.job_class).inc()
        log.info("released", extra={"decision": decision.id, **_describe(action)})
        await self._tell(events.released(job, sentence(action.verdict)))
        return True

    async def _recall(self, decision: Decision, action: Recall) -> bool:
        job = action.job
        queue = self._context.config.teams[job.team].queue
        if job.stage is Stage.RECALLING and job.reserved_at is not None:
            return True
        if job.stage is not Stage.RECALLING and job.reserved_at is not None:
            if (raw := await self._as_decided(job)) is None:
                return False
            verdict = _annotation(decision, action.verdict)
            version = raw["metadata"]["resourceVersion"]
            await self._kube.patch_workload(
                job.namespace, job.name, verdict=verdict, resource_version=version, active=False
            )
        else:
            await self._kube.set_job_queue(job.namespace, job.owner_name, queue)
            spec: dict[str, Any] = {"active": True} if job.stage is Stage.RECALLING else {}
            await self._kube.patch_workload(job.namespace, job.name, clear_verdict=True, queueName=queue, **spec)
        metrics.recalls.labels(team=job.team, job_class=job.job_class).inc()
        log.info("recalled", extra={"decision": decision.id, **_describe(action), "stage": job.stage.value})
        if job.stage is not Stage.RECALLING:
            await self._tell(events.recalled(job, sentence(action.verdict)))
        return True

    async def _as_decided(self, job: Job) -> Raw | None:
        """The Workload as it is now, if all that the decision was made from still holds, else None.

        The copy that was decided upon may be minutes old if a watch hangs: a job that moved on is neither paid for in
        another shape than the one that was judged, nor stopped.
        """
        raw = await self._kube.get(WORKLOADS, job.name, job.namespace)
        try:
            now = self._context.reduce(raw)
        except ValueError:
            return None
        return raw if now is not None and _essence(now) == _essence(job) else None

    async def _hold(self, decision: Decision, action: Hold) -> bool:
        await self._write_verdict(decision, action.job, action.verdict)
        log.debug("held", extra={"decision": decision.id, **_describe(action)})
        if action.verdict.code is Code.BUDGET:
            await self._tell(events.held_by_budget(action.job, sentence(action.verdict)))
        return True

    async def _write_verdict(self, decision: Decision, job: Job, verdict: Verdict) -> None:
        await self._kube.patch_workload(job.namespace, job.name, verdict=_annotation(decision, verdict))

    async def _tell(self, event: events.Event) -> None:
        body = events.body(event, self._context.identity, self._context.clock.real_now())
        try:
            await self._kube.create_event(event.job.namespace, body)
        except KubeError as error:
            metrics.errors.labels(kind=type(error).__name__).inc()
            log.debug("an event was not written", extra={"reason": event.reason, "error": str(error)})

    def _affordable(self, holds: Sequence[Hold]) -> Sequence[Hold]:
        now = asyncio.get_running_loop().time()
        refilled = self._hold_tokens + (now - self._hold_tokens_at) * HOLDS_PER_SECOND
        self._hold_tokens, self._hold_tokens_at = min(HOLD_BURST, refilled), now
        waiting = [hold for hold in holds if not self._is_done(hold.job, hold.verdict)][: int(self._hold_tokens)]
        self._hold_tokens -= len(waiting)
        return waiting

    def _is_done(self, job: Job, verdict: Verdict) -> bool:
        done = self._done.get(job.uid)
        if done is None:
            return False
        if done[2] <= asyncio.get_running_loop().time():
            del self._done[job.uid]
            return False
        return done[:2] == (job, verdict.code)

    def _remember(self, job: Job, verdict: Verdict) -> None:
        now = asyncio.get_running_loop().time()
        if len(self._done) > 1_000:
            self._done = {uid: done for uid, done in self._done.items() if done[2] > now}
        self._done[job.uid] = (job, verdict.code, now + FORGET_SECONDS)


def _essence(job: Job) -> tuple[object, ...]:
    return job.uid, job.stage, job.attempt, job.flavor, job.gpus, job.max_seconds


def _annotation(decision: Decision, verdict: Verdict) -> str:
    return verdict_to_json(verdict, decision.id, decision.decided_at)


def _describe(action: Close | Adopt | Clear | Recall | Release | Hold) -> dict[str, object]:
    if isinstance(action, Close):
        return {"workload": action.closing.attempt.workload_uid}
    job = action.job
    fields: dict[str, object] = {"namespace": job.namespace, "job": job.owner_name, "workload": job.name}
    return fields if isinstance(action, Adopt) else {**fields, "code": action.verdict.code.value}
