"""Proof from the audit log alone that nothing ran in the cloud without the gate.

A cloud start is a pod that was created for a cloud flavor, or bound to a cloud node. It is proven when, before the pod
was created, in this order: the job's Workload reserved quota on that flavor, and the agent's service account set our
check to Ready on that reservation; and the last word on the Job's queue before the pod was the agent's move to the
team's burst queue. Anything less is a violation, with its reason. Kueue's metrics, the ledger and the agent's own
records play no part.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from infra.replay.audit import JobQueue, PodCreated
from infra.replay.histories import Histories
from infra.replay.history import History, Reservation
from stacks.flavors import flavors_of_pools
from stacks.fleet import Fleet
from stacks.labels import BURST_SUFFIX


@dataclass(frozen=True, slots=True)
class Violation:
    """A cloud start that is not proven, or an answer of the gate that is not the agent's."""

    at: float
    namespace: str
    subject: str
    reason: str


@dataclass(frozen=True, slots=True)
class GateProof:
    """How many pods started in the cloud, which of them without proof, and who forged the gate's answer."""

    pods: int
    jobs: int
    unproven: tuple[Violation, ...]
    forged: tuple[Violation, ...]


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
    unproven = [
        Violation(pod.at, pod.namespace, pod.job or pod.stem, reason)
        for pod in starts
        if (reason := _missing_proof(pod, by_job.get(pod.job_uid or "", []), histories, fleet))
    ]
    for bound in histories.bindings:
        flavor, pod = cloud_nodes.get(bound.node), histories.asked(bound)
        asked = pod.flavor if pod is not None else None
        if flavor is not None and bound.at >= since and asked != flavor:
            reason = f"was bound to {bound.node}, a node of {flavor}, but was created for {asked or 'no flavor'}"
            unproven.append(Violation(bound.at, bound.namespace, bound.pod, reason))
    return GateProof(
        pods=len(starts),
        jobs=len({pod.job_uid for pod in starts}),
        unproven=tuple(sorted(unproven, key=lambda one: one.at)),
        forged=tuple(_forged(histories, cloud, since)),
    )


def _missing_proof(pod: PodCreated, workloads: list[History], histories: Histories, fleet: Fleet) -> str | None:
    """What the log lacks for this pod, None where it lacks nothing."""
    if pod.job is None or pod.job_uid is None:
        return "no Job owns the pod"
    standing = [
        (history, reservation)
        for history in workloads
        for reservation in history.reservations
        if reservation.at <= pod.at
    ]
    if not standing:
        return "its Job has no Workload that reserved quota before"
    history, reservation = max(standing, key=lambda one: one[1].version)
    return _not_passed(reservation, pod) or _not_released(pod, history, histories, fleet)


def _not_passed(reservation: Reservation, pod: PodCreated) -> str | None:
    if reservation.flavor != pod.flavor:
        return f"the pod is for {pod.flavor}, but the quota was reserved on {reservation.flavor}"
    if reservation.ready_at is not None and reservation.ready_at <= pod.at:
        return None
    if reservation.forged_by:
        return f"{reservation.forged_by} set the gate to Ready, not the agent"
    return "the agent had not set the gate to Ready since the quota was reserved"


def _not_released(pod: PodCreated, history: History, histories: Histories, fleet: Fleet) -> str | None:
    team = fleet.teams.get(history.team)
    if team is None:
        return f"namespace {history.namespace} belongs to no team"
    last: JobQueue | None = None
    for word in histories.queues.get((pod.namespace, pod.job or ""), []):
        if word.at > pod.at:
            break
        if last is None or word.created or word.queue != last.queue:
            last = word  # a full write of the Job by another repeats the queue and moves nothing
    if last is None or last.queue != history.team + BURST_SUFFIX:
        return f"the job was in the queue {last.queue if last else '(unknown)'}, not released"
    return None if last.by_agent else f"{last.user} put the job into {last.queue}, not the agent"


def _forged(histories: Histories, cloud: set[str], since: float) -> list[Violation]:
    return [
        Violation(reservation.at, history.namespace, history.job or history.name, f"by {reservation.forged_by}")
        for history in histories.jobs.values()
        for reservation in history.reservations
        if reservation.forged_by and reservation.flavor in cloud and reservation.at >= since
    ]
