"""How a job is let into the cloud and taken back: the part of acting that would differ under another mechanism.

An `Actuator` carries out single steps. It judges nothing, asks nobody whether the step is still right, and retries
nothing. Stopping a job that holds quota, holding queues and answering the gate are the same under any mechanism, so
they are no part of it.

`TwinQueues` moves the queue label of the suspended job between its team's queue and the burst twin of one cloud flavor;
Kueue carries the label over to the Workload, but not for one that was evicted before, which is moved itself as well.
It is one merge patch for every kind of stacks.kinds.

Every step is safe to repeat and to cut off after any write:

- release: the label, then mark (and queue) of the Workload; for a job in another twin, its Workload's queue first. Cut
  off in between, the job stands in the twin without the mark, and is released there again. The mark comes last because
  a marked job in its team's queue means that somebody took it back.
- take_back: the mark of a recall, for a job that was not stopped and so is not marked yet, then the label, then in one
  patch the Workload's queue, active again, and without marks, or with one that keeps it local for a while. Cut off in
  between, a job still in the twin is taken back again; one that is home already was marked by us, so nobody else is
  blamed for its return.
- requeue: the label, then in one patch the Workload's queue, active again, with the verdict and the marker of an
  eviction that is over, for exactly the Workload that was read before. Cut off in between, the job is still inactive
  under our marker, and is requeued again.
"""

from __future__ import annotations

from typing import Protocol

from runtime.errors import Conflict
from runtime.kube import Kube, Resource, job_resource
from runtime.routing.snapshot import Job, Stage
from runtime.wire import Raw
from stacks.agent_config import AgentConfig, TeamConfig


class Actuator(Protocol):
    """Lets jobs without quota into the cloud and takes them back; `mark` is the verdict to leave on the Workload.

    Both return the Workload as it is after the last write.
    """

    async def release(self, job: Job, target: str, mark: str, version: str | None) -> Raw:
        """Let the job use one cloud flavor, whether it waits for local GPUs or was released to another flavor.

        `version` is the Workload's as it was judged, given where another flavor might take it meanwhile.

        Raises:
            Conflict: when it changed since, or the flavor cannot be used; nothing was moved.
        """
        ...

    async def take_back(self, job: Job, mark: str, last_mark: str | None) -> Raw:
        """Let the job use local GPUs alone, active if it was stopped; `last_mark` replaces all marks of ours."""
        ...

    async def requeue(
        self, job: Job, target: str | None, mark: str, marker: str, version: str, *, moved: bool = False
    ) -> Raw:
        """Let a job that was evicted run again: on a cloud flavor, or on local GPUs where no flavor is given.

        `moved` says that an administrator's wish for another flavor is over.

        Raises:
            Conflict: when its Workload changed since `version`, or the flavor cannot be used.
        """
        ...


class TwinQueues:
    """Moves jobs between the queues of one configuration."""

    def __init__(self, kube: Kube, config: AgentConfig) -> None:
        self._kube = kube
        self._teams = config.teams

    async def release(self, job: Job, target: str, mark: str, version: str | None) -> Raw:
        """Move the job to its team's twin of the flavor."""
        queue = self._team(job).burst_queues.get(target)
        if queue is None:
            raise Conflict(f"team {job.team} has no burst twin for flavor {target!r} in the present configuration")
        if version is not None:
            # Kueue accepts a label at any time; only the Workload says no once quota of the other flavor is reserved.
            await self._kube.patch_workload(job.namespace, job.name, resource_version=version, queue=queue)
        await self._kube.set_queue(_resource(job), job.namespace, job.owner_name, queue)
        moved = None if job.released_quota_at is None else queue
        return await self._kube.patch_workload(job.namespace, job.name, verdict=mark, queue=moved)

    async def take_back(self, job: Job, mark: str, last_mark: str | None) -> Raw:
        """Move the job to its team's queue, or to that of its class's window."""
        queue = self._home(job)
        resource = _resource(job)
        stopped = job.stage is Stage.RECALLING
        if not stopped:
            await self._kube.patch_workload(job.namespace, job.name, verdict=mark)
        await self._kube.set_queue(resource, job.namespace, job.owner_name, queue)
        active = True if stopped else None
        return await self._kube.patch_workload(
            job.namespace, job.name, clear_marks=True, verdict=last_mark, queue=queue, active=active
        )

    async def requeue(
        self, job: Job, target: str | None, mark: str, marker: str, version: str, *, moved: bool = False
    ) -> Raw:
        """Move the job to the twin of the flavor or to its own queue, and make it active."""
        team = self._team(job)
        queue = self._home(job) if target is None else team.burst_queues.get(target)
        if queue is None:
            raise Conflict(f"team {job.team} has no burst twin for flavor {target!r} in the present configuration")
        if target is not None or queue != job.queue:
            # Also where the Workload stands there already: an attempt that was cut off may have left another label.
            await self._kube.set_queue(_resource(job), job.namespace, job.owner_name, queue)
        return await self._kube.patch_workload(
            job.namespace,
            job.name,
            verdict=mark,
            eviction=marker,
            clear_move=moved,
            queue=queue,
            active=True,
            resource_version=version,
        )

    def _home(self, job: Job) -> str:
        team = self._team(job)
        return team.window_queues.get(job.job_class, team.queue)

    def _team(self, job: Job) -> TeamConfig:
        team = self._teams.get(job.team)
        if team is None:
            raise Conflict(f"team {job.team!r} is not in the present configuration")
        return team


def _resource(job: Job) -> Resource:
    resource = job_resource(job.owner_version, job.owner_kind)
    if resource is None:
        raise Conflict(f"{job.owner_kind} of {job.owner_version} stays local: Kueue never lets its queue change")
    return resource
