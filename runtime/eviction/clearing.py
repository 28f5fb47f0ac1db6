"""Says on a Node for which of its notices nothing of ours is left there, which its node agent tells a waiting provider.

Only notices of providers that wait for that word are said. It stops nothing and judges no notice. A word too early
takes a machine from under a job, so it is said only after it has been true for some seconds, and the pods of the node
are asked for once more; one that cannot be read counts as there. What stops being true is taken back at once.

Invariants: nothing is written by a replica that does not lead; a write that fails is no more than a warning, because
without it the machine goes at its deadline.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Collection
from typing import Final

from runtime import metrics
from runtime.errors import AgentError, NotFound, NotLeading
from runtime.eviction.notice import Certainty, Notice
from runtime.eviction.observe import Scout
from runtime.eviction.sources import ACKNOWLEDGED
from runtime.eviction.view import NodeView, PodView, View
from runtime.kube import PODS
from runtime.routing.context import Context
from runtime.routing.snapshot import Job

SETTLING_SECONDS: Final = 5.0
"""How long it must have been true, in which the other nodes of an event hear of it; and until it is tried again."""

MOST_WRITES: Final = 16
"""In one round, side by side: steps of evictions wait for the next one."""

log = logging.getLogger(__name__)


def cleared(view: View) -> dict[str, str | None]:
    """What has to be written, by node: the ids of its awaited notices if nothing of ours is left there, else None.

    A provider's event may name several machines, and begins on all of them when one says so: its id is written only
    once all that it names are known to be nodes of ours, and nothing of ours is left on any of them.
    """
    held = {pod.node for pod in view.pods if _holds(pod)}
    struck = Counter(id_ for node in view.nodes.values() for id_ in {notice.id for notice in node.notices})
    kept = {notice.id for node in view.nodes.values() if node.name in held for notice in node.notices}
    wanted: dict[str, str | None] = {}
    for name, node in sorted(view.nodes.items()):
        ids = {notice.id for notice in _awaited(node) if notice.machines <= struck[notice.id]} - kept
        text = ",".join(sorted(ids))
        if node.present and text != node.cleared:
            wanted[name] = text or None
    return wanted


class Clearing:
    """Writes it, under one configuration."""

    def __init__(self, context: Context, scout: Scout) -> None:
        self._context = context
        self._scout = scout
        self._tried: dict[tuple[str, str | None], float] = {}

    async def act(self, view: View, jobs: Collection[Job]) -> None:
        """Write what is due; what fails is due again."""
        now = self._context.clock.real_now()
        wanted = cleared(view)
        first = {(name, text): now if text else now - SETTLING_SECONDS for name, text in wanted.items()}
        self._tried = {one: self._tried.get(one, at) for one, at in first.items()}
        due = [one for one, at in self._tried.items() if now - at >= SETTLING_SECONDS][:MOST_WRITES]
        self._tried |= dict.fromkeys(due, now)
        await asyncio.gather(*(self._guarded(view.nodes[name], text, jobs) for name, text in due))

    async def _guarded(self, node: NodeView, text: str | None, jobs: Collection[Job]) -> None:
        fields = {"node": node.name, "notices": text}
        try:
            if text is not None and not await self._is_left(node, jobs):
                log.debug("the node is not left yet", extra=fields)
                return
            self._context.must_lead()
            await self._context.kube.mark_cleared(node.name, text)
        except (NotFound, NotLeading) as error:
            log.debug("a node is not marked any more", extra={**fields, "error": str(error)})
        except AgentError as error:
            metrics.errors.labels(kind=type(error).__name__).inc()
            log.warning("a node was not marked", extra={**fields, "error": str(error)})
        else:
            log.info("nothing of ours is left on the node" if text else "the mark was taken away", extra=fields)

    async def _is_left(self, node: NodeView, jobs: Collection[Job]) -> bool:
        raws = await self._context.kube.list(PODS, fields=f"spec.nodeName={node.name}")
        try:
            pods = [pod for raw in raws if (pod := self._scout.pod(raw)) is not None]
        except ValueError as error:
            log.debug("a pod cannot be read", extra={"node": node.name, "error": str(error)})
            return False
        return not any(_holds(pod) for pod in self._scout.view((), pods, jobs).pods)


def _holds(pod: PodView) -> bool:
    """Whether a pod is one of ours that has not ended."""
    return not pod.ended and (pod.workload != "" or (pod.gpus > 0 and pod.managed and not pod.daemon))


def _awaited(node: NodeView) -> list[Notice]:
    """The certain notices whose provider waits for a word."""
    return [
        notice for notice in node.notices if notice.certainty is Certainty.CERTAIN and notice.source in ACKNOWLEDGED
    ]
