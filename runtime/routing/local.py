"""Room on local GPUs: whether a job would fit there now, and whether it ever can.

Kueue decides who gets local GPUs; this is only our own reckoning of it, by the team's quota, what it may borrow, what
others lend, and the GPUs of ready nodes. It is used to let jobs that can never fit leave at once, to take a job back
from the gate when local GPUs become free, and to count cloud starts that a free local GPU would have spared. It counts
whole GPUs and knows nothing of cores, memory or how free GPUs are spread over nodes, so Kueue may say no where this
says yes.

Invariant: a job for which `ever_fits` is False fits at no moment, as long as configuration and nodes stay.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping

from runtime.routing.snapshot import Job, Stage
from stacks.agent_config import AgentConfig, FlavorConfig, TeamConfig


def is_local(job: Job, config: AgentConfig) -> bool:
    """Whether the job holds quota of a local flavor."""
    flavor = config.flavors.get(job.flavor) if job.flavor is not None else None
    return flavor is not None and not flavor.cloud


class LocalRoom:
    """Local quota and GPUs as of one snapshot."""

    def __init__(self, config: AgentConfig, capacity: Mapping[str, int]) -> None:
        self._teams = config.teams
        self._flavors = {name: flavor for name, flavor in config.flavors.items() if not flavor.cloud}
        self._gpus = {name: min(flavor.gpus, capacity.get(name, flavor.gpus)) for name, flavor in self._flavors.items()}
        self._used: dict[str, dict[str, int]] = {name: defaultdict(int) for name in self._flavors}
        self._freed_at = float("-inf")

    def count(self, job: Job) -> None:
        """Count what the job holds, or notice that it gave it back."""
        if job.flavor not in self._used:
            return
        if job.stage is Stage.FINISHED:
            if job.released_quota_at is not None:
                self._freed_at = max(self._freed_at, job.released_quota_at)
        else:
            self._used[job.flavor][job.team] += job.gpus

    def freed_since(self, moment: float) -> bool:
        """Whether a local job has ended since then."""
        return self._freed_at >= moment

    def fits(self, job: Job) -> bool:
        """Whether some local flavor has room for the job now, its team's own quota or others' idle one."""
        team = self._teams.get(job.team)
        return team is not None and any(
            job.gpus <= self._free(team, job.team, name) for name in self._suitable(job, team)
        )

    def ever_fits(self, job: Job) -> bool:
        """Whether some local flavor would have room for the job if nobody else used it."""
        team = self._teams.get(job.team)
        return team is not None and any(
            job.gpus <= min(self._gpus[name], _most(team, name, self._lent(job.team, name, idle=True)))
            for name in self._suitable(job, team)
        )

    def any_fits(self, jobs: Iterable[Job]) -> bool:
        """Whether any of these jobs fits now; jobs of one shape are looked at once."""
        shapes = {(job.team, job.gpus, job.pod_gpus, job.gpu): job for job in jobs}
        return any(self.fits(job) for job in shapes.values())

    def _suitable(self, job: Job, team: TeamConfig) -> list[str]:
        return [
            name
            for name, flavor in self._flavors.items()
            if job.pod_gpus <= flavor.gpus_per_node
            and suits(job, flavor)
            and (name in team.quota or team.borrow.get(name, 1))
        ]

    def _free(self, team: TeamConfig, name: str, flavor: str) -> int:
        used = self._used[flavor]
        most = _most(team, flavor, self._lent(name, flavor, idle=False)) - used[name]
        idle = self._gpus[flavor] - sum(used.values())
        # What others borrowed of the team's own quota is its own again as soon as it asks.
        return max(min(most, idle), min(team.quota.get(flavor, 0), self._gpus[flavor]) - used[name])

    def _lent(self, borrower: str, flavor: str, *, idle: bool) -> int:
        """What the other teams let others use of a flavor: all that they lend, or what of it they do not use now."""
        lent = 0
        for name, team in self._teams.items():
            quota = team.quota.get(flavor, 0)
            if name != borrower and quota:
                unused = quota if idle else max(0, quota - self._used[flavor][name])
                lent += min(team.lend.get(flavor, quota), unused)
        return lent


def suits(job: Job, flavor: FlavorConfig) -> bool:
    """Whether the flavor is of the GPU model that the job insists on, if it insists on one."""
    return job.gpu is None or job.gpu == flavor.gpu


def _most(team: TeamConfig, flavor: str, lent: int) -> int:
    """The most a team may use of a flavor, where others lend so much."""
    return team.quota.get(flavor, 0) + min(team.borrow.get(flavor, lent), lent)
