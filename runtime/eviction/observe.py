"""Turns nodes and pods, as the API server sent them, and our jobs into the view that evictions are planned from.

Pods of Kueue's in our namespaces count, on every node of the fleet. What cannot be read counts as not written; of a
node's notices that is logged, once. The last answer of each job is remembered beyond its pods, because a pod often goes
in the same moment in which its termination message appears; a restart forgets it, and the loss is then counted from the
checkpoint before.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from typing import Any, Final, NamedTuple

from runtime import metrics
from runtime.clock import Clock
from runtime.eviction.drains import drains_of
from runtime.eviction.notice import Notice
from runtime.eviction.pods import SeenPod, read_pod
from runtime.eviction.sources.nodes import notices_of, unreadable
from runtime.eviction.sources.signs import SILENT
from runtime.eviction.transitions import is_preemption_open, is_recorded
from runtime.eviction.view import Answer, HeldWorkload, NodeView, Phase, PodView, View
from runtime.eviction.wish import notice_of
from runtime.routing.snapshot import Job, Stage
from stacks.agent_config import AgentConfig
from stacks.labels import (
    CLEARED_ANNOTATION,
    FLAVOR_LABEL,
)

Raw = Mapping[str, Any]

MOST_REMEMBERED: Final = 10_000
"""Jobs whose last answer is remembered."""

_HELD: Final = (Stage.RUNNING_LOCAL, Stage.RUNNING_CLOUD, Stage.EVICTED)
_INACTIVE: Final = (Stage.STOPPED, Stage.EVICTED, Stage.RECALLING)


log = logging.getLogger(__name__)


class SeenNode(NamedTuple):
    """A node, and, where it is silent, what shows for how long: that alone becomes a notice by the passing of time."""

    view: NodeView
    silent: Raw | None


class Run(NamedTuple):
    """When a run began, in fleet time, and on which flavor."""

    began_at: float
    flavor: str


NO_RUNS: Final[Mapping[str, Run]] = {}


class Scout:
    """Reduces nodes and pods for one fleet, and puts views together."""

    def __init__(self, config: AgentConfig, clock: Clock) -> None:
        self._clock = clock
        self._namespaces = {team.namespace: team.namespace for team in config.teams.values()}
        self._answers: dict[tuple[str, str], Answer] = {}
        self._unread: dict[str, str] = {}

    def node(self, raw: Raw) -> SeenNode | None:
        """A node of the fleet."""
        metadata, status = raw.get("metadata") or {}, raw.get("status") or {}
        labels = metadata.get("labels") or {}
        name = metadata.get("name")
        if not isinstance(name, str) or FLAVOR_LABEL not in labels:
            return None
        ready = any(
            condition.get("type") == "Ready" and condition.get("status") == "True"
            for condition in status.get("conditions") or ()
        )
        notices = _notices_on(raw, self._clock.real_now())
        self._complain(name, unreadable(raw))
        cleared = str((metadata.get("annotations") or {}).get(CLEARED_ANNOTATION, ""))
        flavor = str(labels[FLAVOR_LABEL])
        view = NodeView(name, notices, present=True, ready=ready, flavor=flavor, cleared=cleared)
        taints = (raw.get("spec") or {}).get("taints") or ()
        return SeenNode(view, raw if any(taint.get("key") in SILENT for taint in taints) else None)

    def _complain(self, node: str, reason: str | None) -> None:
        """Say once that a node's notices cannot be read, until they can or are others."""
        before = self._unread.pop(node, None)
        if reason is None:
            return
        self._unread[node] = reason
        if reason != before:
            metrics.unreadable_notices.inc()
            log.warning("notices cannot be read, and count as none", extra={"node": node, "error": reason})

    def present(self, node: SeenNode) -> NodeView:
        """The node as it is at this moment."""
        if node.silent is None:
            return node.view
        return replace(node.view, notices=_notices_on(node.silent, self._clock.real_now()))

    def pod(self, raw: Raw) -> SeenPod | None:
        """A pod that is bound to a node, until it has ended and left no answer."""
        seen = read_pod(raw, self._namespaces)
        if seen is not None:
            self._remember(seen)
        return seen

    def _remember(self, seen: SeenPod) -> None:
        answer, whose = seen.view.answer, seen.view.workload or seen.owner_uid
        if answer is None or not whose or not seen.view.managed:
            return
        key = (seen.view.namespace, whose)
        before = self._answers.pop(key, None)
        self._answers[key] = answer if before is None or before.at <= answer.at else before
        if len(self._answers) > MOST_REMEMBERED:
            del self._answers[next(iter(self._answers))]

    def view(
        self,
        nodes: Iterable[NodeView],
        pods: Iterable[SeenPod],
        jobs: Collection[Job],
        strangers: Iterable[SeenPod] = (),
        gone: Collection[str] = (),
        may_leave: Collection[tuple[str, str]] = (),
        runs: Mapping[str, Run] = NO_RUNS,
    ) -> View:
        """Put everything together; `strangers` are pods that are not Kueue's, `gone` nodes that are surely gone.

        `may_leave` has the UIDs of jobs that may be moved now, each with the wish; `runs` what was seen of running jobs
        last.
        """
        named = {(job.namespace, job.owner_uid): job.name for job in jobs}
        ours = [_resolved(pod, named) for pod in pods]
        seen = {node.name: node for node in nodes}
        for name in gone:
            seen.setdefault(name, NodeView(name, (), present=False, ready=False, flavor=""))
        held = (
            job
            for job in jobs
            if job.stage in _HELD or _under_way(job) or (job.preempted_at and self.preemption_of(job))
        )
        return View(
            nodes=seen,
            pods=[*ours, *(pod.view for pod in strangers)],
            workloads=[self._held(job, may_leave, runs.get(job.uid)) for job in held],
        )

    def preemption_of(self, job: Job) -> float | None:
        """When Kueue preempted the job, in real seconds, if that is yet to be recorded or to be accounted."""
        marker = job.eviction
        if job.preempted_at is None or (marker is not None and marker.phase is Phase.STOPPED):
            return None
        at = self._clock.to_real(job.preempted_at)
        return None if is_recorded(marker, at) and not is_preemption_open(marker) else at

    def _held(self, job: Job, may_leave: Collection[tuple[str, str]], run: Run | None) -> HeldWorkload:
        began_at, flavor, preempted_at = job.pods_ready_at or job.ready_at, job.flavor, self.preemption_of(job)
        if preempted_at is not None:
            # Kueue takes these back as it preempts.
            began_at = began_at or (job.run_began_at if run is None else run.began_at)
            flavor = flavor or (None if run is None else run.flavor)
        wish = job.move if job.move is not None and (job.uid, job.move.id) in may_leave else None
        answers = (self._answers.get((job.namespace, key)) for key in (job.name, job.owner_uid))
        newest = max((answer.at for answer in answers if answer is not None), default=None)
        return HeldWorkload(
            uid=job.uid,
            namespace=job.namespace,
            name=job.name,
            team=job.team,
            job_class=job.job_class,
            gpus=job.gpus,
            active=job.stage not in _INACTIVE,
            holds_quota=job.flavor is not None and job.stage is not Stage.FINISHED,
            finished=job.stage is Stage.FINISHED,
            started_at=None if began_at is None else self._clock.to_real(began_at),
            marker=job.eviction,
            last_checkpoint_at=newest,
            flavor=flavor or "",
            notices=() if wish is None else (notice_of(wish, self._clock.to_real(wish.asked_at)),),
            preempted_at=preempted_at,
        )


