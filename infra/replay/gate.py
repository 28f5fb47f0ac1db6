"""Proof from the audit log alone that nothing ran in the cloud without the gate, where it should, and unexplained.

A cloud start is a pod that was created for a cloud flavor, or bound to a cloud node. Three things are asked of it, each
of what stood before the pod was created:

- passed: the job's Workload reserved quota on that flavor, then the agent's service account set our check to Ready on
  that reservation;
- routed: the last word on the Job's queue was the agent's move to the team's burst twin of exactly that flavor;
- told: since the job last entered a queue that is no burst twin, the agent had written on the Workload that it was
  released or cleared.

Anything less is a violation, with its reason. Kueue's metrics, the ledger and the agent's own records play no part.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from infra.replay.audit import JobQueue, PodCreated
from infra.replay.histories import Histories
from infra.replay.history import History, Reservation, twins_of
from runtime.routing.verdict import Code
from stacks.flavors import flavors_of_pools
from stacks.fleet import Fleet
from stacks.labels import burst_queue

_SENT = frozenset({Code.RELEASED, Code.CLEARED})


@dataclass(frozen=True, slots=True)
class Violation:
    """A cloud start that is not proven, or an answer of the gate that is not the agent's."""

    at: float
    namespace: str
    subject: str
    reason: str


@dataclass(frozen=True, slots=True)
class GateProof:
    """How many pods started in the cloud, and which of them should not have.

    `unproven` did not pass the gate, `misroutes` were not released to the flavor they ran on, `untold` have no verdict
    of the agent; `forged` says who answered the gate in the agent's place.
    """

    pods: int
    jobs: int
    unproven: tuple[Violation, ...] = ()
    forged: tuple[Violation, ...] = ()
    misroutes: tuple[Violation, ...] = ()
    untold: tuple[Violation, ...] = ()

    @property
    def holds(self) -> bool:
        """Whether there is no violation at all."""
        return not (self.unproven or self.forged or self.misroutes or self.untold)


def prove_gate(histories: Histories, fleet: Fleet, cloud_nodes: Mapping[str, str], since: float = 0.0) -> GateProof:
    """Check every cloud start since a time.

    Args:
        histories: The audit log.
        fleet: Whose cloud flavors and teams.
        cloud_nodes: Flavor of every cloud node, by the node's name.
        since: Real time; earlier starts are not counted.
    """
    cloud = {flavor.name for flavor in flavors_of_pools(fleet.pools).values() if flavor.cloud}
    by_job: dict[str, list[History]] = {}
    for history in histories.jobs.values():
        if history.job_uid:
            by_job.setdefault(history.job_uid, []).append(history)
    starts = [pod for pod in histories.pods if pod.flavor in cloud and pod.at >= since]
    twins = twins_of(fleet)
    unproven: list[Violation] = []
    misroutes: list[Violation] = []
    untold: list[Violation] = []
    for pod in starts:
        workload, reservation = _standing(pod, by_job.get(pod.job_uid or "", []))
        words = _words(pod, histories)
        for found, reason in (
            (unproven, _not_passed(pod, reservation)),
            (misroutes, _misrouted(pod, words, workload, fleet)),
            (untold, _untold(pod, words, workload, twins)),
        ):
            if reason is not None:
                found.append(Violation(pod.at, pod.namespace, pod.job or pod.stem, reason))
    for bound in histories.bindings:
        flavor, created = cloud_nodes.get(bound.node), histories.asked(bound)
        asked = created.flavor if created is not None else None
        if flavor is not None and bound.at >= since and asked != flavor:
            reason = f"was bound to {bound.node}, a node of {flavor}, but was created for {asked or 'no flavor'}"
            misroutes.append(Violation(bound.at, bound.namespace, bound.pod, reason))
    return GateProof(
        pods=len(starts),
        jobs=len({pod.job_uid for pod in starts}),
        unproven=_in_order(unproven),
        forged=tuple(_forged(histories, cloud, since)),
        misroutes=_in_order(misroutes),
        untold=_in_order(untold),
    )


def _standing(pod: PodCreated, workloads: list[History]) -> tuple[History | None, Reservation | None]:
    """The Workload and the reservation that the pod came from: the latest before it."""
    standing = [(one, run) for one in workloads for run in one.reservations if run.at <= pod.at]
    return max(standing, key=lambda pair: pair[1].version, default=(None, None))


def _words(pod: PodCreated, histories: Histories) -> list[JobQueue]:
    """What was said about the queue of the pod's Job before the pod.

    A full write of the Job by another repeats the queue and moves nothing; it is left out.
    """
    said: list[JobQueue] = []
    for word in histories.queues.get((pod.namespace, pod.job or ""), []):
        if word.at <= pod.at and (not said or word.created or word.queue != said[-1].queue):
            said.append(word)
    return said


def _not_passed(pod: PodCreated, reservation: Reservation | None) -> str | None:
    if pod.job is None or pod.job_uid is None:
        return "no Job owns the pod"
    if reservation is None:
        return "its Job has no Workload that reserved quota before"
    if reservation.flavor != pod.flavor:
        return f"the pod is for {pod.flavor}, but the quota was reserved on {reservation.flavor}"
    if reservation.ready_at is not None and reservation.ready_at <= pod.at:
        return None
    if reservation.forged_by:
        return f"{reservation.forged_by} set the gate to Ready, not the agent"
    return "the agent had not set the gate to Ready since the quota was reserved"


def _misrouted(pod: PodCreated, words: list[JobQueue], history: History | None, fleet: Fleet) -> str | None:
    if history is None or history.team not in fleet.teams:
        return f"namespace {pod.namespace} belongs to no team, or no Workload is known"
    twin = burst_queue(history.team, pod.flavor or "")
    if not words or words[-1].queue != twin:
        return f"the job was in the queue {words[-1].queue if words else '(unknown)'}, not released to {pod.flavor}"
    return None if words[-1].by_agent else f"{words[-1].user} put the job into {twin}, not the agent"


def _untold(pod: PodCreated, words: list[JobQueue], history: History | None, twins: Mapping[str, str]) -> str | None:
    left = max((word.at for word in words if word.queue not in twins), default=0.0)
    told = history is not None and any(left <= at <= pod.at and code in _SENT for at, code in history.verdicts)
    return None if told else "the agent had not written on the Workload that the job was released or cleared"


def _in_order(found: list[Violation]) -> tuple[Violation, ...]:
    return tuple(sorted(found, key=lambda one: one.at))


def _forged(histories: Histories, cloud: set[str], since: float) -> list[Violation]:
    return [
        Violation(reservation.at, history.namespace, history.job or history.name, f"by {reservation.forged_by}")
        for history in histories.jobs.values()
        for reservation in history.reservations
        if reservation.forged_by and reservation.flavor in cloud and reservation.at >= since
    ]
