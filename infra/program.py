"""The wiring: which components a fleet needs, and in which order. It decides nothing.

Order of creation: admission policies before the agent's rights, the agent before the gate, the gate Active before the
burst twins that refer to it and the teams' namespaces, these before everything in them, which includes the agent's
rights there; deletion runs backwards. The teams' own queues wait for nothing, and nothing waits for node agents.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pulumi
from pulumi_kubernetes import Provider

from components.kubernetes import gpu
from components.kubernetes.admission import AdmissionPolicies
from components.kubernetes.agent import Agent
from components.kubernetes.kueue import Queues
from components.kubernetes.node_agent import NodeAgent, places
from components.onprem.nodepool import OnPremNodePool
from infra.coverage import parts_without_components
from stacks.clusters import Cluster, ExistingCluster, KubeconfigContext, KubeconfigSecret
from stacks.fleet import Fleet
from stacks.labels import GATE_NAME, SYSTEM_NAMESPACE


@dataclass(frozen=True)
class Outputs:
    """What the stack exports."""

    cluster: str
    gate: str
    agent_namespace: str
    queues: dict[str, str]


def build(fleet: Fleet, secrets: pulumi.Config) -> Outputs:
    """Declare every resource of the fleet; `secrets` resolves the names of sibling secrets.

    Raises:
        pulumi.RunError: the file asks for a part that has no component yet; nothing is declared then.
    """
    if missing := parts_without_components(fleet):
        listed = "\n".join(f"  {part}" for part in missing)
        raise pulumi.RunError(f"these parts can be checked and planned, but not deployed yet:\n{listed}")
    cluster_name = fleet.home_name
    provider = _provider(cluster_name, fleet.home, secrets)
    options = pulumi.ResourceOptions(provider=provider)
    policies = AdmissionPolicies("admission", fleet, opts=options)
    agent = Agent("agent", fleet, policies=policies.bindings, opts=options)
    configured: list[pulumi.Resource] = []
    if gpu.manifests(fleet) or gpu.releases(fleet):
        layer = gpu.GpuLayer("gpus", fleet, namespace=agent.namespace, policies=policies.bindings, opts=options)
        configured = layer.configured
    for pool_name, pool in fleet.onprem_pools.items():
        if pool.node_names:
            OnPremNodePool(pool_name, pool_name, fleet, after=configured, opts=options)
    if places(fleet):
        NodeAgent("node-agent", fleet, namespace=agent.namespace, policies=policies.bindings, opts=options)
    Queues("queues", fleet, agent=[agent.deployment], opts=options)
    return Outputs(
        cluster=cluster_name,
        gate=GATE_NAME,
        agent_namespace=SYSTEM_NAMESPACE,
        queues={name: f"{team.namespace or name}/{name}" for name, team in fleet.teams.items()},
    )


def _provider(name: str, cluster: Cluster, secrets: pulumi.Config) -> Provider:
    if not isinstance(cluster, ExistingCluster):
        raise TypeError(f"no component makes clusters of kind {cluster.kind}")
    # Without it the provider deletes a ConfigMap whose data changed and makes it anew (pulumi-kubernetes#1567), while
    # the agent watches it.
    settings: dict[str, Any] = {"enable_config_map_mutable": True}
    match cluster.kubeconfig:
        case KubeconfigSecret(secret=secret):
            settings["kubeconfig"] = secrets.require_secret(secret)
        case KubeconfigContext(context=context):
            settings["context"] = context
        case None:
            pass
    return Provider(name, **settings)
