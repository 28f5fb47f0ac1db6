"""The one decision: who may leave for the cloud, who passes the gate, who comes back, and why everybody else waits.

Kueue keeps order, fair share and preemption; this module only says which jobs may use the cloud at all. It reads no
clock and no cluster: everything comes from the snapshot, so that a recorded snapshot decides the same again, and the
replay uses this very code. Jobs that were released and still wait in the twin are left there, whatever changed since:
the gate, where money is committed, judges them anew if they come to hold cloud quota.

Invariants: nothing is cleared without a reservation, and no attempt is opened twice; the older of two equal jobs is
considered first; releases of one decision never promise more room, team GPUs or money than there is, counting what
earlier decisions promised; equal snapshots give equal decisions, in whatever order their jobs come.
"""

from __future__ import annotations

from collections.abc import Iterable
from operator import attrgetter
from typing import Final

from runtime.cost.ledger import Attempt, Books, Opening
from runtime.routing.decision import Adopt, Clear, Decision, Hold, Recall, Release
from runtime.routing.endings import endings
from runtime.routing.policy import WaitRule, class_of
from runtime.routing.resources import Resources
from runtime.routing.snapshot import Job, Snapshot, Stage
from runtime.routing.verdict import Code, Facts, Verdict
from stacks.agent_config import AgentConfig

GATE_PATIENCE_SECONDS: Final = 30.0
"""Real seconds that a job holds cloud quota at the gate while the ledger is down, before it goes back to local GPUs:
longer than a store's own retries, shorter than what a person would notice in a queue."""


PROMISE_SECONDS: Final = 300.0
"""Real seconds for which room and money are set aside for a released job: some scheduling rounds of a Kueue with a
thousand pending Workloads in a queue (ten admissions a minute were seen on a large fleet)."""


def decide(snapshot: Snapshot, config: AgentConfig, now: float, decision_id: str) -> Decision:
    """Decide what to do now.

    Args:
        snapshot: what the agent sees; its jobs may come in any order.
        config: the fleet, as the agent was told.
        now: fleet time, seconds since the epoch.
        decision_id: recorded with every opening, to find the decision that spent the money.
    """
    deciding = _Deciding(snapshot, config, now, decision_id)
    deciding.adopt_strays()
    deciding.answer_the_gate()
    deciding.keep_promises()
    deciding.release_from_queues()
    deciding.continue_recalls()
    return Decision(
        id=decision_id,
        decided_at=now,
        closes=endings(snapshot, now),
        adoptions=tuple(deciding.adoptions),
        clears=tuple(deciding.clears),
        recalls=tuple(deciding.recalls),
        releases=tuple(deciding.releases),
        holds=tuple(deciding.holds_in_order()),
    )


def _in_order(jobs: Iterable[Job]) -> list[Job]:
    """By priority, then the older first, then by uid; sorting is stable, so the last key goes first."""
    ordered = sorted(jobs, key=attrgetter("uid"))
    ordered.sort(key=attrgetter("created_at"))
    ordered.sort(key=attrgetter("priority"), reverse=True)
    return ordered


_Shape = tuple[str, str, int, float | None, float | None]


def _shape(job: Job) -> _Shape:
    """All that a job's wait, price and refusal depend on."""
    return job.team, job.job_class, job.gpus, job.expected_seconds, job.max_seconds


