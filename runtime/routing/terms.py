"""What applies to a job whatever room and money there are: whether it may leave at all, when, and where to.

Jobs that are alike in all but run times and age get one answer, looked up once in a decision: at 15,000 waiting jobs
there are few such kinds.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from runtime.routing.local import LocalRoom
from runtime.routing.policy import WaitRule, class_of, staging_seconds
from runtime.routing.snapshot import Job
from runtime.routing.targets import Targets
from runtime.routing.verdict import Code, Facts, Verdict
from stacks.agent_config import AgentConfig

NEVER_LOCAL: Final = "local GPUs can never hold it"
_Key = tuple[str, str, int, int, str, str | None, int]


@dataclass(frozen=True, slots=True)
class Leave:
    """The terms of one kind of job: whether it need not wait at all, then where it may go or why nowhere."""

    never_local: bool
    targets: tuple[str, ...]
    refusal: Verdict | None


class Terms:
    """The terms of all jobs in one decision. `closed` has the classes whose window is closed and when it opens."""

    def __init__(
        self, config: AgentConfig, wait: WaitRule, local: LocalRoom, targets: Targets, closed: Mapping[str, float]
    ) -> None:
        self._config = config
        self._wait = wait
        self._local = local
        self._targets = targets
        self._closed = closed
        self._known: dict[_Key, Leave] = {}

    def of(self, job: Job) -> Leave:
        """The terms of the job."""
        data_bytes = 0 if self._config.data is None else job.data_bytes
        key = (job.team, job.job_class, job.gpus, job.pod_gpus, job.project, job.gpu, data_bytes)
        if (known := self._known.get(key)) is None:
            known = self._known[key] = self._leave(job)
        return known

    def limit_seconds(self, job: Job, leave: Leave) -> float:
        """How long the job waits."""
        return 0.0 if leave.never_local else self._wait.seconds(job)

    def _leave(self, job: Job) -> Leave:
        never_local = job.team in self._config.teams and not self._local.ever_fits(job)
        refusal = self._refuse(job)
        targets: tuple[str, ...] = ()
        if refusal is None:
            found = self._targets.of(job)
            if isinstance(found, Verdict):
                refusal = found
            else:
                targets = found
        if refusal is not None and never_local and refusal.code in LASTING:
            refusal = Verdict(Code.NEVER_FITS, {"cause": refusal.code.value, **refusal.facts, "gpus": job.gpus})
        return Leave(never_local, targets, refusal)

    def _refuse(self, job: Job) -> Verdict | None:
        """Why a job of this kind may not leave, if it may not."""
        config, settings = self._config, class_of(job, self._config)
        if job.team not in config.teams or settings.burst == "never":
            return Verdict(Code.CLASS_STAYS_LOCAL, {"class": job.job_class})
        if self._wait.never(job):
            return Verdict(Code.POLICY_NEVER, {"team": job.team, "class": job.job_class})
        if job.project and config.projects:
            project = config.projects.get(job.project)
            if project is None or (project.teams is not None and job.team not in project.teams):
                return Verdict(Code.PROJECT, {"project": job.project, "team": job.team, "known": int(bool(project))})
        staging = staging_seconds(job, config.data)
        if config.data is not None and staging > config.data.max_staging.total_seconds():
            longest = config.data.max_staging.total_seconds()
            return Verdict(Code.DATA, {"staging_s": round(staging), "limit_s": round(longest)})
        if job.job_class in self._closed:
            return Verdict(Code.WINDOW, {"class": job.job_class, "opens_at": round(self._closed[job.job_class])})
        return None

    def waits(self, job: Job, now: float) -> Facts:
        """How long the job has waited, of how long, and by which policy."""
        leave, waited = self.of(job), max(0.0, now - job.waits_since)
        if leave.never_local:
            limit, source = 0.0, NEVER_LOCAL
        else:
            found = self._wait.limit(job)
            limit, source = found.seconds, found.source
        return {
            "waited_s": round(waited, 3),
            "limit_s": round(limit, 3),
            "limit_source": source,
            "earliest_at": round(job.waits_since + limit, 3),
        }

    def refuse_at(self, job: Job, flavor: str) -> Verdict | None:
        """None if a job that holds quota of a cloud flavor may use it, else why not."""
        return self._refuse(job) or self._targets.refuse(job, flavor)


LASTING: Final = frozenset(
    {Code.CLASS_STAYS_LOCAL, Code.POLICY_NEVER, Code.TOO_LARGE, Code.NO_MARKET, Code.PROJECT, Code.DATA}
)
"""Refusals that stand until the job or the fleet file changes."""
