"""The status of a Deployment whose replicas are local processes: pure, so that `kubectl rollout status` can be trusted.

It never says that a roll-out has failed for good: a local process is retried forever, and the caller has a timeout.

Invariant: unchanged facts give an identical status, so that writing it is a no-op that can be skipped.
"""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from typing import Any, Protocol

from infra.local.kubeclient import Manifest
from infra.local.podspec import PodPlan

_COUNTS = ("replicas", "updatedReplicas", "readyReplicas", "availableReplicas", "unavailableReplicas")


class ReplicaView(Protocol):
    """What is reported of a replica."""

    plan: PodPlan
    ready: bool
    message: str


def status(
    deployment: Manifest,
    count: int,
    digest: str,
    replicas: Sequence[ReplicaView],
    problem: str,
    now: datetime.datetime,
) -> dict[str, Any]:
    """Return the complete status; `problem` says what is wrong with the template itself."""
    previous = deployment.get("status", {})
    updated = [replica for replica in replicas if replica.plan.digest == digest]
    available = sum(replica.ready for replica in updated)
    complete = not problem and available == count == len(replicas)
    return {
        **{key: value for key, value in previous.items() if key not in _COUNTS},
        "observedGeneration": deployment["metadata"].get("generation", 1),
        **_nonzero(
            replicas=len(replicas),
            updatedReplicas=len(updated),
            readyReplicas=sum(replica.ready for replica in replicas),
            availableReplicas=available,
            unavailableReplicas=max(count - available, 0),
        ),
        "conditions": [
            _available(previous, not problem and available >= count, now),
            _progressing(previous, complete, problem, updated, now),
        ],
    }


def merge_patch(wanted: dict[str, Any]) -> dict[str, Any]:
    """Return what to merge so that the status becomes `wanted`: counts it does not name are removed."""
    return {**dict.fromkeys(_COUNTS), **wanted}


def _nonzero(**counts: int) -> dict[str, int]:
    """Leave out zeros, as the API server does."""
    return {name: count for name, count in counts.items() if count}


def _available(previous: Manifest, available: bool, now: datetime.datetime) -> dict[str, str]:
    if available:
        return _condition(
            previous, "Available", "True", "MinimumReplicasAvailable", "Deployment has minimum availability.", now
        )
    return _condition(
        previous,
        "Available",
        "False",
        "MinimumReplicasUnavailable",
        "Deployment does not have minimum availability.",
        now,
    )


def _progressing(
    previous: Manifest,
    complete: bool,
    problem: str,
    updated: Sequence[ReplicaView],
    now: datetime.datetime,
) -> dict[str, str]:
    if problem:
        return _condition(previous, "Progressing", "False", "PodTemplateNotSupported", problem, now)
    if complete:
        return _condition(
            previous, "Progressing", "True", "NewReplicaSetAvailable", "All replicas run and are ready.", now
        )
    waiting = "; ".join(f"{replica.plan.name}: {replica.message}" for replica in updated if not replica.ready)
    message = f"Waiting for {waiting}" if waiting else "Waiting for old replicas to end."
    return _condition(previous, "Progressing", "True", "ReplicaSetUpdated", message, now)


def _condition(
    previous: Manifest, kind: str, value: str, reason: str, message: str, now: datetime.datetime
) -> dict[str, str]:
    """Return a condition that keeps its times while it says the same."""
    last = _find(previous, kind)
    if last and (last["status"], last["reason"], last.get("message")) == (value, reason, message):
        return last
    stamp = now.isoformat(timespec="seconds").replace("+00:00", "Z")
    changed = last is None or last["status"] != value
    transition = stamp if changed or last is None else last["lastTransitionTime"]
    return {
        "type": kind,
        "status": value,
        "reason": reason,
        "message": message,
        "lastUpdateTime": stamp,
        "lastTransitionTime": transition,
    }


def _find(previous: Manifest, kind: str) -> dict[str, str] | None:
    return next((condition for condition in previous.get("conditions", []) if condition["type"] == kind), None)
