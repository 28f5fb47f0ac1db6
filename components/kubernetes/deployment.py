"""The agent's Deployment: how its pods run, stand by and are replaced.

It carries no checksum of the configuration: the agent watches its ConfigMap and takes a new one over while it runs, so
a change of the file restarts nothing. The mounted file is what a pod starts with.

How pods are replaced follows the ledger. Several replicas share a bucket, so they are replaced one at a time
(`RollingUpdate`): one that is ready for the lease is always there, and without a surplus a cluster needs room for no
more than it runs. A volume of the usual kind is attached to one node; a new pod that lands on another could not start
before the old one has ended. There, and wherever there is but one replica, the old one ends first (`Recreate`). Where
pods of two versions overlap, the lease, and not the Deployment, sees to it that only one of them acts.

Replicas prefer different nodes. That is no requirement, or a cluster of one node could not run two.
"""

from __future__ import annotations

from typing import Any, Final

from components.names import Manifest, manifest
from stacks.agent import ObjectStoreLedger, VolumeLedger
from stacks.agent_config import LEDGER_MOUNT, ledger_url
from stacks.fleet import Fleet
from stacks.labels import AGENT_NAME, SYSTEM_NAMESPACE

CONFIG_MOUNT: Final = "/etc/gpufleet"
CONFIG_FILE: Final = "config.yaml"
HEALTH_PORT: Final = 8080

# Measured: about 70 MiB at 2,000 workloads; the limit leaves room for 15,000.
_MEMORY_REQUEST: Final = "128Mi"
_MEMORY_LIMIT: Final = "512Mi"
_NOBODY: Final = 65_532

_HIGHEST_WEIGHT: Final = 100  # of a preference (k8s.io/api, WeightedPodAffinityTerm)

SELECTOR: Final = {"app.kubernetes.io/name": AGENT_NAME}
"""The label of the agent's pods."""


def deployment(fleet: Fleet) -> Manifest:
    """The agent's pods."""
    spec = {
        "replicas": fleet.agent.replicas,
        "strategy": _strategy(fleet),
        "selector": {"matchLabels": SELECTOR},
        "template": {"metadata": {"labels": SELECTOR}, "spec": _pod_spec(fleet)},
    }
    return manifest("apps/v1", "Deployment", AGENT_NAME, namespace=SYSTEM_NAMESPACE, spec=spec)


def _stands_by(fleet: Fleet) -> bool:
    return fleet.agent.replicas > 1 and isinstance(fleet.agent.ledger, ObjectStoreLedger)


def _strategy(fleet: Fleet) -> dict[str, Any]:
    if _stands_by(fleet):
        return {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 1, "maxSurge": 0}}
    return {"type": "Recreate"}


def _pod_spec(fleet: Fleet) -> dict[str, Any]:
    volumes: list[dict[str, Any]] = [{"name": "config", "configMap": {"name": AGENT_NAME}}]
    mounts: list[dict[str, Any]] = [{"name": "config", "mountPath": CONFIG_MOUNT, "readOnly": True}]
    if isinstance(fleet.agent.ledger, VolumeLedger):
        volumes.append({"name": "ledger", "persistentVolumeClaim": {"claimName": AGENT_NAME}})
        mounts.append({"name": "ledger", "mountPath": LEDGER_MOUNT})
    return {
        "serviceAccountName": AGENT_NAME,
        "terminationGracePeriodSeconds": 15,
        **({"affinity": _apart()} if _stands_by(fleet) else {}),
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": _NOBODY,
            "fsGroup": _NOBODY,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "containers": [_container(fleet, mounts)],
        "volumes": volumes,
    }


def _apart() -> dict[str, Any]:
    term = {"labelSelector": {"matchLabels": SELECTOR}, "topologyKey": "kubernetes.io/hostname"}
    preference = {"weight": _HIGHEST_WEIGHT, "podAffinityTerm": term}
    return {"podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [preference]}}


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
