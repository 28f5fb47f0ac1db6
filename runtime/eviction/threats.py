"""What notices mean for one job: the worst of them, where they hit it, and whether there is time to ask it anything.

It trusts what is explicit. A node that is merely not known is left alone, unless the job was already under notice
there; a node that is gone, or that is under a certain notice and does not answer, leaves no time.

Invariant: a notice that is only likely never makes a threat certain.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from runtime.eviction.notice import LONGEST_ID, Certainty, Notice, NoticeKind, worst
from runtime.eviction.timing import EvictionTerms, bears, local_deadline
from runtime.eviction.view import HeldWorkload, Marker, NodeView, Phase, PodView

DRAINED_AT_ONCE: Final = frozenset({NoticeKind.DISRUPTION})
"""Karpenter and the cluster autoscaler begin to evict as soon as their taint stands; there is no time to ask."""


@dataclass(frozen=True, slots=True)
class Threat:
    """What bears on one job now.

    `ids` are those of all notices. `deadline` is the earliest of the certain ones, by our clock. `at_once` says that
    pods are lost, or about to be evicted by somebody else: stopping the job first is all that helps.
    """

    notice: Notice
    ids: frozenset[str]
    nodes: tuple[str, ...]
    deadline: float | None
    at_once: bool

    @property
    def certain(self) -> bool:
        """Whether the job has to go."""
        return self.notice.certainty is Certainty.CERTAIN


def threat_to(
    workload: HeldWorkload, pods: Sequence[PodView], nodes: Mapping[str, NodeView], now: float, terms: EvictionTerms
) -> Threat | None:
    """What bears on a job whose pods these are, daemons and pods that ended left out."""
    facing = [notice for notice in workload.notices if bears(notice, now, terms) and not _served(workload, notice)]
    hit, at_once = set(), False
    for pod in pods:
        if _is_left_over(pod, workload.marker):
            continue
        if is_gone(pod.node, nodes, workload.marker):
            found: Sequence[Notice] = (_gone(pod.node, now),)
        else:
            found = notices_on(pod.node, nodes, now, terms)
        if not found:
            continue
        facing.extend(found)
        hit.add(pod.node)
        at_once = at_once or any(_leaves_no_time(notice, pod, nodes) for notice in found)
    if not facing:
        return None
    facing.sort(key=_order)
    deadlines = (local_deadline(notice, now, terms) for notice in _certain(facing))
    earliest = min((deadline for deadline in deadlines if deadline is not None), default=None)
    ids = frozenset(notice.id for notice in facing)
    return Threat(worst(facing), ids, tuple(sorted(hit)), earliest, at_once)


def notices_on(name: str, nodes: Mapping[str, NodeView], now: float, terms: EvictionTerms) -> tuple[Notice, ...]:
    """The notices of a node that are to be acted on now; none for a node that is not known."""
    node = nodes.get(name)
    if node is None:
        return ()
    return tuple(sorted((notice for notice in node.notices if bears(notice, now, terms)), key=_order))


def is_gone(name: str, nodes: Mapping[str, NodeView], marker: Marker | None) -> bool:
    """Whether a node is gone for sure: it is not there, or it was under notice and is not known any more."""
    node = nodes.get(name)
    if node is not None:
        return not node.present
    return marker is not None and marker.phase is not Phase.DONE and name in marker.nodes


def _is_left_over(pod: PodView, marker: Marker | None) -> bool:
    """Whether the pod is of the run that was stopped: nobody takes it away while the kubelet of its node is gone."""
    if marker is None or marker.phase is not Phase.DONE or marker.requeued_at is None:
        return False
    return pod.leaving and pod.node in marker.nodes


def _leaves_no_time(notice: Notice, pod: PodView, nodes: Mapping[str, NodeView]) -> bool:
    if notice.certainty is not Certainty.CERTAIN:
        return False
    node = nodes.get(pod.node)
    drained = notice.kind in DRAINED_AT_ONCE and not pod.shielded
    return notice.kind is NoticeKind.LOSS or drained or pod.leaving or node is None or not node.ready


def _served(workload: HeldWorkload, notice: Notice) -> bool:
    """Whether a notice about the job itself has been carried out already: it was stopped for it, not only asked."""
    marker = workload.marker
    return (
        marker is not None
        and marker.phase is Phase.DONE
        and marker.stopped_at is not None
        and marker.notice == notice.id
    )


def _order(notice: Notice) -> tuple[str, ...]:
    """Tells apart what two sources say of one event, so that the worst of them is always the same."""
    return notice.id, notice.kind, notice.source, repr(notice.noticed_at), notice.detail


def _certain(notices: Sequence[Notice]) -> Iterator[Notice]:
    return (notice for notice in notices if notice.certainty is Certainty.CERTAIN)


def _gone(node: str, now: float) -> Notice:
    return Notice(
        f"gone-{node}"[:LONGEST_ID], NoticeKind.LOSS, "nodes", Certainty.CERTAIN, now, None, "the node is gone"
    )
