"""From the queues: who is released and to which flavor, who changes flavor, who comes back, and why the others wait.

Jobs are looked at by priority and age. A job that may go and finds no room is passed by smaller ones, as in Kueue's own
queues, but not for ever: one that has starved keeps what becomes free of its first flavor for itself.

Invariant: a job of one shape is never released while an older one of the same shape and priority is held.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from runtime.routing.decision import Hold, Recall, Release
from runtime.routing.resources import Resources
from runtime.routing.snapshot import Job
from runtime.routing.terms import Terms
from runtime.routing.verdict import ASKED, Code, Facts, Verdict, recalled
from stacks.agent_config import AgentConfig

PROMISE_SECONDS: Final = 300.0
"""Real seconds for which room and money are set aside for a released job: some scheduling rounds of a Kueue with a
thousand pending Workloads in a queue (ten admissions a minute were seen on a large fleet)."""

RETARGET_SECONDS: Final = 60.0
"""Real seconds that a released job waits for quota of its flavor before another flavor with room is tried: longer than
Kueue takes to place a job that fits, shorter than the boot of a machine."""

STARVING_SECONDS: Final = 1_800.0
"""Seconds beyond its wait limit after which a job that finds no room keeps what becomes free for itself: long enough
for smaller jobs to use the gaps meanwhile, short enough that a stream of them does not hold it for a day."""

MOST_RETURNS: Final = 3
"""Times that somebody else may take a released job back before it is left alone for a while: a GitOps tool does so at
each of its rounds, and one round may have been under way."""

GO_ROUND_SECONDS: Final = 1_800.0
"""Real seconds that a released job waits before a flavor is tried that stands no later in the order than its own, so
probably was tried before: a job that no flavor takes, for want of cores say, would go round and round each minute."""

SYNC_SECONDS: Final = 5.0
"""Real seconds in which Kueue moves a Workload to the queue of its job's label, with much to spare: it takes less than
one, and minutes only where it is down, when nothing is released anyway."""

PLACING_SECONDS: Final = 2.0
"""Real seconds in which Kueue places a job that fits locally. Before they are over nobody is told that it waits: most
jobs never do, and words for people are a good part of what the agent asks of the API server."""

KEPT_LOCAL_SECONDS: Final = 3_600.0
"""Real seconds for which a job stays local that an administrator took out of the cloud: long enough to look at what was
wrong, and no new setting that somebody forgets."""

RETURN_PAUSE_SECONDS: Final = 3_600.0
"""Real seconds for which such a job is left alone."""


class Releases:
    """The releases of one decision."""

    def __init__(self, config: AgentConfig, resources: Resources, terms: Terms, now: float) -> None:
        self._config = config
        self._resources = resources
        self._terms = terms
        self._now = now
        self.recalls: list[Recall] = []
        self.releases: list[Release] = []
        self.holds: list[Hold] = []

    def keep_promises(self, released: Sequence[Job]) -> None:
        """Set aside what released jobs need that have no quota yet, send some to another flavor, and take some back.

        One that Kueue has not placed for long it may never place, for want of cores or of a node that fits; it stays
        released, and the gate judges it if it comes so far, but it keeps nothing from others.
        """
        speed = self._config.replay_speed
        moving = []
        for job in released:
            refusal = self._no_longer(job)
            if refusal is not None:
                self.recalls.append(Recall(job, refusal))
                continue
            waited = self._since_verdict(job)
            if job.verdict_code != Code.RELEASED and job.target in self._terms.of(job).targets:
                # Cut off between the label and the mark, or evicted: say again that it may go.
                self._resources.promise(job, job.target)
                self._release(job, job.target)
            elif job.target not in self._terms.of(job).targets or waited > RETARGET_SECONDS * speed:
                moving.append(job)
            elif waited <= PROMISE_SECONDS * speed:
                self._resources.promise(job, job.target)
        for job in moving:
            self._retarget(job)

    def _no_longer(self, job: Job) -> Verdict | None:
        """Why a released job may not use the cloud any more, if so."""
        if job.recall_reason is not None:
            return recalled(ASKED, {"reason": job.recall_reason})
        if job.target is None or job.team not in self._config.teams:
            return recalled("not-in-fleet", {"team": job.team})
        refusal = self._terms.of(job).refusal
        return None if refusal is None else recalled(refusal.code.value, refusal.facts)

    def _retarget(self, job: Job) -> None:
        """Release the job to another flavor that has room and money; else keep what was promised to it.

        One whose own flavor takes no more jobs, or whose twin is down, does better among the local ones.
        """
        targets, waited = self._terms.of(job).targets, self._since_verdict(job)
        speed = self._config.replay_speed
        others = tuple(target for target in targets if target != job.target)
        if job.target in targets and waited <= GO_ROUND_SECONDS * speed:
            others = targets[targets.index(job.target) + 1 :]
        chosen = self._resources.choose(job, others) if others else None
        if isinstance(chosen, str):
            facts: Facts = {**self._terms.waits(job, self._now), "target": chosen, "from": job.target or ""}
            self.releases.append(Release(job, _released(facts, job.returns), chosen))
        elif job.target not in targets:
            if chosen is not None:
                self.recalls.append(Recall(job, recalled(chosen.code.value, chosen.facts)))
        elif job.verdict_at is not None and waited <= PROMISE_SECONDS * speed:
            self._resources.promise(job, job.target)

    def release(self, queued: Sequence[Job]) -> None:
        """Release every job that has waited long enough and can be paid and placed; hold the others."""
        now, terms = self._now, self._terms
        for job in queued:
            if job.recall_reason is not None:
                # A recall that was asked for, or cut off near its end: its last step takes the reason away.
                self.recalls.append(Recall(job, recalled(ASKED, {"reason": job.recall_reason})))
                continue
            if job.verdict_code == Code.KEPT_LOCAL and self._kept_local(job):
                continue
            leave = terms.of(job)
            if leave.refusal is not None and leave.refusal.code in _SAID_AT_ONCE:
                self._hold(job, leave.refusal)
                continue
            overdue = now - job.waits_since - terms.limit_seconds(job, leave)
            if overdue < 0:
                placing = 0 <= now - job.waits_since < PLACING_SECONDS * self._config.replay_speed
                if job.verdict_code != Code.WAITING and not placing:
                    self.holds.append(Hold(job, Verdict(Code.WAITING, terms.waits(job, now))))
                continue
            on_its_way = job.verdict_code == Code.RELEASED and self._may_be_on_its_way(job)
            refusal = leave.refusal or (None if on_its_way else self._taken_back(job))
            chosen = refusal or self._resources.choose(job, leave.targets)
            if on_its_way:
                continue  # what was chosen now is what the job was promised, and nobody else's
            if isinstance(chosen, str):
                self._release(job, chosen)
                continue
            self._hold(job, chosen)
            if overdue > STARVING_SECONDS and chosen.code is Code.CLOUD_FULL:
                self._resources.keep_room(leave.targets[0])

    def _release(self, job: Job, target: str) -> None:
        facts: Facts = {**self._terms.waits(job, self._now), "target": target}
        returns = job.returns + (job.verdict_code == Code.RELEASED)
        self.releases.append(Release(job, _released(facts, returns), target))

    def _since_verdict(self, job: Job) -> float:
        """Seconds since the last verdict, or until it where the clock was set back; 0 without one."""
        return 0.0 if job.verdict_at is None else abs(self._now - job.verdict_at)

    def _may_be_on_its_way(self, job: Job) -> bool:
        """Whether the job was released a moment ago, and Kueue may be yet to move its Workload."""
        grace = SYNC_SECONDS * self._config.replay_speed
        return job.verdict_at is not None and 0 <= self._now - job.verdict_at < grace

    def _kept_local(self, job: Job) -> bool:
        """Whether an administrator took the job out of the cloud lately: that verdict is the only record of it."""
        return job.verdict_at is not None and self._since_verdict(job) < KEPT_LOCAL_SECONDS * self._config.replay_speed

    def _taken_back(self, job: Job) -> Verdict | None:
        """Whether somebody else took the job back too often, lately."""
        if job.returns < MOST_RETURNS:
            return None
        pause = RETURN_PAUSE_SECONDS * self._config.replay_speed
        taken_back = job.verdict_code == Code.RELEASED
        if not taken_back and (job.verdict_at is None or self._now - job.verdict_at >= pause):
            return None
        return Verdict(Code.TAKEN_BACK, {"returns": job.returns, "pause_s": round(pause)})

    def continue_recalls(self, recalling: Sequence[Job]) -> None:
        """Let every recall that was begun go on with its next step."""
        self.recalls.extend(Recall(job, recalled("under-way", {})) for job in recalling)

    def _hold(self, job: Job, verdict: Verdict) -> None:
        if job.verdict_code != verdict.code:
            self.holds.append(Hold(job, verdict))


def _released(facts: Facts, returns: int) -> Verdict:
    """With how often the job was taken back so far, which is remembered nowhere else."""
    return Verdict(Code.RELEASED, {**facts, "returns": returns} if returns else facts)


_SAID_AT_ONCE: Final = frozenset(
    {Code.CLASS_STAYS_LOCAL, Code.POLICY_NEVER, Code.NEVER_FITS, Code.PROJECT, Code.WINDOW}
)
"""Refusals that a job is told before its wait is over, since no wait changes them."""
