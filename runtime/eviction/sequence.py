"""Plans the next step of every eviction: ask the job to save, stop it, and say what it lost once it has gone.

Pure: the same view and time give the same steps, in whatever order nodes, pods and jobs come, and nothing is remembered
between two plans. It sends no job anywhere: one that is stopped and gone (`gone_at`) is put into a queue again by
whoever decides about queues, in one patch with the marker of `sent_on`; only one on parts of GPUs, about which nobody
decides, is told to go on here. It stops no job for a notice that is only
likely, and touches none that somebody else stopped. Of one that Kueue preempts it notes what that cost, and no more:
Kueue gives no warning, and puts it into its queue again.

Invariants:

- at most one step for each job in a plan, since the next depends on what that one leaves;
- a job is made inactive only together with a marker in phase STOPPED, and only that marker makes it ours to send on;
- a job is stopped before its pods can be lost, as far as notices say, because only lost pods count as failures of it.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

from runtime.eviction.losses import WORTH_A_WRITE_SECONDS, with_answers
from runtime.eviction.notice import Certainty, NoticeKind, worst
from runtime.eviction.steps import Account, Ask, CheckpointRequest, EvictPod, Mark, Resume, Step, Stop
from runtime.eviction.threats import DRAINED_AT_ONCE, Threat, is_gone, notices_on, threat_to
from runtime.eviction.timing import DEFAULT_TERMS, EvictionTerms, stop_by
from runtime.eviction.transitions import (
    begun,
    crossed_out,
    is_preemption_open,
    is_recorded,
    merged,
    preempted,
    same,
    settled,
    stopped,
    unasked,
)
from runtime.eviction.view import HeldWorkload, Marker, NodeView, Phase, PodView, View

_RANKS: Final = {Stop: 0, Ask: 1, EvictPod: 2, Mark: 3, Resume: 4, Account: 5}
"""Stops before questions before records."""


def plan(view: View, now: float, terms: EvictionTerms = DEFAULT_TERMS) -> tuple[Step, ...]:
    """The steps to take now, the most urgent first."""
    pods: dict[tuple[str, str], list[PodView]] = defaultdict(list)
    for pod in sorted(view.pods, key=lambda pod: pod.uid):
        if pod.workload and not pod.daemon:
            pods[pod.namespace, pod.workload].append(pod)
    moment = _Moment(view.nodes, now, terms)
    jobs = (moment.next_step(job, pods.get((job.namespace, job.name), ())) for job in view.workloads)
    loose = (moment.eviction_of(pod) for pod in view.pods)
    return tuple(sorted((step for step in (*jobs, *loose) if step is not None), key=_urgency))


def sent_on(marker: Marker, now: float) -> Marker:
    """The marker to write in the patch that makes the job active again."""
    return replace(marker, phase=Phase.DONE, requeued_at=now)


class _Moment:
    """One plan: the nodes and the time that it is made for."""

    def __init__(self, nodes: Mapping[str, NodeView], now: float, terms: EvictionTerms) -> None:
        self._nodes = nodes
        self._now = now
        self._terms = terms

    def next_step(self, workload: HeldWorkload, pods: Sequence[PodView]) -> Step | None:
        """The one step to take for a job with these pods."""
        marker, phase = workload.marker, workload.marker and workload.marker.phase
        if marker is not None and phase is Phase.STOPPED and not workload.finished:
            return self._see_off(workload, marker, pods)
        if workload.preempted_at is not None or is_preemption_open(marker):
            return self._record_preemption(workload, pods)
        there = [pod for pod in pods if not pod.ended]
        threat = None
        if workload.active and workload.holds_quota and not workload.finished:
            threat = threat_to(workload, there, self._nodes, self._now, self._terms)
        if threat is not None and marker is not None and phase is Phase.ASKED:
            answered = _all_answered(marker, there)
            return self._press(workload, there, merged(marker, threat, answered, self._now, self._terms), threat)
        if threat is not None and not self._goes_round(marker, threat):
            return self._press(workload, there, begun(marker, threat, self._now), threat)
        if marker is not None and phase is Phase.ASKED and not workload.finished:
            # Called off, or overtaken: by its owner, by Kueue, or by the end of its pods.
            return Mark(workload, crossed_out(marker))
        return _account(workload, marker)

    def eviction_of(self, pod: PodView) -> EvictPod | None:
        """The eviction of a pod that Kueue does not own, if it falls to us."""
        ours = pod.gpus > 0 and pod.managed and not (pod.workload or pod.daemon or pod.leaving or pod.ended)
        node = self._nodes.get(pod.node)
        if not ours or node is None or not (node.present and node.ready):
            return None
        binding = [
            notice
            for notice in notices_on(pod.node, self._nodes, self._now, self._terms)
            if notice.certainty is Certainty.CERTAIN
            and notice.kind is not NoticeKind.LOSS
            and (pod.shielded or notice.kind not in DRAINED_AT_ONCE)
        ]
        return EvictPod(pod, worst(binding)) if binding else None

    def _press(
        self, workload: HeldWorkload, pods: Sequence[PodView], marker: Marker, threat: Threat
    ) -> Stop | Ask | Mark | None:
        """Ask or stop a job under notice, as far as the time to the deadline allows."""
        now, answered = self._now, _all_answered(marker, pods)
        grace = max((pod.grace_seconds for pod in pods), default=0.0)
        until = stop_by(marker.deadline, now if marker.asked_at is None else marker.asked_at, grace, self._terms)
        if threat.certain:
            asked = workload.marker is not None and workload.marker.request == marker.request
            least = 0.0 if asked else self._terms.least_ask_seconds
            if threat.at_once or answered or until - now <= least:
                return Stop(workload, stopped(workload, marker if asked else unasked(marker), pods, now))
        elif answered:
            marker = with_answers(marker, pods, now)
        if workload.marker is not None and same(marker, workload.marker):
            marker = workload.marker
        listening = tuple(pod for pod in pods if pod.running and not pod.leaving and _is_to_be_asked(pod, marker))
        if listening:
            request = CheckpointRequest(marker.request, marker.kind, threat.certain, until if threat.certain else None)
            return Ask(workload, listening, marker, request)
        return None if marker == workload.marker else Mark(workload, marker)

    def _see_off(
        self, workload: HeldWorkload, marker: Marker, pods: Sequence[PodView]
    ) -> Mark | Resume | Account | None:
        """Wait until nothing is left of a stopped job, then say what it lost."""
        if workload.active:
            # Somebody else let it go on. It is theirs now, and what it lost stays lost.
            if marker.gone_at is None:
                marker = settled(workload, marker, pods, self._now)
            return Mark(workload, self._on_its_way(workload, marker))
        if marker.gone_at is not None:
            return _account(workload, marker) if workload.gpus else Resume(workload, self._on_its_way(workload, marker))
        if not workload.holds_quota and not any(self._lingers(pod, marker) for pod in pods):
            return Mark(workload, settled(workload, marker, pods, self._now))
        answered = with_answers(marker, pods, self._now, WORTH_A_WRITE_SECONDS)
        return None if answered == marker else Mark(workload, answered)

    def _on_its_way(self, workload: HeldWorkload, marker: Marker) -> Marker:
        """The marker of a job that goes on; what one on parts of GPUs lost is in no ledger."""
        marker = sent_on(marker, self._now)
        return marker if workload.gpus else replace(marker, accounted=True)

    def _record_preemption(self, workload: HeldWorkload, pods: Sequence[PodView]) -> Mark | Account | None:
        """Note that Kueue preempted a job, and once its pods have ended, or it runs again, what that cost."""
        marker, at = workload.marker, workload.preempted_at
        is_new = at is not None and not is_recorded(marker, at)
        if marker is not None and is_preemption_open(marker):
            same_run = at is not None and not is_new and not workload.finished
            if same_run and (workload.holds_quota or any(self._lingers(pod, marker) for pod in pods)):
                return None
            return _account(workload, settled(workload, marker, pods, self._now))
        if is_new and at is not None:
            return Mark(workload, preempted(workload, at, pods, self._now))
        return _account(workload, marker)

    def _lingers(self, pod: PodView, marker: Marker) -> bool:
        """Whether a pod of a stopped job is still to be waited for."""
        node = self._nodes.get(pod.node)
        if pod.ended or is_gone(pod.node, self._nodes, marker) or (node is not None and not node.ready):
            return False
        stopped_at = self._now if marker.stopped_at is None else marker.stopped_at
        return self._now < stopped_at + pod.grace_seconds + self._terms.stuck_seconds

    def _goes_round(self, marker: Marker | None, threat: Threat) -> bool:
        """Whether the job came back to a node under the notice that it was stopped for a moment ago."""
        if marker is None or marker.stopped_at is None or threat.deadline is not None or threat.at_once:
            return False
        recently = 0 <= self._now - marker.stopped_at < self._terms.hop_seconds
        return recently and marker.notice == threat.notice.id


def _all_answered(marker: Marker, pods: Sequence[PodView]) -> bool:
    """Whether every running pod that is to answer has answered the marker's request; also where there is none.

    The pods with a hook answer for the job, where there are any; else those with GPUs; else all.
    """
    running = [pod for pod in pods if pod.running]
    heard = [pod for pod in running if pod.hook] or [pod for pod in running if pod.gpus > 0] or running
    return all(_has_answered(pod, marker) for pod in heard)


def _has_answered(pod: PodView, marker: Marker) -> bool:
    return pod.answer is not None and bool(marker.request) and pod.answer.request == marker.request


def _is_to_be_asked(pod: PodView, marker: Marker) -> bool:
    return pod.asked != marker.request or bool(pod.hook and not _has_answered(pod, marker))


def _account(workload: HeldWorkload, marker: Marker | None) -> Account | None:
    """The loss that is yet to stand in the ledger, once it is known."""
    if marker is None or marker.accounted or not marker.attempts or not workload.gpus:
        return None
    if marker.phase is Phase.STOPPED and marker.gone_at is None:
        return None
    settled = replace(marker, accounted=True, owed_gpu_seconds=0.0)
    return Account(workload, settled, marker.lost_gpu_seconds, marker.owed_gpu_seconds)


def _urgency(step: Step) -> tuple[int, float, str, str]:
    """Stops first; among equals the earliest deadline."""
    if isinstance(step, EvictPod):
        deadline, name = step.notice.deadline, (step.pod.namespace, step.pod.uid)
    else:
        deadline = None if step.marker is None else step.marker.deadline
        name = step.workload.namespace, step.workload.uid
    return _RANKS[type(step)], math.inf if deadline is None else deadline, *name
