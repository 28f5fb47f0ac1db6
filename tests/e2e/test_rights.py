"""What the agent and ordinary users can and cannot do, asked of the real API server.

Every row is one raw request under another name, sent as a dry run: authorization and admission answer as they would in
earnest, and nothing changes, so rows do not depend on each other. The agent is away meanwhile, so that jobs hold still.
Rows for other kinds of job than batch/v1 stand in test_rights_kinds.py.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pytest

from infra.local.embedded import kwok_pool
from infra.replay.audit import AuditReport, read_audit
from infra.replay.gate import GateProof, prove_gate
from infra.replay.histories import histories_of
from stacks.kinds import JOB_KINDS
from stacks.labels import (
    AGENT_DRAIN_TAINT,
    AGENT_NAME,
    BURST_TAINT,
    CHECKPOINT_ANSWER_ANNOTATION,
    CHECKPOINT_REQUEST_ANNOTATION,
    CLEARED_ANNOTATION,
    CORDONED_ANNOTATION,
    DRAIN_TAINT,
    EVICTING_TAINT,
    EVICTION_ANNOTATION,
    FLAVOR_LABEL,
    FORECAST_NAME,
    GATE_NAME,
    GPU_LABEL,
    GPU_RESOURCE,
    MANAGED_LABEL,
    MIG_STATE_LABEL,
    MOVE_ANNOTATION,
    NODE_AGENT_NAME,
    NOTICES_ANNOTATION,
    PRIORITY_CLASS_LABEL,
    QUEUE_LABEL,
    RECALL_ANNOTATION,
    RELAYOUT_ANNOTATION,
    SYSTEM_NAMESPACE,
    TEAM_LABEL,
    TOP_UPS_NAME,
    VERDICT_ANNOTATION,
    VERDICT_CONDITION,
)
from stacks.layouts import MIG_CONFIG_LABEL
from tests.e2e.agentless import (
    ON_DEMAND,
    pass_the_gate,
    send_to_the_gate,
    submit,
    twin,
    window,
    without_agent,
    workload_path,
)
from tests.e2e.agentless import SPOT as CLOUD
from tests.e2e.conftest import AGENT_USER, KUEUE, Stack, wait_for

TEAM, OTHER = "red", "green"
TWIN, NEXT_TWIN, WINDOW = twin(TEAM), twin(TEAM, ON_DEMAND), window(TEAM)
USER, EDITOR, NAMESPACE_ADMIN, OPERATOR, ADMIN = "rita", "eve", "nora", "olga", "ada"
NODE_AGENT_USER = f"system:serviceaccount:{SYSTEM_NAMESPACE}:{NODE_AGENT_NAME}"
JSON, JSON_PATCH = "application/json", "application/json-patch+json"
MERGE, APPLY = "application/merge-patch+json", "application/apply-patch+yaml"
JOBS = f"/apis/batch/v1/namespaces/{TEAM}/jobs"
PODS = f"/api/v1/namespaces/{TEAM}/pods"
WORKLOADS = f"/apis/kueue.x-k8s.io/v1beta2/namespaces/{TEAM}/workloads"
ELSEWHERE = "/api/v1/namespaces/default/pods"
LOCAL_QUEUES = f"/apis/kueue.x-k8s.io/v1beta2/namespaces/{TEAM}/localqueues"
CLUSTER_QUEUES = "/apis/kueue.x-k8s.io/v1beta2/clusterqueues"
CHECKS = "/apis/kueue.x-k8s.io/v1beta2/admissionchecks"
LEASES = "/apis/coordination.k8s.io/v1/namespaces/gpufleet-system/leases"
SYSTEM = "/api/v1/namespaces/gpufleet-system"
CONFIG_MAPS = f"/api/v1/namespaces/{TEAM}/configmaps"
NODES = "/api/v1/nodes"
CORDONED, FORGOTTEN, HEALTHY = "spot-3", "spot-2", "spot-1"
"""Nodes that nothing runs on: cordoned by their node agent; by hand, and held empty by the agent; and by nobody."""
NO_RIGHT = "cannot"
KUEUE_REFUSES = "immutable"
ONE_DOOR = "only gpufleet moves a job into or out of a burst queue"
NO_BURST = f"may not tolerate {BURST_TAINT}"
ONE_TEAM = "only between the queues of one team"
NOT_HERS = "only gpufleet writes"
ONLY_NODE_AGENTS = "only the node agent writes"
NO_OTHER_TAINT = "no taint but"
NO_LABEL_OF_A_NODE, HELD_EMPTY = "no label of a node but", "it holds empty by"
NOTHING_OF_A_NODE, NO_ANNOTATION_OF_A_NODE = "nothing of a node but an annotation", "no annotation of a node but"
JUDGED = "only Kueue and gpufleet write a workload's status"


@dataclass(frozen=True)
class Row:
    """One request. `$waiting`, `$gated`, `$bursting`, `$running`, `$nightly` stand for jobs, `$w-…` for Workloads."""

    name: str
    method: str
    path: str
    body: Any = None
    refusal: str | None = None
    content_type: str = MERGE
    who: str = AGENT_USER
    rehearsed: bool = True
    """As a dry run, which one of the policies lets pass."""
    node: str = ""
    """Where the pod runs whose token it is."""

    def __str__(self) -> str:
        return f"{WHO[self.who]}-{'cannot' if self.refusal else 'can'}-{self.name}"


WHO = {
    AGENT_USER: "agent",
    NODE_AGENT_USER: "node-agent",
    USER: "user",
    EDITOR: "editor",
    NAMESPACE_ADMIN: "namespace-admin",
    OPERATOR: "operator-of-nodes",
    ADMIN: "admin",
}


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


def job(queue: str | None = TEAM, job_class: str | None = None, **pod: Any) -> dict[str, Any]:
    named = {QUEUE_LABEL: queue, PRIORITY_CLASS_LABEL: job_class}
    metadata = {"name": "trial", "labels": {key: value for key, value in named.items() if value}}
    spec = {"suspend": True, "template": {"spec": pod_spec(**pod)}}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": spec}


def cron_job(**pod: Any) -> dict[str, Any]:
    made = job(**pod)
    spec = {"schedule": "0 0 * * *", "jobTemplate": {"metadata": made["metadata"], "spec": made["spec"]}}
    return {"apiVersion": "batch/v1", "kind": "CronJob", "metadata": {"name": "trial"}, "spec": spec}


def pod(**fields: Any) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "trial"}, "spec": pod_spec(**fields)}


def workload(queue: str, api_version: str = "", kind: str = "") -> dict[str, Any]:
    pod_set = {"name": "main", "count": 1, "template": {"spec": pod_spec()}}
    spec = {"queueName": queue, "podSets": [pod_set]}
    owner = {"apiVersion": api_version, "kind": kind, "name": "a", "uid": "a", "controller": True}
    metadata = {"name": "trial"} | ({"ownerReferences": [owner]} if kind else {})
    return {"apiVersion": KUEUE, "kind": "Workload", "metadata": metadata, "spec": spec}


def gpu_pod(*tolerations: dict[str, str]) -> dict[str, Any]:
    asked = {"limits": {GPU_RESOURCE: "1"}}
    return pod(containers=[{"name": "a", "image": "a", "resources": asked}], tolerations=list(tolerations))


def one_more(toleration: dict[str, str]) -> list[dict[str, Any]]:
    return [{"op": "add", "path": "/spec/tolerations/-", "value": toleration}]


def eviction(name: str, uid: str = "") -> dict[str, Any]:
    options = {"deleteOptions": {"preconditions": {"uid": uid}}} if uid else {}
    return {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name, "namespace": TEAM}, **options}


def tainted(key: str, effect: str = "NoSchedule") -> dict[str, Any]:
    """A node's taints beside those of a cloud node."""
    there = {"key": BURST_TAINT, "value": "true", "effect": "NoSchedule"}
    return {"spec": {"taints": [there, {"key": key, "value": "spot-interruption", "effect": effect}]}}


