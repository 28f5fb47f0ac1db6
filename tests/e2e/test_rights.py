"""What the agent and an ordinary user can and cannot do, asked of the real API server.

Every row is one raw request under another name, sent as a dry run: authorization and admission answer as they would in
earnest, and nothing changes, so rows do not depend on each other. The agent is away meanwhile, so that jobs hold still.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from infra.local.embedded import kwok_pool
from infra.replay.audit import AuditReport, read_audit
from infra.replay.gate import GateProof, prove_gate
from infra.replay.histories import histories_of
from stacks.labels import BURST_TAINT, FLAVOR_LABEL, GATE_NAME, QUEUE_LABEL, VERDICT_ANNOTATION
from tests.e2e.conftest import AGENT_USER, KUEUE, Stack, condition, wait_for

TEAM, OTHER = "red", "green"
CLOUD = "h100-aws-spot"
USER = "rita"
JSON, JSON_PATCH = "application/json", "application/json-patch+json"
MERGE, APPLY = "application/merge-patch+json", "application/apply-patch+yaml"
JOBS = f"/apis/batch/v1/namespaces/{TEAM}/jobs"
PODS = f"/api/v1/namespaces/{TEAM}/pods"
WORKLOADS = f"/apis/kueue.x-k8s.io/v1beta2/namespaces/{TEAM}/workloads"
LOCAL_QUEUES = f"/apis/kueue.x-k8s.io/v1beta2/namespaces/{TEAM}/localqueues"
CLUSTER_QUEUES = "/apis/kueue.x-k8s.io/v1beta2/clusterqueues"
CHECKS = "/apis/kueue.x-k8s.io/v1beta2/admissionchecks"
LEASES = "/apis/coordination.k8s.io/v1/namespaces/gpufleet-system/leases"
SYSTEM = "/api/v1/namespaces/gpufleet-system"
NO_RIGHT = "cannot"
KUEUE_REFUSES = "immutable"
ONE_DOOR = "only gpufleet moves a job into or out of a burst queue"
NO_BURST = f"may not tolerate {BURST_TAINT}"


@dataclass(frozen=True)
class Row:
    """One request. `$waiting`, `$gated`, `$bursting` and `$running` stand for jobs, `$w-…` for their Workloads."""

    name: str
    method: str
    path: str
    body: Any = None
    refusal: str | None = None
    content_type: str = MERGE
    who: str = AGENT_USER

    def __str__(self) -> str:
        return f"{'agent' if self.who == AGENT_USER else 'user'}-{'cannot' if self.refusal else 'can'}-{self.name}"


def labels(**changed: str | None) -> dict[str, Any]:
    return {"metadata": {"labels": {QUEUE_LABEL if key == "queue" else key: value for key, value in changed.items()}}}


def annotated(**changed: str | None) -> dict[str, Any]:
    return {"metadata": {"annotations": changed}}


def check(state: str, name: str = GATE_NAME, job: str = "gated") -> dict[str, Any]:
    """A server-side apply of one check's state, as the agent sends it."""
    entry = {"name": name, "state": state, "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"}
    return status(job, admissionChecks=[entry])


def status(job: str, **fields: Any) -> dict[str, Any]:
    return {"apiVersion": KUEUE, "kind": "Workload", "metadata": {"name": f"$w-{job}"}, "status": fields}


def one_condition(kind: str) -> dict[str, str]:
    return {
        "type": kind, "status": "True", "reason": "Trial", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z",
    }  # fmt: skip


def active(name: str) -> dict[str, Any]:
    return {
        "apiVersion": KUEUE, "kind": "AdmissionCheck", "metadata": {"name": name},
        "status": {"conditions": [one_condition("Active")]},
    }  # fmt: skip


def lease(name: str, version: str = "") -> dict[str, Any]:
    spec = {"holderIdentity": "trial", "leaseDurationSeconds": 15}
    metadata = {"name": name} | ({"resourceVersion": version} if version else {})
    return {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": metadata, "spec": spec}


def pod_spec(**fields: Any) -> dict[str, Any]:
    return {"restartPolicy": "Never", "containers": [{"name": "train", "image": "train"}], **fields}


def job(queue: str | None = TEAM, **pod: Any) -> dict[str, Any]:
    metadata = {"name": "trial", "labels": {QUEUE_LABEL: queue} if queue else {}}
    spec = {"suspend": True, "template": {"spec": pod_spec(**pod)}}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": spec}


def pod(**fields: Any) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "trial"}, "spec": pod_spec(**fields)}


