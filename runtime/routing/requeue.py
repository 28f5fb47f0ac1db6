"""Where jobs go whose nodes were taken away: to a cloud flavor at once, or back to their own queue.

They have waited their turn before, so none waits for its limit again; what they held is given to them before jobs that
are new ask for it. What an administrator wants it on is tried first. Another flavor of the same market is tried before
the one that was lost, since what took one node there is likely to take the next; on-demand comes first for a job that
lost its nodes too often. Room, money and markets are judged anew, and the gate judges once more. Where no flavor will
have it, it waits in its own queue and may leave again by the usual rule.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from runtime.eviction.notice import NoticeKind
from runtime.eviction.view import Marker
from runtime.routing.decision import Requeue
from runtime.routing.moves import is_wanted
from runtime.routing.resources import Resources
from runtime.routing.snapshot import Job
from runtime.routing.terms import Terms
from runtime.routing.verdict import Code, Facts, Verdict
from stacks.agent_config import AgentConfig

ON_DEMAND: Final = "on-demand"


class Requeues:
    """The requeues of one decision."""

    def __init__(self, config: AgentConfig, resources: Resources, terms: Terms, now: float) -> None:
        self._config = config
        self._resources = resources
        self._terms = terms
        self._now = now
        self.requeues: list[Requeue] = []

    def requeue(self, evicted: Sequence[Job]) -> None:
        """Send on every job whose quota and pods are gone; for one whose pods still end, set aside what it will have.

        Kueue frees the quota of a stopped job before its pods are gone, and somebody younger may be waiting for it.
        """
        for job in evicted:
            marker = job.eviction
            if marker is None or (job.flavor is not None and marker.kind is not NoticeKind.MOVE):
                continue
            chosen = self._choose(job, marker)
            if marker.gone_at is None or job.flavor is not None:
                continue
            facts: Facts = {"notice": marker.kind.value, "lost": marker.flavor}
            if job.move is not None and marker.kind is NoticeKind.MOVE and not self._is_wanted(job, marker, chosen):
                facts = {**facts, "wanted": job.move.to or "another flavor"}
            moved = job.move is not None and (marker.kind is NoticeKind.MOVE or self._is_wanted(job, marker, chosen))
            if isinstance(chosen, str):
                waits = self._terms.waits(job, self._now)
                verdict = Verdict(Code.RELEASED, {**waits, **facts, "target": chosen})
                self.requeues.append(Requeue(job, verdict, chosen, moved))
            else:
                cause = {"cause": chosen.code.value} if chosen else {}
                self.requeues.append(Requeue(job, Verdict(Code.REQUEUED, {**facts, **cause}), None, moved))

    def _choose(self, job: Job, marker: Marker) -> str | Verdict | None:
        """The cloud flavor it may have now; why none; or None for a job that ran on local GPUs or is wanted there."""
        lost = self._config.flavors.get(marker.flavor)
        if lost is None or not lost.cloud or job.recall_reason is not None:
            return None
        leave = self._terms.of(job)
        if leave.refusal is not None:
            return leave.refusal
        choose = self._resources.choose if job.flavor is None else self._resources.choose_instead
        return choose(job, self._in_turn(job, leave.targets, marker))

    def _in_turn(self, job: Job, targets: tuple[str, ...], marker: Marker) -> tuple[str, ...]:
        """The flavors in the order in which they are tried after this loss."""
        flavors, often = self._config.flavors, self._config.eviction.on_demand_after
        lost_too_often = bool(often) and marker.attempts - marker.planned >= often
        markets = list(dict.fromkeys(flavors[target].place for target in targets))

        def turn(target: str) -> tuple[bool, bool, int, bool]:
            place = flavors[target].place
            unwanted = job.move is not None and not self._is_wanted(job, marker, target)
            return unwanted, lost_too_often and place != ON_DEMAND, markets.index(place), target == marker.flavor

        return tuple(sorted(targets, key=turn))

    def _is_wanted(self, job: Job, marker: Marker, chosen: str | Verdict | None) -> bool:
        """Whether that is where an administrator wants it."""
        if job.move is None or not isinstance(chosen, str):
            return False
        return is_wanted(self._config, job.move, chosen, marker.flavor)
