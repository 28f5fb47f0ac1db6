"""Admission policies that keep two promises: the agent can change almost nothing, and nobody can release herself.

The agent may move a suspended job between its team's queue and the burst twin, deactivate and reactivate a Workload,
write its verdict, and answer its own check; the API server refuses everything else it tries, whatever its RBAC says.
Users may neither enter nor leave a burst queue, nor reach cloud nodes around it.

Whoever may write what only Kueue and administrators write (checked with the API server's own authorizer) is exempt, so
that no user name of a particular installation appears here. Jobs of other kinds than batch/v1 are not covered yet.
"""

from __future__ import annotations

from typing import Any, Final

import pulumi

from components.base import Component
from components.names import Manifest, manifest
from stacks.labels import (
    AGENT_NAME,
    BURST_SUFFIX,
    BURST_TAINT,
    FLAVOR_LABEL,
    GATE_NAME,
    GPU_RESOURCE,
    MANAGED_LABEL,
    QUEUE_LABEL,
    SYSTEM_NAMESPACE,
    VERDICT_ANNOTATION,
)

API: Final = "admissionregistration.k8s.io/v1"

AGENT_USER: Final = f"system:serviceaccount:{SYSTEM_NAMESPACE}:{AGENT_NAME}"

LONGEST_GRACE_SECONDS: Final = 300
"""Long enough to write a checkpoint of hundreds of gigabytes to an object store."""

_IS_AGENT: Final = {"name": "is-the-agent", "expression": f"request.userInfo.username == '{AGENT_USER}'"}
_IS_NOT_AGENT: Final = {"name": "is-not-the-agent", "expression": f"request.userInfo.username != '{AGENT_USER}'"}

# Kueue and administrators: they alone may write what Kueue decides.
_MAY_ADMIT: Final = (
    "authorizer.group('kueue.x-k8s.io').resource('workloads').subresource('status')"
    ".namespace(request.namespace).check('update').allowed()"
)
# The Job controller and administrators: they alone may write what the Job controller reports.
_MAY_RUN_PODS: Final = (
    "authorizer.group('batch').resource('jobs').subresource('status')"
    ".namespace(request.namespace).check('update').allowed()"
)
_MAY_MAKE_QUEUES: Final = "authorizer.group('kueue.x-k8s.io').resource('clusterqueues').check('update').allowed()"

# A budget commits the price of this time when the job passes the gate.
_LIMIT_STAYS: Final = "a job in a burst queue keeps its longest run time; delete it and submit it with another"

_SERVER_METADATA: Final = "['managedFields', 'resourceVersion', 'generation']"


