"""The reader of GPUs: the node agent in another role, on nodes whose GPUs the operator offers.

It stands apart from the one that reads notices, because whoever reads GPUs holds the driver open, and the operator must
stop it while MIG changes: it runs where the operator lets clients of the driver run (`nvidia.com/gpu.deploy.client`).

It runs as root, because the kubelet's socket is root's, with every capability dropped. GPUs come from the container
runtime `nvidia` by a mount and not by an environment variable, which unprivileged containers do not get any by.
"""

from __future__ import annotations

from typing import Any, Final

from components.kubernetes.gpu.operator import EXPORTER_PORT, EXPORTER_SERVICE
from components.kubernetes.node_agent import PRIORITY_CLASS, TOLERATIONS, identity, nodes_of
from components.names import Manifest, manifest
from stacks.flavors import flavor_name
from stacks.fleet import Fleet
from stacks.labels import GPU_READER_NAME, SYSTEM_NAMESPACE
from stacks.layouts import operator_is_ours, served_pools

PORT: Final = 9478
"""Health and metrics; beside the port of the agent that reads notices."""

_CLIENT_LABEL: Final = "nvidia.com/gpu.deploy.client"
_RUNTIME_CLASS: Final = "nvidia"  # made by the operator
_ALL_GPUS: Final = "/var/run/nvidia-container-devices/all"  # what the toolkit looks for, with volume mounts accepted
_POD_RESOURCES: Final = "/var/lib/kubelet/pod-resources"
_NAME_LABEL: Final = "app.kubernetes.io/name"
_UNAVAILABLE: Final = "10%"

# Measured: 45 MiB with 56 MIG devices and grpcio.
_RESOURCES: Final = {"requests": {"cpu": "10m", "memory": "64Mi"}, "limits": {"memory": "160Mi"}}

CLUSTER_RULES: Final = [
    {"apiGroups": [""], "resources": ["nodes"], "verbs": ["get", "patch"]},
    {"apiGroups": [""], "resources": ["nodes/status"], "verbs": ["patch"]},
]
"""What it may do, at all. A policy leaves it its own node, and of that one condition, one taint and one annotation."""


def manifests(fleet: Fleet) -> dict[str, Manifest]:
    """Every object of the reader by role, in the order of creation; none where the file does not ask for it."""
    flavors = sorted({flavor_name(pool) for pool in served_pools(fleet).values()})
    if not fleet.gpu_layer.readings or not flavors:
        return {}
    return {**identity(GPU_READER_NAME, CLUSTER_RULES), "daemon-set": _daemon_set(fleet, flavors)}


def _daemon_set(fleet: Fleet, flavors: list[str]) -> Manifest:
    labels = {_NAME_LABEL: GPU_READER_NAME}
    spec = {
        "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": _UNAVAILABLE}},
        "selector": {"matchLabels": labels},
        "template": {"metadata": {"labels": labels}, "spec": _pod_spec(fleet, flavors)},
    }
    annotations = {"pulumi.com/skipAwait": "true"}  # a node without a driver must not hold up a change of the fleet
    return manifest(
        "apps/v1", "DaemonSet", GPU_READER_NAME, namespace=SYSTEM_NAMESPACE, annotations=annotations, spec=spec
    )


def _pod_spec(fleet: Fleet, flavors: list[str]) -> dict[str, Any]:
    return {
        "serviceAccountName": GPU_READER_NAME,
        "priorityClassName": PRIORITY_CLASS,  # as the operator's own: a node that jobs fill has room for it
        "runtimeClassName": _RUNTIME_CLASS,
        "terminationGracePeriodSeconds": 5,
        "nodeSelector": {_CLIENT_LABEL: "true"},
        "affinity": {"nodeAffinity": nodes_of(flavors)},
        "tolerations": TOLERATIONS,
        "securityContext": {"runAsUser": 0, "runAsGroup": 0, "seccompProfile": {"type": "RuntimeDefault"}},
        "containers": [_container(fleet)],
        "volumes": [
            {"name": "all-gpus", "hostPath": {"path": "/dev/null", "type": "CharDevice"}},
            {"name": "pod-resources", "hostPath": {"path": _POD_RESOURCES, "type": "Directory"}},
        ],
    }


def _container(fleet: Fleet) -> dict[str, Any]:
    exporter = f"http://{EXPORTER_SERVICE}.{fleet.gpu_layer.operator.namespace}.svc:{EXPORTER_PORT}/metrics"
    exported = ["--gpu-exporter-url", exporter] if operator_is_ours(fleet) else []  # of that node: see the values
    arguments = ["--provider", "none", "--gpus", "only", *exported]
    return {
        "name": "gpus",
        "image": fleet.agent.image,
        "command": ["python", "-m", "runtime.node"],
        "args": [*arguments, "--pod-resources", f"{_POD_RESOURCES}/kubelet.sock", "--port", str(PORT)],
        "env": [
            {"name": "NODE_NAME", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}},
            {"name": "NVIDIA_DRIVER_CAPABILITIES", "value": "utility"},
        ],
        "ports": [{"name": "health", "containerPort": PORT}],
        "livenessProbe": {
            "httpGet": {"path": "/healthz", "port": "health"},
            "periodSeconds": 20,
            "failureThreshold": 3,
        },
        "resources": _RESOURCES,
        "volumeMounts": [
            {"name": "all-gpus", "mountPath": _ALL_GPUS},
            {"name": "pod-resources", "mountPath": _POD_RESOURCES, "readOnly": True},
        ],
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "privileged": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
    }