def workload(queue: str) -> dict[str, Any]:
    pod_set = {"name": "main", "count": 1, "template": {"spec": pod_spec()}}
    spec = {"queueName": queue, "podSets": [pod_set]}
    return {"apiVersion": KUEUE, "kind": "Workload", "metadata": {"name": "trial"}, "spec": spec}


def one_more(toleration: dict[str, str]) -> list[dict[str, Any]]:
    return [{"op": "add", "path": "/spec/tolerations/-", "value": toleration}]


def local_queue(name: str, cluster_queue: str) -> dict[str, Any]:
    return {
        "apiVersion": KUEUE, "kind": "LocalQueue", "metadata": {"name": name}, "spec": {"clusterQueue": cluster_queue},
    }  # fmt: skip


def event() -> dict[str, Any]:
    return {
        "apiVersion": "events.k8s.io/v1", "kind": "Event", "metadata": {"generateName": "trial-"},
        "eventTime": "2026-01-01T00:00:00.000000Z", "type": "Normal", "reason": "Trial", "action": "Trial", "note": "",
        "reportingController": "gpufleet.dev/router", "reportingInstance": "trial",
        "regarding": {"apiVersion": "batch/v1", "kind": "Job", "name": "$waiting", "namespace": TEAM},
    }  # fmt: skip


BACKGROUND = {"propagationPolicy": "Background"}
FLAVOR_AFFINITY = {
    "nodeAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": {
            "nodeSelectorTerms": [{"matchExpressions": [{"key": "gpufleet.dev/flavor", "operator": "Exists"}]}]
        }
    }
}
BURST_TOLERATION = {"key": BURST_TAINT, "operator": "Exists", "effect": "NoSchedule"}
EVERY_TOLERATION = {"operator": "Exists"}
RELEASE, RETURN = labels(queue=f"{TEAM}-burst"), labels(queue=TEAM)

