"""What Node objects say: our node agent's annotation, and the taints, conditions and labels of everybody else.

A pure function over one raw Node; runtime.eviction.sources.signs says what means what, and where that comes from. An
annotation that cannot be read says nothing; `unreadable` says why.

A sign of a kind that our own annotation has already is the same event seen twice, and adds nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from runtime.eviction.notice import Certainty, Notice, NoticeKind, notices_from_json
from runtime.eviction.sources.parsing import parse_time
from runtime.eviction.sources.signs import (
    AUTOSCALER_TAINT,
    CONDITIONS,
    GKE_SPOT_LABELS,
    KARPENTER_FINALIZER,
    LABELS,
    SILENT,
    TAINTS,
    Sign,
)
from stacks.labels import NOTICES_ANNOTATION

Raw = Mapping[str, Any]

LOSS_GRACE_SECONDS: Final = 60.0
"""How long a node may be silent before it counts as lost: longer than a kubelet takes to restart, and well before pods
are evicted for it (300 s, Kubernetes' default toleration), which would cost their job a retry."""

AUTOSCALER_SECONDS: Final = 600.0
"""The cluster autoscaler's default of --max-graceful-termination-sec."""

SPOT_SECONDS: Final = 120.0
"""AWS's notice of an interruption, on a taint of aws-node-termination-handler, which does not say when."""

GKE_SPOT_SECONDS: Final = 30.0
"""What GKE leaves after a preemption, unless its node system configuration asks for more."""

_ACTIONS: Final = re.compile(r"RecommendedAction: *(\w+)")  # in NVSentinel's messages, one for each error


def notices_of(raw_node: Raw, now: float) -> tuple[Notice, ...]:
    """Every notice that a Node shows at a time in real seconds since the epoch, in the order of their ids.

    A node that is lost has the time since which it is as its deadline: there is nothing left to wait for.
    """
    ours = _annotated(raw_node)
    known = {notice.kind for notice in ours}
    found = {notice.id: notice for notice in _signs(raw_node, now) if notice.kind not in known}
    return tuple(sorted((*ours, *found.values()), key=lambda notice: (notice.id, notice.kind)))


def unreadable(raw_node: Raw) -> str | None:
    """Why the annotation of our node agent cannot be read; None where it can, or is not there."""
    try:
        notices_from_json(_text(_annotations(raw_node).get(NOTICES_ANNOTATION), "[]"))
    except ValueError as error:
        return f"annotation {NOTICES_ANNOTATION}: {error}"
    return None


def _annotated(raw_node: Raw) -> tuple[Notice, ...]:
    try:
        return notices_from_json(_text(_annotations(raw_node).get(NOTICES_ANNOTATION), "[]"))
    except ValueError:
        return ()


def _signs(raw_node: Raw, now: float) -> Iterator[Notice]:
    metadata = _mapping(raw_node.get("metadata"))
    labels = _mapping(metadata.get("labels"))
    conditions = _entries(_mapping(raw_node.get("status")).get("conditions"))
    if metadata.get("deletionTimestamp"):
        source = "karpenter" if KARPENTER_FINALIZER in _list(metadata.get("finalizers")) else "kubernetes"
        yield _notice(
            Sign(source, NoticeKind.DISRUPTION, Certainty.CERTAIN),
            "deleted",
            _time(metadata["deletionTimestamp"], now),
            "the Node is being deleted",
        )
    for taint in _entries(_mapping(raw_node.get("spec")).get("taints")):
        yield from _of_taint(taint, conditions, labels, now)
    for condition in conditions:
        sign = CONDITIONS.get(_text(condition.get("type")))
        message = _text(condition.get("message"))
        if sign and condition.get("status") == "True" and set(_ACTIONS.findall(message)) != {"NONE"}:
            at = _time(condition.get("lastTransitionTime"), now)
            yield _notice(sign, str(condition["type"]), at, message)
    for label, states in LABELS.items():
        if state_sign := states.get(state := _text(labels.get(label))):
            yield _notice(state_sign, label.rpartition("/")[2], now, f"{label}={state}")


def _of_taint(taint: Raw, conditions: Sequence[Raw], labels: Raw, now: float) -> Iterator[Notice]:
    key, value = _text(taint.get("key")), _text(taint.get("value"))
    if key in SILENT:
        since = _silent_since(taint, conditions)
        if since is not None and now - since >= LOSS_GRACE_SECONDS:
            lost = Sign("kubernetes", NoticeKind.LOSS, Certainty.CERTAIN)
            yield _notice(lost, key.rpartition("/")[2], since, f"taint {key}", deadline=since)
        return
    if (sign := TAINTS.get(key)) is None:
        return
    at, deadline = _time(taint.get("timeAdded"), now), None
    if sign.certainty is Certainty.LIKELY and taint.get("effect") == "NoExecute":
        sign = sign._replace(certainty=Certainty.CERTAIN)  # Kubernetes evicts the pods, whoever set it
    if key == AUTOSCALER_TAINT and value.isascii() and value.isdecimal() and len(value) <= 10:
        at = min(float(value), now)
        deadline = at + AUTOSCALER_SECONDS
    elif sign.kind is NoticeKind.LOSS:
        deadline = at
    elif sign.source == "gke" and "true" in [labels.get(label) for label in GKE_SPOT_LABELS]:
        sign = sign._replace(kind=NoticeKind.SPOT)
        deadline = at + GKE_SPOT_SECONDS
    elif sign.kind is NoticeKind.SPOT:
        deadline = at + SPOT_SECONDS
    yield _notice(sign, key.rpartition("/")[2], at, f"taint {key}={value}", deadline=deadline)


def _silent_since(taint: Raw, conditions: Sequence[Raw]) -> float | None:
    """Since when a node is silent: the taint says so if it evicts, the condition in any case."""
    ready = (condition.get("lastTransitionTime") for condition in conditions if condition.get("type") == "Ready")
    for text in (taint.get("timeAdded"), *ready):
        try:
            return parse_time(text)
        except ValueError:
            continue
    return None


def _notice(sign: Sign, name: str, at: float, detail: str, *, deadline: float | None = None) -> Notice:
    return Notice(f"{sign.source}-{name}", sign.kind, sign.source, sign.certainty, at, deadline, detail)


def _time(text: object, now: float) -> float:
    try:
        return min(parse_time(text), now)
    except ValueError:
        return now


def _annotations(raw_node: Raw) -> Raw:
    return _mapping(_mapping(raw_node.get("metadata")).get("annotations"))


def _mapping(value: object) -> Raw:
    return value if isinstance(value, Mapping) else {}


def _entries(value: object) -> Sequence[Raw]:
    return [entry for entry in _list(value) if isinstance(entry, Mapping)]


def _list(value: object) -> list[Any]:
    return value if isinstance(value, list) else []


def _text(value: object, default: str = "") -> str:
    return value if isinstance(value, str) else default
