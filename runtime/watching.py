"""Everything that the agent watches under one configuration, and the snapshot that follows from it.

A new configuration can change which objects are ours, so it gets caches of its own: they fill while the former ones go
on serving, and the agent changes over when they are complete. Workloads are needed before anything is decided. Of the
others a first answer is awaited, be it a refusal; what cannot be read is taken as the fleet file says.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from dataclasses import replace
from typing import NamedTuple, TypeVar

from runtime.cache import Cache, Source
from runtime.clock import Clock
from runtime.cost.ledger import Books
from runtime.eviction.observe import Scout, SeenNode
from runtime.eviction.pods import PODSET_LABEL, SeenPod
from runtime.eviction.view import NodeView
from runtime.gatekeeper import Check, our_check
from runtime.kube import ADMISSION_CHECKS, LOCAL_QUEUES, NODES, PODS, RESOURCE_FLAVORS, WORKLOADS, Kube
from runtime.relayout.view import LayoutNode, layout_node, pools_of
from runtime.routing.history import History
from runtime.routing.observe import Observer, Report, snapshot
from runtime.routing.snapshot import Job, Snapshot
from runtime.routing.surroundings import CloudPod, LocalNode, Queue, Surveyor
from runtime.wire import Raw
from stacks.agent_config import AgentConfig
from stacks.labels import FLAVOR_LABEL

Value = TypeVar("Value")


class _Node(NamedTuple):
    local: LocalNode | None
    seen: SeenNode | None
    layout: LayoutNode | None


class _Pod(NamedTuple):
    cloud: CloudPod | None
    seen: SeenPod | None


class Watching:
    """The caches; `run` keeps them until cancelled."""

    def __init__(self, kube: Kube, config: AgentConfig, clock: Clock, report: Report, changed: asyncio.Event) -> None:
        self.config = config
        self._clock = clock
        self.observer = Observer(config, clock, report)
        surveyor = self._surveyor = Surveyor(config)
        self.scout = Scout(config, clock)
        self._jobs: Cache[Job] = Cache(kube, WORKLOADS, self.observer.reduce_any, changed)
        self._checks: Cache[Check] = Cache(kube, ADMISSION_CHECKS, our_check(config.gate), changed)
        self._queues: Cache[Queue] = Cache(kube, LOCAL_QUEUES, surveyor.queue, changed)
        self._flavors: Cache[str] = Cache(kube, RESOURCE_FLAVORS, surveyor.flavor, changed)
        self._nodes: Cache[_Node] = Cache(kube, Source(NODES, labels=FLAVOR_LABEL), self._node, changed)
        self._pods: Cache[_Pod] = Cache(kube, Source(PODS, labels=PODSET_LABEL), self._pod, changed)

    async def run(self) -> None:
        """Keep every cache until cancelled."""
        async with asyncio.TaskGroup() as group:
            for cache in (self._jobs, self._checks, self._queues, self._flavors, self._nodes, self._pods):
                group.create_task(cache.run())

    @property
    def listed(self) -> bool:
        """Whether the Workloads are known."""
        return self._jobs.synced.is_set()

    @property
    def complete(self) -> bool:
        """Whether all is known that will be known soon."""
        others = (self._checks, self._queues, self._flavors, self._nodes, self._pods)
        return self.listed and all(cache.tried.is_set() for cache in others)

    @property
    def jobs(self) -> Collection[Job]:
        """Every job that asks for whole GPUs."""
        return [job for job in self._jobs.values() if job.gpus]

    @property
    def jobs_on_parts(self) -> Collection[Job]:
        """Every job that asks for slices or shares of GPUs alone: it is Kueue's, until its node goes."""
        return [job for job in self._jobs.values() if not job.gpus]

    @property
    def checks(self) -> Collection[Check] | None:
        """Our AdmissionCheck, if there is one; None where it is not known."""
        return self._checks.values() if self._checks.synced.is_set() else None

    @property
    def nodes(self) -> Collection[NodeView]:
        """Every node of the fleet."""
        return [self.scout.present(node.seen) for node in self._nodes.values() if node.seen is not None]

    @property
    def layouts(self) -> Collection[LayoutNode]:
        """Every node of a pool with MIG, and every other on which a change of the layout was begun."""
        return [node.layout for node in self._nodes.values() if node.layout is not None]

    @property
    def pods(self) -> Collection[SeenPod]:
        """Every pod that Kueue let start and that is bound to a node."""
        return [pod.seen for pod in self._pods.values() if pod.seen is not None]

    @property
    def missing_flavors(self) -> frozenset[str]:
        """The cloud flavors that Kueue does not have."""
        return self._surveyor.missing_flavors(_known(self._flavors))

    def snapshot(self, books: Books | None, history: History) -> Snapshot:
        """What is seen now."""
        jobs = tuple(self.jobs)
        nodes, pods = _known(self._nodes), _known(self._pods)
        around = self._surveyor.survey(
            jobs,
            nodes=None if nodes is None else [node.local for node in nodes if node.local is not None],
            queues=_known(self._queues),
            pods=None if pods is None else [pod.cloud for pod in pods if pod.cloud is not None],
        )
        return snapshot(jobs, books, history, around)

    def _node(self, raw: Raw) -> _Node | None:
        layout = layout_node(raw, pools_of(self.config), self._clock.real_now())
        # A kubelet writes its node all the time; the version alone is no news.
        layout = layout and replace(layout, version="")
        node = _Node(self._surveyor.node(raw), self.scout.node(raw), layout)
        return None if node == (None, None, None) else node

    def _pod(self, raw: Raw) -> _Pod | None:
        pod = _Pod(self._surveyor.pod(raw), self.scout.pod(raw))
        return None if pod == (None, None) else pod


def _known(cache: Cache[Value]) -> Collection[Value] | None:
    return cache.values() if cache.synced.is_set() else None
