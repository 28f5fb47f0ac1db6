"""Which cloud flavors a job may be sent to at all, in the order they are tried, or why none.

It looks at what does not change within a decision: markets of the class, GPU model, sizes, the twins in the cluster,
and flavors whose nodes did not come lately. Room and money are runtime.routing.resources' business.

Invariant: a flavor that is returned is behind the gate, has a twin of the job's team, and could hold the job when
empty.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from runtime.cost.ledger import NEVER_READY, Books
from runtime.routing.local import suits
from runtime.routing.policy import class_of
from runtime.routing.snapshot import Job
from runtime.routing.verdict import Code, Verdict
from stacks.agent_config import AgentConfig

COOLING_SECONDS: Final = 1_800.0
"""Real seconds for which a flavor is left alone after its pods did not become ready: spot capacity of one kind in one
place that is out comes back in tens of minutes, and each try is paid for until Kueue gives up on it."""

PROVEN_BY_TEAMS: Final = 2
"""Teams on whose word a flavor is left alone by everybody: one team alone may have an image that never starts, and
must not keep the others out of the cloud with it."""


class Targets:
    """The choice of flavors in one decision."""

    def __init__(self, books: Books | None, config: AgentConfig, broken_queues: frozenset[str], now: float) -> None:
        self._config = config
        self._broken = broken_queues
        self._cooling = _cooling_by_team(books, config, now)

    def of(self, job: Job) -> tuple[str, ...] | Verdict:
        """The flavors that may take the job, the first tried first; or why there is none."""
        team = self._config.teams.get(job.team)
        allowed = [name for name in self._config.burst_order if self._allows(job, name)]
        if not allowed or team is None:
            return _no_market(job)
        large = [name for name in allowed if self._holds(job, name)]
        if not large:
            return self._too_large(job, allowed)
        working = [name for name in large if team.burst_queues.get(name, "") not in self._broken | {""}]
        if not working:
            return Verdict(Code.TWIN_DOWN, {"flavor": large[0]})
        warm = tuple(name for name in working if not self._cold_for(job.team, name))
        return warm or self._cold(job.team, working)

    def refuse(self, job: Job, flavor: str) -> Verdict | None:
        """None if a job that holds quota of the flavor may use it, whatever became of its twin."""
        if flavor not in self._config.burst_order or not self._allows(job, flavor):
            return _no_market(job)
        if not self._holds(job, flavor):
            return self._too_large(job, [flavor])
        return self._cold(job.team, [flavor]) if self._cold_for(job.team, flavor) else None

    def _allows(self, job: Job, flavor: str) -> bool:
        markets, settings = class_of(job, self._config).markets, self._config.flavors[flavor]
        return (markets is None or settings.place in markets) and suits(job, settings)

    def _holds(self, job: Job, flavor: str) -> bool:
        settings = self._config.flavors[flavor]
        return job.gpus <= settings.gpus and job.pod_gpus <= settings.gpus_per_node

    def _cold_for(self, team: str, flavor: str) -> float:
        """Seconds for which the team leaves the flavor alone."""
        left = self._cooling.get(flavor, {})
        return max(left.values()) if len(left) >= PROVEN_BY_TEAMS else left.get(team, 0.0)

    def _cold(self, team: str, flavors: Sequence[str]) -> Verdict:
        left = min(self._cold_for(team, name) for name in flavors)
        return Verdict(Code.NODES_DO_NOT_COME, {"flavor": flavors[0], "cooling_s": round(left)})

    def _too_large(self, job: Job, allowed: Iterable[str]) -> Verdict:
        flavors = [self._config.flavors[name] for name in allowed]
        gpus, node_gpus = max(flavor.gpus for flavor in flavors), max(flavor.gpus_per_node for flavor in flavors)
        if job.gpus > gpus:
            return Verdict(Code.TOO_LARGE, {"gpus": job.gpus, "largest_gpus": gpus})
        if job.pod_gpus > node_gpus:
            return Verdict(Code.TOO_LARGE, {"pod_gpus": job.pod_gpus, "node_gpus": node_gpus})
        # One flavor is large enough in all, another has nodes that are, none is both.
        return Verdict(Code.TOO_LARGE, {"gpus": job.gpus, "pod_gpus": job.pod_gpus, "node_gpus": node_gpus})


def _no_market(job: Job) -> Verdict:
    return Verdict(Code.NO_MARKET, {"class": job.job_class, **({"gpu": job.gpu} if job.gpu else {})})


def cooling(books: Books | None, config: AgentConfig, now: float) -> dict[str, float]:
    """Flavors on which pods did not become ready lately, with the seconds for which some team leaves them alone."""
    return {flavor: max(left.values()) for flavor, left in _cooling_by_team(books, config, now).items()}


def _cooling_by_team(books: Books | None, config: AgentConfig, now: float) -> Mapping[str, Mapping[str, float]]:
    """By flavor, the teams whose pods did not become ready on it, each with the seconds that are left."""
    found: dict[str, dict[str, float]] = defaultdict(dict)
    if books is None:
        return found
    length = COOLING_SECONDS * config.replay_speed
    for attempt, closing in books.closings.items():
        left = closing.ended_at + length - now
        if closing.reason == NEVER_READY and left > 0 and attempt in books.openings:
            opening = books.openings[attempt]
            known = found[opening.flavor]
            known[opening.team] = max(left, known.get(opening.team, 0.0))
    return found