def evictions_under_way(nodes: Iterable[NodeView], jobs: Iterable[Job]) -> bool:
    """Whether there is anything to plan at all."""
    return any(node.notices for node in nodes) or any(_under_way(job) for job in jobs)


def _notices_on(raw: Raw, now: float) -> tuple[Notice, ...]:
    """What others say of a node, and what it is to be emptied for."""
    drains = drains_of(raw, now)
    found = notices_of(raw, now)
    return tuple(sorted((*found, *drains), key=lambda notice: (notice.id, notice.kind))) if drains else found


def run_of(job: Job) -> Run | None:
    """What is to be remembered of a job that runs, because Kueue takes it back as it preempts."""
    began_at = job.pods_ready_at or job.ready_at
    return None if began_at is None or job.flavor is None else Run(began_at, job.flavor)


def _under_way(job: Job) -> bool:
    marker = job.eviction
    if marker is None or (marker.phase is Phase.DONE and marker.accounted):
        return False
    if job.stage is not Stage.FINISHED:
        return True
    # Nothing more is done with a job that has ended, for as long as it is kept, than to account what it lost.
    is_known = marker.phase is not Phase.STOPPED or marker.gone_at is not None
    return is_known and bool(job.gpus and marker.attempts) and not marker.accounted


def _resolved(pod: SeenPod, named: Mapping[tuple[str, str], str]) -> PodView:
    if pod.view.workload:
        return pod.view
    return replace(pod.view, workload=named.get((pod.view.namespace, pod.owner_uid), ""))
