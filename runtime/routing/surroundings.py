"""What the agent sees besides jobs: local nodes, queues, cloud flavors, and pods that are still on cloud nodes.

Each object is reduced to a few bytes, and what cannot be read counts as not there. Nothing here is needed to keep
local work going: where a collection cannot be read, the fleet file is believed instead.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from runtime.eviction.pods import WORKLOAD_ANNOTATION
from runtime.routing.requests import whole
from runtime.routing.snapshot import Job
from stacks.agent_config import AgentConfig
from stacks.labels import AGENT_DRAIN_TAINT, DRAIN_TAINT, FLAVOR_LABEL, GPU_RESOURCE

Raw = Mapping[str, Any]


class LocalNode(NamedTuple):
    """A node of a local flavor; one that takes no pods counts with no GPUs."""

    flavor: str
    gpus: int


class Queue(NamedTuple):
    """A LocalQueue of ours. Kueue calls it active only if its ClusterQueue is, too."""

    name: str
    active: bool
    held: bool


class CloudPod(NamedTuple):
    """A pod that takes or may take a cloud node."""

    owner_uid: str
    namespace: str
    workload: str


@dataclass(frozen=True, slots=True)
class Surroundings:
    """All of it at one moment, in the terms of Snapshot."""

    capacity: Mapping[str, int] = field(default_factory=dict)
    broken_queues: frozenset[str] = frozenset()
    held_queues: frozenset[str] = frozenset()
    lingering: frozenset[str] = frozenset()


class Surveyor:
    """Reduces nodes, queues, flavors and pods for one fleet."""

    def __init__(self, config: AgentConfig) -> None:
        self._local = {name: name for name, flavor in config.flavors.items() if not flavor.cloud}
        self._cloud = {name: name for name, flavor in config.flavors.items() if flavor.cloud}
        self._namespaces = {team.namespace: team.namespace for team in config.teams.values()}
        self._twins = {queue for team in config.teams.values() for queue in team.burst_queues.values()}
        self._windows = {queue for team in config.teams.values() for queue in team.window_queues.values()}
        self._queues = {
            (team.namespace, queue): queue
            for team in config.teams.values()
            for queue in (*team.burst_queues.values(), *team.window_queues.values())
        }

    def node(self, raw: Raw) -> LocalNode | None:
        """A node of a local flavor."""
        metadata, spec, status = _parts(raw)
        flavor = self._local.get(str(_mapping(metadata.get("labels")).get(FLAVOR_LABEL)))
        if flavor is None:
            return None
        drained = any(taint.get("key") in (DRAIN_TAINT, AGENT_DRAIN_TAINT) for taint in _list(spec.get("taints")))
        usable = _is_true(status, "Ready") and not spec.get("unschedulable") and not drained
        try:
            gpus = whole(_mapping(status.get("allocatable")).get(GPU_RESOURCE, 0))
        except ValueError:
            gpus = 0
        return LocalNode(flavor, gpus if usable else 0)

    def queue(self, raw: Raw) -> Queue | None:
        """A burst twin or a window's queue."""
        metadata, spec, status = _parts(raw)
        name = self._queues.get((str(metadata.get("namespace")), str(metadata.get("name"))))
        if name is None:
            return None
        return Queue(name, _is_true(status, "Active"), spec.get("stopPolicy") in ("Hold", "HoldAndDrain"))

    def flavor(self, raw: Raw) -> str | None:
        """The name of a cloud flavor."""
        return self._cloud.get(str(_parts(raw)[0].get("name")))

    def pod(self, raw: Raw) -> CloudPod | None:
        """A pod of one of our namespaces, not finished, that must run on a cloud flavor or on one we do not know."""
        metadata, spec, status = _parts(raw)
        namespace = self._namespaces.get(str(metadata.get("namespace")))
        flavor = _mapping(spec.get("nodeSelector")).get(FLAVOR_LABEL)
        if namespace is None or flavor is None or flavor in self._local:
            return None
        if status.get("phase") in ("Succeeded", "Failed"):
            return None
        owners = [owner for owner in _list(metadata.get("ownerReferences")) if owner.get("controller")]
        workload = _mapping(metadata.get("annotations")).get(WORKLOAD_ANNOTATION)
        owner_uid = str(owners[0].get("uid")) if owners else ""
        return CloudPod(owner_uid, namespace, workload if isinstance(workload, str) else "")

    def survey(
        self,
        jobs: Iterable[Job],
        *,
        nodes: Collection[LocalNode] | None,
        queues: Collection[Queue] | None,
        pods: Collection[CloudPod] | None,
    ) -> Surroundings:
        """Put the reduced objects together; None stands for a collection that could not be read yet."""
        capacity: dict[str, int] = defaultdict(int)
        for node in nodes or ():
            capacity[node.flavor] += node.gpus
        active = {queue.name for queue in queues or () if queue.active}
        held = {queue.name for queue in queues or () if queue.held}
        return Surroundings(
            capacity=dict(capacity),
            broken_queues=frozenset() if queues is None else frozenset(self._twins - active),
            held_queues=frozenset(self._windows & held),
            lingering=_owners(pods or (), jobs),
        )

    def missing_flavors(self, seen: Collection[str] | None) -> frozenset[str]:
        """The cloud flavors that Kueue does not have."""
        return frozenset() if seen is None else frozenset(self._cloud.keys() - set(seen))


def _owners(pods: Collection[CloudPod], jobs: Iterable[Job]) -> frozenset[str]:
    """Pods of kinds that work through children name a child as their owner; their Workload leads to the job itself."""
    found = {pod.owner_uid for pod in pods if pod.owner_uid}
    if named := {(pod.namespace, pod.workload) for pod in pods if pod.workload}:
        found |= {job.owner_uid for job in jobs if (job.namespace, job.name) in named}
    return frozenset(found)


def _parts(raw: Raw) -> tuple[Raw, Raw, Raw]:
    return _mapping(raw.get("metadata")), _mapping(raw.get("spec")), _mapping(raw.get("status"))


def _mapping(value: object) -> Raw:
    return value if isinstance(value, dict) else {}


def _list(value: object) -> list[Raw]:
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def _is_true(status: Raw, kind: str) -> bool:
    return any(
        condition.get("type") == kind and condition.get("status") == "True"
        for condition in _list(status.get("conditions"))
    )
