"""The agent: its identity, its rights, its configuration, and what administrators give it.

Its rights are the least it needs; the admission policies narrow them further. Flavors and ClusterQueues it only reads,
and of secrets it sees none. Its rights to write each team's forecast, to ask the team's pods to save their work and to
evict them stand in the team's namespace (`components.kubernetes.forecasts`). Of nodes it writes two annotations, one
taint and, while that holds a node empty, the label of its MIG layout; what else is ours there is written by the node
agent (`components.kubernetes.node_agent`).

The ConfigMap of top-ups has no `data` here, since that is the administrators': server-side apply owns the fields that
it sends and no others, so `pulumi up` neither clears nor takes over an entry, and `--refresh` compares only what the
program set. An empty `data` would be a claim on it; there must be none.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import pulumi

from components.base import Component, keeps_data
from components.kubernetes.deployment import CONFIG_FILE, SELECTOR, deployment
from components.kubernetes.node_agent import needs_host_network
from components.names import Manifest, manifest
from stacks.agent import VolumeLedger
from stacks.agent_config import agent_config, dump
from stacks.fleet import Fleet
from stacks.kinds import JOB_KINDS
from stacks.labels import AGENT_NAME, GATE_NAME, SYSTEM_NAMESPACE, TOP_UPS_NAME


class Agent(Component):
    """Everything the agent needs. `deployment` is ready when a replica answers its readiness probe.

    `namespace` is where the node agent stands, too.
    """

    def __init__(
        self,
        name: str,
        fleet: Fleet,
        *,
        policies: Sequence[pulumi.Resource],
        opts: pulumi.ResourceOptions | None = None,
    ) -> None:
        super().__init__(name, opts)
        objects = manifests(fleet)
        self.namespace = self.kubernetes("namespace", objects.pop("namespace"), **keeps_data(fleet))
        pods = objects.pop("deployment")
        ledger = {"ledger": objects.pop("ledger")} if "ledger" in objects else {}
        rights = self.kubernetes_all(objects, depends_on=[self.namespace, *policies])
        rights += self.kubernetes_all(ledger, depends_on=[self.namespace], **keeps_data(fleet))
        self.deployment = self.kubernetes("deployment", pods, depends_on=rights)
        self.register_outputs({})


def manifests(fleet: Fleet) -> dict[str, Manifest]:
    """Every object of the agent by role, in the order of creation."""
    objects = {
        "namespace": _namespace(fleet),
        "service-account": _own("v1", "ServiceAccount", automountServiceAccountToken=True),
        "cluster-role": manifest("rbac.authorization.k8s.io/v1", "ClusterRole", AGENT_NAME, rules=CLUSTER_RULES),
        "cluster-role-binding": _binding("ClusterRole", None),
        "role": _own("rbac.authorization.k8s.io/v1", "Role", rules=NAMESPACE_RULES),
        "role-binding": _binding("Role", SYSTEM_NAMESPACE),
        "config": _own("v1", "ConfigMap", data={CONFIG_FILE: dump(agent_config(fleet))}),
        "top-ups": manifest("v1", "ConfigMap", TOP_UPS_NAME, namespace=SYSTEM_NAMESPACE),
        "disruption-budget": _own(
            "policy/v1", "PodDisruptionBudget", spec={"maxUnavailable": 1, "selector": {"matchLabels": SELECTOR}}
        ),
    }
    if isinstance(fleet.agent.ledger, VolumeLedger):
        objects["ledger"] = _claim(fleet.agent.ledger)
    objects["deployment"] = deployment(fleet)
    return objects


def _rule(group: str, resources: list[str], verbs: list[str], names: list[str] | None = None) -> dict[str, Any]:
    rule: dict[str, Any] = {"apiGroups": [group], "resources": resources, "verbs": verbs}
    return {**rule, "resourceNames": names} if names else rule


CLUSTER_RULES: Final = [
    _rule("kueue.x-k8s.io", ["workloads"], ["get", "list", "watch", "patch"]),
    _rule("kueue.x-k8s.io", ["workloads/status"], ["patch"]),
    _rule("kueue.x-k8s.io", ["admissionchecks"], ["list", "watch"]),
    _rule("kueue.x-k8s.io", ["admissionchecks/status"], ["patch"], [GATE_NAME]),
    _rule("kueue.x-k8s.io", ["localqueues"], ["list", "watch", "patch"]),
    _rule("kueue.x-k8s.io", ["resourceflavors"], ["list", "watch"]),
    *(_rule(kind.group, [kind.plural], ["patch"]) for kind in JOB_KINDS),
    _rule("events.k8s.io", ["events"], ["create"]),
    _rule("", ["nodes", "pods"], ["list", "watch"]),
    _rule("", ["nodes"], ["patch"]),
    _rule("", ["namespaces"], ["get"], [SYSTEM_NAMESPACE, "kube-system"]),
]
"""What the agent may do anywhere. tests/e2e/test_rules.py names what breaks without each verb on each resource."""

NAMESPACE_RULES: Final = [
    _rule("coordination.k8s.io", ["leases"], ["create"]),
    _rule("coordination.k8s.io", ["leases"], ["get", "update"], [AGENT_NAME]),
    _rule("", ["configmaps"], ["list", "watch"], [AGENT_NAME, TOP_UPS_NAME]),
]
"""What the agent may do in its own namespace."""


def _namespace(fleet: Fleet) -> Manifest:
    privileged = needs_host_network(fleet) or fleet.gpu_layer.readings  # which mount paths of their node
    labels = {"pod-security.kubernetes.io/enforce": "privileged"} if privileged else {}
    return manifest("v1", "Namespace", SYSTEM_NAMESPACE, labels=labels)


def _own(api_version: str, kind: str, **body: Any) -> Manifest:
    return manifest(api_version, kind, AGENT_NAME, namespace=SYSTEM_NAMESPACE, **body)


def _binding(kind: str, namespace: str | None) -> Manifest:
    return manifest(
        "rbac.authorization.k8s.io/v1",
        f"{kind}Binding",
        AGENT_NAME,
        namespace=namespace,
        roleRef={"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": AGENT_NAME},
        subjects=[{"kind": "ServiceAccount", "name": AGENT_NAME, "namespace": SYSTEM_NAMESPACE}],
    )


def _claim(ledger: VolumeLedger) -> Manifest:
    spec: dict[str, Any] = {
        "accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": str(ledger.size)}},
    }
    if ledger.storage_class is not None:
        spec["storageClassName"] = ledger.storage_class
    # A claim of a WaitForFirstConsumer class binds only when the agent's pod is scheduled, which waits for it.
    annotations = {"pulumi.com/skipAwait": "true"}
    return manifest(
        "v1",
        "PersistentVolumeClaim",
        AGENT_NAME,
        namespace=SYSTEM_NAMESPACE,
        annotations=annotations,
        spec=spec,
    )
