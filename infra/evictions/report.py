"""Replays a trace in every way, and says where the GPU-hours went."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from infra.evictions.agenda import Agenda
from infra.evictions.cluster import Cluster
from infra.evictions.nodes import SpotTrace
from infra.evictions.sequence import Planned
from infra.evictions.terms import ReplayTerms
from infra.evictions.ways import Nothing, Sigterm
from infra.replay.errors import TraceError

SECONDS_PER_HOUR: Final = 3_600.0

_WAYS: Final[Mapping[str, type[Nothing] | type[Sigterm] | type[Planned]]] = {
    "nothing": Nothing,
    "SIGTERM": Sigterm,
    "sequence": Planned,
}
WAYS: Final = tuple(_WAYS)
"""From the worst to the best, as we hope."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a trace in one way, in GPU-hours. `useful`, `lost`, `held` and `idle` add up to `available`.

    `interruptions` are ends of a job's run, `losses` those that cost it work. `accounted` is what the sequence itself
    says was lost, by the same arithmetic as in the ledger; None in the other ways, which keep no account.
    """

    way: str
    available: float
    useful: float
    lost: float
    held: float
    idle: float
    interruptions: int
    losses: int
    accounted: float | None


def replay_evictions(trace: SpotTrace, terms: ReplayTerms) -> list[Outcome]:
    """What becomes of the trace in each way.

    Raises:
        TraceError: a job needs more nodes than the trace ever has at once.
    """
    if trace.most_nodes < terms.nodes_per_job:
        raise TraceError(
            f"{trace.name}: it never has {terms.nodes_per_job} nodes at once, which is what a job needs, "
            f"but {trace.most_nodes} at most; choose fewer nodes per job"
        )
    return [_replay(trace, terms, way) for way in WAYS]


def _replay(trace: SpotTrace, terms: ReplayTerms, name: str) -> Outcome:
    agenda = Agenda()
    cluster = Cluster(trace, terms, agenda)
    way = _WAYS[name](cluster)
    cluster.follow(way)
    agenda.run(trace.ends_at)
    cluster.close()
    books = cluster.books
    useful, lost, held, idle = (
        seconds / SECONDS_PER_HOUR for seconds in (books.useful, books.lost, books.held, books.idle)
    )
    accounted = way.accounted_gpu_seconds / SECONDS_PER_HOUR if isinstance(way, Planned) else None
    return Outcome(
        name,
        available_gpu_hours(trace, terms),
        useful,
        lost,
        held,
        idle,
        cluster.interruptions,
        cluster.losses,
        accounted,
    )


def available_gpu_hours(trace: SpotTrace, terms: ReplayTerms) -> float:
    """GPU-hours of all nodes while they were there, from the trace alone."""
    lives = ((trace.ends_at if node.gone_at is None else node.gone_at) - node.added_at for node in trace.nodes)
    return sum(lives) * terms.gpus_per_node / SECONDS_PER_HOUR


HEADING: Final = ("WAY", "LOST", "HELD", "IDLE", "USEFUL", "USEFUL %", "INTERRUPTED", "WITH LOSS")


def rows(outcomes: Sequence[Outcome]) -> list[tuple[str, ...]]:
    """A row for each way, in GPU-hours."""
    return [
        (
            one.way,
            *(f"{hours:.2f}" for hours in (one.lost, one.held, one.idle, one.useful)),
            f"{100 * one.useful / one.available:.1f}" if one.available else "-",
            str(one.interruptions),
            str(one.losses),
        )
        for one in outcomes
    ]