AGENT_ROWS = [
    # What runtime/kube.py calls.
    Row("release-a-waiting-job", "PATCH", f"{JOBS}/$waiting", RELEASE),
    Row("take-a-suspended-job-back", "PATCH", f"{JOBS}/$gated", RETURN),
    Row("write-a-verdict", "PATCH", f"{WORKLOADS}/$w-waiting", annotated(**{VERDICT_ANNOTATION: "{}"})),
    Row("clear-a-verdict", "PATCH", f"{WORKLOADS}/$w-waiting", annotated(**{VERDICT_ANNOTATION: None})),
    Row("deactivate-a-workload", "PATCH", f"{WORKLOADS}/$w-gated",
        annotated(**{VERDICT_ANNOTATION: "{}"}) | {"spec": {"active": False}}),
    Row("move-a-workload-to-the-twin", "PATCH", f"{WORKLOADS}/$w-waiting", {"spec": {"queueName": f"{TEAM}-burst"}}),
    Row("answer-its-own-check", "PATCH", f"{WORKLOADS}/$w-gated/status?force=true&fieldManager=trial", check("Ready"),
        None, APPLY),
    Row("leave-its-own-check-pending", "PATCH", f"{WORKLOADS}/$w-gated/status?force=true&fieldManager=trial",
        check("Pending"), None, APPLY),
    Row("declare-its-check-active", "PATCH", f"{CHECKS}/{GATE_NAME}/status?force=true&fieldManager=trial",
        active(GATE_NAME), None, APPLY),
    Row("read-a-workload", "GET", f"{WORKLOADS}/$w-gated"),
    Row("list-workloads-everywhere", "GET", "/apis/kueue.x-k8s.io/v1beta2/workloads"),
    Row("list-checks", "GET", CHECKS),
    Row("read-its-namespace", "GET", SYSTEM),
    Row("read-its-lease", "GET", f"{LEASES}/gpufleet-router"),
    Row("replace-its-lease", "PUT", f"{LEASES}/gpufleet-router", lease("gpufleet-router", "$lease-version"), None, JSON),
    Row("write-an-event", "POST", f"/apis/events.k8s.io/v1/namespaces/{TEAM}/events", event(), None, JSON),
    # Jobs: nothing but that label, of suspended jobs, between twins.
    Row("change-a-jobs-spec", "PATCH", f"{JOBS}/$waiting", {"spec": {"parallelism": 2}}, "spec or status"),
    Row("start-a-job", "PATCH", f"{JOBS}/$waiting", {"spec": {"suspend": False}}, "spec or status"),
    Row("annotate-a-job", "PATCH", f"{JOBS}/$waiting", annotated(any="thing"), "metadata but a label"),
    Row("set-another-label", "PATCH", f"{JOBS}/$waiting", labels(any="thing"), f"no label of a job but {QUEUE_LABEL}"),
    Row("drop-the-queue", "PATCH", f"{JOBS}/$waiting", labels(queue=None), "between a queue and its burst twin"),
    Row("move-a-job-to-another-team", "PATCH", f"{JOBS}/$waiting", labels(queue=OTHER), "queue and its burst twin"),
    Row("move-a-job-to-another-twin", "PATCH", f"{JOBS}/$waiting", labels(queue=f"{OTHER}-burst"), "its burst twin"),
    Row("move-a-running-job", "PATCH", f"{JOBS}/$running", RELEASE, "only suspended jobs"),
    Row("move-a-job-that-runs-in-the-cloud", "PATCH", f"{JOBS}/$bursting", RETURN, "only suspended jobs"),
    Row("read-a-job", "GET", f"{JOBS}/$waiting", None, NO_RIGHT),
    Row("delete-a-job", "DELETE", f"{JOBS}/$waiting", {}, NO_RIGHT, JSON),
    Row("create-a-job", "POST", JOBS, job(), NO_RIGHT, JSON),
    Row("write-a-jobs-status", "PATCH", f"{JOBS}/$waiting/status", {"status": {"active": 1}}, NO_RIGHT),
    # Workloads: active, queueName, the verdict.
    Row("raise-a-priority", "PATCH", f"{WORKLOADS}/$w-waiting", {"spec": {"priority": 9}}, "only active and queueName"),
    Row("lengthen-a-run", "PATCH", f"{WORKLOADS}/$w-gated", {"spec": {"maximumExecutionTimeSeconds": 9999}},
        "only active and queueName"),
    Row("drop-a-runs-limit", "PATCH", f"{WORKLOADS}/$w-gated", {"spec": {"maximumExecutionTimeSeconds": None}},
        "only active and queueName"),
    Row("change-pod-sets", "PATCH", f"{WORKLOADS}/$w-waiting", {"spec": {"podSets": workload(TEAM)["spec"]["podSets"]}},
        "only active and queueName"),
    Row("annotate-a-workload", "PATCH", f"{WORKLOADS}/$w-waiting", annotated(any="thing"), "no annotation"),
    Row("label-a-workload", "PATCH", f"{WORKLOADS}/$w-waiting", labels(any="thing"), "metadata but its verdict"),
    Row("move-a-workload-to-another-team", "PATCH", f"{WORKLOADS}/$w-waiting", {"spec": {"queueName": OTHER}},
        "between a queue and its burst twin"),
    Row("replace-a-workload", "PUT", f"{WORKLOADS}/$w-waiting", workload(TEAM), NO_RIGHT, JSON),
    Row("delete-a-workload", "DELETE", f"{WORKLOADS}/$w-waiting", {}, NO_RIGHT, JSON),
    Row("create-a-workload", "POST", WORKLOADS, workload(f"{TEAM}-burst"), NO_RIGHT, JSON),
    # The gate: its own check, Ready or Pending.
    Row("reject-a-job", "PATCH", f"{WORKLOADS}/$w-gated/status?force=true&fieldManager=trial", check("Rejected"),
        "lose the job's place", APPLY),
    Row("retry-a-job", "PATCH", f"{WORKLOADS}/$w-gated/status?force=true&fieldManager=trial", check("Retry"),
        "lose the job's place", APPLY),
    Row("answer-another-check", "PATCH", f"{WORKLOADS}/$w-gated/status?force=true&fieldManager=trial",
        check("Ready", "quota-of-somebody"), "only its own check", APPLY),
    Row("admit-a-job", "PATCH", f"{WORKLOADS}/$w-gated/status?force=true&fieldManager=trial",
        status("gated", conditions=[one_condition("Admitted")]), "only its own check", APPLY),
    Row("finish-a-job", "PATCH", f"{WORKLOADS}/$w-waiting/status", {"status": {"conditions": [one_condition("Finished")]}},
        "only its own check"),
    Row("take-quota-away", "PATCH", f"{WORKLOADS}/$w-gated/status", {"status": {"admission": None}}, "only its own check"),
    Row("answer-a-foreign-check-object", "PATCH", f"{CHECKS}/other/status?force=true&fieldManager=trial",
        active("other"), NO_RIGHT, APPLY),
    # Nothing else.
    Row("read-secrets", "GET", f"{SYSTEM}/secrets", None, NO_RIGHT),
    Row("read-its-own-config-map", "GET", f"{SYSTEM}/configmaps/gpufleet-router", None, NO_RIGHT),
    Row("make-tokens", "POST", f"{SYSTEM}/serviceaccounts/gpufleet-router/token", {}, NO_RIGHT, JSON),
    Row("list-pods", "GET", PODS, None, NO_RIGHT),
    Row("list-nodes", "GET", "/api/v1/nodes", None, NO_RIGHT),
    Row("list-namespaces", "GET", "/api/v1/namespaces", None, NO_RIGHT),
    Row("list-cluster-queues", "GET", CLUSTER_QUEUES, None, NO_RIGHT),
    Row("raise-quota", "PATCH", f"{CLUSTER_QUEUES}/{TEAM}", {"spec": {"stopPolicy": "None"}}, NO_RIGHT),
    Row("change-its-check", "PATCH", f"{CHECKS}/{GATE_NAME}", {"spec": {"controllerName": "x"}}, NO_RIGHT),
    Row("take-another-lease", "PUT", f"{LEASES}/another", lease("another"), NO_RIGHT, JSON),
    Row("lease-elsewhere", "POST", f"/apis/coordination.k8s.io/v1/namespaces/{TEAM}/leases", lease("a"), NO_RIGHT, JSON),
]  # fmt: skip

