"""What carrying out actions needs of the rest of the agent, and the two questions asked before a write.

The questions are whether this replica still leads, and whether a job still is what it was when it was judged.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from runtime.clock import Clock
from runtime.errors import NotLeading
from runtime.kube import WORKLOADS, Kube
from runtime.routing.snapshot import Job
from runtime.store import Store
from runtime.wire import Raw
from stacks.agent_config import AgentConfig


@dataclass(frozen=True, slots=True)
class Context:
    """What acting needs of the rest of the agent; another configuration needs another one."""

    kube: Kube
    store: Store
    clock: Clock
    config: AgentConfig
    identity: str
    leading: Callable[[], bool]
    reduce: Callable[[Raw], Job | None]

    def must_lead(self) -> None:
        """Stop here if another replica may lead.

        Raises:
            NotLeading: when the lease is lost.
        """
        if not self.leading():
            raise NotLeading("the lease was lost before the write")

    async def as_decided(self, job: Job) -> Raw | None:
        """The Workload as it is now, if all that the decision was made from still holds, else None.

        The copy that was decided upon may be minutes old if a watch hangs: a job that moved on is neither paid for in
        another shape than the one that was judged, nor moved or stopped.
        """
        raw = await self.kube.get(WORKLOADS, job.name, job.namespace)
        try:
            now = self.reduce(raw)
        except ValueError:
            return None
        return raw if now is not None and _essence(now) == _essence(job) else None


def _essence(job: Job) -> tuple[object, ...]:
    return (
        job.uid, job.stage, job.attempt, job.flavor, job.gpus, job.pod_gpus, job.max_seconds, job.team, job.job_class,
        job.queue, job.target, job.project, job.data_bytes, None if job.move is None else job.move.id,
    )  # fmt: skip