class _Deciding:
    """One decision in the making."""

    def __init__(self, snapshot: Snapshot, config: AgentConfig, now: float, decision_id: str) -> None:
        self._config = config
        self._now = now
        self._books: Books | None = snapshot.books
        self._resources = Resources(snapshot, config, now, decision_id)
        self._wait = WaitRule(config)
        self._jobs: dict[Stage, list[Job]] = {stage: [] for stage in Stage}
        for job in _in_order(snapshot.jobs):
            self._jobs[job.stage].append(job)
            if job.flavor is not None:
                self._resources.count(job)
        self.adoptions: list[Adopt] = []
        self.clears: list[Clear] = []
        self.recalls: list[Recall] = []
        self.releases: list[Release] = []
        self.holds: list[Hold] = []

    def adopt_strays(self) -> None:
        """Write jobs into the ledger that run in the cloud without being in it, whatever the budget says: they cost.

        It takes a ledger that was lost or exchanged, or somebody else's answer of the gate.
        """
        if self._books is None:
            return
        for job in self._jobs[Stage.RUNNING_CLOUD]:
            known = job.attempt is None or Attempt(job.uid, job.attempt) in self._books.openings
            if (
                known
                or job.attempt is None
                or job.flavor not in self._config.flavors
                or job.team not in self._config.teams
            ):
                continue
            opening = self._resources.opening(job, Attempt(job.uid, job.attempt), job.flavor)
            self._resources.adopt(opening)
            self.adoptions.append(Adopt(job, opening))

    def answer_the_gate(self) -> None:
        """Clear, recall or hold every job that has cloud quota and waits for us."""
        refused = []
        for job in self._jobs[Stage.AT_GATE]:
            if job.attempt is None or job.flavor is None:
                continue
            opening = self._books.openings.get(Attempt(job.uid, job.attempt)) if self._books is not None else None
            refusal = self._refuse_at_gate(job, job.flavor, Attempt(job.uid, job.attempt), opening)
            if refusal is None:
                continue
            refused.append(job)
            if refusal.code is Code.LEDGER_DOWN and not self._out_of_patience(job):
                self._hold(job, refusal)
            else:
                facts: Facts = {"cause": refusal.code.value, **refusal.facts}
                self.recalls.append(Recall(job, Verdict(Code.RECALLED, facts)))
        for job in refused:
            self._resources.keep_team(job)

    def _refuse_at_gate(self, job: Job, flavor: str, attempt: Attempt, known: Opening | None) -> Verdict | None:
        """None if the job was cleared."""
        if self._books is None:
            return Verdict(Code.LEDGER_DOWN, {})
        if known is not None and attempt not in self._books.closings:
            if not self._resources.covers(known, job):
                return Verdict(Code.RECALLED, {"cause": "not-as-paid"})
            self._resources.grant(known, already_committed=True)
            self._clear(job, known)
            return None
        if known is not None:
            return Verdict(Code.RECALLED, {"cause": "attempt-closed"})
        if flavor not in self._config.flavors or job.team not in self._config.teams:
            return Verdict(Code.RECALLED, {"cause": "not-in-fleet", "team": job.team, "flavor": flavor})
        if class_of(job, self._config).burst == "never":
            return Verdict(Code.CLASS_STAYS_LOCAL, {"class": job.job_class})
        if self._resources.lacks_runtime_limit(job):
            return Verdict(Code.NO_RUNTIME_LIMIT, {})
        opening = self._resources.opening(job, attempt, flavor)
        refusal = self._resources.refuse_team(job) or self._resources.refuse_money(opening)
        if refusal is None:
            self._resources.grant(opening)
            self._clear(job, opening)
        return refusal

    def _clear(self, job: Job, opening: Opening) -> None:
        facts: Facts = {
            "flavor": opening.flavor,
            "gpus": opening.gpus,
            "usd_per_gpu_hour": float(opening.usd_per_gpu_hour),
            "committed_usd": float(opening.committed_usd),
            "committed_s": opening.max_seconds if opening.hard else opening.expected_seconds,
        }
        self.clears.append(Clear(job, opening, Verdict(Code.CLEARED, facts)))

    def _out_of_patience(self, job: Job) -> bool:
        since = self._now if job.reserved_at is None else job.reserved_at
        return self._now - since > GATE_PATIENCE_SECONDS * self._config.replay_speed

    def keep_promises(self) -> None:
        """Set aside what jobs need that were released lately and have no quota yet.

        One that Kueue has not placed for long it may never place, for want of cores or of a node that fits; it stays
        released, and the gate judges it if it comes so far, but it keeps nothing from others.
        """
        patience = PROMISE_SECONDS * self._config.replay_speed
        for job in self._jobs[Stage.RELEASED]:
            if job.verdict_at is None or self._now - job.verdict_at <= patience:
                self._resources.promise(job)

    def release_from_queues(self) -> None:
        """Release every job that has waited long enough and can be paid and placed; hold the others."""
        teams, now = self._config.teams, self._now
        stays = {name: settings.burst == "never" for name, settings in self._config.classes.items()}
        stays_by_default = stays[self._config.default_class]
        refused: dict[_Shape, Verdict] = {}
        for job in self._jobs[Stage.QUEUED]:
            if job.team not in teams or stays.get(job.job_class, stays_by_default):
                self._hold(job, Verdict(Code.CLASS_STAYS_LOCAL, {"class": job.job_class}))
            elif now - job.created_at < self._wait.seconds(job):
                if job.verdict_code != Code.WAITING:
                    self.holds.append(Hold(job, self._waits(Code.WAITING, job)))
            else:
                shape = _shape(job)
                refusal = refused.get(shape) or self._refuse_release(job)
                if refusal is None:
                    self.releases.append(Release(job, self._waits(Code.RELEASED, job)))
                else:
                    refused[shape] = refusal
                    self._hold(job, refusal)

    def _refuse_release(self, job: Job) -> Verdict | None:
        """None if the job may go; then what it needs is set aside."""
        resources = self._resources
        if job.gpus > resources.largest_gpus:
            return Verdict(Code.TOO_LARGE, {"gpus": job.gpus, "largest_gpus": resources.largest_gpus})
        if job.pod_gpus > resources.largest_node_gpus:
            return Verdict(Code.TOO_LARGE, {"pod_gpus": job.pod_gpus, "node_gpus": resources.largest_node_gpus})
        if self._books is None:
            return Verdict(Code.LEDGER_DOWN, {})
        if resources.lacks_runtime_limit(job):
            return Verdict(Code.NO_RUNTIME_LIMIT, {})
        return resources.refuse_team(job) or resources.refuse_room(job) or resources.promise_or_refuse(job)

    def continue_recalls(self) -> None:
        """Let every recall that was begun go on with its next step."""
        for job in self._jobs[Stage.RECALLING]:
            self.recalls.append(Recall(job, Verdict(Code.RECALLED, {"cause": "under-way"})))

    def holds_in_order(self) -> list[Hold]:
        """The holds at the gate and those in the queues, each in order already, in one order."""
        if not self.holds or self.holds[0].job.stage is not Stage.AT_GATE:
            return self.holds
        by_uid = {hold.job.uid: hold for hold in self.holds}
        return [by_uid[job.uid] for job in _in_order(hold.job for hold in self.holds)]

    def _hold(self, job: Job, verdict: Verdict) -> None:
        if job.verdict_code != verdict.code:
            self.holds.append(Hold(job, verdict))

    def _waits(self, code: Code, job: Job) -> Verdict:
        limit = self._wait.limit(job)
        facts: Facts = {
            "waited_s": round(self._now - job.created_at, 3),
            "limit_s": round(limit.seconds, 3),
            "limit_source": limit.source,
            "earliest_at": round(job.created_at + limit.seconds, 3),
        }
        return Verdict(code, facts)
