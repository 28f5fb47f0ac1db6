"""Who gets free GPUs: Kueue's rounds of admission, as far as they decide who is next.

In each round every team puts forward the first of its jobs that fits, by priority and age across its queues; a job that
does not fit is passed over. What fits into a team's own quota goes before what is borrowed. Local flavors are tried
first, then, for a job in a twin, the cloud flavor of that twin. Held queues stand still. Preemption and fair shares are
left out.

Invariant: nothing is given that the quota does not have.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator

from runtime.routing.local import suits
from runtime.routing.snapshot import Job, Stage
from runtime.simulation.floor import Floor, order
from stacks.agent_config import AgentConfig

_Shape = tuple[str, str | None, str | None]


class Admission:
    """Kueue's rounds over one floor."""

    def __init__(self, floor: Floor, config: AgentConfig) -> None:
        self._floor = floor
        self._flavors = config.flavors
        self._local = [name for name, flavor in config.flavors.items() if not flavor.cloud]

    def admit(self, moment: float, held: Collection[str]) -> bool:
        """Give free GPUs to whom Kueue would give them; whether a job got some that was released to the cloud."""
        queues: dict[str, list[Job]] = defaultdict(list)
        for job in self._floor.waiting():
            if job.stage is not Stage.AT_GATE and job.queue not in held:
                queues[job.team].append(job)
        heads = {team: iter(sorted(jobs, key=order)) for team, jobs in sorted(queues.items())}
        refused: dict[_Shape, int] = {}
        released = False
        while heads:
            found = {team: self._next_that_fits(jobs, refused) for team, jobs in heads.items()}
            heads = {team: jobs for team, jobs in heads.items() if found[team] is not None}
            nominees = sorted((one for one in found.values() if one), key=lambda one: (one[0], order(one[1])))
            for _, job in nominees:
                if (place := self._place(job)) is not None:
                    released |= job.stage is Stage.RELEASED
                    self._floor.reserve(job, place[1], moment)
        return released

    def _next_that_fits(self, jobs: Iterator[Job], refused: dict[_Shape, int]) -> tuple[int, Job] | None:
        """The next of a team's jobs that fits, and how; what is as large as one that did not is passed over."""
        for job in jobs:
            shape = (job.team, job.gpu, job.target)
            if job.gpus >= refused.get(shape, job.gpus + 1):
                continue
            if (place := self._place(job)) is not None:
                return place[0], job
            refused[shape] = job.gpus
        return None

    def _place(self, job: Job) -> tuple[int, str] | None:
        """The first flavor with room for the job, and whether it is borrowed."""
        names = [name for name in self._local if suits(job, self._flavors[name])]
        if job.stage is Stage.RELEASED and job.target is not None:
            names.append(job.target)
        for name in names:
            if (level := self._floor.quota.level(job.team, name, job.gpus)) is not None:
                return level, name
        return None
