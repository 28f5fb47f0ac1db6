"""One round of changes of MIG layouts: see which nodes are to have another one, plan, carry out.

It looks at the nodes that are watched anyway. Where there is a step to take, the nodes of pools with MIG are read anew
and planned from again, because a cache that is a moment behind would let one node too many begin. Where no pool has a
layout and no node carries a record of ours, it costs nothing.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Final

from runtime import metrics
from runtime.clock import Clock
from runtime.errors import KubeError
from runtime.events import Event
from runtime.kube import NODES, Kube
from runtime.relayout.act import Changer, described
from runtime.relayout.alarms import layout_alarms
from runtime.relayout.plan import DEFAULT_TERMS, Change, LayoutTerms, is_out, plan
from runtime.relayout.record import Phase
from runtime.relayout.view import LayoutNode, LayoutView, layout_node, pools_of
from runtime.routing.alarms import Alarm
from stacks.agent_config import AgentConfig
from stacks.labels import FLAVOR_LABEL

LOOK_AGAIN_SECONDS: Final = 2.0
"""Real seconds between two readings of nodes: one that is not empty yet, or not steady, wants a step all the time."""

log = logging.getLogger(__name__)


class Relayouts:
    """Changes of layouts under whatever configuration is in force."""

    def __init__(self, kube: Kube, clock: Clock, leading: Callable[[], bool]) -> None:
        self._kube = kube
        self._clock = clock
        self._changer = Changer(kube, leading)
        self._looked_at = float("-inf")
        self._rehearsed: list[dict[str, str]] = []
        self._counted = False
        self.under_way = False
        self.alarms: Collection[Alarm] = ()

    async def tick(self, nodes: Iterable[LayoutNode], config: AgentConfig, tell: Callable[[Event], None]) -> None:
        """Take the next steps, and see what is wrong; never fails."""
        try:
            await self.round(tuple(nodes), config, tell)
        except Exception as error:
            # The guard of one round: whatever is odd about a node keeps no job from being routed.
            metrics.errors.labels(kind=type(error).__name__).inc()
            log.exception("a round of layouts failed; the next one starts afresh")

    async def round(self, nodes: Sequence[LayoutNode], config: AgentConfig, tell: Callable[[Event], None]) -> None:
        """As `tick`, but what goes wrong goes wrong."""
        view, now = self._view(nodes, config), self._clock.real_now()
        self._count(view)
        self.alarms = tuple(layout_alarms(view, now))
        self.under_way = any(map(is_out, view.nodes))
        if not view.nodes or not (steps := plan(view, now, _terms(config))):
            return
        if config.dry_run:
            self._rehearse(steps)
        elif not 0 <= now - self._looked_at < LOOK_AGAIN_SECONDS:
            self._looked_at = now
            await self._act(config, tell)

    async def _act(self, config: AgentConfig, tell: Callable[[Event], None]) -> None:
        try:
            raws = await self._kube.list(NODES, labels=FLAVOR_LABEL)
        except KubeError as error:
            metrics.errors.labels(kind=type(error).__name__).inc()
            log.warning("nodes cannot be read; no layout is changed", extra={"error": str(error)})
            return
        now, pools = self._clock.real_now(), pools_of(config)
        nodes = [node for raw in raws if (node := layout_node(raw, pools, now)) is not None]
        await self._changer.act(plan(self._view(nodes, config), now, _terms(config)), tell)

    def _view(self, nodes: Sequence[LayoutNode], config: AgentConfig) -> LayoutView:
        layouts = config.gpu_layouts
        if layouts is None:
            return LayoutView(nodes, {}, most_nodes=0, open=False)
        moment = datetime.fromtimestamp(self._clock.now(), UTC)
        is_open = not layouts.windows or any(window.contains(moment) for window in layouts.windows)
        return LayoutView(nodes, layouts.pools, layouts.most_nodes, is_open)

    def _count(self, view: LayoutView) -> None:
        """Set how many nodes of each pool are in which phase."""
        if not (self._counted or view.nodes):
            return
        self._counted = bool(view.nodes)
        found = Counter((node.pool, node.record.phase) for node in view.nodes if node.record is not None)
        for pool in view.pools:
            for phase in Phase:
                metrics.layout_nodes.labels(pool=pool, phase=phase.value).set(found[pool, phase])

    def _rehearse(self, steps: Sequence[Change]) -> None:
        said = [described(step) for step in steps]
        for fields in said:
            if fields not in self._rehearsed:
                log.info("would change a layout", extra=fields)
        self._rehearsed = said


def _terms(config: AgentConfig) -> LayoutTerms:
    """In a replay nodes are pretended, and no kubelet of theirs renews a ConfigMap."""
    return replace(DEFAULT_TERMS, settle_seconds=DEFAULT_TERMS.settle_seconds / config.replay_speed)
