"""What has to change on a Node so that it says what is known: annotation, taint and cordon in one write. Pure.

A node is cordoned once for each notice: who makes it schedulable again while the notice stands has decided so. What
somebody else cordoned stays cordoned, because there is no record of ours on it.

Invariants: nothing of others is changed; what was set is taken back in whole when no notice is left; a change carries
the version that it was made from, so that it cannot undo what it did not see; no change is made twice.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from runtime.eviction.notice import Notice, notices_from_json, notices_to_json, urgency, worst
from stacks.labels import CORDONED_ANNOTATION, EVICTING_TAINT, NOTICES_ANNOTATION

Raw = Mapping[str, Any]

MOST_NOTICES: Final = 24
"""Written on one node, the worst ones: as many as always fit. A node with more than three is rare."""

_EFFECT: Final = "NoSchedule"


def merged(notices: Iterable[Notice]) -> tuple[Notice, ...]:
    """One notice for each kind and id, however many sources saw it: the surest and soonest of them."""
    found: dict[tuple[str, str], Notice] = {}
    for notice in sorted(notices, key=lambda notice: (urgency(notice), notice.noticed_at, notice.source)):
        found.setdefault((notice.kind, notice.id), notice)
    return tuple(found.values())


def noted(raw_node: Raw) -> tuple[Notice, ...]:
    """What a Node says already; nothing where it cannot be read, which then is written anew."""
    text = annotations_of(raw_node).get(NOTICES_ANNOTATION)
    try:
        return notices_from_json(text) if isinstance(text, str) else ()
    except ValueError:
        return ()


def change_for(raw_node: Raw, wanted: Sequence[Notice]) -> dict[str, Any] | None:
    """The merge patch after which a Node says what is wanted; None when it does so already.

    Taints are one value to the API server (an atomic list), so all of them are written, others' as they were read.
    """
    annotations, spec = annotations_of(raw_node), _mapping(raw_node.get("spec"))
    taint = next((taint for taint in spec.get("taints") or () if taint.get("key") == EVICTING_TAINT), None)
    if not wanted:
        return _taken_back(raw_node, annotations, taint)
    wanted = sorted(wanted, key=urgency)[:MOST_NOTICES]
    ids = sorted({notice.id for notice in wanted})
    values: dict[str, str] = {NOTICES_ANNOTATION: notices_to_json(wanted)}
    change: dict[str, Any] = {}
    record = annotations.get(CORDONED_ANNOTATION)
    recorded = set(record.split(",")) if isinstance(record, str) else set()
    if spec.get("unschedulable"):
        if record is not None:
            values[CORDONED_ANNOTATION] = ",".join(ids)
    elif not recorded.issuperset(ids):
        values[CORDONED_ANNOTATION] = ",".join(ids)
        change["unschedulable"] = True
    kind = worst(wanted).kind.value
    if taint is None or (taint.get("value"), taint.get("effect")) != (kind, _EFFECT):
        change["taints"] = [*_others(spec), {"key": EVICTING_TAINT, "value": kind, "effect": _EFFECT}]
    return _change(raw_node, {key: value for key, value in values.items() if annotations.get(key) != value}, change)


def annotations_of(raw_node: Raw) -> Raw:
    """The annotations of a Node."""
    return _mapping(_mapping(raw_node.get("metadata")).get("annotations"))


def _taken_back(raw_node: Raw, annotations: Raw, taint: Raw | None) -> dict[str, Any] | None:
    spec = _mapping(raw_node.get("spec"))
    ours = [key for key in (NOTICES_ANNOTATION, CORDONED_ANNOTATION) if key in annotations]
    change: dict[str, Any] = {}
    if CORDONED_ANNOTATION in annotations and spec.get("unschedulable"):
        change["unschedulable"] = None
    if taint is not None:
        change["taints"] = _others(spec) or None
    return _change(raw_node, dict.fromkeys(ours), change)


def _others(spec: Raw) -> list[Raw]:
    return [taint for taint in spec.get("taints") or () if taint.get("key") != EVICTING_TAINT]


def _change(raw_node: Raw, annotations: Mapping[str, str | None], spec: dict[str, Any]) -> dict[str, Any] | None:
    if not annotations and not spec:
        return None
    metadata: dict[str, Any] = {"resourceVersion": _mapping(raw_node.get("metadata")).get("resourceVersion")}
    if annotations:
        metadata["annotations"] = dict(annotations)
    return {"metadata": metadata} | ({"spec": spec} if spec else {})


def _mapping(value: object) -> Raw:
    return value if isinstance(value, Mapping) else {}
