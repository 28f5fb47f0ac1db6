"""Which running jobs may leave now for the cloud flavor on which an administrator wants them, and why others may not.

A job is moved only while what it is moved to is free and paid for: it is judged anew in each decision until it is
stopped, what it will have is kept from others meanwhile, and the sequence of runtime.eviction goes on only as long as
it may leave. What it holds stays its own, with its money, until its attempt is closed, so a budget must have room for
both. Once it is stopped, runtime.routing.requeue sends it on and takes the wish away.

Invariant: a wish is taken away once it is over, whatever it says; until then nothing happens to its job.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from runtime.eviction.wish import MoveWish
from runtime.routing.decision import Move
from runtime.routing.resources import Resources
from runtime.routing.snapshot import Job, Stage
from runtime.routing.terms import LASTING, Terms
from runtime.routing.verdict import Code, Facts, Verdict
from stacks.agent_config import AgentConfig

_LEFT_ALONE: Final = (Stage.EVICTED, Stage.RECALLING, Stage.STOPPED, Stage.FINISHED)
"""Stopped or ended: nothing is begun, and what was begun is for others to end."""

UNDER_WAY: Final = (Code.MOVING, Code.MOVE_WAITS)
"""What is said of a running job while somebody wants it elsewhere."""


class Moves:
    """The moves of one decision."""

    def __init__(self, config: AgentConfig, resources: Resources, terms: Terms, now: float) -> None:
        self._config = config
        self._resources = resources
        self._terms = terms
        self._now = now
        self.moves: list[Move] = []
        self.allowed: set[tuple[str, str]] = set()

    def judge(self, jobs: Iterable[Job]) -> None:
        """Look at every job that somebody wants elsewhere, or of which we said so last, in the order of the queue."""
        for job in jobs:
            if job.stage in _LEFT_ALONE or job.recall_reason is not None:
                continue
            if job.move is None:
                if job.stage is Stage.RUNNING_CLOUD:
                    self.moves.append(Move(job, Verdict(Code.MOVE_REFUSED, {"cause": "withdrawn"})))
                continue
            if (cause := self._over(job, job.move)) is not None:
                self.moves.append(Move(job, Verdict(Code.MOVE_REFUSED, {**_told(job.move), **cause}), over=True))
            elif job.stage is Stage.RUNNING_CLOUD:
                self._try(job, job.move)

    def _over(self, job: Job, wish: MoveWish) -> Facts | None:
        """Why nothing is to come of the wish any more, if so."""
        if wish.problem:
            return {"cause": "unreadable", "problem": wish.problem}
        if not any(_matches(self._config, wish, flavor) for flavor in self._config.burst_order):
            return {"cause": "no-such-target"}
        if self._now >= wish.until:
            return {"cause": "expired"}
        if job.stage is Stage.RUNNING_LOCAL:
            return {"cause": "runs-locally"}
        if job.stage is not Stage.RUNNING_CLOUD:
            return None
        if wish.to and _matches(self._config, wish, job.flavor or ""):
            return {"cause": "there-already"}
        if not (refusals := self._refusals(job, wish)):
            return {"cause": "no-other"}
        if self._resources.lacks_runtime_limit(job):
            return {"cause": Code.NO_RUNTIME_LIMIT.value}
        lasting = [one for one in refusals if one is not None and one.code in LASTING]
        return {**lasting[0].facts, "cause": lasting[0].code.value} if len(lasting) == len(refusals) else None

    def _refusals(self, job: Job, wish: MoveWish) -> list[Verdict | None]:
        """Of each flavor that is wanted, why the job may not have it, whatever room and money there are."""
        wanted = (flavor for flavor in self._config.burst_order if is_wanted(self._config, wish, flavor, job.flavor))
        return [self._terms.refuse_at(job, flavor) for flavor in wanted]

    def _try(self, job: Job, wish: MoveWish) -> None:
        chosen = self._choose(job, wish)
        if isinstance(chosen, str):
            self.allowed.add((job.uid, wish.id))
            verdict = Verdict(Code.MOVING, {**_told(wish), "target": chosen})
        else:
            verdict = Verdict(Code.MOVE_WAITS, {**_told(wish), **chosen.facts, "cause": chosen.code.value})
        if (verdict.code, verdict.facts.get("cause", "")) != (job.verdict_code, wish.told):
            self.moves.append(Move(job, verdict))

    def _choose(self, job: Job, wish: MoveWish) -> str | Verdict:
        """The flavor that it may have now; or why none."""
        leave = self._terms.of(job)
        if leave.refusal is not None:
            return leave.refusal
        targets = tuple(one for one in leave.targets if is_wanted(self._config, wish, one, job.flavor))
        if targets:
            return self._resources.choose_instead(job, targets)
        refusals = (one for one in self._refusals(job, wish) if one is not None)
        return next(refusals, Verdict(Code.TWIN_DOWN, {"flavor": wish.to or "another flavor"}))


def is_wanted(config: AgentConfig, wish: MoveWish, flavor: str, present: str | None) -> bool:
    """Whether a cloud flavor is where the job should go."""
    return flavor != present and _matches(config, wish, flavor)


def _matches(config: AgentConfig, wish: MoveWish, flavor: str) -> bool:
    settings = config.flavors.get(flavor)
    return settings is not None and wish.to in ("", flavor, settings.place)


def _told(wish: MoveWish) -> Facts:
    facts: Facts = {"until": round(wish.until)}
    return {**facts, "to": wish.to} if wish.to else facts
