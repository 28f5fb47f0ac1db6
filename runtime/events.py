"""Every Kubernetes Event the agent writes, one constructor each, with its reason. Nothing else builds one.

An event about a job stands on the object that the user submitted, so that `kubectl describe` shows it, and names the
Workload as related. One about money stands on the team's Namespace, in that namespace, one about the whole fleet on the
agent's ConfigMap; these have a name made from what they say, so that the API server itself refuses a second one.
Events are for people: nothing reads them back, and losing one changes nothing.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Any, Final, Literal

from runtime.clock import format_micro_time
from runtime.resource import CONFIG_MAPS, EVENTS, NAMESPACES, NODES, WORKLOADS
from runtime.routing.snapshot import Job
from stacks.labels import AGENT_NAME, PREFIX

_NOTE_LIMIT: Final = 1_024
"""Most bytes of a note (events.k8s.io/v1)."""

_INSTANCE_LIMIT: Final = 128
"""Most characters of a reportingInstance."""

_NAME_LIMIT: Final = 200
"""Of the 253 characters of a name, which the server's suffix must fit into as well."""


@dataclass(frozen=True, slots=True)
class Subject:
    """An object that an event is about; its namespace is the event's too."""

    api_version: str
    kind: str
    namespace: str
    name: str
    uid: str = ""


@dataclass(frozen=True, slots=True)
class Event:
    """One event. Two in a row about one subject are the same if `reason` and `detail` are.

    `name` is set where the same thing must never be told twice, whoever leads.
    """

    regarding: Subject
    reason: str
    action: str
    note: str
    type: Literal["Normal", "Warning"] = "Normal"
    related: Subject | None = None
    name: str | None = None
    detail: str = ""


def released(job: Job, sentence: str) -> Event:
    """The wait is over: the job may run in the cloud."""
    return _of_job(job, "ReleasedToBurst", "Release", sentence)


def retargeted(job: Job, target: str, sentence: str) -> Event:
    """The job, which was released before, may use another cloud flavor instead."""
    return _of_job(job, "BurstRetargeted", "Release", sentence, detail=target)


def cleared(job: Job, sentence: str) -> Event:
    """The job passed the gate, and its money is committed."""
    return _of_job(job, "BurstCleared", "Clear", sentence, detail=str(job.attempt))


def recalled(job: Job, sentence: str) -> Event:
    """The job goes back to its team's queue."""
    return _of_job(job, "BurstRecalled", "Recall", sentence, detail=str(job.attempt))


def asked_to_save(job: Job, why: str, request: str) -> Event:
    """Nodes of the job are going; its pods are asked to save."""
    return _of_job(job, "CheckpointRequested", "Evict", f"asked to save: {why}", "Warning", detail=request)


def evicted(job: Job, why: str, number: int) -> Event:
    """The job was stopped because its nodes go; it is put into a queue again."""
    return _of_job(job, "Evicted", "Evict", f"stopped, and queued again soon: {why}", "Warning", detail=str(number))


def requeued(job: Job, sentence: str) -> Event:
    """Nodes of the job were taken away; it is back in its own queue."""
    return _of_job(job, "Requeued", "Requeue", sentence, "Warning")


def not_moved(job: Job, sentence: str) -> Event:
    """The job was not moved where an administrator wanted it."""
    return _of_job(job, "NotMoved", "Move", sentence)


def held_by_budget(job: Job, sentence: str) -> Event:
    """The wait is over, but a budget does not allow the job to leave."""
    return _of_job(job, "BurstHeldByBudget", "Hold", sentence, "Warning")


def never_fits(job: Job, sentence: str) -> Event:
    """No GPUs of the fleet can ever hold the job."""
    return _of_job(job, "NeverFits", "Hold", sentence, "Warning")


def project_refused(job: Job, sentence: str) -> Event:
    """The job names a project that may not pay for it."""
    return _of_job(job, "ProjectRefused", "Hold", sentence, "Warning")


def data_refused(job: Job, sentence: str) -> Event:
    """The job's data would take too long to copy."""
    return _of_job(job, "DataRefused", "Hold", sentence, "Warning")


def taken_back(job: Job, sentence: str) -> Event:
    """Somebody else moves the job back whenever it is released."""
    return _of_job(job, "TakenBack", "Hold", sentence, "Warning")


