"""Every Kubernetes Event the agent writes, one constructor each, with its reason. Nothing else builds one.

Events stand on the object that the user submitted, so that `kubectl describe job` shows them, and name the Workload as
related. They are for people: nothing reads them back, and losing one changes nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, Literal

from runtime.clock import format_micro_time
from runtime.kube import EVENTS, WORKLOADS
from runtime.routing.snapshot import Job
from stacks.labels import AGENT_NAME, PREFIX

_NOTE_LIMIT: Final = 1_024
"""Most bytes of a note (events.k8s.io/v1)."""


@dataclass(frozen=True, slots=True)
class Event:
    """One event about one job."""

    job: Job
    reason: str
    action: str
    note: str
    type: Literal["Normal", "Warning"] = "Normal"


def released(job: Job, sentence: str) -> Event:
    """The wait is over: the job may run in the cloud."""
    return Event(job, "ReleasedToBurst", "Release", sentence)


def cleared(job: Job, sentence: str) -> Event:
    """The job passed the gate, and its money is committed."""
    return Event(job, "BurstCleared", "Clear", sentence)


def recalled(job: Job, sentence: str) -> Event:
    """The job goes back to its team's queue."""
    return Event(job, "BurstRecalled", "Recall", sentence)


def held_by_budget(job: Job, sentence: str) -> Event:
    """The wait is over, but a budget does not allow the job to leave."""
    return Event(job, "BurstHeldByBudget", "Hold", sentence, "Warning")


def bad_expected_runtime(job: Job, sentence: str) -> Event:
    """The user's expected run time cannot be read."""
    return Event(job, "ExpectedRuntimeIgnored", "Observe", sentence, "Warning")


def body(event: Event, identity: str, real_now: float) -> dict[str, Any]:
    """The event as the API wants it."""
    job = event.job
    return {
        "apiVersion": EVENTS.version,
        "kind": "Event",
        "metadata": {"generateName": f"{job.owner_name[:200]}-", "namespace": job.namespace},
        "eventTime": format_micro_time(real_now),
        "reportingController": f"{PREFIX}/{AGENT_NAME}",
        "reportingInstance": identity[:128],
        "action": event.action,
        "reason": event.reason,
        "type": event.type,
        "note": event.note.encode()[:_NOTE_LIMIT].decode(errors="ignore"),
        "regarding": {
            "apiVersion": "batch/v1",
            "kind": job.owner_kind,
            "namespace": job.namespace,
            "name": job.owner_name,
            "uid": job.owner_uid,
        },
        "related": {
            "apiVersion": WORKLOADS.version,
            "kind": "Workload",
            "namespace": job.namespace,
            "name": job.name,
            "uid": job.uid,
        },
    }