class AdmissionPolicies(Component):
    """All policies with their bindings."""

    def __init__(self, name: str, *, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__(name, opts)
        policies = manifests()
        self.bindings: list[pulumi.Resource] = []
        for role in (role for role in policies if not role.endswith("-binding")):
            policy = self.kubernetes(role, policies[role])
            self.bindings.append(self.kubernetes(f"{role}-binding", policies[f"{role}-binding"], depends_on=[policy]))
        self.register_outputs({})


def manifests() -> dict[str, Manifest]:
    """Every policy and its binding, by role."""
    objects: dict[str, Manifest] = {}
    for role, spec in _specs().items():
        name = f"gpufleet-{role}"
        objects[role] = manifest(API, "ValidatingAdmissionPolicy", name, spec={"failurePolicy": "Fail", **spec})
        objects[f"{role}-binding"] = manifest(
            API,
            "ValidatingAdmissionPolicyBinding",
            name,
            spec={"policyName": name, "validationActions": ["Deny"]},
        )
    return objects


def _specs() -> dict[str, dict[str, Any]]:
    return {
        "agent-jobs": _agent_jobs(),
        "agent-workloads": _agent_workloads(),
        "agent-gate": _agent_gate(),
        "jobs-keep-their-queue": _jobs_keep_their_queue(),
        "jobs-take-their-pods-along": _jobs_take_their_pods_along(),
        "jobs-stay-off-cloud-nodes": _jobs_stay_off_cloud_nodes(),
        "pods-stay-off-cloud-nodes": _pods_stay_off_cloud_nodes(),
        "jobs-end-in-time": _jobs_end_in_time(),
        "gpu-pods-stay-with-their-team": _gpu_pods_stay_with_their_team(),
        "workloads-keep-their-queue": _workloads_keep_their_queue(),
        "burst-queues-take-jobs-only": _burst_queues_take_jobs_only(),
        "burst-queues-have-one-door": _burst_queues_have_one_door(),
    }


def _agent_jobs() -> dict[str, Any]:
    return {
        "matchConstraints": _rules("batch", ["jobs", "jobs/status"], ["CREATE", "UPDATE", "DELETE"]),
        "matchConditions": [_IS_AGENT],
        "variables": [
            *_old_and_new(),
            {"name": "queue", "expression": _label("object", QUEUE_LABEL)},
            {"name": "oldQueue", "expression": _label("oldObject", QUEUE_LABEL)},
        ],
        "validations": [
            _only_updates("jobs"),
            _unless_create(
                "variables.new.spec == variables.old.spec && variables.new.?status == variables.old.?status",
                "the agent may not change the spec or status of a job",
            ),
            _unless_create(
                _metadata_unchanged_but("'labels'"), "the agent may change nothing of a job's metadata but a label"
            ),
            _unless_create(
                _map_unchanged_but("labels", QUEUE_LABEL), f"the agent may change no label of a job but {QUEUE_LABEL}"
            ),
            _unless_create(
                "variables.queue == variables.oldQueue || "
                f"(oldObject.spec.?suspend.orValue(false) && {_twins('queue')})",
                "the agent may move only suspended jobs, and only between a queue and its burst twin",
            ),
        ],
    }


def _agent_workloads() -> dict[str, Any]:
    return {
        "matchConstraints": _rules("kueue.x-k8s.io", ["workloads"], ["CREATE", "UPDATE", "DELETE"], "v1beta2"),
        "matchConditions": [_IS_AGENT],
        "variables": [
            *_old_and_new(),
            {"name": "queue", "expression": "object == null ? '' : object.spec.?queueName.orValue('')"},
            {"name": "oldQueue", "expression": "oldObject == null ? '' : oldObject.spec.?queueName.orValue('')"},
        ],
        "validations": [
            _only_updates("workloads"),
            _unless_create(
                "variables.new.spec.all(k, v, k in ['active', 'queueName'] || variables.old.spec[?k] == optional.of(v))"
                " && variables.old.spec.all(k, v, k in variables.new.spec)",
                "the agent may change only active and queueName of a workload's spec",
            ),
            _unless_create(
                _metadata_unchanged_but("'annotations'"),
                "the agent may change nothing of a workload's metadata but its verdict",
            ),
            _unless_create(
                _map_unchanged_but("annotations", VERDICT_ANNOTATION),
                f"the agent may change no annotation of a workload but {VERDICT_ANNOTATION}",
            ),
            _unless_create(
                f"variables.queue == variables.oldQueue || {_twins('queue')}",
                "the agent may move a workload only between a queue and its burst twin",
            ),
        ],
    }


def _agent_gate() -> dict[str, Any]:
    def others(variable: str) -> str:
        return f"variables.{variable}.?status.?admissionChecks.orValue([]).filter(c, c.name != '{GATE_NAME}')"

    def rest(variable: str, other: str) -> str:
        return (
            f"variables.{variable}.?status.orValue({{}})"
            f".all(k, v, k == 'admissionChecks' || variables.{other}.?status[?k] == optional.of(v))"
        )

    return {
        "matchConstraints": _rules("kueue.x-k8s.io", ["workloads/status"], ["UPDATE"], "v1beta2"),
        "matchConditions": [_IS_AGENT],
        "variables": _old_and_new(),
        "validations": [
            {
                "expression": f"{rest('new', 'old')} && {rest('old', 'new')} && {others('new')} == {others('old')}",
                "message": f"the agent may write only its own check ({GATE_NAME}) in a workload's status",
            },
            {
                "expression": "variables.new.?status.?admissionChecks.orValue([])"
                f".all(c, c.name != '{GATE_NAME}' || c.state in ['Ready', 'Pending'])",
                "message": "the agent answers Ready or stays Pending; Rejected and Retry lose the job's place",
            },
        ],
    }


def _jobs_keep_their_queue() -> dict[str, Any]:
    owned = (
        "object.metadata.?ownerReferences.orValue([]).exists(o, o.?controller.orValue(false) && o.kind != 'CronJob')"
    )
    return {
        "matchConstraints": _managed(_rules("batch", ["jobs"], ["CREATE", "UPDATE"])),
        "matchConditions": [_IS_NOT_AGENT],
        "variables": [
            {"name": "queue", "expression": _label("object", QUEUE_LABEL)},
            {"name": "oldQueue", "expression": _label("oldObject", QUEUE_LABEL)},
        ],
        "validations": [
            {
                "expression": "variables.queue == variables.oldQueue || "
                f"(!variables.queue.endsWith('{BURST_SUFFIX}') && !variables.oldQueue.endsWith('{BURST_SUFFIX}'))",
                "message": "only gpufleet moves a job into or out of a burst queue; submit to the team's own queue",
            },
            {
                "expression": f"variables.queue != '' || {owned}",
                "message": f"jobs in this namespace need the label {QUEUE_LABEL} with the name of the team's queue",
            },
        ],
    }


def _jobs_take_their_pods_along() -> dict[str, Any]:
    """The API's own default for batch/v1 leaves the pods running: in the cloud, without a Workload, unpaid for."""
    return {
        "matchConstraints": _managed(_rules("batch", ["jobs"], ["DELETE"])),
        "variables": [{"name": "queue", "expression": _label("oldObject", QUEUE_LABEL)}],
        "validations": [
            {
                "expression": f"!variables.queue.endsWith('{BURST_SUFFIX}')"
                " || request.options.?propagationPolicy.orValue('') in ['Background', 'Foreground']",
                "message": "a job in a burst queue is deleted with its pods: "
                "give the propagation policy Background or Foreground (kubectl's --cascade)",
            }
        ],
    }


def _jobs_stay_off_cloud_nodes() -> dict[str, Any]:
    return {
        "matchConstraints": _managed(_rules("batch", ["jobs"], ["CREATE", "UPDATE"])),
        "matchConditions": [{"name": "is-a-user", "expression": f"!{_MAY_ADMIT}"}, _IS_NOT_AGENT],
        **_off_cloud_nodes("spec.template.spec"),
    }


def _pods_stay_off_cloud_nodes() -> dict[str, Any]:
    return {
        "matchConstraints": _managed(_rules("", ["pods"], ["CREATE", "UPDATE"])),
        "matchConditions": [{"name": "is-a-user", "expression": f"!{_MAY_RUN_PODS}"}],
        **_off_cloud_nodes("spec"),
    }


def _jobs_end_in_time() -> dict[str, Any]:
    """Kueue gives quota back when pods are told to end; until they have ended they cost, and nobody counts it."""
    return {
        "matchConstraints": _managed(_rules("batch", ["jobs"], ["CREATE"])),
        "validations": [
            {
                "expression": "object.spec.template.spec.?terminationGracePeriodSeconds.orValue(30)"
                f" <= {LONGEST_GRACE_SECONDS}",
                "message": f"terminationGracePeriodSeconds of a job is at most {LONGEST_GRACE_SECONDS} here",
            }
        ],
    }


def _gpu_pods_stay_with_their_team() -> dict[str, Any]:
    """Cloud GPUs are asked for in a team's namespace, or by nobody; node agents elsewhere ask for no GPU."""
    asks = (
        f"object.spec.containers.exists(c, '{GPU_RESOURCE}' in c.?resources.?limits.orValue({{}})"
        f" || '{GPU_RESOURCE}' in c.?resources.?requests.orValue({{}}))"
    )
    elsewhere = {"matchExpressions": [{"key": MANAGED_LABEL, "operator": "NotIn", "values": ["true"]}]}
    return {
        "matchConstraints": {"namespaceSelector": elsewhere, **_rules("", ["pods"], ["CREATE", "UPDATE"])},
        "validations": [
            {
                "expression": "!object.spec.?tolerations.orValue([])"
                f".exists(t, t.?key.orValue('') == '{BURST_TAINT}') || !{asks}",
                "message": f"pods with GPUs may not tolerate {BURST_TAINT} outside a team's namespace",
            }
        ],
    }


def _burst_queues_take_jobs_only() -> dict[str, Any]:
    """The agent knows batch/v1 Jobs alone; anything else would hold cloud quota at the gate unseen."""
    owned = "object.metadata.?ownerReferences.orValue([])"
    return {
        "matchConstraints": _managed(_rules("kueue.x-k8s.io", ["workloads"], ["CREATE", "UPDATE"], "v1beta2")),
        "validations": [
            {
                "expression": f"!object.spec.?queueName.orValue('').endsWith('{BURST_SUFFIX}') || {owned}"
                ".exists(o, o.?controller.orValue(false) && o.kind == 'Job' && o.apiVersion == 'batch/v1')",
                "message": "only batch/v1 Jobs may stand in a burst queue; other kinds stay local",
            }
        ],
    }


def _workloads_keep_their_queue() -> dict[str, Any]:
    return {
        "matchConstraints": _managed(_rules("kueue.x-k8s.io", ["workloads"], ["CREATE", "UPDATE"], "v1beta2")),
        "matchConditions": [{"name": "is-a-user", "expression": f"!{_MAY_ADMIT}"}, _IS_NOT_AGENT],
        "variables": [
            {"name": "queue", "expression": "object.spec.?queueName.orValue('')"},
            {"name": "oldQueue", "expression": "oldObject == null ? '' : oldObject.spec.?queueName.orValue('')"},
        ],
        "validations": [
            {
                "expression": "variables.queue == variables.oldQueue || "
                f"(!variables.queue.endsWith('{BURST_SUFFIX}') && !variables.oldQueue.endsWith('{BURST_SUFFIX}'))",
                "message": "only gpufleet moves a workload into or out of a burst queue",
            },
            {
                "expression": f"!variables.oldQueue.endsWith('{BURST_SUFFIX}')"
                " || object.spec.?maximumExecutionTimeSeconds == oldObject.spec.?maximumExecutionTimeSeconds",
                "message": _LIMIT_STAYS,
            },
        ],
    }


def _burst_queues_have_one_door() -> dict[str, Any]:
    return {
        "matchConstraints": _rules("kueue.x-k8s.io", ["localqueues"], ["CREATE", "UPDATE"], "v1beta2"),
        "matchConditions": [{"name": "is-a-user", "expression": f"!{_MAY_MAKE_QUEUES}"}],
        "validations": [
            {
                "expression": f"!object.spec.clusterQueue.endsWith('{BURST_SUFFIX}')",
                "message": "only administrators make a LocalQueue onto a burst ClusterQueue",
            }
        ],
    }


def _off_cloud_nodes(pod: str) -> dict[str, Any]:
    """What a pod may not ask for, at its creation or later; what Kueue or the scheduler gave it may stay as it is."""
    old = f"oldObject.{pod}"
    selected, named = f"?nodeSelector[?'{FLAVOR_LABEL}'].orValue('')", "?nodeName.orValue('')"
    return {
        "variables": [
            {"name": "tolerations", "expression": f"object.{pod}.?tolerations.orValue([])"},
            {"name": "oldTolerations", "expression": f"oldObject == null ? [] : {old}.?tolerations.orValue([])"},
            {"name": "flavor", "expression": f"object.{pod}.{selected}"},
            {"name": "oldFlavor", "expression": f"oldObject == null ? '' : {old}.{selected}"},
            {"name": "node", "expression": f"object.{pod}.{named}"},
            {"name": "oldNode", "expression": f"oldObject == null ? '' : {old}.{named}"},
        ],
        "validations": [
            {
                "expression": "variables.tolerations.all(t, t in variables.oldTolerations"
                f" || (t.?key.orValue('') != '{BURST_TAINT}'"
                " && (t.?key.orValue('') != '' || t.?operator.orValue('Equal') != 'Exists')))",
                "message": f"pods here may not tolerate {BURST_TAINT}, nor every taint; "
                "gpufleet sends jobs to the cloud",
            },
            {
                "expression": "variables.flavor == '' || variables.flavor == variables.oldFlavor",
                "message": f"pods here may not select {FLAVOR_LABEL}; Kueue sets it when it admits a job",
            },
            {
                "expression": f"oldObject != null || !object.{pod}.?affinity.?nodeAffinity"
                ".?requiredDuringSchedulingIgnoredDuringExecution.?nodeSelectorTerms.orValue([])"
                f".exists(t, t.?matchExpressions.orValue([]).exists(e, e.key == '{FLAVOR_LABEL}'))",
                "message": f"pods here may not ask for {FLAVOR_LABEL} by affinity; Kueue chooses the flavor",
            },
            {
                "expression": "variables.node == '' || variables.node == variables.oldNode",
                "message": "pods here may not name their node, which would go around the scheduler",
            },
        ],
    }


def _rules(group: str, resources: list[str], operations: list[str], version: str = "v1") -> dict[str, Any]:
    rule = {"apiGroups": [group], "apiVersions": [version], "operations": operations, "resources": resources}
    return {"resourceRules": [rule]}


def _managed(constraints: dict[str, Any]) -> dict[str, Any]:
    return {"namespaceSelector": {"matchLabels": {MANAGED_LABEL: "true"}}, **constraints}


def _old_and_new() -> list[dict[str, str]]:
    return [{"name": "old", "expression": "dyn(oldObject)"}, {"name": "new", "expression": "dyn(object)"}]


def _label(subject: str, key: str) -> str:
    return f"{subject} == null ? '' : {subject}.metadata.?labels[?'{key}'].orValue('')"


def _only_updates(what: str) -> dict[str, str]:
    return {
        "expression": "request.operation == 'UPDATE' && request.?subResource.orValue('') == ''",
        "message": f"the agent may only update {what}",
    }


def _unless_create(expression: str, message: str) -> dict[str, str]:
    return {"expression": f"request.operation != 'UPDATE' || ({expression})", "message": message}


def _metadata_unchanged_but(field: str) -> str:
    allowed = _SERVER_METADATA.replace("[", f"[{field}, ")
    return (
        f"variables.new.metadata.all(k, v, k in {allowed} || variables.old.metadata[?k] == optional.of(v))"
        f" && variables.old.metadata.all(k, v, k in {allowed} || k in variables.new.metadata)"
    )


def _map_unchanged_but(field: str, key: str) -> str:
    new, old = (f"{subject}.metadata.?{field}.orValue({{}})" for subject in ("object", "oldObject"))
    return (
        f"{new}.all(k, v, k == '{key}' || {old}[?k] == optional.of(v)) && {old}.all(k, v, k == '{key}' || k in {new})"
    )


def _twins(name: str) -> str:
    old = f"old{name.capitalize()}"
    return (
        f"(variables.{name} == variables.{old} + '{BURST_SUFFIX}' || "
        f"variables.{old} == variables.{name} + '{BURST_SUFFIX}')"
    )