def bad_expected_runtime(job: Job, sentence: str) -> Event:
    """The user's expected run time cannot be read."""
    return _of_job(job, "ExpectedRuntimeIgnored", "Observe", sentence, "Warning")


def bad_data_size(job: Job, sentence: str) -> Event:
    """The user's amount of data cannot be read."""
    return _of_job(job, "DataSizeIgnored", "Observe", sentence, "Warning")


def several_projects(job: Job, sentence: str) -> Event:
    """The job's pod templates name several projects, and one of them pays."""
    return _of_job(job, "SeveralProjects", "Observe", sentence, "Warning")


def budget_threshold(subject: Subject, threshold: str, sentence: str) -> Event:
    """A budget is used up to one of its thresholds; `threshold` names scope, period, its start and the share."""
    return _once(subject, "BudgetThresholdReached", "Account", threshold, sentence, "Warning")


def top_up_recorded(subject: Subject, top_up: str, sentence: str) -> Event:
    """Money was added to a budget and counts from now on; `top_up` is its id."""
    return _once(subject, "BudgetToppedUp", "Account", top_up, sentence)


def layout_changed(node: str, outcome: str, sentence: str) -> Event:
    """The change of a node's MIG layout ended: `outcome` is changed, failed, stuck or held."""
    reason = f"Layout{outcome.capitalize()}"
    kind: Literal["Normal", "Warning"] = "Normal" if outcome == "changed" else "Warning"
    return Event(on_node(node), reason, "ChangeLayout", sentence, kind, detail=sentence)


def on_node(name: str) -> Subject:
    """A Node. Its events stand in `default` and have its name for a UID, as those of its kubelet."""
    return Subject(NODES.version, "Node", "default", name, name)


def on_namespace(namespace: str) -> Subject:
    """A team's Namespace, told of in that namespace, where the team may read events."""
    return Subject(NAMESPACES.version, "Namespace", namespace, namespace)


def on_config_map(namespace: str) -> Subject:
    """The agent's ConfigMap."""
    return Subject(CONFIG_MAPS.version, "ConfigMap", namespace, AGENT_NAME)


def body(event: Event, identity: str, real_now: float) -> dict[str, Any]:
    """The event as the API wants it."""
    regarding = event.regarding
    prefix = regarding.name[:_NAME_LIMIT].rstrip("-.")
    name = {"generateName": f"{prefix}-"} if event.name is None else {"name": f"{prefix}.{event.name}"}
    return {
        "apiVersion": EVENTS.version,
        "kind": "Event",
        "metadata": {**name, "namespace": regarding.namespace},
        "eventTime": format_micro_time(real_now),
        "reportingController": f"{PREFIX}/{AGENT_NAME}",
        "reportingInstance": identity[:_INSTANCE_LIMIT],
        "action": event.action,
        "reason": event.reason,
        "type": event.type,
        "note": event.note.encode(errors="replace")[:_NOTE_LIMIT].decode(errors="ignore"),
        "regarding": _reference(regarding),
        **({} if event.related is None else {"related": _reference(event.related)}),
    }


def _of_job(
    job: Job,
    reason: str,
    action: str,
    sentence: str,
    kind: Literal["Normal", "Warning"] = "Normal",
    detail: str = "",
) -> Event:
    owner = Subject(job.owner_version, job.owner_kind, job.namespace, job.owner_name, job.owner_uid)
    workload = Subject(WORKLOADS.version, "Workload", job.namespace, job.name, job.uid)
    return Event(owner, reason, action, sentence, kind, related=workload, detail=detail)


def _once(
    subject: Subject,
    reason: str,
    action: str,
    what: str,
    sentence: str,
    kind: Literal["Normal", "Warning"] = "Normal",
) -> Event:
    name = hashlib.sha256(f"{reason}\n{what}".encode(errors="replace")).hexdigest()[:16]
    return Event(subject, reason, action, sentence, kind, name=name)


def _reference(subject: Subject) -> dict[str, str]:
    reference = {
        "apiVersion": subject.api_version,
        "kind": subject.kind,
        "namespace": subject.namespace,
        "name": subject.name,
    }
    return {**reference, "uid": subject.uid} if subject.uid else reference
