"""Reads single facts off a Workload of Kueue (v1beta2), as the API server sent it.

What is not as the API promises raises KeyError, TypeError or AttributeError; runtime.routing.observe makes of these
what it makes of every Workload that cannot be read.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from runtime.eviction.marker import marker_from_json
from runtime.eviction.view import Marker
from runtime.routing.explain import RecordedVerdict
from stacks.kinds import job_kind
from stacks.labels import EVICTION_ANNOTATION, RECALL_ANNOTATION

Raw = Mapping[str, Any]

NO_REASON: Final = "no reason given"

_KUEUE_GROUP: Final = "kueue.x-k8s.io"
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
