"""What a Node says of its GPUs: a condition for people and tools, a taint while one has failed, the faults that stand.

Pure: it makes the changes that have to be written. The condition belongs to the Node's status, so there are two. The
faults are an annotation because the driver reports them once, and an agent that starts anew must not call a GPU healthy
that fell off the bus an hour ago. Administrators who know better remove the annotation.

Invariants: nothing of others is changed; no change is made twice; a change of the taints carries the version that it
was made from.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final

from runtime.gpus.health import XIDS, Fault, State, Verdict
from stacks.labels import GPU_CONDITION, GPU_FAILED_TAINT, GPU_FAULTS_ANNOTATION

Raw = Mapping[str, Any]

MOST_FAULTS: Final = 32
"""Written on one node; sixteen GPUs with two each."""

_EFFECT: Final = "NoSchedule"
_LONGEST_MESSAGE: Final = 1_024


def faults_on(raw_node: Raw) -> tuple[Fault, ...]:
    """The faults that a Node says it has; none where they cannot be read."""
    text = _mapping(_mapping(raw_node.get("metadata")).get("annotations")).get(GPU_FAULTS_ANNOTATION)
    try:
        entries = json.loads(text) if isinstance(text, str) else []
        return tuple(_fault(entry) for entry in entries[:MOST_FAULTS])
    except (ValueError, TypeError, KeyError, RecursionError):
        return ()


def status_change(raw_node: Raw, verdict: Verdict | None, now: float) -> dict[str, Any] | None:
    """The strategic merge patch of the status; None when it says so already, or nothing is known and nothing was said.

    `verdict` is None while the GPUs cannot be read.
    """
    before = next((entry for entry in _conditions(raw_node) if entry.get("type") == GPU_CONDITION), None)
    if verdict is None:
        if before is None:
            return None
        status, reason, message = "Unknown", "NotReadable", "the GPUs cannot be read; see the log of the node agent"
    else:
        status = str(verdict.state is State.HEALTHY)
        reason, message = verdict.reason, verdict.message[:_LONGEST_MESSAGE]
    if before and (before.get("status"), before.get("reason"), before.get("message")) == (status, reason, message):
        return None
    at = datetime.fromtimestamp(now, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    since = before.get("lastTransitionTime", at) if before and before.get("status") == status else at
    condition = {"type": GPU_CONDITION, "status": status, "reason": reason, "message": message}
    return {"status": {"conditions": [condition | {"lastHeartbeatTime": at, "lastTransitionTime": since}]}}


def change_for(raw_node: Raw, verdict: Verdict, faults: Sequence[Fault]) -> dict[str, Any] | None:
    """The merge patch of annotation and taint; None when nothing is to change."""
    metadata, spec = _mapping(raw_node.get("metadata")), _mapping(raw_node.get("spec"))
    change: dict[str, Any] = {"metadata": {"resourceVersion": metadata.get("resourceVersion")}}
    said = _mapping(metadata.get("annotations")).get(GPU_FAULTS_ANNOTATION)
    wanted = _written(faults) if faults else None
    if said != wanted:
        change["metadata"]["annotations"] = {GPU_FAULTS_ANNOTATION: wanted}
    taints = [taint for taint in spec.get("taints") or () if isinstance(taint, Mapping)]
    ours = [taint for taint in taints if taint.get("key") == GPU_FAILED_TAINT]
    failed = verdict.state is State.FAILED
    added = [{"key": GPU_FAILED_TAINT, "value": verdict.reason, "effect": _EFFECT}] if failed else []
    if ours != added:
        others = [taint for taint in taints if taint.get("key") != GPU_FAILED_TAINT]
        change["spec"] = {"taints": [*others, *added] or None}
    return change if "spec" in change or "annotations" in change["metadata"] else None


def _written(faults: Iterable[Fault]) -> str:
    kept = sorted(faults, key=lambda fault: (fault.at, fault.uuid, fault.xid))[-MOST_FAULTS:]
    entries = [{"gpu": fault.uuid, "xid": fault.xid, "at": fault.at, "boot": fault.boot} for fault in kept]
    return json.dumps(entries, separators=(",", ":"))


def _fault(entry: Raw) -> Fault:
    xid = entry["xid"]
    if xid not in XIDS:
        raise ValueError(f"XID {xid!r} is none that stands")
    return Fault(str(entry["gpu"]), int(xid), float(entry["at"]), str(entry["boot"]))


def _conditions(raw_node: Raw) -> list[Raw]:
    conditions = _mapping(raw_node.get("status")).get("conditions")
    return [entry for entry in conditions if isinstance(entry, Mapping)] if isinstance(conditions, list) else []


def _mapping(value: object) -> Raw:
    return value if isinstance(value, Mapping) else {}
