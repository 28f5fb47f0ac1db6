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
from components.kubernetes.admission import agent, nodes, queues
from components.names import Manifest, manifest

API: Final = "admissionregistration.k8s.io/v1"


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
        "agent-jobs": agent.jobs(),
        "agent-workloads": agent.workloads(),
        "agent-gate": agent.gate(),
        "jobs-keep-their-queue": queues.jobs_keep_their_queue(),
        "jobs-take-their-pods-along": queues.jobs_take_their_pods_along(),
        "jobs-stay-off-cloud-nodes": nodes.jobs_stay_off_cloud_nodes(),
        "pods-stay-off-cloud-nodes": nodes.pods_stay_off_cloud_nodes(),
        "jobs-end-in-time": queues.jobs_end_in_time(),
        "gpu-pods-stay-with-their-team": nodes.gpu_pods_stay_with_their_team(),
        "workloads-keep-their-queue": queues.workloads_keep_their_queue(),
        "burst-queues-take-jobs-only": queues.burst_queues_take_jobs_only(),
        "burst-queues-have-one-door": queues.burst_queues_have_one_door(),
    }