USER_ROWS = [
    Row("submit-to-the-teams-queue", "POST", JOBS, job(), None, JSON),
    Row("label-a-waiting-job", "PATCH", f"{JOBS}/$waiting", labels(any="thing")),
    Row("label-a-job-at-the-gate", "PATCH", f"{JOBS}/$gated", labels(any="thing")),
    Row("label-a-job-that-runs-in-the-cloud", "PATCH", f"{JOBS}/$bursting", labels(any="thing")),
    Row("label-a-pod-that-runs-in-the-cloud", "PATCH", f"{PODS}/$p-bursting", labels(any="thing")),
    Row("delete-a-job-that-runs-in-the-cloud", "DELETE", f"{JOBS}/$bursting", BACKGROUND, None, JSON),
    Row("delete-a-local-job-as-she-likes", "DELETE", f"{JOBS}/$running", {}, None, JSON),
    Row("lengthen-a-job-at-the-gate", "PATCH", f"{JOBS}/$gated",  # Kueue makes a new Workload, which asks anew
        labels(**{"kueue.x-k8s.io/max-exec-time-seconds": "9999"})),
    Row("tolerate-another-taint", "POST", JOBS, job(tolerations=[{"key": "a", "operator": "Exists"}]), None, JSON),
    Row("run-a-pod", "POST", PODS, pod(), None, JSON),
    Row("make-a-local-queue-onto-its-queue", "POST", LOCAL_QUEUES, local_queue("second", TEAM), None, JSON),
    # Burst queues.
    Row("submit-to-a-burst-queue", "POST", JOBS, job(f"{TEAM}-burst"), ONE_DOOR, JSON),
    Row("release-herself", "PATCH", f"{JOBS}/$waiting", RELEASE, ONE_DOOR),
    Row("leave-a-burst-queue", "PATCH", f"{JOBS}/$gated", RETURN, ONE_DOOR),
    Row("submit-without-a-queue", "POST", JOBS, job(None), "need the label", JSON),
    Row("drop-the-queue", "PATCH", f"{JOBS}/$waiting", labels(queue=None), "need the label"),
    Row("drop-the-burst-queue", "PATCH", f"{JOBS}/$gated", labels(queue=None), ONE_DOOR),
    Row("move-a-workload-in", "PATCH", f"{WORKLOADS}/$w-waiting", {"spec": {"queueName": f"{TEAM}-burst"}},
        "only gpufleet moves a workload"),
    Row("move-a-workload-out", "PATCH", f"{WORKLOADS}/$w-gated", {"spec": {"queueName": TEAM}}, KUEUE_REFUSES),
    Row("make-a-workload-in-a-burst-queue", "POST", WORKLOADS, workload(f"{TEAM}-burst"),
        "a burst queue", JSON),
    Row("make-a-local-queue-onto-a-burst-queue", "POST", LOCAL_QUEUES, local_queue("mine", f"{TEAM}-burst"),
        "only administrators make a LocalQueue", JSON),
    Row("point-a-local-queue-at-a-burst-queue", "PATCH", f"{LOCAL_QUEUES}/{TEAM}",
        {"spec": {"clusterQueue": f"{TEAM}-burst"}}, KUEUE_REFUSES),
    # The gate and the limits that money rests on.
    Row("forge-the-gate", "PATCH", f"{WORKLOADS}/$w-gated/status?force=true&fieldManager=trial", check("Ready"),
        NO_RIGHT, APPLY),
    Row("lengthen-a-workload-at-the-gate", "PATCH", f"{WORKLOADS}/$w-gated",
        {"spec": {"maximumExecutionTimeSeconds": 9999}}, "longest run time"),
    Row("lengthen-a-workload-in-the-cloud", "PATCH", f"{WORKLOADS}/$w-bursting",
        {"spec": {"maximumExecutionTimeSeconds": 9999}}, KUEUE_REFUSES),
    Row("unlimit-a-workload-in-the-cloud", "PATCH", f"{WORKLOADS}/$w-bursting",
        {"spec": {"maximumExecutionTimeSeconds": None}}, KUEUE_REFUSES),
    Row("leave-pods-behind-in-the-cloud", "DELETE", f"{JOBS}/$bursting", {}, "deleted with its pods", JSON),
    Row("orphan-pods-in-the-cloud", "DELETE", f"{JOBS}/$bursting", {"propagationPolicy": "Orphan"},
        "deleted with its pods", JSON),
    # Cloud nodes, around the queues.
    Row("tolerate-burst-nodes", "POST", JOBS, job(tolerations=[BURST_TOLERATION]), NO_BURST, JSON),
    Row("tolerate-everything", "POST", JOBS, job(tolerations=[EVERY_TOLERATION]), "nor every taint", JSON),
    Row("add-a-toleration-to-a-waiting-job", "PATCH", f"{JOBS}/$waiting",
        {"spec": {"template": {"spec": {"tolerations": [BURST_TOLERATION]}}}}, NO_BURST),
    Row("select-a-cloud-flavor", "POST", JOBS, job(nodeSelector={FLAVOR_LABEL: CLOUD}), "may not select", JSON),
    Row("ask-for-a-flavor-by-affinity", "POST", JOBS, job(affinity=FLAVOR_AFFINITY), "by affinity", JSON),
    Row("take-a-day-to-end", "POST", JOBS, job(terminationGracePeriodSeconds=86_400), "at most 300", JSON),
    Row("take-five-minutes-to-end", "POST", JOBS, job(terminationGracePeriodSeconds=300), None, JSON),
    Row("name-a-node", "POST", JOBS, job(nodeName="spot-0"), "may not name their node", JSON),
    Row("run-a-pod-that-tolerates-burst-nodes", "POST", PODS, pod(tolerations=[BURST_TOLERATION]), NO_BURST, JSON),
    Row("run-a-pod-that-tolerates-everything", "POST", PODS, pod(tolerations=[EVERY_TOLERATION]), NO_BURST, JSON),
    Row("run-a-pod-that-selects-a-cloud-flavor", "POST", PODS, pod(nodeSelector={FLAVOR_LABEL: CLOUD}),
        "may not select", JSON),
    Row("run-a-pod-on-a-cloud-node", "POST", PODS, pod(nodeName="spot-0"), "may not name their node", JSON),
    Row("add-a-toleration-to-a-pod", "PATCH", f"{PODS}/patient", one_more(BURST_TOLERATION), NO_BURST,
        JSON_PATCH),
    Row("tolerate-everything-later", "PATCH", f"{PODS}/patient", one_more(EVERY_TOLERATION), NO_BURST,
        JSON_PATCH),
    Row("select-a-cloud-flavor-later", "PATCH", f"{PODS}/patient", {"spec": {"nodeSelector": {FLAVOR_LABEL: CLOUD}}},
        "may not select"),
    # Where a user has no right at all.
    Row("change-a-cluster-queue", "PATCH", f"{CLUSTER_QUEUES}/{TEAM}", {"spec": {"stopPolicy": "None"}}, NO_RIGHT),
    Row("bind-a-pod", "POST", f"{PODS}/patient/binding", {"target": {"kind": "Node", "name": "spot-0"}}, NO_RIGHT, JSON),
]  # fmt: skip
ROWS = [*AGENT_ROWS, *(Row(**{**vars(row), "who": USER}) for row in USER_ROWS)]


