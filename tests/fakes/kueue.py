"""What Kueue does to Workloads and jobs as far as the agent can tell, one step at a time (as measured on 0.19.2).

`step` reconciles: it carries a job's label over to its Workload while that holds no quota and was not evicted, gives
cloud quota to whoever stands in a burst twin, starts what the gate lets through, and takes quota from what is stopped.
`admit` is its webhooks: a queue never changes under a job that runs, nor under a Workload that holds quota. A label that
changes at the gate is accepted, and moves nothing.
"""

from __future__ import annotations

from typing import Any

from runtime.kube import WORKLOADS, Resource, job_resource
from stacks.kinds import JOB_KINDS, job_kind
from stacks.labels import BURST_INFIX, GATE_NAME, QUEUE_LABEL
from tests.fakes.cluster import Denied, FakeCluster, Key
from tests.fakes.workloads import condition, reserve, unreserve

Raw = dict[str, Any]
_PLURALS = {kind.plural: kind for kind in JOB_KINDS}


def step(cluster: FakeCluster, now: float, flavor: str | None = None) -> None:
    """Reconcile every Workload once: local quota is never free, cloud quota always; `flavor` for that of the twin."""
    for key, stored in list(cluster.objects.items()):
        if key[0] != f"{WORKLOADS.version}/{WORKLOADS.plural}":
            continue
        raw = cluster.get(WORKLOADS, key[2], key[1])
        _reconcile(cluster, raw, now, flavor)
        if raw != stored:
            cluster.put(WORKLOADS, raw)


def admit(key: Key, before: Raw, after: Raw) -> None:
    """Refuse what Kueue's webhooks refuse."""
    plural = key[0].rpartition("/")[2]
    if plural in _PLURALS and _label(before) != _label(after) and not _suspended(plural, before):
        raise Denied(403, "metadata.labels[kueue.x-k8s.io/queue-name]: field is immutable")
    if plural == WORKLOADS.plural and before["spec"]["queueName"] != after["spec"]["queueName"]:
        conditions = (before.get("status") or {}).get("conditions") or ()
        if any(entry["type"] == "QuotaReserved" and entry["status"] == "True" for entry in conditions):
            raise Denied(403, "spec.queueName: field is immutable")


def resource_of(owner: Raw) -> Resource:
    """Where the job of an owner reference lives."""
    found = job_resource(owner["apiVersion"], owner["kind"])
    assert found is not None, owner
    return found


def _reconcile(cluster: FakeCluster, raw: Raw, now: float, flavor: str | None) -> None:
    conditions = {entry["type"]: entry["status"] == "True" for entry in raw["status"]["conditions"]}
    if conditions.get("Finished"):
        return
    owner = raw["metadata"]["ownerReferences"][0]
    resource = resource_of(owner)
    job = cluster.get(resource, owner["name"], raw["metadata"]["namespace"])
    if conditions.get("QuotaReserved"):
        if not raw["spec"]["active"]:
            unreserve(raw, at=now)
            condition(raw, "Admitted", False, at=now)
            raw["status"]["admissionChecks"] = []
            _suspend(cluster, resource, owner, job, True)
        elif any(c["name"] == GATE_NAME and c["state"] == "Ready" for c in raw["status"]["admissionChecks"]):
            condition(raw, "Admitted", at=now)
            _suspend(cluster, resource, owner, job, False)
        return
    if not conditions.get("Evicted"):
        raw["spec"]["queueName"] = _label(job)
    _, burst, twin_flavor = raw["spec"]["queueName"].partition(BURST_INFIX)
    if raw["spec"]["active"] and burst:
        condition(raw, "Evicted", False, at=now)
        reserve(raw, flavor or twin_flavor, at=now)


def _label(job: Raw) -> str:
    return str((job["metadata"].get("labels") or {}).get(QUEUE_LABEL))


def _suspended(plural: str, job: Raw) -> bool:
    found: Any = job
    for part in _PLURALS[plural].suspend:
        found = found.get(part, {})
    return found is True


def _suspend(cluster: FakeCluster, resource: Resource, owner: Raw, job: Raw, suspended: bool) -> None:
    kind = job_kind(owner["apiVersion"], owner["kind"])
    assert kind is not None
    inside = job
    for part in kind.suspend[:-1]:
        inside = inside[part]
    if inside[kind.suspend[-1]] != suspended:
        inside[kind.suspend[-1]] = suspended
        cluster.put(resource, job)
