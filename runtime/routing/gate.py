"""At the gate: who is cleared, who goes back, and what already runs in the cloud.

A job at the gate holds cloud quota and no pod. It is answered at once, because it would not move by itself when local
GPUs become free: cleared, or recalled; it is held only while the ledger is out of reach, for a while.

Invariants: an attempt is opened at most once; nothing is cleared that a hard budget has no room for.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from runtime.cost.ledger import Attempt, Books, Opening, cost_usd
from runtime.routing.decision import Adopt, Clear, Hold, Recall
from runtime.routing.local import LocalRoom
from runtime.routing.resources import Resources
from runtime.routing.snapshot import Job
from runtime.routing.terms import Terms
from runtime.routing.verdict import ASKED, Code, Facts, Verdict, recalled
from stacks.agent_config import AgentConfig

GATE_PATIENCE_SECONDS: Final = 30.0
"""Real seconds that a job holds cloud quota at the gate while the ledger is down, before it goes back to local GPUs:
longer than a store's own retries, shorter than what a person would notice in a queue."""

LOCAL_FREE_SECONDS: Final = 600.0
"""Real seconds beyond its wait limit in which a job is taken back because local GPUs became free. Our reckoning does
not know how those are spread over nodes: where Kueue finds them of no use, and some come free each second, the job
would stand at the gate again and again."""

LOCAL_FREE: Final = "local-free"
"""Cause of a recall from the gate because local GPUs have become free meanwhile."""


class Gate:
    """The answers of one decision."""

    def __init__(
        self,
        books: Books | None,
        config: AgentConfig,
        resources: Resources,
        terms: Terms,
        local: LocalRoom,
        now: float,
    ) -> None:
        self._books = books
        self._config = config
        self._resources = resources
        self._terms = terms
        self._local = local
        self._now = now
        self._somebody_waits_for_local: bool | None = None
        self.adoptions: list[Adopt] = []
        self.clears: list[Clear] = []
        self.recalls: list[Recall] = []
        self.holds: list[Hold] = []

    def adopt_strays(self, running: Sequence[Job]) -> None:
        """Write jobs into the ledger that run in the cloud without being in it, whatever the budget says: they cost.

        It takes a ledger that was lost or exchanged, or somebody else's answer of the gate.
        """
        if self._books is None:
            return
        for job in running:
            known = job.attempt is None or Attempt(job.uid, job.attempt) in self._books.openings
            if known or job.attempt is None or job.flavor is None or job.flavor not in self._config.flavors:
                continue
            opening = self._resources.opening(job, Attempt(job.uid, job.attempt), job.flavor)
            self._resources.adopt(opening)
            self.adoptions.append(Adopt(job, opening))

    def recall_as_asked(self, running: Sequence[Job]) -> None:
        """Take out of the cloud what an administrator wants out."""
        self.recalls.extend(
            Recall(job, recalled(ASKED, {"reason": job.recall_reason}))
            for job in running
            if job.recall_reason is not None
        )

    def answer(self, at_gate: Sequence[Job], waiting: Sequence[Job]) -> None:
        """Clear, recall or hold every job that has cloud quota and waits for us."""
        refused = []
        for job in at_gate:
            if job.attempt is None or job.flavor is None:
                continue
            refusal = self._refuse(job, job.flavor, Attempt(job.uid, job.attempt), waiting)
            if refusal is None:
                continue
            refused.append(job)
            if refusal.code is not Code.LEDGER_DOWN or self._out_of_patience(job):
                is_recall = refusal.code is Code.RECALLED
                verdict = refusal if is_recall else recalled(refusal.code.value, refusal.facts)
                self.recalls.append(Recall(job, verdict))
            elif job.verdict_code != refusal.code:
                self.holds.append(Hold(job, refusal))
        for job in refused:
            self._resources.keep_team(job)

    def _refuse(self, job: Job, flavor: str, attempt: Attempt, waiting: Sequence[Job]) -> Verdict | None:
        """None if the job was cleared."""
        if self._books is None:
            return Verdict(Code.LEDGER_DOWN, {})
        known = self._books.openings.get(attempt)
        if known is not None:
            return self._clear_again(job, known, attempt in self._books.closings)
        if job.recall_reason is not None:
            return recalled(ASKED, {"reason": job.recall_reason})
        if flavor not in self._config.flavors or job.team not in self._config.teams:
            return recalled("not-in-fleet", {"team": job.team, "flavor": flavor})
        if flavor != job.target:
            return recalled("misrouted", {"flavor": flavor})
        if (refusal := self._terms.refuse_at(job, flavor)) is not None:
            return refusal
        if self._resources.lacks_runtime_limit(job):
            return Verdict(Code.NO_RUNTIME_LIMIT, {})
        fits_locally = self._local.fits(job)
        if fits_locally and self._freed_for(job, waiting):
            return recalled(LOCAL_FREE, {"gpus": job.gpus})
        opening = self._resources.opening(job, attempt, flavor)
        refusal = self._resources.refuse_team(job) or self._resources.refuse_money(opening)
        if refusal is None:
            left = self._resources.tightest(opening)
            self._resources.grant(opening)
            self._clear(job, opening, {**left, **({"local_room": 1} if fits_locally else {})})
        return refusal

    def _freed_for(self, job: Job, waiting: Sequence[Job]) -> bool:
        """Whether local GPUs became free after the job got its cloud quota, and nobody who waits would take them."""
        since = self._now if job.reserved_at is None else job.reserved_at
        overdue = self._now - job.waits_since - self._terms.limit_seconds(job, self._terms.of(job))
        if overdue > LOCAL_FREE_SECONDS * self._config.replay_speed or not self._local.freed_since(since):
            return False
        if self._somebody_waits_for_local is None:
            self._somebody_waits_for_local = self._local.any_fits(waiting)
        return not self._somebody_waits_for_local

    def _clear_again(self, job: Job, known: Opening, closed: bool) -> Verdict | None:
        """An answer was begun and not seen to its end: the money is committed already."""
        if closed:
            return recalled("attempt-closed", {})
        if not self._resources.covers(known, job):
            return recalled("not-as-paid", {})
        self._resources.grant(known, already_committed=True)
        self._clear(job, known, {})
        return None

    def _clear(self, job: Job, opening: Opening, more: Facts) -> None:
        expected = opening.fixed_usd + cost_usd(opening.usd_per_gpu_hour, opening.gpus, int(opening.expected_seconds))
        facts: Facts = {
            "flavor": opening.flavor,
            "gpus": opening.gpus,
            "usd_per_gpu_hour": float(opening.usd_per_gpu_hour),
            "expected_usd": round(float(expected), 2),
            "committed_usd": float(opening.committed_usd),
            "committed_s": opening.max_seconds if opening.hard else opening.expected_seconds,
            **self._terms.waits(job, self._now),
            **more,
        }
        self.clears.append(Clear(job, opening, Verdict(Code.CLEARED, facts)))

    def _out_of_patience(self, job: Job) -> bool:
        since = self._now if job.reserved_at is None else job.reserved_at
        return self._now - since > GATE_PATIENCE_SECONDS * self._config.replay_speed