def role_of_a_user() -> list[dict[str, Any]]:
    rbac, meta = "rbac.authorization.k8s.io", {"name": USER, "namespace": TEAM}
    verbs = ["get", "list", "create", "update", "patch", "delete"]
    rules = [
        {"apiGroups": ["batch"], "resources": ["jobs"], "verbs": verbs},
        {"apiGroups": [""], "resources": ["pods"], "verbs": verbs},
        {"apiGroups": ["kueue.x-k8s.io"], "resources": ["workloads", "localqueues"], "verbs": verbs},
    ]
    reference = {"apiGroup": rbac, "kind": "Role", "name": USER}
    subject = {"apiGroup": rbac, "kind": "User", "name": USER}
    return [
        {"apiVersion": f"{rbac}/v1", "kind": "Role", "metadata": meta, "rules": rules},
        {"apiVersion": f"{rbac}/v1", "kind": "RoleBinding", "metadata": meta, "roleRef": reference, "subjects": [subject]},
    ]  # fmt: skip


def send_to_the_gate(stack: Stack, team: str) -> str:
    """Submit a job that finds no local GPUs, and move it to the burst queue under the agent's name, as the agent would."""
    name = stack.submit(team, 4, run=300, longest=400)
    wait_for("its Workload", lambda: stack.workload(team, name))
    path = stack.kube.path("batch/v1", "Job", name, team)
    answer = stack.request_as(AGENT_USER, "PATCH", path, labels(queue=f"{team}-burst"), MERGE)
    assert answer.is_success, answer.text
    wait_for("quota in the cloud", lambda: condition(stack.workload(team, name), "QuotaReserved"), 10)
    return name


