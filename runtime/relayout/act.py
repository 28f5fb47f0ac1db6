"""Carries out steps of changes of layouts: one patch each, which holds only for the version that was planned from.

Whether a node is empty is asked of the API server itself, right before its label changes. It judges nothing else, and
what fails is planned again.

Invariant: nothing is written by a replica that does not lead; what one node raises keeps no other from its step.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence

from runtime import events, metrics
from runtime.errors import AgentError, Conflict, NotFound, NotLeading
from runtime.events import Event
from runtime.eviction.drains import Drain, holders
from runtime.eviction.notice import NoticeKind
from runtime.kube import Kube
from runtime.relayout.alarms import sentence
from runtime.relayout.plan import Change
from runtime.wire import Raw
from stacks.labels import AGENT_DRAIN_TAINT, MIG_STATE_LABEL
from stacks.layouts import MIG_CONFIG_LABEL

log = logging.getLogger(__name__)


class Changer:
    """Carries out steps; `tell` writes an event for people, and never fails."""

    def __init__(self, kube: Kube, leading: Callable[[], bool]) -> None:
        self._kube = kube
        self._leading = leading
        self._waits: dict[str, list[str]] = {}

    async def act(self, steps: Sequence[Change], tell: Callable[[Event], None]) -> None:
        """Carry out everything, one after the other."""
        waits, self._waits = self._waits, {}
        for step in steps:
            fields = described(step)
            try:
                await self._carry_out(step, waits, tell)
            except (Conflict, NotFound, NotLeading) as error:
                log.debug("planned anew", extra={**fields, "error": str(error)})
            except AgentError as error:
                metrics.errors.labels(kind=type(error).__name__).inc()
                log.warning("a layout was not changed", extra={**fields, "error": str(error)})

    async def _carry_out(self, step: Change, waits: Mapping[str, list[str]], tell: Callable[[Event], None]) -> None:
        node = step.node
        if step.label is not None and (still := await holders(self._kube, node.name)):
            self._waits[node.name] = still
            if waits.get(node.name) != still:
                log.info("a node is not empty yet", extra={**described(step), "pods": still[:10]})
            return
        if not self._leading():
            raise NotLeading("the lease was lost before the write")
        await self._kube.change_layout(
            node.name,
            node.version,
            record=None if step.record is None else step.record.to_json(),
            taints=_taints(step),
            labels={} if step.label is None else {MIG_CONFIG_LABEL: step.label, MIG_STATE_LABEL: None},
        )
        log.info("layout", extra=described(step))
        if step.outcome:
            metrics.layout_changes.labels(pool=node.pool, outcome=step.outcome).inc()
            tell(events.layout_changed(node.name, step.outcome, sentence(step)))


def described(step: Change) -> dict[str, str]:
    """The step, for logs: the same for each plan that wants the same."""
    record = step.record
    fields = {"node": step.node.name, "pool": step.node.pool, "phase": "done" if record is None else record.phase.value}
    if step.label is not None:
        fields["label"] = step.label
    if record is not None:
        fields |= {"layout": record.target, "reason": record.reason}
    return {name: text for name, text in fields.items() if text}


def _taints(step: Change) -> list[Raw]:
    """The node's taints, with ours or without."""
    others = [dict(taint) for taint in step.node.taints if taint.get("key") != AGENT_DRAIN_TAINT]
    if not step.tainted or step.record is None:
        return others
    if step.node.tainted:
        return [dict(taint) for taint in step.node.taints]
    value = Drain(NoticeKind.LAYOUT, step.record.since).value
    return [*others, {"key": AGENT_DRAIN_TAINT, "value": value, "effect": "NoSchedule"}]
