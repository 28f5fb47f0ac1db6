"""The agent: its identity, its rights, its configuration and its Deployment.

Its rights are the least it needs; the admission policies narrow them further. It gets no right on pods, nodes, secrets
or quota. Pods are replaced by Recreate, so that the old replica has let go of the lease before the new one asks.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any, Final

import pulumi

from components.base import Component, keeps_data
from components.names import Manifest, manifest
from stacks.agent import VolumeLedger
from stacks.agent_config import LEDGER_MOUNT, agent_config, dump, ledger_url
from stacks.fleet import Fleet
from stacks.labels import AGENT_NAME, GATE_NAME, SYSTEM_NAMESPACE

CONFIG_MOUNT: Final = "/etc/gpufleet"
CONFIG_FILE: Final = "config.yaml"
HEALTH_PORT: Final = 8080

# Measured: about 70 MiB at 2,000 workloads; the limit leaves room for 15,000.
_MEMORY_REQUEST: Final = "128Mi"
_MEMORY_LIMIT: Final = "512Mi"
_NOBODY: Final = 65_532

_SELECTOR: Final = {"app.kubernetes.io/name": AGENT_NAME}


class Agent(Component):
    """Everything the agent needs. `deployment` is ready when a replica answers its readiness probe."""

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
        namespace = self.kubernetes("namespace", objects.pop("namespace"), **keeps_data(fleet))
        deployment = objects.pop("deployment")
        ledger = {"ledger": objects.pop("ledger")} if "ledger" in objects else {}
        rights = self.kubernetes_all(objects, depends_on=[namespace, *policies])
        rights += self.kubernetes_all(ledger, depends_on=[namespace], **keeps_data(fleet))
        self.deployment = self.kubernetes("deployment", deployment, depends_on=rights)
        self.register_outputs({})


def manifests(fleet: Fleet) -> dict[str, Manifest]:
    """Every object of the agent by role, in the order of creation."""
    config = dump(agent_config(fleet))
    objects = {
        "namespace": manifest("v1", "Namespace", SYSTEM_NAMESPACE),
        "service-account": _own("v1", "ServiceAccount", automountServiceAccountToken=True),
        "cluster-role": manifest("rbac.authorization.k8s.io/v1", "ClusterRole", AGENT_NAME, rules=CLUSTER_RULES),
        "cluster-role-binding": _binding("ClusterRole", None),
        "role": _own("rbac.authorization.k8s.io/v1", "Role", rules=NAMESPACE_RULES),
        "role-binding": _binding("Role", SYSTEM_NAMESPACE),
        "config": _own("v1", "ConfigMap", data={CONFIG_FILE: config}),
        "disruption-budget": _own(
            "policy/v1", "PodDisruptionBudget", spec={"maxUnavailable": 1, "selector": {"matchLabels": _SELECTOR}}
        ),
    }
    if isinstance(fleet.agent.ledger, VolumeLedger):
        objects["ledger"] = _claim(fleet.agent.ledger)
    objects["deployment"] = _deployment(fleet, config)
    return objects


def _rule(group: str, resources: list[str], verbs: list[str], names: list[str] | None = None) -> dict[str, Any]:
    rule: dict[str, Any] = {"apiGroups": [group], "resources": resources, "verbs": verbs}
    return {**rule, "resourceNames": names} if names else rule


CLUSTER_RULES: Final = [
    _rule("kueue.x-k8s.io", ["workloads"], ["get", "list", "watch", "patch"]),
    _rule("kueue.x-k8s.io", ["workloads/status"], ["patch"]),
    _rule("kueue.x-k8s.io", ["admissionchecks"], ["list", "watch"]),
    _rule("kueue.x-k8s.io", ["admissionchecks/status"], ["patch"], [GATE_NAME]),
    _rule("batch", ["jobs"], ["patch"]),
    _rule("events.k8s.io", ["events"], ["create"]),
    _rule("", ["namespaces"], ["get"], [SYSTEM_NAMESPACE, "kube-system"]),
]
"""What the agent may do anywhere. Reviewed against what it calls by tests/e2e."""

NAMESPACE_RULES: Final = [
    _rule("coordination.k8s.io", ["leases"], ["create"]),
    _rule("coordination.k8s.io", ["leases"], ["get", "update"], [AGENT_NAME]),
]
"""What the agent may do in its own namespace."""


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


def _deployment(fleet: Fleet, config: str) -> Manifest:
    checksum = hashlib.sha256(config.encode()).hexdigest()[:16]
    template = {
        "metadata": {"labels": _SELECTOR, "annotations": {"gpufleet.dev/config-checksum": checksum}},
        "spec": _pod_spec(fleet),
    }
    spec = {
        "replicas": fleet.agent.replicas,
        "strategy": {"type": "Recreate"},
        "selector": {"matchLabels": _SELECTOR},
        "template": template,
    }
    return _own("apps/v1", "Deployment", spec=spec)


def _pod_spec(fleet: Fleet) -> dict[str, Any]:
    volumes: list[dict[str, Any]] = [{"name": "config", "configMap": {"name": AGENT_NAME}}]
    mounts: list[dict[str, Any]] = [{"name": "config", "mountPath": CONFIG_MOUNT, "readOnly": True}]
    if isinstance(fleet.agent.ledger, VolumeLedger):
        volumes.append({"name": "ledger", "persistentVolumeClaim": {"claimName": AGENT_NAME}})
        mounts.append({"name": "ledger", "mountPath": LEDGER_MOUNT})
    return {
        "serviceAccountName": AGENT_NAME,
        "terminationGracePeriodSeconds": 15,
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": _NOBODY,
            "fsGroup": _NOBODY,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "containers": [_container(fleet, mounts)],
        "volumes": volumes,
    }


def _container(fleet: Fleet, mounts: list[dict[str, Any]]) -> dict[str, Any]:
    arguments = ["--config", f"{CONFIG_MOUNT}/{CONFIG_FILE}", "--ledger", ledger_url(fleet.agent.ledger)]
    return {
        "name": "router",
        "image": fleet.agent.image,
        "command": ["python", "-m", "runtime"],
        "args": [*arguments, "--health-port", str(HEALTH_PORT)],
        "env": [
            {"name": "POD_NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
            {"name": "POD_NAMESPACE", "valueFrom": {"fieldRef": {"fieldPath": "metadata.namespace"}}},
        ],
        "ports": [{"name": "health", "containerPort": HEALTH_PORT}],
        "readinessProbe": {"httpGet": {"path": "/readyz", "port": "health"}, "periodSeconds": 2},
        "livenessProbe": {
            "httpGet": {"path": "/healthz", "port": "health"},
            "periodSeconds": 10,
            "failureThreshold": 6,
        },
        "resources": {
            "requests": {"cpu": "100m", "memory": _MEMORY_REQUEST},
            "limits": {"memory": _MEMORY_LIMIT},
        },
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
        "volumeMounts": mounts,
    }