def workload_name(stack: Stack, job: str) -> str:
    return str(wait_for("a Workload", lambda: stack.workload(TEAM, job))["metadata"]["name"])


def pod_of(stack: Stack, job: str) -> str:
    def named() -> str | None:
        pods, _ = stack.kube.list("v1", "Pod", TEAM, label_selector=f"batch.kubernetes.io/job-name={job}")
        return str(pods[0]["metadata"]["name"]) if pods else None

    return wait_for("a pod", named)


def proof(stack: Stack, since: float) -> GateProof:
    """The proof from the audit log alone."""
    report = AuditReport()
    histories = histories_of(read_audit(stack.plane.state.audit_log, report), stack.fleet)
    assert report.unreadable == 0
    pools = [kwok_pool(name, pool) for name, pool in stack.fleet.pools.items() if pool.location != "onprem"]
    nodes = {node: pool.labels[FLAVOR_LABEL] for pool in pools for node in pool.node_names}
    return prove_gate(histories, stack.fleet, nodes, since)


@pytest.mark.parametrize("team", ["green"], indirect=True)
def test_a_run_that_the_gate_passed_is_proven_by_the_audit_log(stack: Stack, team: str) -> None:
    began = time.time()
    filler = stack.submit(team, 4, job_class="urgent", run=60, longest=70)
    wait_for("the filler", lambda: stack.flavor(team, filler))
    bursting = stack.submit(team, 4, job_class="urgent")
    wait_for("the job in the cloud", lambda: stack.flavor(team, bursting) == CLOUD, 15)
    wait_for("its pod in the log", lambda: proof(stack, began).pods)
    found = proof(stack, began)
    assert (found.pods, found.unproven, found.forged) == (1, (), ())


