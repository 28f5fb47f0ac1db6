"""The life of every job, put together from the audit log: reservations, answers of the gate, queues and verdicts.

It decides nothing about right and wrong. Order is exact: writes of Workloads are ordered by resource version, which
the store counts over all objects; times are those at which the server received the requests, to the microsecond.

Invariants: reservations of a job do not overlap; an answer belongs to the reservation that stood when it was written,
so a new reservation starts without one. A verdict is the agent's if the agent's request made it appear, or if the agent
asked for one, was gone before the answer, and it appeared in what somebody else wrote next.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Final

from infra.replay.audit import (
    Fact,
    JobQueue,
    PodBound,
    PodCreated,
    ReadyAsked,
    VerdictAsked,
    WorkloadDeleted,
    WorkloadWritten,
)
from infra.replay.history import Change, History, Reservation
from infra.replay.workload import Workload, workload_of
from stacks.fleet import Fleet

_GENERATED_SUFFIX: Final = 5  # random characters that the API server appends to generateName
_LONGEST_STEM: Final = 58  # 63 less those: the server cuts longer stems (apiserver, names.MaxGeneratedNameLength)


@dataclass
class Histories:
    """Everything the log says. `jobs` is by Workload UID, `queues` by (namespace, job), both in the order of time."""

    jobs: dict[str, History] = field(default_factory=dict)
    queues: dict[tuple[str, str], list[JobQueue]] = field(default_factory=dict)
    pods: list[PodCreated] = field(default_factory=list)
    bindings: list[PodBound] = field(default_factory=list)

    def asked(self, bound: PodBound) -> PodCreated | None:
        """The creation of the pod that was bound; the log has names of generated pods only without their suffix."""
        for stem in (bound.pod, bound.pod[:-_GENERATED_SUFFIX]):
            if (pod := self._by_stem.get((bound.namespace, stem))) is not None:
                return pod
        return None

    def bound_times(self) -> dict[tuple[str, str], list[float]]:
        """When pods of each (namespace, job) were bound to nodes, in order."""
        found: dict[tuple[str, str], list[float]] = {}
        for bound in sorted(self.bindings, key=lambda one: one.at):
            pod = self.asked(bound)
            if pod is not None and pod.job is not None:
                found.setdefault((pod.namespace, pod.job), []).append(bound.at)
        return found

    @cached_property
    def _by_stem(self) -> dict[tuple[str, str], PodCreated]:
        return {(pod.namespace, pod.stem[:_LONGEST_STEM]): pod for pod in self.pods}


def histories_of(facts: Iterable[Fact], fleet: Fleet) -> Histories:
    """Put the facts of an audit log together."""
    found = Histories()
    teams = {team.namespace or name: name for name, team in fleet.teams.items()}
    written: list[WorkloadWritten] = []
    deleted: list[WorkloadDeleted] = []
    asked: dict[tuple[str, str], list[ReadyAsked | VerdictAsked]] = {}
    for fact in facts:
        if isinstance(fact, PodCreated):
            found.pods.append(fact)
        elif isinstance(fact, PodBound):
            found.bindings.append(fact)
        elif isinstance(fact, JobQueue):
            found.queues.setdefault((fact.namespace, fact.job), []).append(fact)
        elif isinstance(fact, WorkloadWritten):
            written.append(fact)
        elif isinstance(fact, ReadyAsked | VerdictAsked):
            asked.setdefault((fact.namespace, fact.name), []).append(fact)
        else:
            deleted.append(fact)
    for moves in found.queues.values():
        moves.sort(key=lambda move: move.at)
    for write in sorted(written, key=lambda one: (one.version, one.at)):
        _apply(found.jobs, write, teams, asked)
    _end_deleted(found, deleted)
    return found


def _apply(
    jobs: dict[str, History],
    write: WorkloadWritten,
    teams: Mapping[str, str],
    asked: Mapping[tuple[str, str], list[ReadyAsked | VerdictAsked]],
) -> None:
    now = workload_of(write.workload)
    history = jobs.get(now.uid)
    before = history.latest if history else None
    if history is None:
        history = jobs[now.uid] = History(
            uid=now.uid,
            namespace=now.namespace,
            name=now.name,
            team=teams.get(now.namespace, now.namespace),
            job=now.job,
            job_uid=now.job_uid,
            job_class=now.job_class,
            priority=now.priority,
            gpus=now.gpus,
            created_at=now.created_at,
            first_seen_at=write.at,
            latest=now,
        )
    _reserve(history, now, write)
    unanswered = asked.get((now.namespace, now.name), [])
    _answer(history, now, before, write, [one for one in unanswered if isinstance(one, ReadyAsked)])
    _say(history, now, before, write, [one for one in unanswered if isinstance(one, VerdictAsked)])
    open_ = now.reserved_at is None and now.finished_at is None and now.active and not now.gone
    if not history.changes or (history.changes[-1].queue, history.changes[-1].open) != (now.queue, open_):
        history.changes.append(Change(write.version, write.at, now.queue, open_))
    history.priority, history.latest, history.gone = now.priority, now, history.gone or now.gone


def _reserve(history: History, now: Workload, write: WorkloadWritten) -> None:
    standing = history.current
    holds = now.reserved_at is not None and now.finished_at is None and not now.gone and now.flavor is not None
    if standing and not holds:
        ends = [moment for moment in (now.finished_at, now.unreserved_at) if moment is not None]
        standing.end_version, standing.ended_at = write.version, write.at
        standing.end_condition = min(ends) if ends else write.at
    elif holds and not standing and now.flavor is not None:
        standing = Reservation(now.flavor, now.gpus, write.version, write.at)
        history.reservations.append(standing)
    if standing and standing.freed_version is None and not (holds and now.active):
        standing.freed_version, standing.freed_at = write.version, write.at
    if standing and holds and now.admitted_at is not None and standing.admitted_at is None:
        standing.admitted_at, standing.admitted_condition = write.at, now.admitted_at


def _answer(
    history: History, now: Workload, before: Workload | None, write: WorkloadWritten, asked: list[ReadyAsked]
) -> None:
    standing = history.current
    if standing is None or now.gate != "Ready":
        return
    if write.by_agent and write.says_ready:
        standing.ready_at = standing.ready_at if standing.ready_at is not None else write.at
    elif standing.ready_at is None and (before is None or before.gate != "Ready" or standing.version == write.version):
        # The agent's request names the version it changes, so it can only have passed this very reservation.
        killed = next((one for one in asked if standing.version <= one.version < write.version), None)
        if killed is not None:
            standing.ready_at = killed.at
        else:
            standing.forged_by = write.user


def _say(
    history: History, now: Workload, before: Workload | None, write: WorkloadWritten, asked: list[VerdictAsked]
) -> None:
    if now.verdict is None or (before is not None and before.verdict == now.verdict):
        return
    ours = write.by_agent or any(history.first_seen_at <= one.at <= write.at for one in asked)
    said = history.verdicts if ours else history.foreign_verdicts
    said.append((write.at, now.verdict.code))
    if ours and now.verdict.limit_seconds is not None:
        history.wait_limit_seconds = now.verdict.limit_seconds


def _end_deleted(found: Histories, deleted: Iterable[WorkloadDeleted]) -> None:
    """A deletion is logged without its object: what the Workload held ends at that time."""
    by_name: dict[tuple[str, str], list[History]] = {}
    for history in found.jobs.values():
        by_name.setdefault((history.namespace, history.name), []).append(history)
    for fact in deleted:
        for history in by_name.get((fact.namespace, fact.name), []):
            if history.first_seen_at <= fact.at and history.latest.finished_at is None:
                history.gone = True
                version = _version_at(found, fact.at)
                if (standing := history.current) is not None:
                    standing.ended_at = standing.end_condition = fact.at
                    standing.end_version = version
                    if standing.freed_version is None:
                        standing.freed_version, standing.freed_at = version, fact.at
                history.changes.append(Change(version, fact.at, history.latest.queue, open=False))


def _version_at(found: Histories, at: float) -> int:
    """The version after all changes that were known at a time."""
    return (
        max((change.version for one in found.jobs.values() for change in one.changes if change.at <= at), default=0) + 1
    )
