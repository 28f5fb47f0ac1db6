"""Admission policies that keep two promises: the agent can change almost nothing, and nobody can release herself.

The agent may move a suspended job of a kind of stacks.kinds between its team's queues, deactivate and reactivate a
Workload, write its verdict and how far its eviction is, answer its own check, hold the queues of windows, publish
forecasts, ask a team's pods to save their work, evict them, and say of a node that nothing of ours is left there; the
API server refuses everything else it tries of these objects, whatever its RBAC says. A node agent may say of its own
node that it goes. Users may neither enter nor leave a burst queue, nor reach cloud nodes around it, nor speak for
either agent.

Whoever may write in all namespaces what only Kueue, controllers of jobs and administrators write (checked with the API
server's own authorizer) is exempt, so that no user name of a particular installation appears here. A controller that
has its rights in single namespaces only is a user. A kind whose CRD is not installed matches nothing.
"""

from __future__ import annotations

from typing import Final

import pulumi

from components.base import Component
from components.kubernetes.admission import agent, agent_objects, nodes, notices, queues, readings
from components.kubernetes.admission.expressions import Spec
from components.names import Manifest, manifest
from stacks.fleet import Fleet

API: Final = "admissionregistration.k8s.io/v1"


class AdmissionPolicies(Component):
    """All policies with their bindings."""

    def __init__(self, name: str, fleet: Fleet, *, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__(name, opts)
        policies = manifests(fleet)
        self.bindings: list[pulumi.Resource] = []
        for role in (role for role in policies if not role.endswith("-binding")):
            policy = self.kubernetes(role, policies[role])
            self.bindings.append(self.kubernetes(f"{role}-binding", policies[f"{role}-binding"], depends_on=[policy]))
        self.register_outputs({})


def manifests(fleet: Fleet) -> dict[str, Manifest]:
    """Every policy and its binding, by role. Of the fleet they hold only the names of classes."""
    objects: dict[str, Manifest] = {}
    for role, spec in _specs(fleet).items():
        name = f"gpufleet-{role}"
        objects[role] = manifest(API, "ValidatingAdmissionPolicy", name, spec={"failurePolicy": "Fail", **spec})
        objects[f"{role}-binding"] = manifest(
            API,
            "ValidatingAdmissionPolicyBinding",
            name,
            spec={"policyName": name, "validationActions": ["Deny"]},
        )
    return objects


def _specs(fleet: Fleet) -> dict[str, Spec]:
    windowed = [name.lower() for name, job_class in fleet.classes.items() if job_class.window is not None]
    default = next(name.lower() for name, job_class in fleet.classes.items() if job_class.default)
    reading = {"gpu-readers-write-their-own-node": readings.readers_write_their_own_node()}
    return {
        **(reading if fleet.gpu_layer.readings else {}),
        "agent-jobs": agent.jobs(),
        "agent-workloads": agent.workloads(),
        "agent-gate": agent.gate(),
        "agent-local-queues": agent_objects.local_queues(),
        "agent-config-maps": agent_objects.config_maps(),
        "agent-pods": agent_objects.pods(),
        "agent-nodes": agent_objects.nodes(),
        "node-agents-write-their-own-node": notices.node_agents_write_their_own_node(),
        "nodes-keep-their-notices": notices.nodes_keep_their_notices(),
        "pods-keep-their-requests": notices.pods_keep_their_requests(),
        "jobs-keep-their-queue": queues.jobs_keep_their_queue(),
        "jobs-start-in-their-window": queues.jobs_start_in_their_window(windowed, default),
        "jobs-take-their-pods-along": queues.jobs_take_their_pods_along(),
        "jobs-stay-off-cloud-nodes": nodes.templates_stay_off_cloud_nodes(),
        "pods-stay-off-cloud-nodes": nodes.pods_stay_off_cloud_nodes(),
        "pods-are-bound-by-schedulers": nodes.pods_are_bound_by_schedulers(),
        "jobs-end-in-time": nodes.jobs_end_in_time(),
        "gpu-pods-stay-with-their-team": nodes.gpu_pods_stay_with_their_team(),
        "namespaces-stay-managed": nodes.namespaces_stay_managed(),
        "workloads-keep-their-queue": queues.workloads_keep_their_queue(),
        "workloads-are-judged-by-nobody-else": queues.workloads_are_judged_by_nobody_else(),
        "burst-queues-take-jobs-only": queues.burst_queues_take_jobs_only(),
        "burst-queues-have-one-door": queues.queues_of_ours_have_one_door(),
    }
