"""`pulumi up` again and again: nothing, one change, drift, a failure in the middle, the agent's own fields, destroy.

The last test takes the shared stack down and sets it up again, with fleet time starting anew.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from infra.local.errors import KubeError
from stacks.labels import (
    AGENT_NAME,
    FLAVOR_LABEL,
    FORECAST_NAME,
    GATE_NAME,
    LOCATION_LABEL,
    MANAGED_BY,
    MANAGED_BY_LABEL,
    POOL_LABEL,
    PREFIX,
    QUEUE_LABEL,
    SYSTEM_NAMESPACE,
    TOP_UPS_NAME,
    burst_queue,
)
from tests.e2e.conftest import FLEET_FILE, KUEUE, Stack, complaints, condition, wait_for

CLOUD = "h100-aws-spot"
YELLOW_TWIN = burst_queue("yellow", CLOUD)
MERGE = "application/merge-patch+json"
DESTROY_LIMIT_SECONDS = 90.0
"""Generous: two cores, three namespaces to empty, an agent with a grace of 15 s."""


@pytest.fixture(autouse=True)
def original(stack: Stack) -> Iterator[None]:
    """Leave the stack as the other tests expect it."""
    yield
    if stack.text != FLEET_FILE:
        stack.changes(stack.up(FLEET_FILE))


def up_after_a_refresh(stack: Stack) -> dict[str, int]:
    """What `pulumi up` changes when it looks at the cluster first."""
    return stack.changes(stack.engine.up("local", "--refresh", "--config-file", str(stack.file), as_json=True))


def test_a_second_up_changes_nothing(stack: Stack) -> None:
    assert stack.changes(stack.up()) == {}
    assert up_after_a_refresh(stack) == {}


def test_one_teams_quota_changes_its_cohort_and_what_the_agent_is_told(stack: Stack) -> None:
    smaller = FLEET_FILE.replace("green: {quota: {h100-onprem: 4}", "green: {quota: {h100-onprem: 3}")
    assert smaller != FLEET_FILE
    assert stack.changes(stack.up(smaller)) == {"update": 2}


def agent_owned(stack: Stack, team: str, jobs: list[str]) -> dict[str, Any]:
    """Every field of docs/architecture.md's table whose writer is the agent."""
    found: dict[str, Any] = {}
    for name in jobs:
        job, workload = stack.kube.get("batch/v1", "Job", name, team), stack.workload(team, name)
        found[name] = {
            "queue": job["metadata"]["labels"][QUEUE_LABEL],
            "active": workload["spec"]["active"],
            "queueName": workload["spec"]["queueName"],
            "verdict": workload["metadata"]["annotations"][f"{PREFIX}/verdict"],
            "gate": [one for one in workload["status"].get("admissionChecks", []) if one["name"] == GATE_NAME],
        }
    check = stack.kube.get(KUEUE, "AdmissionCheck", GATE_NAME)
    lease = stack.kube.get("coordination.k8s.io/v1", "Lease", AGENT_NAME, SYSTEM_NAMESPACE)
    found["check"] = check["status"]["conditions"]
    found["top-ups"] = stack.kube.get("v1", "ConfigMap", TOP_UPS_NAME, SYSTEM_NAMESPACE).get("data")
    found["lease"] = (lease["spec"]["holderIdentity"], lease["spec"]["acquireTime"])
    return found


def forecast(stack: Stack, team: str) -> Any:
    return stack.kube.get("v1", "ConfigMap", FORECAST_NAME, team).get("data")


def ledger_files(stack: Stack) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in (stack.plane.state.root / "volumes").rglob("*.json")}


