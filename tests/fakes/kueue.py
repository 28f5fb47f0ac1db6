"""What Kueue does to Workloads and Jobs as far as the agent can tell, one step at a time (as measured on 0.19.2)."""

from __future__ import annotations

from typing import Any

from runtime.kube import JOBS, WORKLOADS
from stacks.labels import GATE_NAME, QUEUE_LABEL
from tests.builders import SPOT
from tests.fakes.cluster import FakeCluster
from tests.fakes.workloads import condition, reserve, unreserve

Raw = dict[str, Any]


def step(cluster: FakeCluster, now: float, flavor: str = SPOT) -> None:
    """Reconcile every Workload once: local quota is never free, cloud quota always."""
    for key, stored in list(cluster.objects.items()):
        if key[0] != f"{WORKLOADS.version}/{WORKLOADS.plural}":
            continue
        raw = cluster.get(WORKLOADS, key[2], key[1])
        _reconcile(cluster, raw, now, flavor)
        if raw != stored:
            cluster.put(WORKLOADS, raw)


def _reconcile(cluster: FakeCluster, raw: Raw, now: float, flavor: str) -> None:
    conditions = {entry["type"]: entry["status"] == "True" for entry in raw["status"]["conditions"]}
    if conditions.get("Finished"):
        return
    job = cluster.get(JOBS, raw["metadata"]["ownerReferences"][0]["name"], raw["metadata"]["namespace"])
    if conditions.get("QuotaReserved"):
        if not raw["spec"]["active"]:
            unreserve(raw, at=now)
            condition(raw, "Admitted", False, at=now)
        elif any(c["name"] == GATE_NAME and c["state"] == "Ready" for c in raw["status"]["admissionChecks"]):
            condition(raw, "Admitted", at=now)
            job["spec"]["suspend"] = False
            cluster.put(JOBS, job)
        return
    if "Evicted" not in conditions:
        raw["spec"]["queueName"] = job["metadata"]["labels"][QUEUE_LABEL]
    if raw["spec"]["active"] and raw["spec"]["queueName"].endswith("-burst"):
        condition(raw, "Evicted", False, at=now)
        reserve(raw, flavor, at=now)
