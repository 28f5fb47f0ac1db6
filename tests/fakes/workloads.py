"""Workloads of Kueue and Jobs as the API server sends them, complete and ordinary."""

from __future__ import annotations

import json
from typing import Any

from runtime.clock import format_time
from stacks.kinds import JOB_KINDS, JobKind
from stacks.labels import GATE_NAME, QUEUE_LABEL, VERDICT_ANNOTATION
from tests.builders import HOUR, LOCAL, NOON, SPOT

Raw = dict[str, Any]


def a_pod_template(gpus: int | str = 1, **annotations: str) -> Raw:
    container = {"name": "main", "image": "train", "resources": {"requests": {"nvidia.com/gpu": str(gpus)}}}
    return {"metadata": {"annotations": annotations}, "spec": {"containers": [container]}}


def a_workload(
    name: str = "job-1",
    *,
    queue: str = "vision",
    created_at: float = NOON - HOUR,
    kind: JobKind = JOB_KINDS[0],
    **spec: Any,
) -> Raw:
    """A pending one-GPU Workload of team vision, an hour old, for a job that runs an hour at most."""
    return {
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "kind": "Workload",
        "metadata": {
            "name": f"job-{name}",
            "namespace": "vision",
            "uid": name,
            "generation": 1,
            "creationTimestamp": format_time(created_at),
            "ownerReferences": [
                {
                    "apiVersion": kind.api_version,
                    "kind": kind.kind,
                    "name": name,
                    "uid": f"owner-{name}",
                    "controller": True,
                }
            ],
        },
        "spec": {
            "queueName": queue,
            "active": True,
            "priority": 0,
            "maximumExecutionTimeSeconds": 3_600,
            "podSets": [{"name": "main", "count": 1, "template": a_pod_template()}],
        }
        | spec,
        "status": {"conditions": []},
    }


def a_batch_job(name: str = "job-1", queue: str = "vision", kind: JobKind = JOB_KINDS[0]) -> Raw:
    """The suspended job, of any kind, that such a Workload belongs to."""
    metadata = {"name": name, "namespace": "vision", "uid": f"owner-{name}", "labels": {QUEUE_LABEL: queue, "own": "x"}}
    suspended: Any = True
    for part in reversed(kind.suspend):
        suspended = {part: suspended}
    return {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": metadata, **suspended}


def condition(raw: Raw, kind: str, status: bool = True, at: float = NOON - 10, reason: str = "Test") -> Raw:
    """Set a condition; returns the Workload."""
    others = [other for other in raw["status"]["conditions"] if other["type"] != kind]
    new = {"type": kind, "status": str(status), "reason": reason, "message": "", "lastTransitionTime": format_time(at)}
    raw["status"]["conditions"] = [*others, new]
    return raw


def reserve(raw: Raw, *flavors: str, at: float = NOON - 10) -> Raw:
    """Kueue reserves quota: one pod set per flavor; on a cloud flavor our check is listed as pending."""
    condition(raw, "QuotaReserved", at=at)
    raw["status"]["admission"] = {
        "clusterQueue": raw["spec"]["queueName"],
        "podSetAssignments": [
            {"name": f"set-{index}", "flavors": {"cpu": flavor, "nvidia.com/gpu": flavor}, "count": 1}
            for index, flavor in enumerate(flavors or (SPOT,))
        ],
    }
    if set(flavors) != {LOCAL}:
        check(raw, "Pending", at=at)
    return raw


def check(raw: Raw, state: str, *, name: str = GATE_NAME, at: float = NOON - 10) -> Raw:
    """Set the state of an admission check."""
    others = [other for other in raw["status"].get("admissionChecks", []) if other["name"] != name]
    entry = {"name": name, "state": state, "message": "", "lastTransitionTime": format_time(at)}
    raw["status"]["admissionChecks"] = [*others, entry]
    return raw


def unreserve(raw: Raw, at: float = NOON - 5) -> Raw:
    """Kueue takes the quota back after an eviction."""
    raw["status"].pop("admission", None)
    condition(raw, "Evicted", at=at)
    return condition(raw, "QuotaReserved", False, at=at)


def verdict(raw: Raw, code: str) -> Raw:
    """The agent wrote a verdict earlier."""
    text = json.dumps({"code": code, "at": NOON - 60, "decision": "d-0", "facts": {}})
    raw["metadata"].setdefault("annotations", {})[VERDICT_ANNOTATION] = text
    return raw
