"""Tells people what was decided: a condition of the Workload, an event on the job, and a line in the log.

Machines read the annotation, which runtime.routing.act writes; what is told here is never read back. So nothing that
is refused or lost here stops an action, and it is told again only when the next verdict comes.

Invariant: no event about a job is written again before something else was told of it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Final

from runtime import events, metrics
from runtime.clock import Clock, format_time
from runtime.errors import Conflict, KubeError
from runtime.events import Event
from runtime.kube import Kube
from runtime.routing.decision import Adopt, Close, Hold, Release, Requeue, SetQueue
from runtime.routing.explain import sentence
from runtime.routing.pace import JobAction
from runtime.routing.snapshot import Job, Stage
from runtime.routing.verdict import Code, Verdict
from runtime.wire import Raw
from stacks.labels import VERDICT_CONDITION

LONGEST_MESSAGE_BYTES: Final = 32_768
"""Most of a condition's message (metav1.Condition)."""

MOST_REMEMBERED: Final = 10_000
"""Jobs whose last event is remembered; a job beyond may be told twice."""

log = logging.getLogger(__name__)
Action = Close | Adopt | JobAction | SetQueue


class Teller:
    """Writes conditions and events of one agent."""

    def __init__(self, kube: Kube, clock: Clock, identity: str) -> None:
        self._kube = kube
        self._clock = clock
        self._identity = identity
        self._told: dict[str, tuple[str, str]] = {}

    async def condition(self, raw: Raw, verdict: Verdict) -> None:
        """Say the verdict in the status of the Workload, as it was written last; what is refused is only counted."""
        new = condition(raw, verdict, self._clock.real_now())
        if new is None:
            return
        metadata = raw["metadata"]
        try:
            await self._kube.write_condition(metadata["namespace"], metadata["name"], new)
        except KubeError as error:
            _lost("a condition", error)

    async def event(self, event: Event) -> None:
        """Write an event, unless it was the last one about its subject; never fails."""
        subject = event.related or event.regarding
        key = subject.uid or f"{subject.namespace}/{subject.kind}/{event.name}"
        said = (event.reason, event.detail)
        if self._told.get(key) == said:
            return
        body = events.body(event, self._identity, self._clock.real_now())
        try:
            await self._kube.create_event(event.regarding.namespace, body)
        except Conflict:
            log.debug("an event is there already", extra={"reason": event.reason})
        except KubeError as error:
            _lost("an event", error)
            return
        self._told.pop(key, None)
        self._told[key] = said
        if len(self._told) > MOST_REMEMBERED:
            del self._told[next(iter(self._told))]


def condition(raw: Raw, verdict: Verdict, real_now: float) -> Raw | None:
    """The condition that says the verdict, or None where the Workload says just that already."""
    before = _former(raw)
    status = "True" if verdict.code is Code.CLEARED else "False"
    if verdict.code in _LEAVE_IT_WHERE_IT_IS:
        status = before.get("status", status)
    new: Raw = {
        "type": VERDICT_CONDITION,
        "status": status,
        "reason": "".join(part.capitalize() for part in verdict.code.value.split("-")),
        "message": sentence(verdict).encode(errors="replace")[:LONGEST_MESSAGE_BYTES].decode(errors="ignore"),
    }
    if isinstance(generation := raw["metadata"].get("generation"), int):
        new["observedGeneration"] = generation
    if all(before.get(name) == value for name, value in new.items()):
        return None
    flipped = before.get("status") != status
    return {**new, "lastTransitionTime": format_time(real_now) if flipped else before["lastTransitionTime"]}


def event_of(action: JobAction) -> Event | None:
    """The event that goes with an action, if any."""
    job, text = action.job, sentence(action.verdict)
    if isinstance(action, Release) and job.stage is Stage.RELEASED and action.target != job.target:
        return events.retargeted(job, action.target, text)
    if isinstance(action, Hold):
        hold = _HOLDS.get(action.verdict.code)
        return hold(job, text) if hold else None
    made = _ACTIONS.get(action.verdict.code)
    return made(job, text) if made else None


def describe(action: Action) -> dict[str, object]:
    """The fields of an action in the log."""
    if isinstance(action, Close):
        return {"workload": action.closing.attempt.workload_uid}
    if isinstance(action, SetQueue):
        return {"namespace": action.namespace, "queue": action.queue}
    job = action.job
    fields: dict[str, object] = {"namespace": job.namespace, "job": job.owner_name, "workload": job.name}
    if isinstance(action, Adopt):
        return fields
    fields |= {"code": action.verdict.code.value, "stage": job.stage.value}
    return {**fields, "target": action.target} if isinstance(action, Release | Requeue) else fields


def _former(raw: Raw) -> Raw:
    for entry in (raw.get("status") or {}).get("conditions") or ():
        if entry.get("type") == VERDICT_CONDITION and isinstance(entry.get("lastTransitionTime"), str):
            found: Raw = entry
            return found
    return {}


def _lost(what: str, error: KubeError) -> None:
    metrics.errors.labels(kind=type(error).__name__).inc()
    log.debug("%s was not written", what, extra={"error": str(error)})


_LEAVE_IT_WHERE_IT_IS: Final = (Code.MOVING, Code.MOVE_WAITS, Code.MOVE_REFUSED)
_HOLDS: Final[Mapping[Code, Callable[[Job, str], Event]]] = {
    Code.BUDGET: events.held_by_budget,
    Code.NEVER_FITS: events.never_fits,
    Code.PROJECT: events.project_refused,
    Code.DATA: events.data_refused,
    Code.TAKEN_BACK: events.taken_back,
}
_ACTIONS: Final[Mapping[Code, Callable[[Job, str], Event]]] = {
    Code.RELEASED: events.released,
    Code.CLEARED: events.cleared,
    Code.RECALLED: events.recalled,
    Code.REQUEUED: events.requeued,
    Code.MOVE_REFUSED: events.not_moved,
}
