"""The queue run forward: jobs end when they are expected to, Kueue fills what they leave, and `decide` sends the rest.

The decisions are those of runtime.routing.decide itself, at each moment at which something changes that it looks at. Of
Kueue it models who is next (runtime.simulation.admission) and what there is to give (runtime.simulation.quota). It
leaves out preemption, fair shares, cores and memory, where free GPUs lie, and the time that nodes take to come. A job
that is recalled is back in its queue at once.

Decisions that would lie very close together, seen from the present, are taken together, so a run far ahead takes no
more work than one nearby; the moments at which jobs end stay exact.

Invariant: it ends after as many steps as it is allowed, whatever it is given.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Final

from runtime.cost.ledger import Books
from runtime.routing.decide import decide
from runtime.routing.decision import Decision
from runtime.routing.release import RETARGET_SECONDS
from runtime.routing.snapshot import Job, Snapshot, Stage
from runtime.routing.verdict import Code, Verdict
from runtime.simulation.admission import Admission
from runtime.simulation.floor import Floor, Start
from runtime.simulation.spending import small_books, with_entries
from runtime.simulation.timetable import Timetable
from stacks.agent_config import AgentConfig

HORIZON_SECONDS: Final = 35 * 86_400.0
"""How far a run looks ahead: past the turn of any month, since budgets fill up again then."""

MOST_STEPS: Final = 2_000
"""Moments of one run, ends of jobs and decisions together: a second's work or less."""

GRAIN: Final = 0.02
"""Decisions closer together than this share of their distance from the present are taken together."""

IDLE_GRAIN: Final = 0.25
"""A decision is taken at least this often in the same measure, for rules that change with the waiting itself."""

SHORTEST_IDLE_SECONDS: Final = 300.0
"""Real seconds: no rule of `decide` changes its mind faster without a cause."""

MOST_ROUNDS: Final = 5
"""Decisions at one moment, each after the last was carried out: close, release, clear, and as much for a recall."""


