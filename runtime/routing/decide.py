"""The one decision: who may leave for the cloud and where to, who passes the gate, who comes back, and why others wait.

Kueue keeps order, fair share and preemption; this module only says which jobs may use which cloud flavor. It reads no
clock and no cluster: everything comes from the snapshot, so that a recorded snapshot decides the same again, and the
replay uses this very code. Money is committed at the gate, where each job is judged anew, whatever was decided before.

Invariants: nothing is cleared without a reservation, and no attempt is opened twice; the older of two equal jobs is
considered first; releases of one decision never promise more room, team GPUs or money than there is, counting what
earlier decisions promised; equal snapshots give equal decisions, in whatever order their jobs come.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from operator import attrgetter

from runtime.routing.decision import Decision, Hold, SetQueue
from runtime.routing.endings import endings
from runtime.routing.gate import Gate
from runtime.routing.local import LocalRoom
from runtime.routing.moves import UNDER_WAY, Moves
from runtime.routing.policy import WaitRule
from runtime.routing.release import Releases
from runtime.routing.requeue import Requeues
from runtime.routing.resources import Resources
from runtime.routing.snapshot import Job, Snapshot, Stage
from runtime.routing.targets import Targets
from runtime.routing.terms import Terms
from stacks.agent_config import AgentConfig


def decide(snapshot: Snapshot, config: AgentConfig, now: float, decision_id: str) -> Decision:
    """Decide what to do now.

    Args:
        snapshot: what the agent sees; its jobs may come in any order.
        config: the fleet, as the agent was told.
        now: fleet time, seconds since the epoch.
        decision_id: recorded with every opening, to find the decision that spent the money.
    """
    wait = WaitRule(config, snapshot.history)
    resources = Resources(snapshot, config, wait, now, decision_id)
    local = LocalRoom(config, snapshot.capacity)
    jobs: dict[Stage, list[Job]] = {stage: [] for stage in Stage}
    wanted_elsewhere = []
    for job in in_order(snapshot.jobs):
        jobs[job.stage].append(job)
        if job.flavor is not None:
            resources.count(job)
            local.count(job)
        if job.move is not None or job.verdict_code in UNDER_WAY:
            wanted_elsewhere.append(job)
    closed = closed_windows(config, now)
    terms = Terms(config, wait, local, Targets(snapshot.books, config, snapshot.broken_queues, now), closed)
    gate = Gate(snapshot.books, config, resources, terms, local, now)
    gate.adopt_strays(jobs[Stage.RUNNING_CLOUD])
    gate.answer(jobs[Stage.AT_GATE], waiting=[*jobs[Stage.QUEUED], *jobs[Stage.RELEASED]])
    gate.recall_as_asked(jobs[Stage.RUNNING_CLOUD])
    releases = Releases(config, resources, terms, now)
    releases.keep_promises(jobs[Stage.RELEASED])
    requeues = Requeues(config, resources, terms, now)
    requeues.requeue(jobs[Stage.EVICTED])
    moves = Moves(config, resources, terms, now)
    moves.judge(wanted_elsewhere)
    releases.release(jobs[Stage.QUEUED])
    releases.continue_recalls(jobs[Stage.RECALLING])
    return Decision(
        id=decision_id,
        decided_at=now,
        closes=endings(snapshot, now, config.replay_speed),
        adoptions=tuple(gate.adoptions),
        clears=tuple(gate.clears),
        recalls=(*gate.recalls, *releases.recalls),
        requeues=tuple(requeues.requeues),
        releases=tuple(releases.releases),
        holds=_merged(gate.holds, releases.holds),
        queues=_window_queues(snapshot, config, closed),
        moves=tuple(moves.moves),
        may_leave=frozenset(moves.allowed),
    )


def in_order(jobs: Iterable[Job]) -> list[Job]:
    """By priority, then the older first, then by uid; sorting is stable, so the last key goes first."""
    ordered = sorted(jobs, key=attrgetter("uid"))
    ordered.sort(key=attrgetter("created_at"))
    ordered.sort(key=attrgetter("priority"), reverse=True)
    return ordered


def closed_windows(config: AgentConfig, now: float) -> dict[str, float]:
    """The classes that may not start now, with the fleet time at which their window opens."""
    moment = datetime.fromtimestamp(now, UTC)
    return {
        name: settings.window.next_opening(moment).timestamp()
        for name, settings in config.classes.items()
        if settings.window is not None and not settings.window.contains(moment)
    }


def _window_queues(snapshot: Snapshot, config: AgentConfig, closed: dict[str, float]) -> tuple[SetQueue, ...]:
    """Hold the queues whose window is closed, let go of the others; only those that are not so already."""
    return tuple(
        SetQueue(team.namespace, queue, job_class in closed)
        for _, team in sorted(config.teams.items())
        for job_class, queue in sorted(team.window_queues.items())
        if (job_class in closed) != (queue in snapshot.held_queues)
    )


def _merged(at_gate: list[Hold], queued: list[Hold]) -> tuple[Hold, ...]:
    """The holds at the gate and those in the queues, each in order already, in one order."""
    if not at_gate:
        return tuple(queued)
    by_uid = {hold.job.uid: hold for hold in (*at_gate, *queued)}
    return tuple(by_uid[job.uid] for job in in_order(hold.job for hold in by_uid.values()))
