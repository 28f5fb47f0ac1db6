"""Asks the API server what the caches do not say: whose the other GPU pods on a going node are, and which nodes exist.

GPU pods that are not Kueue's, and nodes that pods of ours are bound to although they are gone, are of no interest until
a notice comes. Neither is followed all the time: a watch of every pod of a cluster costs more than the few questions
that a notice brings up. Each is asked again only after a while, and only so many at a time: first those that were never
asked, then those asked longest ago, so that none starves however many nodes go.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Callable, Collection, Mapping
from typing import Final

from runtime import metrics
from runtime.errors import KubeError
from runtime.eviction.notice import Certainty
from runtime.eviction.observe import Scout
from runtime.eviction.pods import PODSET_LABEL, SeenPod
from runtime.eviction.view import NodeView
from runtime.kube import NODES, PODS, Kube
from runtime.wire import Raw

ASK_AGAIN_SECONDS: Final = 5.0
MOST_QUESTIONS: Final = 16
"""In one round; they are asked side by side, because steps wait for the answers."""

log = logging.getLogger(__name__)


class Inquiry:
    """What was asked and answered last."""

    def __init__(self, kube: Kube, scout: Scout, now: Callable[[], float]) -> None:
        self._kube = kube
        self._scout = scout
        self._now = now
        self._asked: dict[str, float] = {}
        self._strangers: dict[str, list[SeenPod]] = {}
        self._gone: set[str] = set()

    @property
    def strangers(self) -> list[SeenPod]:
        """Pods with GPUs on going nodes that are not Kueue's."""
        return [pod for pods in self._strangers.values() for pod in pods]

    @property
    def gone(self) -> Collection[str]:
        """Nodes that the API server does not have, though pods of ours are bound to them."""
        return self._gone

    async def look(self, nodes: Mapping[str, NodeView], pods: Collection[SeenPod]) -> None:
        """Ask what is not known yet, or not lately."""
        going = {
            name
            for name, node in nodes.items()
            if any(notice.certainty is Certainty.CERTAIN for notice in node.notices)
        }
        missing = {pod.view.node for pod in pods} - nodes.keys()
        self._strangers = {name: found for name, found in self._strangers.items() if name in going}
        self._gone &= missing
        wanted = going | missing
        now = self._now()
        self._asked = {name: at for name, at in self._asked.items() if name in wanted}
        due = sorted((self._asked.get(name, -math.inf), name) for name in wanted)
        asked = [name for at, name in due[:MOST_QUESTIONS] if now - at >= ASK_AGAIN_SECONDS]
        self._asked |= dict.fromkeys(asked, now)
        await asyncio.gather(*(self._look_for(name) if name in missing else self._look_on(name) for name in asked))

    async def _look_for(self, name: str) -> None:
        try:
            there = await self._kube.list(NODES, fields=f"metadata.name={name}")
        except KubeError as error:
            metrics.errors.labels(kind=type(error).__name__).inc()
            return
        if there:
            self._gone.discard(name)
        else:
            self._gone.add(name)

    async def _look_on(self, name: str) -> None:
        try:
            raws = await self._kube.list(PODS, labels=f"!{PODSET_LABEL}", fields=f"spec.nodeName={name}")
        except KubeError as error:
            metrics.errors.labels(kind=type(error).__name__).inc()
            return
        self._strangers[name] = [pod for raw in raws if (pod := self._read(raw)) is not None and pod.view.gpus > 0]

    def _read(self, raw: Raw) -> SeenPod | None:
        """The pod; None also for one whose GPUs nobody can count, which any user may write."""
        try:
            return self._scout.pod(raw)
        except ValueError as error:
            log.debug("a pod cannot be read", extra={"error": str(error)})
            return None