class Run:
    """One run. `reasons` has the last code and scope that kept a job waiting."""

    def __init__(self, snapshot: Snapshot, config: AgentConfig, now: float, near: Collection[str]) -> None:
        self.reasons: dict[str, tuple[str, str]] = {}
        self._config = config
        self._now = now
        self._first = snapshot
        self._books: Books | None = None if snapshot.books is None else small_books(snapshot.books, config, now)
        self._held = set(snapshot.held_queues)
        self._timetable = Timetable(config)
        self._floor = Floor(snapshot, config, now, near)
        self._kueue = Admission(self._floor, config)
        self._look_at = self._looked_at = now
        for job in self._floor.waiting():
            if job.verdict_code == Code.KEPT_LOCAL:
                self.reasons[job.uid] = (Code.KEPT_LOCAL.value, "")  # `decide` does not say again what is known

    @property
    def starts(self) -> Mapping[str, Start]:
        """The jobs that started so far."""
        return self._floor.starts

    def forward(self, most_steps: int) -> None:
        """Run until every job has started, nothing changes any more, or horizon or steps are used up."""
        self._settle(self._now)
        for _ in range(most_steps):
            moment = min(self._look_at, self._floor.next_end)
            if moment > self._now + HORIZON_SECONDS or not self._anybody_may_start():
                return
            changed = self._floor.end_until(moment) | self._kueue.admit(moment, self._held)
            if changed:
                self._look_at = min(self._look_at, max(moment, self._earliest_look()))
            if moment >= self._look_at:
                self._settle(moment)

    def _anybody_may_start(self) -> bool:
        return any(self.reasons.get(job.uid, ("", ""))[0] != Code.NEVER_FITS for job in self._floor.waiting())

    def _settle(self, moment: float) -> None:
        """Decide and carry out until nothing moves any more at this moment."""
        holds: dict[str, Verdict] = {}
        for _ in range(MOST_ROUNDS):
            self._kueue.admit(moment, self._held)
            decision = decide(self._snapshot(), self._config, moment, "forecast")
            holds = {hold.job.uid: hold.verdict for hold in decision.holds}
            for uid, verdict in holds.items():
                self._held_back(uid, verdict, moment)
            if not self._carry_out(decision, moment):
                break
        self._looked_at = moment
        self._look_at = max(self._next_look(moment, holds), self._earliest_look())

    def _held_back(self, uid: str, verdict: Verdict, moment: float) -> None:
        self.reasons[uid] = (verdict.code.value, _scope(verdict))
        job = self._floor.jobs[uid]
        if job.verdict_code is not None:  # it was taken back after a release, and has been told so now
            self._floor.jobs[uid] = replace(job, verdict_code=None, verdict_at=moment)

    def _snapshot(self) -> Snapshot:
        """What the agent would see."""
        jobs = self._floor.jobs
        some = next(iter(jobs.values()), None)
        on_local = [] if some is None else [_together(some, *key, gpus) for key, gpus in self._floor.on_local().items()]
        return replace(
            self._first,
            jobs=(*jobs.values(), *on_local),
            books=self._books,
            held_queues=frozenset(self._held),
            lingering=self._first.lingering if self._looked_at == self._now else frozenset(),
        )

    def _carry_out(self, decision: Decision, moment: float) -> bool:
        """Do what was decided; whether the next decision at this moment may see something new."""
        opened = [adopt.opening for adopt in decision.adoptions] + [clear.opening for clear in decision.clears]
        closed = [close.closing for close in decision.closes]
        if self._books is not None and (opened or closed):
            self._books = with_entries(self._books, opened, closed)
        self._floor.forget_the_ended()
        for clear in decision.clears:
            self._floor.clear(clear.job, clear.opening.flavor, moment)
        for recall in decision.recalls:
            self._floor.recall(recall.job, moment)
        for release in decision.releases:
            self._floor.release(release.job, release.target, moment)
        changed = [queue for queue in decision.queues if queue.held != (queue.queue in self._held)]
        for queue in changed:
            (self._held.add if queue.held else self._held.discard)(queue.queue)
        return bool(closed or changed or decision.recalls or decision.releases)

    def _earliest_look(self) -> float:
        return self._looked_at + GRAIN * (self._looked_at - self._now)

    def _next_look(self, moment: float, holds: dict[str, Verdict]) -> float:
        """When `decide` may say something else, if no job ends before."""
        idle = max(SHORTEST_IDLE_SECONDS * self._config.replay_speed, IDLE_GRAIN * (moment - self._now))
        looks = [moment + idle, self._timetable.next_window(moment)]
        for verdict in holds.values():
            looks.append(_later(verdict.facts.get("earliest_at"), 0.0, moment))
            looks += [_later(verdict.facts.get(name), moment, moment) for name in ("cooling_s", "pause_s")]
        if any(verdict.code is Code.BUDGET for verdict in holds.values()):
            looks.append(self._timetable.next_day(moment))
        patience = (RETARGET_SECONDS + 1) * self._config.replay_speed
        for job in self._floor.waiting():
            if job.stage is Stage.RELEASED:
                looks.append(_later(job.verdict_at, patience, moment))
        return min(looks)


def _together(some: Job, team: str, flavor: str, gpus: int) -> Job:
    """All jobs of a team on one local flavor as one, since only their number matters."""
    return replace(
        some,
        uid=f"local {team} {flavor}",
        team=team,
        flavor=flavor,
        gpus=gpus,
        stage=Stage.RUNNING_LOCAL,
        attempt=None,
        target=None,
        recall_reason=None,
    )


def _scope(verdict: Verdict) -> str:
    return str(verdict.facts.get("scope", "")) if verdict.code is Code.BUDGET else ""


def _later(value: object, more: float, moment: float) -> float:
    """The sum of two times, where it is one and still to come."""
    return value + more if isinstance(value, int | float) and value + more > moment else math.inf