def test_what_the_agent_owns_survives_an_up_that_sees_no_change(stack: Stack, team: str) -> None:
    filler = stack.submit(team, 8, job_class="urgent", run=100, longest=120)
    wait_for("the filler", lambda: stack.flavor(team, filler))
    bursting = stack.submit(team, 4, job_class="urgent", run=100, longest=120)  # moved by the agent
    waiting = stack.submit(team, 8, job_class="local", run=100, longest=120)  # moved by hand
    wait_for("the job in the cloud", lambda: stack.flavor(team, bursting) == CLOUD)
    wait_for("a verdict", lambda: stack.verdict(team, waiting))
    patch_of = stack.workload(team, waiting)["metadata"]["name"]
    path = stack.kube.path(KUEUE, "Workload", patch_of, team)
    stack.kube.request("PATCH", path, {"spec": {"active": False}}, content_type=MERGE)
    top_ups = stack.kube.path("v1", "ConfigMap", TOP_UPS_NAME, SYSTEM_NAMESPACE)
    stack.kube.request("PATCH", top_ups, {"data": {"note": "no top-up"}}, content_type=MERGE)
    wait_for("a forecast", lambda: forecast(stack, team))
    before, files = agent_owned(stack, team, [bursting, waiting]), ledger_files(stack)
    assert before[bursting]["queue"] == before[bursting]["queueName"] == burst_queue(team, CLOUD)
    assert before[bursting]["gate"][0]["state"] == "Ready"
    assert before[waiting]["active"] is False

    assert stack.changes(stack.up()) == {}
    assert up_after_a_refresh(stack) == {}

    assert agent_owned(stack, team, [bursting, waiting]) == before
    assert forecast(stack, team)
    stack.kube.request("PATCH", top_ups, {"data": {"note": None}}, content_type=MERGE)
    assert files.items() <= ledger_files(stack).items()
    assert files


def test_a_field_of_pulumis_that_somebody_changed_is_seen_by_refresh_and_repaired_by_up(stack: Stack) -> None:
    queue, node = stack.kube.path(KUEUE, "ClusterQueue", "red"), stack.kube.path("v1", "Node", "rack-0")
    stack.kube.request("PATCH", queue, {"spec": {"cohortName": "elsewhere"}}, content_type=MERGE)
    stack.kube.request("PATCH", node, {"metadata": {"labels": {f"{PREFIX}/pool": "other"}}}, content_type=MERGE)
    seen = stack.engine.refresh("local", "--config-file", str(stack.file), as_json=True)
    assert stack.changes(seen) == {"update": 2}
    assert stack.changes(stack.up()) == {"update": 2}
    assert stack.kube.get(KUEUE, "ClusterQueue", "red")["spec"]["cohortName"] == "acme-red"
    assert stack.kube.get("v1", "Node", "rack-0")["metadata"]["labels"][f"{PREFIX}/pool"] == "rack"
    assert up_after_a_refresh(stack) == {}


def refusal_of(name: str) -> list[dict[str, Any]]:
    """A policy of somebody else's that refuses one ClusterQueue."""
    api, metadata = "admissionregistration.k8s.io/v1", {"name": "refuses-one-queue"}
    rule = {"apiGroups": ["kueue.x-k8s.io"], "apiVersions": ["v1beta2"], "operations": ["*"],
            "resources": ["clusterqueues"]}  # fmt: skip
    spec = {
        "matchConstraints": {"resourceRules": [rule]},
        "matchConditions": [{"name": "that-queue", "expression": f"request.name == '{name}'"}],
        "validations": [{"expression": "false", "message": "not on a Sunday"}],
    }
    binding = {"policyName": "refuses-one-queue", "validationActions": ["Deny"]}
    return [
        {"apiVersion": api, "kind": "ValidatingAdmissionPolicy", "metadata": metadata, "spec": spec},
        {"apiVersion": api, "kind": "ValidatingAdmissionPolicyBinding", "metadata": metadata, "spec": binding},
    ]


def is_refused(stack: Stack, name: str) -> bool:
    manifest = {"apiVersion": KUEUE, "kind": "ClusterQueue", "metadata": {"name": name}, "spec": {}}
    try:
        stack.kube.create(manifest, dry_run=True)
    except KubeError as error:
        return "not on a Sunday" in str(error)
    return False


