"""Plans the next step of every change of a layout: which nodes begin, go on, go back, and are given back.

Pure: the same view and time give the same steps, and nothing is remembered between two plans. A step says all that is
to stand on the node afterwards, and holds only for the version that the node was seen in.

Invariants, of each step alone and so of any number of agents that die at any write:

- a node is begun only while a window is open, while fewer nodes are out of service than allowed, and while no other
  node of its pool is failing; what has begun goes on when the window closes;
- the label changes only on a node that carries our taint, has carried it for a while, and holds no GPU of any pod;
- the taint goes only with a layout that the MIG manager calls a success and that the node advertises in full, or where
  the label has not been touched yet;
- a layout that failed on a node is not begun there again until the wanted name, and so its content, is another.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from runtime.relayout.record import LONGEST_REASON, OUT, Phase, Record
from runtime.relayout.view import LayoutNode, LayoutView
from stacks.agent_config import PoolLayoutConfig
from stacks.layouts import ALL_DISABLED

SUCCESS: Final = "success"
FAILED: Final = "failed"
BUSY: Final = frozenset({"pending", "rebooting"})
"""What the MIG manager says while it works."""


_FAILED: Final = frozenset({Phase.RETURNING, Phase.STUCK, Phase.REFUSED})


@dataclass(frozen=True, slots=True)
class LayoutTerms:
    """How long things may take, in real seconds."""

    settle_seconds: float = 120.0
    """Between our taint and the label. Kubelets take up to two minutes to renew the ConfigMap that the MIG manager
    reads, which says `failed` of a name that it does not find; and schedulers place pods from caches that are a moment
    old."""

    steady_seconds: float = 5.0
    """How long a node has to be right before it is given back: the MIG manager may take notice of the label late, and
    the device plugin advertises one resource after the other."""

    drain_seconds: float = 1_800.0
    """Jobs have two minutes to save, and as long as their pods take to end; half an hour is for those that hang."""

    apply_seconds: float = 2_700.0
    """The MIG manager waits up to five minutes for each of six parts of the operator to stop, and may reboot."""

    again_seconds: float = 3_600.0
    """Before a node that could not be emptied is tried again."""

    doubt_seconds: float = 600.0
    """A record from further ahead than this is nonsense, and counts as overdue."""


DEFAULT_TERMS: Final = LayoutTerms()


@dataclass(frozen=True, slots=True)
class Change:
    """What is to stand on a node: the record (None for none), whether our taint does, and the label where it changes.

    `outcome` is for people, where the change ended: changed, failed, stuck or held.
    """

    node: LayoutNode
    record: Record | None
    tainted: bool
    label: str | None = None
    outcome: str = ""


def plan(view: LayoutView, now: float, terms: LayoutTerms = DEFAULT_TERMS) -> tuple[Change, ...]:
    """The steps to take now, by node; those that begin come last."""
    moment = _Moment(view, now, terms)
    nodes = sorted(view.nodes, key=lambda node: node.name)
    steps = [step for node in nodes if (step := moment.next_step(node)) is not None]
    return (*steps, *_begun(view, now, terms, steps))


def is_out(node: LayoutNode) -> bool:
    """Whether a node is out of service for a change, or may be."""
    return node.tainted or (node.record is not None and node.record.phase in OUT)


def is_failing(node: LayoutNode, pools: Mapping[str, PoolLayoutConfig]) -> bool:
    """Whether a node speaks against trying the wanted layout of its pool on another."""
    record, pool = node.record, pools.get(node.pool)
    if record is None:
        return bool(node.unreadable) or node.tainted or node.state == FAILED
    refused = record.phase is Phase.REFUSED and pool is not None and record.target == pool.wanted.name
    return refused or record.phase in (Phase.RETURNING, Phase.STUCK)


def _begun(view: LayoutView, now: float, terms: LayoutTerms, steps: Sequence[Change]) -> Iterator[Change]:
    if not view.open:
        return
    room = view.most_nodes - sum(map(is_out, view.nodes))
    failing = [node for node in view.nodes if is_failing(node, view.pools)]
    failing += [step.node for step in steps if step.record is not None and step.record.phase in _FAILED]
    for node in sorted(view.nodes, key=lambda node: (node.record is not None, node.name)):
        pool = view.pools.get(node.pool)
        if room <= 0 or pool is None or not _may_begin(node, pool, now, terms):
            continue
        if any(other.pool == node.pool and other.name != node.name for other in failing):
            continue
        room -= 1
        good, offers = _former(node, pool)
        record = Record(
            phase=Phase.DRAINING,
            target=pool.wanted.name,
            devices=pool.wanted.devices,
            good=good,
            good_devices=offers,
            since=now,
        )
        yield Change(node, record, tainted=True)


def _may_begin(node: LayoutNode, pool: PoolLayoutConfig, now: float, terms: LayoutTerms) -> bool:
    if pool.mode_change == "replace" or node.label == pool.wanted.name or is_out(node):
        return False
    if not node.ready or node.taken or node.state in BUSY:
        return False
    record = node.record
    if record is None or record.target != pool.wanted.name:
        return True
    return record.phase is Phase.HELD and _elapsed(record.since, now, terms) >= terms.again_seconds


def _former(node: LayoutNode, pool: PoolLayoutConfig) -> tuple[str, dict[str, int]]:
    """The layout to go back to, and what the node offers with it."""
    if node.label and node.state == SUCCESS:
        return node.label, dict(node.devices)
    if node.label in ("", ALL_DISABLED):
        return ALL_DISABLED, {}
    if pool.former is not None and pool.former.name != pool.wanted.name:
        return pool.former.name, pool.former.devices
    return "", {}


def _elapsed(since: float, now: float, terms: LayoutTerms) -> float:
    """Seconds since then; as good as for ever where that lies in the future."""
    return now - since if now - since > -terms.doubt_seconds else float("inf")


class _Moment:
    """One plan: the view and the time that it is made for."""

    def __init__(self, view: LayoutView, now: float, terms: LayoutTerms) -> None:
        self._pools = view.pools
        self._open = view.open
        self._now = now
        self._terms = terms

    def next_step(self, node: LayoutNode) -> Change | None:
        """The step to take for a node on which a change was begun."""
        record = node.record
        if record is None:
            # Out of service, and nobody knows how far: as if everything had failed.
            lost = Record(phase=Phase.STUCK, target=node.label, devices={}, since=self._now)
            return self._stuck(node, lost) if node.tainted else None
        match record.phase:
            case Phase.DRAINING:
                return self._draining(node, record)
            case Phase.APPLYING:
                return self._applying(node, record)
            case Phase.RETURNING:
                return self._returning(node, record)
            case Phase.STUCK:
                return self._stuck(node, record)
            case Phase.REFUSED | Phase.HELD:
                return self._in_service(node, record)

    def _draining(self, node: LayoutNode, record: Record) -> Change | None:
        pool = self._pools.get(node.pool)
        if not node.tainted:
            return self._end(node, record, Phase.HELD, "somebody took back the request to empty it")
        if pool is None or pool.wanted.name == node.label:
            return Change(node, None, tainted=False)
        if pool.wanted.name != record.target:
            update = {"target": pool.wanted.name, "devices": pool.wanted.devices, "since": self._now}
            return Change(node, record.model_copy(update=update), tainted=True)
        waited = _elapsed(record.since, self._now, self._terms)
        if waited > self._terms.drain_seconds:
            return self._end(node, record, Phase.HELD, "it was not empty and at rest within half an hour")
        if waited < self._terms.settle_seconds or node.state in BUSY or not node.ready:
            return None
        applying = record.model_copy(update={"phase": Phase.APPLYING, "since": self._now})
        return Change(node, applying, tainted=True, label=record.target)

    def _applying(self, node: LayoutNode, record: Record) -> Change | None:
        if not node.tainted:
            return Change(node, record, tainted=True)
        if node.label != record.target:
            return self._go_back(node, record, f"somebody else set its layout to {node.label or 'none'}")
        if _is_right(node, record.devices):
            return self._given_back(record, Change(node, None, tainted=False, outcome="changed"))
        if node.state == FAILED:
            return self._go_back(node, record, "the MIG manager says that it failed")
        if _elapsed(record.since, self._now, self._terms) > self._terms.apply_seconds:
            return self._go_back(node, record, _wrong(node, record.devices))
        return self._unsteady(node, record)

    def _go_back(self, node: LayoutNode, record: Record, reason: str) -> Change:
        if record.good in ("", record.target):
            return self._end(node, record, Phase.STUCK, f"{reason}, and there is no layout to go back to")
        update = {"phase": Phase.RETURNING, "since": self._now, "steady_since": None, "reason": reason[:LONGEST_REASON]}
        # The MIG manager looks at a label that changes, and at no other.
        label = record.good if record.good != node.label else None
        return Change(node, record.model_copy(update=update), tainted=True, label=label)

    def _returning(self, node: LayoutNode, record: Record) -> Change | None:
        if not node.tainted:
            return Change(node, record, tainted=True)
        if node.label == record.good and _is_right(node, record.good_devices):
            return self._given_back(record, self._end(node, record, Phase.REFUSED, record.reason))
        overdue = _elapsed(record.since, self._now, self._terms) > self._terms.apply_seconds
        if node.label != record.good or node.state == FAILED or overdue:
            return self._end(node, record, Phase.STUCK, f"{record.reason}, and so did going back to {record.good}")
        return self._unsteady(node, record)

    def _stuck(self, node: LayoutNode, record: Record) -> Change | None:
        pool = self._pools.get(node.pool)
        if not node.tainted:
            return self._end(node, record, Phase.REFUSED, f"{record.reason}; somebody gave it back all the same")
        if (devices := self._known(node, record)) is not None and _is_right(node, devices):
            if pool is not None and node.label == pool.wanted.name:
                return self._given_back(record, Change(node, None, tainted=False, outcome="changed"))
            return self._given_back(record, self._end(node, record, Phase.REFUSED, record.reason))
        rests = node.ready and node.state not in BUSY
        if pool is None or pool.wanted.name in (record.target, node.label) or not (self._open and rests):
            return self._unsteady(node, record)
        if record.awaited != pool.wanted.name:
            awaited = {"awaited": pool.wanted.name, "since": self._now}
            return Change(node, record.model_copy(update=awaited), tainted=True)
        if _elapsed(record.since, self._now, self._terms) < self._terms.settle_seconds:
            return self._unsteady(node, record)
        update = {
            "phase": Phase.APPLYING, "target": pool.wanted.name, "devices": pool.wanted.devices, "since": self._now,
            "steady_since": None, "awaited": "", "reason": "",
        }  # fmt: skip
        return Change(node, record.model_copy(update=update), tainted=True, label=pool.wanted.name)

    def _in_service(self, node: LayoutNode, record: Record) -> Change | None:
        pool = self._pools.get(node.pool)
        if pool is None or (node.label == pool.wanted.name and node.state == SUCCESS):
            return Change(node, None, tainted=False)
        return Change(node, record, tainted=False) if node.tainted else None

    def _known(self, node: LayoutNode, record: Record) -> Mapping[str, int] | None:
        """What a node should offer with the label that it has; None where nobody knows."""
        pool = self._pools.get(node.pool)
        configured = [] if pool is None else [one for one in (pool.wanted, pool.former) if one is not None]
        by_name = {
            record.target: record.devices,
            record.good: record.good_devices,
            **{one.name: one.devices for one in configured},
        }
        found = by_name.get(node.label)
        return found if found or (node.label and node.label == record.good) else None

    def _given_back(self, record: Record, end: Change) -> Change | None:
        """The end of a change, once the node has been right for long enough."""
        if record.steady_since is None or record.steady_since > self._now:
            return Change(end.node, record.model_copy(update={"steady_since": self._now}), tainted=True)
        return None if self._now - record.steady_since < self._terms.steady_seconds else end

    def _unsteady(self, node: LayoutNode, record: Record) -> Change | None:
        if record.steady_since is None:
            return None
        return Change(node, record.model_copy(update={"steady_since": None}), tainted=True)

    def _end(self, node: LayoutNode, record: Record, phase: Phase, reason: str) -> Change:
        update = {
            "phase": phase, "since": self._now, "steady_since": None, "awaited": "", "reason": reason[:LONGEST_REASON],
        }  # fmt: skip
        outcomes = {Phase.REFUSED: "failed", Phase.STUCK: "stuck", Phase.HELD: "held"}
        return Change(node, record.model_copy(update=update), tainted=phase in OUT, outcome=outcomes[phase])


def _is_right(node: LayoutNode, devices: Mapping[str, int]) -> bool:
    """Whether the MIG manager is done and the node offers this; any GPU will do where nobody knows what."""
    offers = node.devices == devices if devices else bool(node.devices)
    return node.state == SUCCESS and node.ready and offers


def _wrong(node: LayoutNode, devices: Mapping[str, int]) -> str:
    if node.state == SUCCESS:
        return f"it offers {_listed(node.devices)}, and {_listed(devices)} were awaited"
    return f"the MIG manager was not done in time, its state is {node.state or 'unknown'}"


def _listed(devices: Mapping[str, int]) -> str:
    return ", ".join(f"{count} {name}" for name, count in sorted(devices.items())) or "no GPUs"