def burst_only() -> dict[str, Any]:
    """The taint of a cloud node alone."""
    return {"spec": {"taints": [{"key": BURST_TAINT, "value": "true", "effect": "NoSchedule"}]}}


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
RELEASE, RETURN = labels(queue=TWIN), labels(queue=TEAM)
STATUS = "status?force=true&fieldManager=trial"
CONDITION = status("gated", conditions=[one_condition(VERDICT_CONDITION)])

AGENT_ROWS = [
    # What runtime/kube.py calls.
    Row("release-a-waiting-job", "PATCH", f"{JOBS}/$waiting", RELEASE),
    Row("take-a-suspended-job-back", "PATCH", f"{JOBS}/$gated", RETURN),
    Row("change-the-target-of-a-waiting-job", "PATCH", f"{JOBS}/$gated", labels(queue=NEXT_TWIN)),
    Row("release-a-job-of-a-class-with-a-window", "PATCH", f"{JOBS}/$nightly", RELEASE),
    Row("write-a-verdict", "PATCH", f"{WORKLOADS}/$w-waiting", annotated(**{VERDICT_ANNOTATION: "{}"})),
    Row("clear-a-verdict", "PATCH", f"{WORKLOADS}/$w-waiting", annotated(**{VERDICT_ANNOTATION: None})),
    Row("cross-out-a-recall", "PATCH", f"{WORKLOADS}/$w-gated", annotated(**{RECALL_ANNOTATION: None})),
    Row("cross-out-a-move", "PATCH", f"{WORKLOADS}/$w-gated", annotated(**{MOVE_ANNOTATION: None})),
    Row("deactivate-a-workload", "PATCH", f"{WORKLOADS}/$w-gated",
        annotated(**{VERDICT_ANNOTATION: "{}"}) | {"spec": {"active": False}}),
    Row("move-a-workload-to-the-twin", "PATCH", f"{WORKLOADS}/$w-waiting", {"spec": {"queueName": TWIN}}),
    Row("mark-an-eviction-and-stop-the-job", "PATCH", f"{WORKLOADS}/$w-bursting",
        annotated(**{EVICTION_ANNOTATION: "{}"}) | {"spec": {"active": False}}),
    Row("cross-out-an-eviction", "PATCH", f"{WORKLOADS}/$w-gated", annotated(**{EVICTION_ANNOTATION: None})),
    Row("ask-a-pod-to-save", "PATCH", f"{PODS}/$p-bursting", annotated(**{CHECKPOINT_REQUEST_ANNOTATION: "{}"})),
    Row("ask-a-pod-no-longer", "PATCH", f"{PODS}/patient", annotated(**{CHECKPOINT_REQUEST_ANNOTATION: None})),
    Row("keep-what-a-hook-answered", "PATCH", f"{PODS}/$p-bursting", annotated(**{CHECKPOINT_ANSWER_ANNOTATION: "{}"})),
    Row("evict-a-pod", "POST", f"{PODS}/patient/eviction", eviction("patient", "$u-patient"), None, JSON),
    Row("say-that-nothing-is-left-on-a-node", "PATCH", f"{NODES}/{HEALTHY}", annotated(**{CLEARED_ANNOTATION: "a"})),
    Row("ask-that-a-node-be-emptied", "PATCH", f"{NODES}/{HEALTHY}", tainted(AGENT_DRAIN_TAINT)),
    Row("remember-how-far-a-layout-is", "PATCH", f"{NODES}/{HEALTHY}", annotated(**{RELAYOUT_ANNOTATION: "{}"})),
    Row("change-the-layout-of-a-node-that-it-holds-empty", "PATCH", f"{NODES}/{FORGOTTEN}",
        labels(**{MIG_CONFIG_LABEL: "other", MIG_STATE_LABEL: None})),
    Row("say-it-no-longer", "PATCH", f"{NODES}/{CORDONED}", annotated(**{CLEARED_ANNOTATION: None})),
    Row("answer-its-own-check", "PATCH", f"{WORKLOADS}/$w-gated/{STATUS}", check("Ready"),
        None, APPLY),
    Row("leave-its-own-check-pending", "PATCH", f"{WORKLOADS}/$w-gated/{STATUS}",
        check("Pending"), None, APPLY),
    Row("write-its-own-condition", "PATCH", f"{WORKLOADS}/$w-gated/{STATUS}", CONDITION, None, APPLY),
    Row("change-a-workloads-twin", "PATCH", f"{WORKLOADS}/$w-waiting", {"spec": {"queueName": NEXT_TWIN}}),
    Row("hold-a-window", "PATCH", f"{LOCAL_QUEUES}/{WINDOW}", {"spec": {"stopPolicy": "Hold"}}),
    Row("open-a-window", "PATCH", f"{LOCAL_QUEUES}/{WINDOW}", {"spec": {"stopPolicy": "None"}}),
    Row("publish-a-forecast", "PATCH", f"{CONFIG_MAPS}/{FORECAST_NAME}", {"data": {"forecast": "{}"}}),
    Row("follow-its-own-config-map", "GET", f"{SYSTEM}/configmaps?fieldSelector=metadata.name={AGENT_NAME}"),
    Row("follow-top-ups", "GET", f"{SYSTEM}/configmaps?fieldSelector=metadata.name={TOP_UPS_NAME}"),
    Row("list-pods", "GET", "/api/v1/pods"),
    Row("list-nodes", "GET", "/api/v1/nodes"),
    Row("list-flavors", "GET", "/apis/kueue.x-k8s.io/v1beta2/resourceflavors"),
    Row("declare-its-check-active", "PATCH", f"{CHECKS}/{GATE_NAME}/{STATUS}",
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
    Row("drop-the-queue", "PATCH", f"{JOBS}/$waiting", labels(queue=None), ONE_TEAM),
    Row("move-a-job-to-another-team", "PATCH", f"{JOBS}/$waiting", labels(queue=OTHER), ONE_TEAM),
    Row("move-a-job-to-another-twin", "PATCH", f"{JOBS}/$waiting", labels(queue=twin(OTHER)), ONE_TEAM),
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
    Row("recall-a-job", "PATCH", f"{WORKLOADS}/$w-waiting", annotated(**{RECALL_ANNOTATION: "x"}), "no annotation"),
    Row("change-a-recall", "PATCH", f"{WORKLOADS}/$w-gated", annotated(**{RECALL_ANNOTATION: "x"}), "no annotation"),
    Row("move-a-job", "PATCH", f"{WORKLOADS}/$w-bursting", annotated(**{MOVE_ANNOTATION: "{}"}), "no annotation"),
    Row("change-a-move", "PATCH", f"{WORKLOADS}/$w-gated", annotated(**{MOVE_ANNOTATION: "x"}), "no annotation"),
    Row("annotate-a-workload", "PATCH", f"{WORKLOADS}/$w-waiting", annotated(any="thing"), "no annotation"),
    Row("label-a-workload", "PATCH", f"{WORKLOADS}/$w-waiting", labels(any="thing"), "metadata but its verdict"),
    Row("move-a-workload-to-another-team", "PATCH", f"{WORKLOADS}/$w-waiting", {"spec": {"queueName": OTHER}},
        ONE_TEAM),
    Row("move-a-workload-nowhere", "PATCH", f"{WORKLOADS}/$w-waiting", {"spec": {"queueName": None}}, ONE_TEAM),
    Row("replace-a-workload", "PUT", f"{WORKLOADS}/$w-waiting", workload(TEAM), NO_RIGHT, JSON),
    Row("delete-a-workload", "DELETE", f"{WORKLOADS}/$w-waiting", {}, NO_RIGHT, JSON),
    Row("create-a-workload", "POST", WORKLOADS, workload(TWIN), NO_RIGHT, JSON),
    # The gate: its own check, Ready or Pending.
    Row("reject-a-job", "PATCH", f"{WORKLOADS}/$w-gated/{STATUS}", check("Rejected"),
        "lose the job's place", APPLY),
    Row("retry-a-job", "PATCH", f"{WORKLOADS}/$w-gated/{STATUS}", check("Retry"),
        "lose the job's place", APPLY),
    Row("answer-another-check", "PATCH", f"{WORKLOADS}/$w-gated/{STATUS}",
        check("Ready", "quota-of-somebody"), "only its own check", APPLY),
    Row("admit-a-job", "PATCH", f"{WORKLOADS}/$w-gated/{STATUS}",
        status("gated", conditions=[one_condition("Admitted")]), "only its own check", APPLY),
    Row("finish-a-job", "PATCH", f"{WORKLOADS}/$w-waiting/status", {"status": {"conditions": [one_condition("Finished")]}},
        "only its own check"),
    Row("take-quota-away", "PATCH", f"{WORKLOADS}/$w-gated/status", {"status": {"admission": None}}, "only its own check"),
    Row("answer-a-foreign-check-object", "PATCH", f"{CHECKS}/other/{STATUS}",
        active("other"), NO_RIGHT, APPLY),
    Row("write-another-condition-with-its-own", "PATCH", f"{WORKLOADS}/$w-gated/{STATUS}",
        status("gated", conditions=[one_condition(VERDICT_CONDITION), one_condition("Finished")]), "its own condition",
        APPLY),
    # Queues of windows: held or not. Forecasts: their data.
    Row("hold-a-teams-queue", "PATCH", f"{LOCAL_QUEUES}/{TEAM}", {"spec": {"stopPolicy": "Hold"}}, "with a window"),
    Row("hold-a-twin", "PATCH", f"{LOCAL_QUEUES}/{TWIN}", {"spec": {"stopPolicy": "Hold"}}, "with a window"),
    Row("drain-a-window", "PATCH", f"{LOCAL_QUEUES}/{WINDOW}", {"spec": {"stopPolicy": "HoldAndDrain"}}, "would stop"),
    Row("weigh-a-window", "PATCH", f"{LOCAL_QUEUES}/{WINDOW}", {"spec": {"fairSharing": {"weight": "2"}}},
        "only stopPolicy"),
    Row("label-a-window", "PATCH", f"{LOCAL_QUEUES}/{WINDOW}", labels(any="thing"), "only stopPolicy"),
    Row("make-a-local-queue", "POST", LOCAL_QUEUES, local_queue("mine-window-a", TEAM), NO_RIGHT, JSON),
    Row("delete-a-window", "DELETE", f"{LOCAL_QUEUES}/{WINDOW}", {}, NO_RIGHT, JSON),
    Row("label-a-forecast", "PATCH", f"{CONFIG_MAPS}/{FORECAST_NAME}", labels(any="thing"), "only the data"),
    Row("freeze-a-forecast", "PATCH", f"{CONFIG_MAPS}/{FORECAST_NAME}", {"immutable": True}, "only the data"),
    Row("write-bytes-into-a-forecast", "PATCH", f"{CONFIG_MAPS}/{FORECAST_NAME}", {"binaryData": {"a": "YQ=="}},
        "only the data"),
    Row("delete-a-forecast", "DELETE", f"{CONFIG_MAPS}/{FORECAST_NAME}", {}, NO_RIGHT, JSON),
    Row("write-another-config-map", "PATCH", f"{CONFIG_MAPS}/another", {"data": {"a": "b"}}, NO_RIGHT),
    # Pods of teams: asked, or evicted.
    Row("evict-whatever-has-the-name", "POST", f"{PODS}/patient/eviction", eviction("patient"), "names the pod's uid",
        JSON),
    Row("evict-a-pod-elsewhere", "POST", f"{ELSEWHERE}/any/eviction", eviction("any", "any"), NO_RIGHT, JSON),
    Row("annotate-a-pod-elsewhere", "PATCH", f"{ELSEWHERE}/any", annotated(**{CHECKPOINT_REQUEST_ANNOTATION: "{}"}),
        NO_RIGHT),
    Row("annotate-a-pod", "PATCH", f"{PODS}/$p-bursting", annotated(any="thing"), "no annotation of a pod"),
    Row("label-a-pod", "PATCH", f"{PODS}/$p-bursting", labels(any="thing"), "nothing of a pod but an annotation"),
    Row("limit-a-pods-time", "PATCH", f"{PODS}/$p-bursting", {"spec": {"activeDeadlineSeconds": 1}},
        "nothing of a pod but an annotation"),
    Row("write-a-pods-status", "PATCH", f"{PODS}/$p-bursting/status", {"status": {"phase": "Failed"}}, NO_RIGHT),
    # Nodes: that one annotation, and one taint.
    Row("forge-a-notice", "PATCH", f"{NODES}/rack-0", annotated(**{NOTICES_ANNOTATION: "[]"}), NO_ANNOTATION_OF_A_NODE),
    Row("take-a-notice-away", "PATCH", f"{NODES}/{CORDONED}", annotated(**{NOTICES_ANNOTATION: None}),
        NO_ANNOTATION_OF_A_NODE),
    Row("annotate-a-node", "PATCH", f"{NODES}/rack-0", annotated(any="thing"), NO_ANNOTATION_OF_A_NODE),
    Row("cordon-a-node", "PATCH", f"{NODES}/rack-0", {"spec": {"unschedulable": True}}, NOTHING_OF_A_NODE),
    Row("uncordon-a-node", "PATCH", f"{NODES}/{CORDONED}", {"spec": {"unschedulable": None}}, NOTHING_OF_A_NODE),
    Row("taint-a-node", "PATCH", f"{NODES}/{HEALTHY}", tainted(EVICTING_TAINT), NO_OTHER_TAINT),
    Row("drain-a-node-as-an-administrator", "PATCH", f"{NODES}/{HEALTHY}", tainted(DRAIN_TAINT), NO_OTHER_TAINT),
    Row("drive-pods-away", "PATCH", f"{NODES}/{HEALTHY}", tainted(AGENT_DRAIN_TAINT, "NoExecute"), NO_OTHER_TAINT),
    Row("drop-anothers-taint", "PATCH", f"{NODES}/{HEALTHY}", {"spec": {"taints": None}}, NO_OTHER_TAINT),
    Row("change-a-node", "PATCH", f"{NODES}/rack-0", labels(any="thing"), NO_LABEL_OF_A_NODE),
    Row("change-the-layout-of-a-node-in-service", "PATCH", f"{NODES}/{HEALTHY}", labels(**{MIG_CONFIG_LABEL: "other"}),
        HELD_EMPTY),
    Row("change-the-layout-of-a-node-that-is-not-held-empty-yet", "PATCH", f"{NODES}/{HEALTHY}",
        tainted(AGENT_DRAIN_TAINT) | labels(**{MIG_CONFIG_LABEL: "other"}), HELD_EMPTY),
    Row("change-the-layout-of-a-node-that-it-gives-back", "PATCH", f"{NODES}/{FORGOTTEN}",
        [{"op": "remove", "path": "/spec/taints/1"},
         {"op": "replace", "path": "/metadata/labels/nvidia.com~1mig.config", "value": "other"}], HELD_EMPTY, JSON_PATCH),
    Row("take-the-layout-away", "PATCH", f"{NODES}/{FORGOTTEN}", labels(**{MIG_CONFIG_LABEL: None}), HELD_EMPTY),
    Row("speak-for-the-mig-manager", "PATCH", f"{NODES}/{FORGOTTEN}", labels(**{MIG_STATE_LABEL: "failed"}),
        NO_LABEL_OF_A_NODE),
    Row("forget-what-the-mig-manager-said", "PATCH", f"{NODES}/{FORGOTTEN}", labels(**{MIG_STATE_LABEL: None}),
        HELD_EMPTY),
    Row("say-it-with-a-status", "PATCH", f"{NODES}/{HEALTHY}/status", annotated(**{CLEARED_ANNOTATION: "a"}), NO_RIGHT),
    Row("read-a-node", "GET", f"{NODES}/rack-0", None, NO_RIGHT),
    Row("delete-a-node", "DELETE", f"{NODES}/{HEALTHY}", {}, NO_RIGHT, JSON),
    # Nothing else.
    Row("read-secrets", "GET", f"{SYSTEM}/secrets", None, NO_RIGHT),
    Row("list-config-maps", "GET", f"{SYSTEM}/configmaps", None, NO_RIGHT),
    Row("write-its-own-config-map", "PATCH", f"{SYSTEM}/configmaps/{AGENT_NAME}", {"data": {"a": "b"}}, NO_RIGHT),
    Row("top-up-a-budget", "PATCH", f"{SYSTEM}/configmaps/{TOP_UPS_NAME}", {"data": {"a": "b"}}, NO_RIGHT),
    Row("read-another-config-map", "GET", f"{CONFIG_MAPS}/another", None, NO_RIGHT),
    Row("make-tokens", "POST", f"{SYSTEM}/serviceaccounts/gpufleet-router/token", {}, NO_RIGHT, JSON),
    Row("delete-a-pod", "DELETE", f"{PODS}/patient", {}, NO_RIGHT, JSON),
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
    Row("submit-to-a-burst-queue", "POST", JOBS, job(TWIN), ONE_DOOR, JSON),
    Row("release-herself", "PATCH", f"{JOBS}/$waiting", RELEASE, ONE_DOOR),
    Row("leave-a-burst-queue", "PATCH", f"{JOBS}/$gated", RETURN, ONE_DOOR),
    Row("submit-without-a-queue", "POST", JOBS, job(None), "need the label", JSON),
    Row("drop-the-queue", "PATCH", f"{JOBS}/$waiting", labels(queue=None), "need the label"),
    Row("drop-the-burst-queue", "PATCH", f"{JOBS}/$gated", labels(queue=None), ONE_DOOR),
    Row("move-a-workload-in", "PATCH", f"{WORKLOADS}/$w-waiting", {"spec": {"queueName": TWIN}},
        "only gpufleet moves a workload"),
    Row("move-a-workload-out", "PATCH", f"{WORKLOADS}/$w-gated", {"spec": {"queueName": TEAM}}, KUEUE_REFUSES),
    Row("make-a-workload-in-a-burst-queue", "POST", WORKLOADS, workload(TWIN),
        "a burst queue", JSON),
    Row("make-a-local-queue-onto-a-burst-queue", "POST", LOCAL_QUEUES, local_queue("mine", TWIN),
        "only administrators make a LocalQueue", JSON),
    Row("point-a-local-queue-at-a-burst-queue", "PATCH", f"{LOCAL_QUEUES}/{TEAM}",
        {"spec": {"clusterQueue": TWIN}}, KUEUE_REFUSES),
    Row("make-a-local-queue-named-like-a-twin", "POST", LOCAL_QUEUES, local_queue("mine-burst-a", TEAM),
        "only administrators make or change", JSON),
    Row("make-a-local-queue-with-a-generated-name", "POST", LOCAL_QUEUES,
        local_queue("", TEAM) | {"metadata": {"generateName": "mine-burst-"}}, "only administrators make or change", JSON),
    # Windows.
    Row("submit-to-a-window", "POST", JOBS, job(WINDOW, "night"), None, JSON),
    Row("label-a-job-that-waits-for-its-window", "PATCH", f"{JOBS}/$nightly", labels(any="thing")),
    Row("submit-a-night-job-to-the-teams-queue", "POST", JOBS, job(TEAM, "night"), "in a window of time", JSON),
    Row("submit-a-night-job-to-another-window", "POST", JOBS, job(f"{TEAM}-window-noon", "night"), "in a window of time",
        JSON),
    Row("submit-a-day-job-to-a-window", "POST", JOBS, job(WINDOW, "normal"), "only jobs of a class", JSON),
    Row("submit-a-job-without-class-to-a-window", "POST", JOBS, job(WINDOW), "only jobs of a class", JSON),
    Row("leave-a-window", "PATCH", f"{JOBS}/$nightly", labels(queue=TEAM), "in a window of time"),
    Row("leave-a-window-with-another-class", "PATCH", f"{JOBS}/$nightly",
        labels(queue=TEAM, **{PRIORITY_CLASS_LABEL: "normal"})),
    Row("stay-in-a-window-with-another-class", "PATCH", f"{JOBS}/$nightly",
        labels(**{PRIORITY_CLASS_LABEL: "normal"}), "only jobs of a class"),
    Row("turn-a-waiting-job-into-a-night-job", "PATCH", f"{JOBS}/$waiting",
        labels(**{PRIORITY_CLASS_LABEL: "night"}), "in a window of time"),
    Row("move-a-workload-out-of-its-window", "PATCH", f"{WORKLOADS}/$w-nightly", {"spec": {"queueName": TEAM}},
        "a workload follows its job"),
    Row("open-a-window", "PATCH", f"{LOCAL_QUEUES}/{WINDOW}", {"spec": {"stopPolicy": "None"}},
        "only administrators make or change"),
    Row("make-a-window", "POST", LOCAL_QUEUES, local_queue("mine-window-night", TEAM),
        "only administrators make or change", JSON),
    # The agent's words, and an administrator's.
    Row("write-a-verdict", "PATCH", f"{WORKLOADS}/$w-waiting", annotated(**{VERDICT_ANNOTATION: "{}"}), NOT_HERS),
    Row("clear-a-verdict", "PATCH", f"{WORKLOADS}/$w-gated", annotated(**{VERDICT_ANNOTATION: None}), NOT_HERS),
    Row("recall-a-job", "PATCH", f"{WORKLOADS}/$w-waiting", annotated(**{RECALL_ANNOTATION: "x"}), NOT_HERS),
    Row("cross-out-a-recall", "PATCH", f"{WORKLOADS}/$w-gated", annotated(**{RECALL_ANNOTATION: None}), NOT_HERS),
    Row("move-a-job", "PATCH", f"{WORKLOADS}/$w-bursting", annotated(**{MOVE_ANNOTATION: "{}"}), NOT_HERS),
    Row("cross-out-a-move", "PATCH", f"{WORKLOADS}/$w-gated", annotated(**{MOVE_ANNOTATION: None}), NOT_HERS),
    Row("mark-an-eviction", "PATCH", f"{WORKLOADS}/$w-waiting", annotated(**{EVICTION_ANNOTATION: "{}"}), NOT_HERS),
    Row("cross-out-an-eviction", "PATCH", f"{WORKLOADS}/$w-gated", annotated(**{EVICTION_ANNOTATION: None}), NOT_HERS),
    Row("ask-a-pod-to-save", "PATCH", f"{PODS}/$p-bursting", annotated(**{CHECKPOINT_REQUEST_ANNOTATION: "{}"}),
        NOT_HERS),
    Row("take-a-request-away", "PATCH", f"{PODS}/patient", annotated(**{CHECKPOINT_REQUEST_ANNOTATION: None}), NOT_HERS),
    Row("answer-a-request", "PATCH", f"{PODS}/patient", annotated(**{CHECKPOINT_ANSWER_ANNOTATION: "{}"})),
    Row("annotate-a-workload", "PATCH", f"{WORKLOADS}/$w-gated", annotated(any="thing")),
    Row("stop-a-job-of-hers", "PATCH", f"{WORKLOADS}/$w-gated", {"spec": {"active": False}}),
    Row("write-a-condition-of-the-agents", "PATCH", f"{WORKLOADS}/$w-gated/{STATUS}", CONDITION, NO_RIGHT, APPLY),
    # The gate and the limits that money rests on.
    Row("forge-the-gate", "PATCH", f"{WORKLOADS}/$w-gated/{STATUS}", check("Ready"),
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
    Row("insist-on-a-model", "POST", JOBS, job(nodeSelector={GPU_LABEL: "h100"}), None, JSON),
    Row("ask-a-waiting-job-for-a-flavor-by-affinity", "PATCH", f"{JOBS}/$waiting",
        {"spec": {"template": {"spec": {"affinity": FLAVOR_AFFINITY}}}}, "by affinity"),
    Row("make-a-cron-job-for-burst-nodes", "POST", f"/apis/batch/v1/namespaces/{TEAM}/cronjobs",
        cron_job(tolerations=[BURST_TOLERATION]), NO_BURST, JSON),
    Row("make-a-cron-job", "POST", f"/apis/batch/v1/namespaces/{TEAM}/cronjobs", cron_job(), None, JSON),
    Row("take-a-day-to-end", "POST", JOBS, job(terminationGracePeriodSeconds=86_400), "at most 300", JSON),
    Row("take-five-minutes-to-end", "POST", JOBS, job(terminationGracePeriodSeconds=300), None, JSON),
    Row("name-a-node", "POST", JOBS, job(nodeName="spot-0"), "may not name their node", JSON),
    Row("run-a-pod-that-tolerates-burst-nodes", "POST", PODS, pod(tolerations=[BURST_TOLERATION]), NO_BURST, JSON),
    Row("run-a-pod-that-tolerates-everything", "POST", PODS, pod(tolerations=[EVERY_TOLERATION]), NO_BURST, JSON),
    Row("run-a-pod-that-selects-a-cloud-flavor", "POST", PODS, pod(nodeSelector={FLAVOR_LABEL: CLOUD}),
        "may not select", JSON),
    Row("run-a-pod-that-asks-for-a-flavor-by-affinity", "POST", PODS, pod(affinity=FLAVOR_AFFINITY), "by affinity", JSON),
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
# What the gate writes and where it lets jobs pass, tried by someone who has every right in her namespace.
TREASURY_ROWS = [
    Row("write-a-config-map", "POST", CONFIG_MAPS, {"metadata": {"name": "trial"}, "data": {}}, None, JSON),
    Row("forge-the-gate", "PATCH", f"{WORKLOADS}/$w-gated/{STATUS}", check("Ready"), JUDGED, APPLY),
    Row("replace-the-gates-answer", "PATCH", f"{WORKLOADS}/$w-gated/status",
        {"status": check("Ready")["status"]}, JUDGED),
    Row("write-a-condition-of-the-agents", "PATCH", f"{WORKLOADS}/$w-gated/{STATUS}", CONDITION, JUDGED, APPLY),
    Row("admit-a-job", "PATCH", f"{WORKLOADS}/$w-gated/{STATUS}",
        status("gated", conditions=[one_condition("Admitted")]), JUDGED, APPLY),
    Row("write-a-verdict", "PATCH", f"{WORKLOADS}/$w-gated", annotated(**{VERDICT_ANNOTATION: "[]"}), NOT_HERS),
    Row("recall-a-job", "PATCH", f"{WORKLOADS}/$w-bursting", annotated(**{RECALL_ANNOTATION: "x"}), NOT_HERS),
    Row("move-a-job", "PATCH", f"{WORKLOADS}/$w-bursting", annotated(**{MOVE_ANNOTATION: "{}"}), NOT_HERS),
    Row("release-herself", "PATCH", f"{JOBS}/$waiting", RELEASE, ONE_DOOR),
    Row("tolerate-burst-nodes", "POST", JOBS, job(tolerations=[BURST_TOLERATION]), NO_BURST, JSON),
    Row("run-a-pod-that-tolerates-burst-nodes", "POST", PODS, pod(tolerations=[BURST_TOLERATION]), NO_BURST, JSON),
    Row("open-a-window", "PATCH", f"{LOCAL_QUEUES}/{WINDOW}", {"spec": {"stopPolicy": "None"}},
        "only administrators make or change"),
    Row("make-a-local-queue-onto-a-burst-queue", "POST", LOCAL_QUEUES, local_queue("mine", TWIN),
        "only administrators make a LocalQueue", JSON),
    Row("mark-an-eviction", "PATCH", f"{WORKLOADS}/$w-bursting", annotated(**{EVICTION_ANNOTATION: "{}"}), NOT_HERS),
    Row("ask-a-pod-to-save-with-a-status", "PATCH", f"{PODS}/patient/status",
        annotated(**{CHECKPOINT_REQUEST_ANNOTATION: "[]"}), NOT_HERS),
    Row("release-herself-with-a-status", "PATCH", f"{JOBS}/$waiting/status", RELEASE, ONE_DOOR),
    Row("bind-a-pod", "POST", f"{PODS}/patient/binding",
        {"metadata": {"name": "patient"}, "target": {"kind": "Node", "name": "spot-0"}}, "by schedulers only", JSON),
    Row("label-her-namespace", "PATCH", f"/api/v1/namespaces/{TEAM}", labels(any="thing")),
    Row("lift-the-policies", "PATCH", f"/api/v1/namespaces/{TEAM}", labels(**{MANAGED_LABEL: None}),
        "only administrators write"),
    Row("lift-the-policies-with-a-status", "PATCH", f"/api/v1/namespaces/{TEAM}/status",
        labels(**{MANAGED_LABEL: "false"}), "only administrators write"),
    Row("go-over-to-another-team", "PATCH", f"/api/v1/namespaces/{TEAM}", labels(**{TEAM_LABEL: OTHER}),
        "only administrators write"),
    Row("change-the-gate-itself", "PATCH", f"{CHECKS}/{GATE_NAME}/{STATUS}", active(GATE_NAME), NO_RIGHT, APPLY),
    Row("top-up-a-budget", "PATCH", f"{SYSTEM}/configmaps/{TOP_UPS_NAME}", {"data": {"a": "b"}}, NO_RIGHT),
]  # fmt: skip
# With the usual edit rights it does not even come to a policy.
EDITOR_ROWS = [
    Row("write-a-config-map", "POST", CONFIG_MAPS, {"metadata": {"name": "trial"}, "data": {}}, None, JSON),
    Row("read-a-verdict", "GET", f"{WORKLOADS}/$w-gated"),
    Row("forge-the-gate", "PATCH", f"{WORKLOADS}/$w-gated/{STATUS}", check("Ready"), NO_RIGHT, APPLY),
    Row("write-a-condition-of-the-agents", "PATCH", f"{WORKLOADS}/$w-gated/{STATUS}", CONDITION, NO_RIGHT, APPLY),
    Row("write-a-verdict", "PATCH", f"{WORKLOADS}/$w-gated", annotated(**{VERDICT_ANNOTATION: "[]"}), NO_RIGHT),
    Row("move-a-workload-in", "PATCH", f"{WORKLOADS}/$w-waiting", {"spec": {"queueName": TWIN}}, NO_RIGHT),
    Row("release-herself", "PATCH", f"{JOBS}/$waiting", RELEASE, ONE_DOOR),
    Row("open-a-window", "PATCH", f"{LOCAL_QUEUES}/{WINDOW}", {"spec": {"stopPolicy": "None"}}, NO_RIGHT),
]  # fmt: skip
# Who may write nodes, and yet does not speak for the node agents.
OPERATOR_ROWS = [
    Row("label-a-node", "PATCH", f"{NODES}/{HEALTHY}", labels(any="thing")),
    Row("cordon-a-node", "PATCH", f"{NODES}/{HEALTHY}", {"spec": {"unschedulable": True}}),
    Row("taint-a-node", "PATCH", f"{NODES}/{HEALTHY}", tainted("example.com/broken")),
    Row("forge-a-notice", "PATCH", f"{NODES}/{HEALTHY}", annotated(**{NOTICES_ANNOTATION: "[]"}), ONLY_NODE_AGENTS),
    Row("forge-a-notice-with-a-status", "PATCH", f"{NODES}/{HEALTHY}/status", annotated(**{NOTICES_ANNOTATION: "[]"}),
        ONLY_NODE_AGENTS),
    Row("take-a-notice-away", "PATCH", f"{NODES}/{CORDONED}", annotated(**{NOTICES_ANNOTATION: None}), ONLY_NODE_AGENTS),
    Row("say-that-nothing-is-left-on-a-node", "PATCH", f"{NODES}/{CORDONED}", annotated(**{CLEARED_ANNOTATION: "a,b"}),
        f"only the agent {CLEARED_ANNOTATION}"),
    Row("say-so-with-a-status", "PATCH", f"{NODES}/{HEALTHY}/status", annotated(**{CLEARED_ANNOTATION: "a"}),
        f"only the agent {CLEARED_ANNOTATION}"),
    Row("take-a-record-away", "PATCH", f"{NODES}/{CORDONED}", annotated(**{CORDONED_ANNOTATION: None}), ONLY_NODE_AGENTS),
    Row("forge-the-record-of-a-layout", "PATCH", f"{NODES}/{HEALTHY}", annotated(**{RELAYOUT_ANNOTATION: "{}"}),
        f"{RELAYOUT_ANNOTATION} and the taint"),
    Row("forge-the-taint", "PATCH", f"{NODES}/{HEALTHY}", tainted(EVICTING_TAINT), ONLY_NODE_AGENTS),
    Row("drain-a-node", "PATCH", f"{NODES}/{HEALTHY}", tainted(DRAIN_TAINT), f"only an administrator {DRAIN_TAINT}"),
    Row("drain-a-node-as-the-agent", "PATCH", f"{NODES}/{HEALTHY}", tainted(AGENT_DRAIN_TAINT), AGENT_DRAIN_TAINT),
]  # fmt: skip
# Its own node, and of that what it says of it.
NODE_AGENT_ROWS = [
    Row("read-its-node", "GET", f"{NODES}/{HEALTHY}", node=HEALTHY),
    Row("say-that-its-node-goes", "PATCH", f"{NODES}/{HEALTHY}", node=HEALTHY,
        body=annotated(**{NOTICES_ANNOTATION: "[]", CORDONED_ANNOTATION: "a"})
        | {"spec": {"unschedulable": True, **tainted(EVICTING_TAINT)["spec"]}}),
    Row("take-back-what-it-said", "PATCH", f"{NODES}/{CORDONED}", node=CORDONED,
        body=annotated(**{NOTICES_ANNOTATION: None, CORDONED_ANNOTATION: None}) | {"spec": {"unschedulable": None}}),
    Row("say-that-another-node-goes", "PATCH", f"{NODES}/{HEALTHY}", annotated(**{NOTICES_ANNOTATION: "[]"}),
        "its own node only", node=CORDONED),
    Row("speak-for-a-node-without-a-pod-on-it", "PATCH", f"{NODES}/{HEALTHY}", annotated(**{NOTICES_ANNOTATION: "[]"}),
        "its own node only"),
    Row("cordon-its-node-without-a-record", "PATCH", f"{NODES}/{HEALTHY}", {"spec": {"unschedulable": True}},
        "uncordons none without that record", node=HEALTHY),
    Row("uncordon-what-others-cordoned", "PATCH", f"{NODES}/{FORGOTTEN}", {"spec": {"unschedulable": None}},
        "uncordons none without that record", node=FORGOTTEN),
    Row("set-another-taint", "PATCH", f"{NODES}/{HEALTHY}", tainted("example.com/broken"), NO_OTHER_TAINT, node=HEALTHY),
    Row("drive-pods-away", "PATCH", f"{NODES}/{HEALTHY}", tainted(EVICTING_TAINT, "NoExecute"), NO_OTHER_TAINT,
        node=HEALTHY),
    Row("drop-anothers-taint", "PATCH", f"{NODES}/{HEALTHY}", {"spec": {"taints": None}}, NO_OTHER_TAINT, node=HEALTHY),
    Row("label-its-node", "PATCH", f"{NODES}/{HEALTHY}", labels(any="thing"), "nothing of a node but", node=HEALTHY),
    Row("annotate-its-node", "PATCH", f"{NODES}/{HEALTHY}", annotated(any="thing"), "no annotation of a node",
        node=HEALTHY),
    Row("say-that-nothing-is-left-on-its-node", "PATCH", f"{NODES}/{CORDONED}", annotated(**{CLEARED_ANNOTATION: "a,b"}),
        "no annotation of a node", node=CORDONED),
    Row("write-its-nodes-status", "PATCH", f"{NODES}/{HEALTHY}/status", {"status": {"conditions": []}}, NO_RIGHT,
        node=HEALTHY),
    Row("delete-its-node", "DELETE", f"{NODES}/{HEALTHY}", {}, NO_RIGHT, JSON, node=HEALTHY),
    Row("list-nodes", "GET", NODES, None, NO_RIGHT, node=HEALTHY),
    Row("list-pods", "GET", "/api/v1/pods", None, NO_RIGHT, node=HEALTHY),
    Row("read-secrets", "GET", f"{SYSTEM}/secrets", None, NO_RIGHT, node=HEALTHY),
    Row("mark-an-eviction", "PATCH", f"{WORKLOADS}/$w-waiting", annotated(**{EVICTION_ANNOTATION: "{}"}), NO_RIGHT,
        node=HEALTHY),
]  # fmt: skip
# What keeps the money safe from slips of those who may do everything.
ADMIN_ROWS = [
    Row("recall-a-job", "PATCH", f"{WORKLOADS}/$w-bursting", annotated(**{RECALL_ANNOTATION: "x"})),
    Row("move-a-job", "PATCH", f"{WORKLOADS}/$w-bursting", annotated(**{MOVE_ANNOTATION: "{}"})),
    Row("drain-a-node", "PATCH", f"{NODES}/{HEALTHY}", tainted(DRAIN_TAINT)),
    Row("hold-a-window", "PATCH", f"{LOCAL_QUEUES}/{WINDOW}", {"spec": {"stopPolicy": "Hold"}}),
    Row("clean-a-node-up", "PATCH", f"{NODES}/{CORDONED}",
        annotated(**{NOTICES_ANNOTATION: None, CLEARED_ANNOTATION: None})),
    Row("ask-a-pod-to-save", "PATCH", f"{PODS}/patient", annotated(**{CHECKPOINT_REQUEST_ANNOTATION: "[]"})),
    Row("make-a-local-queue-onto-a-burst-queue", "POST", LOCAL_QUEUES, local_queue("mine", TWIN), None, JSON),
    Row("lift-the-policies", "PATCH", f"/api/v1/namespaces/{TEAM}", labels(**{MANAGED_LABEL: None})),
    Row("make-a-workload-of-a-job-set-in-a-burst-queue", "POST", WORKLOADS,
        workload(TWIN, "jobset.x-k8s.io/v1alpha2", "JobSet"), None, JSON),
    Row("make-a-workload-of-nothing-in-a-burst-queue", "POST", WORKLOADS, workload(TWIN), "may stand in a burst", JSON,
        rehearsed=False),
    Row("make-a-workload-of-another-kind-in-a-burst-queue", "POST", WORKLOADS,
        workload(TWIN, "leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet"), "may stand in a burst", JSON, rehearsed=False),
    Row("make-a-workload-of-another-groups-job-in-a-burst-queue", "POST", WORKLOADS,
        workload(TWIN, "batch.volcano.sh/v1alpha1", "Job"), "may stand in a burst", JSON, rehearsed=False),
    Row("release-a-job-by-hand", "PATCH", f"{JOBS}/$waiting", RELEASE, ONE_DOOR),
    Row("run-a-gpu-pod-on-burst-nodes-elsewhere", "POST", ELSEWHERE, gpu_pod(BURST_TOLERATION), "outside a team's", JSON),
    Row("run-a-gpu-pod-elsewhere", "POST", ELSEWHERE, gpu_pod(), None, JSON),
    Row("run-a-node-agent-on-burst-nodes", "POST", ELSEWHERE, pod(tolerations=[BURST_TOLERATION]), None, JSON),
]  # fmt: skip
# What the policies refuse the agent even if somebody makes it an administrator.
POWERFUL_ROWS = [
    Row("release-a-waiting-job", "PATCH", f"{JOBS}/$waiting", RELEASE),
    Row("create-a-job", "POST", JOBS, job(), "only update jobs", JSON),
    Row("delete-a-job", "DELETE", f"{JOBS}/$waiting", {}, "only update jobs", JSON),
    Row("write-a-jobs-status", "PATCH", f"{JOBS}/$waiting/status", {"status": {"active": 1}}, "only update jobs"),
    Row("create-a-workload", "POST", WORKLOADS, workload(TEAM), "only update workloads", JSON),
    Row("delete-a-workload", "DELETE", f"{WORKLOADS}/$w-waiting", {}, "only update workloads", JSON),
    Row("make-a-local-queue", "POST", LOCAL_QUEUES, local_queue("mine", TEAM), "only update local queues", JSON),
    Row("delete-a-window", "DELETE", f"{LOCAL_QUEUES}/{WINDOW}", {}, "only update local queues", JSON),
    Row("make-a-config-map", "POST", CONFIG_MAPS, {"metadata": {"name": "trial"}}, "only update config maps", JSON),
    Row("delete-a-forecast", "DELETE", f"{CONFIG_MAPS}/{FORECAST_NAME}", {}, "only update config maps", JSON),
    Row("top-up-a-budget", "PATCH", f"{SYSTEM}/configmaps/{TOP_UPS_NAME}", {"data": {"a": "b"}}, "no config map but"),
    Row("write-its-own-config-map", "PATCH", f"{SYSTEM}/configmaps/{AGENT_NAME}", {"data": {"a": "b"}},
        "no config map but"),
    Row("make-a-pod", "POST", PODS, pod(), "only annotate pods", JSON),
    Row("delete-a-pod", "DELETE", f"{PODS}/patient", {}, "only annotate pods", JSON),
    Row("write-a-pods-status", "PATCH", f"{PODS}/patient/status", annotated(any="thing"), "only annotate pods"),
    Row("make-a-pod-elsewhere", "POST", ELSEWHERE, pod(), "only annotate pods", JSON),
    Row("say-that-nothing-is-left-on-a-node", "PATCH", f"{NODES}/{HEALTHY}", annotated(**{CLEARED_ANNOTATION: "a"})),
    Row("forge-a-notice", "PATCH", f"{NODES}/{HEALTHY}", annotated(**{NOTICES_ANNOTATION: "[]"}),
        NO_ANNOTATION_OF_A_NODE),
    Row("forge-a-notice-with-a-status", "PATCH", f"{NODES}/{HEALTHY}/status", annotated(**{NOTICES_ANNOTATION: "[]"}),
        "only update nodes"),
    Row("make-a-node", "POST", NODES, {"metadata": {"name": "trial"}}, "only update nodes", JSON),
    Row("delete-a-node", "DELETE", f"{NODES}/{HEALTHY}", {}, "only update nodes", JSON),
]  # fmt: skip
OTHERS = {
    ADMIN: ADMIN_ROWS,
    USER: USER_ROWS,
    NAMESPACE_ADMIN: TREASURY_ROWS,
    EDITOR: EDITOR_ROWS,
    OPERATOR: OPERATOR_ROWS,
    NODE_AGENT_USER: NODE_AGENT_ROWS,
}
ROWS = [*AGENT_ROWS, *(Row(**{**vars(row), "who": who}) for who, rows in OTHERS.items() for row in rows)]


WRITES = ["get", "list", "create", "update", "patch", "delete"]
JOBS_OF_ANY_KIND = [
    {"apiGroups": [kind.group], "resources": [kind.plural, *(["cronjobs"] if kind.group == "batch" else [])],
     "verbs": WRITES} for kind in JOB_KINDS
]  # fmt: skip
POWERS = {
    USER: [
        *JOBS_OF_ANY_KIND,
        {"apiGroups": [""], "resources": ["pods"], "verbs": WRITES},
        {"apiGroups": ["kueue.x-k8s.io"], "resources": ["workloads", "localqueues"], "verbs": WRITES},
    ],
    EDITOR: [
        *JOBS_OF_ANY_KIND,
        {"apiGroups": [""], "resources": ["pods", "configmaps"], "verbs": WRITES},
        {"apiGroups": ["kueue.x-k8s.io"], "resources": ["workloads"], "verbs": ["get", "list"]},
    ],
    NAMESPACE_ADMIN: [{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}],
}


def roles() -> list[dict[str, Any]]:
    """Who may do all, who may write nodes, and what each user may do in her team's namespace, and nowhere else."""
    rbac, made = "rbac.authorization.k8s.io", [administrator(ADMIN), bound(OPERATOR, "trial-nodes")]
    writes_nodes = [{"apiGroups": [""], "resources": ["nodes", "nodes/status"], "verbs": ["patch"]}]
    common = {"apiVersion": f"{rbac}/v1", "kind": "ClusterRole", "metadata": {"name": "trial-nodes"}}
    made.append({**common, "rules": writes_nodes})
    for user, rules in POWERS.items():
        common = {"apiVersion": f"{rbac}/v1", "metadata": {"name": user, "namespace": TEAM}}
        reference = {"apiGroup": rbac, "kind": "Role", "name": user}
        subject = {"apiGroup": rbac, "kind": "User", "name": user}
        made.append({**common, "kind": "Role", "rules": rules})
        made.append({**common, "kind": "RoleBinding", "roleRef": reference, "subjects": [subject]})
    return made


def workload_name(stack: Stack, job: str) -> str:
    return str(wait_for("a Workload", lambda: stack.workload(TEAM, job))["metadata"]["name"])


def pod_of(stack: Stack, job: str) -> str:
    def named() -> str | None:
        pods, _ = stack.kube.list("v1", "Pod", TEAM, label_selector=f"batch.kubernetes.io/job-name={job}")
        return str(pods[0]["metadata"]["name"]) if pods and pods[0]["spec"].get("nodeName") else None

    return wait_for("a pod that the scheduler has bound", named)


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
    wait_for("the job in the cloud", lambda: stack.flavor(team, bursting) == CLOUD)
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
        wait_for("the forged start", lambda: stack.flavor(team, forged) == CLOUD)
        wait_for("its pod in the log", lambda: proof(stack, began).pods)
    finally:
        stack.scale_agent(1)
    found = proof(stack, began)
    assert [(one.namespace, one.subject) for one in found.unproven] == [(team, forged)]
    assert "set the gate to Ready, not the agent" in found.unproven[0].reason
    assert [(one.namespace, one.subject) for one in found.forged] == [(team, forged)]


@pytest.fixture(scope="module")
def scene(stack: Stack) -> Iterator[dict[str, str]]:
    """Jobs that run locally, run in the cloud, wait at the gate, wait in the queue, and wait for their window."""
    with without_agent(stack):
        jobs = {"running": submit(stack, TEAM, 8, job_class="urgent")}
        wait_for("a local job", lambda: stack.flavor(TEAM, jobs["running"]))
        jobs["bursting"] = send_to_the_gate(stack, TEAM)
        pass_the_gate(stack, TEAM, jobs["bursting"])
        wait_for("a job in the cloud", lambda: stack.flavor(TEAM, jobs["bursting"]) == CLOUD)
        jobs["gated"] = send_to_the_gate(stack, TEAM)
        jobs["waiting"] = submit(stack, TEAM, 4)
        jobs["nightly"] = submit(stack, TEAM, 4, job_class="night")
        names = jobs | {f"w-{role}": workload_name(stack, name) for role, name in jobs.items()}
        names["p-bursting"] = pod_of(stack, jobs["bursting"])
        noted = {VERDICT_ANNOTATION: "{}", EVICTION_ANNOTATION: "{}", RECALL_ANNOTATION: "an administrator's reason"}
        noted[MOVE_ANNOTATION] = "{}"
        stack.kube.request("PATCH", workload_path(stack, TEAM, jobs["gated"]), annotated(**noted), content_type=MERGE)
        names["lease-version"] = lease_version(stack)
        for manifest in roles():
            stack.kube.apply(manifest)
        patient = pod(schedulingGates=[{"name": "example.com/patience"}])
        asked = {CHECKPOINT_REQUEST_ANNOTATION: "{}"}
        created = stack.kube.create(
            patient | {"metadata": {"name": "patient", "namespace": TEAM, "annotations": asked}}
        )
        names["u-patient"] = created["metadata"]["uid"]
        with cordoned(stack):
            yield names
        stack.kube.delete("v1", "Pod", "patient", TEAM)
        for manifest in roles():
            stack.kube.delete(manifest["apiVersion"], manifest["kind"], manifest["metadata"]["name"], TEAM)
        stack.clear(TEAM)


@contextmanager
def cordoned(stack: Stack) -> Iterator[None]:
    """One node with the words of its node agent, and one that somebody cordoned by hand."""
    words = {NOTICES_ANNOTATION: "[]", CORDONED_ANNOTATION: "a", CLEARED_ANNOTATION: "a"}
    for node, said in ((CORDONED, words), (FORGOTTEN, {})):
        body = annotated(**said) | {"spec": {"unschedulable": True}}
        stack.kube.request("PATCH", f"{NODES}/{node}", body, content_type=MERGE)
    held = tainted(AGENT_DRAIN_TAINT) | labels(**{MIG_CONFIG_LABEL: "some", MIG_STATE_LABEL: "success"})
    stack.kube.request("PATCH", f"{NODES}/{FORGOTTEN}", held, content_type=MERGE)
    yield
    given_back = burst_only() | labels(**dict.fromkeys((MIG_CONFIG_LABEL, MIG_STATE_LABEL)))
    stack.kube.request("PATCH", f"{NODES}/{FORGOTTEN}", given_back, content_type=MERGE)
    for node in (CORDONED, FORGOTTEN):
        body = annotated(**dict.fromkeys(words)) | {"spec": {"unschedulable": None}}
        stack.kube.request("PATCH", f"{NODES}/{node}", body, content_type=MERGE)


def lease_version(stack: Stack) -> str:
    """Of the agent's Lease; it is made here where no agent has led yet."""
    where = ("coordination.k8s.io/v1", "Lease", AGENT_NAME, "gpufleet-system")
    if stack.kube.find(*where) is None:
        stack.kube.create(lease(AGENT_NAME) | {"metadata": {"name": AGENT_NAME, "namespace": "gpufleet-system"}})
    return str(stack.kube.get(*where)["metadata"]["resourceVersion"])


@pytest.mark.parametrize("row", ROWS, ids=str)
def test_what_can_and_what_cannot_be_done(stack: Stack, scene: dict[str, str], row: Row) -> None:
    try_out(stack, scene, row)


@pytest.fixture(scope="module")
def powerful(stack: Stack, scene: dict[str, str]) -> Iterator[dict[str, str]]:
    """The scene, with an agent whom somebody has made an administrator."""
    binding, secrets = administrator(AGENT_USER), f"{SYSTEM}/secrets"
    stack.kube.apply(binding)
    wait_for("the binding", lambda: stack.request_as(AGENT_USER, "GET", secrets, None, JSON).is_success)
    yield scene
    stack.kube.delete(binding["apiVersion"], binding["kind"], binding["metadata"]["name"])
    wait_for("its end", lambda: not stack.request_as(AGENT_USER, "GET", secrets, None, JSON).is_success)


def administrator(user: str) -> dict[str, Any]:
    return bound(user, "cluster-admin")


def bound(user: str, role: str) -> dict[str, Any]:
    """What gives a user a role everywhere."""
    rbac = "rbac.authorization.k8s.io"
    return {
        "apiVersion": f"{rbac}/v1", "kind": "ClusterRoleBinding",
        "metadata": {"name": f"trial-{user.rpartition(':')[2]}"},
        "roleRef": {"apiGroup": rbac, "kind": "ClusterRole", "name": role},
        "subjects": [{"apiGroup": rbac, "kind": "User", "name": user}],
    }  # fmt: skip


@pytest.mark.parametrize("row", POWERFUL_ROWS, ids=str)
def test_what_an_agent_with_every_right_cannot_do(stack: Stack, powerful: dict[str, str], row: Row) -> None:
    try_out(stack, powerful, row)


def try_out(stack: Stack, scene: dict[str, str], row: Row) -> None:
    path, body = row.path, json.dumps(row.body)
    for role in sorted(scene, key=len, reverse=True):
        path, body = path.replace(f"${role}", scene[role]), body.replace(f"${role}", scene[role])
    parsed = json.loads(body)
    if row.method == "DELETE":
        parsed = {"dryRun": ["All"], **parsed}  # the server ignores a DELETE's query where there is a body
    elif row.rehearsed:
        path += ("&" if "?" in path else "?") + "dryRun=All"
    answer = stack.request_as(row.who, row.method, path, parsed, row.content_type, node=row.node)
    if row.refusal is None:
        assert answer.is_success, answer.text
    else:
        assert answer.status_code in {403, 422}, answer.text
        assert row.refusal in answer.json()["message"]