@pytest.mark.parametrize("team", ["green"], indirect=True)
def test_an_administrator_who_forges_the_gate_is_found_in_the_audit_log(stack: Stack, team: str) -> None:
    began = time.time()
    filler = stack.submit(team, 4, job_class="urgent", run=60, longest=70)
    wait_for("the filler", lambda: stack.flavor(team, filler))
    stack.scale_agent(0)
    try:
        forged = send_to_the_gate(stack, team)
        workload = stack.workload(team, forged)
        answer = check("Ready") | {"metadata": {"name": workload["metadata"]["name"], "namespace": team}}
        stack.kube.apply(answer, subresource="status")
        wait_for("the forged start", lambda: stack.flavor(team, forged) == CLOUD, 10)
        wait_for("its pod in the log", lambda: proof(stack, began).pods)
    finally:
        stack.scale_agent(1)
    found = proof(stack, began)
    assert [(one.namespace, one.subject) for one in found.unproven] == [(team, forged)]
    assert "set the gate to Ready, not the agent" in found.unproven[0].reason
    assert [(one.namespace, one.subject) for one in found.forged] == [(team, forged)]


@pytest.fixture(scope="module")
def scene(stack: Stack) -> Iterator[dict[str, str]]:
    """One job that runs locally, one in the cloud, one at the gate and one that waits; the agent is away."""
    jobs = {"running": stack.submit(TEAM, 8, job_class="urgent", run=300, longest=400)}
    wait_for("a local job", lambda: stack.flavor(TEAM, jobs["running"]))
    jobs["bursting"] = stack.submit(TEAM, 4, job_class="urgent", run=300, longest=400)
    wait_for("a job in the cloud", lambda: stack.flavor(TEAM, jobs["bursting"]) == CLOUD, 15)
    stack.scale_agent(0)
    jobs["gated"] = send_to_the_gate(stack, TEAM)
    jobs["waiting"] = stack.submit(TEAM, 4, run=300, longest=400)
    names = jobs | {f"w-{role}": workload_name(stack, name) for role, name in jobs.items()}
    names["p-bursting"] = pod_of(stack, jobs["bursting"])
    found = stack.kube.get("coordination.k8s.io/v1", "Lease", "gpufleet-router", "gpufleet-system")
    names["lease-version"] = found["metadata"]["resourceVersion"]
    for manifest in role_of_a_user():
        stack.kube.apply(manifest)
    patient = pod(schedulingGates=[{"name": "example.com/patience"}])
    stack.kube.create(patient | {"metadata": {"name": "patient", "namespace": TEAM}})
    yield names
    stack.scale_agent(1)
    stack.kube.delete("v1", "Pod", "patient", TEAM)
    for manifest in role_of_a_user():
        stack.kube.delete(manifest["apiVersion"], manifest["kind"], USER, TEAM)
    stack.clear(TEAM)


@pytest.mark.parametrize("row", ROWS, ids=str)
def test_what_can_and_what_cannot_be_done(stack: Stack, scene: dict[str, str], row: Row) -> None:
    path, body = row.path, json.dumps(row.body)
    for role in sorted(scene, key=len, reverse=True):
        path, body = path.replace(f"${role}", scene[role]), body.replace(f"${role}", scene[role])
    parsed = json.loads(body)
    if row.method == "DELETE":
        parsed = {"dryRun": ["All"], **parsed}  # the server ignores a DELETE's query where there is a body
    else:
        path += ("&" if "?" in path else "?") + "dryRun=All"
    answer = stack.request_as(row.who, row.method, path, parsed, row.content_type)
    if row.refusal is None:
        assert answer.is_success, answer.text
    else:
        assert answer.status_code in {403, 422}, answer.text
        assert row.refusal in answer.json()["message"]
