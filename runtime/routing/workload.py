"""Reads single facts off a Workload of Kueue (v1beta2), as the API server sent it.

What is not as the API promises raises KeyError, TypeError or AttributeError; runtime.routing.observe makes of these
what it makes of every Workload that cannot be read.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from runtime.clock import parse_time
from runtime.eviction.marker import marker_from_json
from runtime.eviction.view import Marker
from runtime.eviction.wish import MoveWish, wish_from_json
from runtime.routing.explain import RecordedVerdict
from stacks.kinds import job_kind
from stacks.labels import EVICTION_ANNOTATION, MOVE_ANNOTATION, RECALL_ANNOTATION

Raw = Mapping[str, Any]

NO_REASON: Final = "no reason given"

_KUEUE_GROUP: Final = "kueue.x-k8s.io"
_PREEMPTED: Final = "Preempted"
"""Reason of the condition Evicted (Kueue v1beta2)."""
_READY: Final = "Ready"
_MOST_RETURNS: Final = 1_000_000
_LONGEST_REASON: Final = 200
"""Characters kept of what an administrator wrote."""


def job_owner(metadata: Raw) -> Raw | None:
    """The job that the user submitted, if it is of a kind that can be moved."""
    for owner in metadata.get("ownerReferences") or ():
        if owner.get("controller") and job_kind(owner["apiVersion"], owner["kind"]) is not None:
            checked: Raw = owner
            return checked
    return None


def string(value: object) -> str:
    """The value, which must be text.

    Raises:
        TypeError: when it is not.
    """
    if not isinstance(value, str):
        raise TypeError(f"text expected, not {type(value).__name__}")
    return value


def conditions_of(status: Raw) -> dict[str, Raw]:
    """Conditions by type."""
    return {condition["type"]: condition for condition in status.get("conditions") or ()}


def is_true(conditions: Mapping[str, Raw], kind: str) -> bool:
    """Whether a condition is there and holds."""
    return bool(conditions.get(kind, {}).get("status") == "True")


def since(conditions: Mapping[str, Raw], kind: str) -> str | None:
    """Since when a condition holds, by Kueue's clock, which stamps them all; None if it does not."""
    return str(conditions[kind]["lastTransitionTime"]) if is_true(conditions, kind) else None


def when_answered(status: Raw, gate: str) -> str | None:
    """When our check was answered Ready; None while it is not."""
    for check in status.get("admissionChecks") or ():
        if check["name"] == gate and check["state"] == _READY:
            return str(check["lastTransitionTime"])
    return None


def class_name(spec: Raw) -> str:
    """The WorkloadPriorityClass; empty where it has none, or a priority class of pods."""
    reference = spec.get("priorityClassRef") or {}
    return str(reference.get("name")) if reference.get("group") == _KUEUE_GROUP else ""


def returns(recorded: RecordedVerdict | None) -> int:
    """How often it was taken back, as the last verdict has counted."""
    counted = recorded.verdict.facts.get("returns") if recorded else None
    return counted if isinstance(counted, int) and 0 <= counted <= _MOST_RETURNS else 0


def marker_of(metadata: Raw) -> Marker | None:
    """How far its eviction has come; None without a marker, and for one that cannot be read, which is then not ours."""
    text = (metadata.get("annotations") or {}).get(EVICTION_ANNOTATION)
    if not isinstance(text, str):
        return None
    try:
        return marker_from_json(text)
    except ValueError:
        return None


def recall_reason(metadata: Raw) -> str | None:
    """What an administrator wrote who wants it back, on one line; None where nobody does."""
    reason = (metadata.get("annotations") or {}).get(RECALL_ANNOTATION)
    if reason is None:
        return None
    printable = "".join(letter if letter.isprintable() else " " for letter in str(reason)[:_LONGEST_REASON])
    return " ".join(printable.split()) or NO_REASON


def move_wish(metadata: Raw) -> MoveWish | None:
    """That an administrator wants it on another cloud flavor, in real time; None where nobody does."""
    text = (metadata.get("annotations") or {}).get(MOVE_ANNOTATION)
    return None if text is None else wish_from_json(str(text))


def preempted_since(conditions: Mapping[str, Raw]) -> str | None:
    """When Kueue preempted its present or last run; None where it did not, or took quota that nothing ran on yet.

    Kueue turns Admitted to False with the eviction or after it; where it is older, nothing had been admitted since.
    """
    evicted, admitted = conditions.get("Evicted", {}), conditions.get("Admitted")
    if evicted.get("status") != "True" or evicted.get("reason") != _PREEMPTED or admitted is None:
        return None
    at = str(evicted["lastTransitionTime"])
    ran = admitted["status"] == "True" or parse_time(admitted["lastTransitionTime"]) >= parse_time(at)
    return at if ran else None


def only_run_began(status: Raw) -> float | None:
    """When the run began that has ended, in real seconds; known only of the first that was cut off.

    Kueue adds up how long a Workload was admitted, and counts its evictions; of a later run only the sum is known.
    """
    admitted = conditions_of(status).get("Admitted")
    evictions = (status.get("schedulingStats") or {}).get("evictions") or ()
    ran = status.get("accumulatedPastExecutionTimeSeconds")
    if admitted is None or admitted["status"] == "True" or not isinstance(ran, int):
        return None
    if sum(entry.get("count", 0) for entry in evictions) != 1:
        return None
    return parse_time(admitted["lastTransitionTime"]) - ran
