"""What is wrong with changes of layouts, for people: alarms while it lasts, and a sentence when a change ends."""

from __future__ import annotations

from collections.abc import Iterator

from runtime.relayout.plan import DEFAULT_TERMS, FAILED, Change, LayoutTerms
from runtime.relayout.record import OUT, Phase
from runtime.relayout.view import LayoutNode, LayoutView
from runtime.routing.alarms import Alarm, AlarmKind
from stacks.labels import RELAYOUT_ANNOTATION


def layout_alarms(view: LayoutView, now: float, terms: LayoutTerms = DEFAULT_TERMS) -> Iterator[Alarm]:
    """What stands between nodes and the layouts of the file."""
    for node in view.nodes:
        if node.unreadable:
            text = (
                f"annotation {RELAYOUT_ANNOTATION} of node {node.name} counts as absent, because it cannot be read "
                f"({node.unreadable}); remove it"
            )
            yield Alarm(AlarmKind.LAYOUT_UNREADABLE, node.name, text)
        if (found := _alarm_of(node, view, now, terms)) is not None:
            yield Alarm(found[0], node.name, found[1])


def sentence(change: Change) -> str:
    """How the change of a node ended."""
    node, record = change.node, change.record
    if record is None:
        return f"node {node.name} has MIG layout {node.label} and is in service"
    went = f"MIG layout {record.target} on node {node.name}: {record.reason}"
    match record.phase:
        case Phase.HELD:
            return f"{went}; it is in service with {node.label or 'none'}, and tried again later"
        case Phase.REFUSED:
            return f"{went}; it is in service with {node.label or 'none'}, and {record.target} is not tried again"
        case _:
            return f"{went}; it stays out of service until a person helps"


def _alarm_of(node: LayoutNode, view: LayoutView, now: float, terms: LayoutTerms) -> tuple[AlarmKind, str] | None:
    record, pool = node.record, view.pools.get(node.pool)
    if record is None:
        if node.tainted:
            text = f"node {node.name} is out of service for another MIG layout, and nobody knows how far that is"
            return AlarmKind.LAYOUT_STUCK, text
        if pool is not None and node.label == pool.wanted.name and node.state == FAILED:
            return AlarmKind.LAYOUT_FAILED, f"the MIG manager says that layout {node.label} failed on node {node.name}"
        return None
    text = f"MIG layout {record.target} on node {node.name}: {record.reason}"
    if record.phase is Phase.STUCK:
        return AlarmKind.LAYOUT_STUCK, f"{text}; it is out of service"
    if record.phase in OUT and pool is None:
        return (
            AlarmKind.LAYOUT_STUCK,
            f"node {node.name} is amid a change of its MIG layout; its pool has none any more",
        )
    if record.phase in OUT and now - record.since > max(terms.drain_seconds, terms.apply_seconds) + terms.doubt_seconds:
        return (
            AlarmKind.LAYOUT_STUCK,
            f"node {node.name} has been {record.phase} for too long, to {record.target}",
        )
    if pool is None or record.target != pool.wanted.name:
        return None
    if record.phase is Phase.REFUSED:
        return AlarmKind.LAYOUT_FAILED, f"{text}; it is in service with {node.label or 'none'}"
    if record.phase is Phase.HELD:
        return AlarmKind.LAYOUT_HELD, f"{text}; it is in service with {node.label or 'none'}"
    return None