def test_a_failure_in_the_middle_leaves_the_others_alone_and_is_repaired_by_the_next_up(
    stack: Stack, team: str
) -> None:
    policies = refusal_of(YELLOW_TWIN)
    for policy in policies:
        stack.kube.apply(policy)
    wait_for("the refusal", lambda: is_refused(stack, YELLOW_TWIN))
    wider = FLEET_FILE.replace("    burst:\n", "      yellow: {quota: {h100-onprem: 0}}\n    burst:\n", 1)
    failed = stack.up(wider)
    for policy in reversed(policies):
        stack.kube.delete(policy["apiVersion"], policy["kind"], policy["metadata"]["name"])
    assert not failed.succeeded
    assert "not on a Sunday" in complaints(failed)
    assert stack.kube.find(KUEUE, "ClusterQueue", "yellow")
    assert stack.kube.find(KUEUE, "ClusterQueue", YELLOW_TWIN) is None
    job = stack.submit(team, 4)
    wait_for("the other teams' work", lambda: stack.flavor(team, job))

    wait_for("the end of the refusal", lambda: not is_refused(stack, YELLOW_TWIN))
    assert stack.changes(stack.up())["create"] >= 2
    assert stack.kube.find(KUEUE, "ClusterQueue", YELLOW_TWIN)
    assert stack.changes(stack.up()) == {}


def ours(stack: Stack) -> list[str]:
    """Every object in the cluster that carries our mark, and every node with a label that `up` set."""
    found = []
    groups = [group["preferredVersion"]["groupVersion"] for group in stack.kube.request("GET", "/apis")["groups"]]
    for root in ["/api/v1", *(f"/apis/{version}" for version in groups)]:
        for resource in stack.kube.request("GET", root)["resources"]:
            if "/" not in resource["name"] and "list" in resource["verbs"]:
                query = {"labelSelector": f"{MANAGED_BY_LABEL}={MANAGED_BY}"}
                listed = stack.kube.request("GET", f"{root}/{resource['name']}", parameters=query)
                found += [f"{resource['name']}/{item['metadata']['name']}" for item in listed.get("items", [])]
    for node in stack.kube.list("v1", "Node")[0]:
        if node["metadata"]["name"].startswith("rack-"):
            labels = {FLAVOR_LABEL, POOL_LABEL, LOCATION_LABEL} & node["metadata"]["labels"].keys()
            found += [f"{node['metadata']['name']}: {label}" for label in labels]
    return found


def test_destroy_leaves_nothing_of_ours_even_while_jobs_run_and_up_sets_it_up_again(stack: Stack) -> None:
    filler = stack.submit("red", 8, job_class="urgent", run=100, longest=120)
    wait_for("the filler", lambda: stack.flavor("red", filler))
    bursting = stack.submit("red", 4, job_class="urgent", run=100, longest=120)
    stack.submit("red", 8, job_class="local", run=100, longest=120)
    wait_for("the job in the cloud", lambda: stack.flavor("red", bursting) == CLOUD)
    assert ours(stack)

    began = time.monotonic()
    destroyed = stack.engine.destroy("local", "--config-file", str(stack.file), as_json=True)
    took = time.monotonic() - began
    try:
        assert destroyed.succeeded, complaints(destroyed)
        assert ours(stack) == []
        assert not [node for node in stack.kube.list("v1", "Pod")[0] if node["metadata"]["namespace"] == "red"]
        assert took < DESTROY_LIMIT_SECONDS
    finally:
        again = stack.up()
    assert set(stack.changes(again)) == {"create"}
    job = stack.submit("red", 4)
    assert wait_for("local work on the new stack", lambda: stack.flavor("red", job)) == "h100-onprem"
    wait_for("its end", lambda: condition(stack.workload("red", job), "Finished"))
    stack.clear("red")
