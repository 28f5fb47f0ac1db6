"""Looks at jobs in a cluster, again and again, until a drill knows what became of them.

It reads each Workload by its name and the pods of the namespaces concerned, so its cost goes by the jobs of the drill
and not by the size of the fleet. It writes nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, Final

from infra.chaos.nodes import Target
from infra.chaos.tale import LOST, MISSED, Look, Outcome, Tale
from infra.commands.cluster import Cluster
from runtime.errors import Expired, KubeError, NotFound, Unreachable
from runtime.eviction.observe import Scout
from runtime.eviction.pods import PODSET_LABEL
from runtime.eviction.view import PodView
from runtime.kube import PODS, WORKLOADS, Kube, job_resource
from runtime.routing.snapshot import Job
from runtime.routing.workload import conditions_of

_PARALLEL_READS: Final = 16
_SUCCEEDED: Final = "Succeeded"
"""Reason of the condition Finished (Kueue v1beta2)."""


async def running_gpu_pods(cluster: Cluster, nodes: Iterable[str]) -> list[PodView]:
    """The pods of the fleet's jobs that run with GPUs on these nodes, each with the name of its Workload."""
    wanted = set(nodes)
    return [
        pod
        for pod in await _pods(cluster, None, [seen.job for seen in await cluster.jobs()])
        if pod.node in wanted and pod.gpus and pod.running and pod.workload and not pod.daemon
    ]


class Follower:
    """The jobs of one drill."""

    def __init__(self, cluster: Cluster, tales: list[Tale], notices: Collection[str], nodes: Collection[str]) -> None:
        self._cluster = cluster
        self._notices = frozenset(notices)
        self._nodes = frozenset(nodes)
        self._limit = asyncio.Semaphore(_PARALLEL_READS)
        self.tales = tales

    @classmethod
    async def of(
        cls, cluster: Cluster, targets: Collection[Target], notices: Collection[str], *, certain: bool
    ) -> Follower:
        """Everything that runs with GPUs on the targets."""
        names = {target.name for target in targets}
        where: dict[tuple[str, str], set[str]] = {}
        for pod in await running_gpu_pods(cluster, names):
            where.setdefault((pod.namespace, pod.workload), set()).add(pod.node)
        jobs = {(seen.job.namespace, seen.job.name): seen.job for seen in await cluster.jobs()}
        found = [(jobs[key], tuple(sorted(nodes))) for key, nodes in sorted(where.items()) if key in jobs]
        failed = await asyncio.gather(*(failed_pods(cluster.kube, job) for job, _ in found))
        tales = [
            Tale(job, nodes, certain, failed_before=count) for (job, nodes), count in zip(found, failed, strict=True)
        ]
        return cls(cluster, tales, notices, names)

    @property
    def settled(self) -> bool:
        """Whether nothing more is to happen."""
        return all(tale.settled for tale in self.tales)

    @property
    def lost(self) -> list[Tale]:
        """The jobs that the drill has cost, as it stands."""
        return [tale for tale in self.tales if tale.outcome in LOST]

    @property
    def missed(self) -> list[Tale]:
        """The jobs that nobody moved, as it stands."""
        return [tale for tale in self.tales if tale.outcome in MISSED]

    async def look(self, now: Callable[[], float]) -> None:
        """Look once at every job; an API server that does not answer is asked again at the next look."""
        try:
            raws = await asyncio.gather(*(self._workload(tale) for tale in self.tales))
            seen = [None if raw is None else self._cluster.read(raw) for raw in raws]
            jobs = [one.job for one in seen if one is not None]
            gpus = await self._running_gpus(jobs)
        except (Unreachable, Expired):
            return
        at = now()
        for tale, raw, one in zip(self.tales, raws, seen, strict=True):
            if raw is not None and one is None:
                continue  # not readable in this moment, which says nothing of the job
            job = None if one is None or one.job.uid != tale.job.uid else one.job
            running = job is not None and gpus.get((job.namespace, job.name), 0) >= job.gpus
            look = Look(at, job, running, failed=raw is not None and _has_failed(raw))
            tale.see(look, self._notices, self._nodes)

    async def count_failures(self) -> None:
        """Read how many pods of each job count as failed now."""
        counts = await asyncio.gather(*(failed_pods(self._cluster.kube, tale.job) for tale in self.tales))
        for tale, count in zip(self.tales, counts, strict=True):
            tale.failed_after = count

    async def _workload(self, tale: Tale) -> dict[str, Any] | None:
        async with self._limit:
            try:
                return await self._cluster.kube.get(WORKLOADS, tale.job.name, tale.job.namespace)
            except NotFound:
                return None

    async def _running_gpus(self, jobs: Collection[Job]) -> Mapping[tuple[str, str], int]:
        """GPUs of running pods by namespace and name of the Workload, of jobs that may run again."""
        moved = {tale.job.uid for tale in self.tales if tale.outcome in (Outcome.STOPPED, Outcome.QUEUED)}
        moved |= {tale.job.uid for tale in self.tales if tale.attempts}
        meant = [job for job in jobs if job.flavor is not None and job.uid in moved]
        found: dict[tuple[str, str], int] = {}
        for namespace in sorted({job.namespace for job in meant}):
            for pod in await _pods(self._cluster, namespace, meant):
                if pod.running and not pod.leaving and pod.workload:
                    key = pod.namespace, pod.workload
                    found[key] = found.get(key, 0) + pod.gpus
        return found


async def failed_pods(kube: Kube, job: Job) -> int | None:
    """How much of its backoffLimit a Job has spent; None for other kinds of jobs, and where it cannot be read."""
    resource = job_resource(job.owner_version, job.owner_kind)
    if resource is None or job.owner_kind != "Job":
        return None
    try:
        raw = await kube.get(resource, job.owner_name, job.namespace)
    except KubeError:
        return None
    return int((raw.get("status") or {}).get("failed") or 0)


async def _pods(cluster: Cluster, namespace: str | None, jobs: Collection[Job]) -> list[PodView]:
    """Pods that Kueue let start and that are bound to a node, with the names of their Workloads."""
    scout = Scout(cluster.config, cluster.clock)
    raws = await cluster.kube.list(PODS, namespace, labels=PODSET_LABEL)
    seen = [pod for raw in raws if (pod := scout.pod(raw)) is not None]
    return [pod for pod in scout.view([], seen, jobs).pods if not pod.ended]


def _has_failed(raw: Mapping[str, Any]) -> bool:
    finished = conditions_of(raw.get("status") or {}).get("Finished", {})
    return finished.get("status") == "True" and finished.get("reason") != _SUCCEEDED
