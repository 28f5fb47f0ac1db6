"""The node agent: what reads, on a GPU node itself, the notice that the node will be taken away.

One DaemonSet for each kind of place, since they differ in whom they ask and in the network they need for it. Its nodes
are found by their flavor, so that there is none on a node that is not of the fleet, nor where there is nobody to ask:
racks and brokers have one only with `eviction.notices_url`. It has no volume and no setting in a ConfigMap.

Metadata services answer the host's network only: on AWS an answer to IMDSv2 crosses one hop unless the node was made
otherwise (`httpPutResponseHopLimit`, 1 by default with Karpenter), on GKE another server stands before the pods' and
knows a part of the paths, on AKS pods may be kept from it (IMDS restriction). Brokers are asked from the pods' network.

`pulumi up` does not wait for the DaemonSets: a node that goes or is broken must not hold up a change of the fleet, and
the embedded stack, whose nodes are pretended, has no controller that would carry them out. They stand there without
pods, and nothing waits for any.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pulumi

from components.base import Component
from components.names import Manifest, manifest
from stacks.eviction import METADATA_PLACES
from stacks.fleet import Fleet
from stacks.labels import FLAVOR_LABEL, GPU_RESOURCE, NODE_AGENT_NAME, SYSTEM_NAMESPACE

PRIORITY_CLASS: Final = "system-node-critical"
"""A node whose agent was preempted by a job would lose that job without a word."""

_BROKER: Final = "broker"
"""Every other place: there is nobody to ask but the broker, or the operators of the racks."""

PORT: Final = 9477
"""Health and metrics, on the node's own addresses where it shares its network; no common daemon's."""

_NOBODY: Final = 65_532
_NAME_LABEL: Final = "app.kubernetes.io/name"
_PLACE_LABEL: Final = "app.kubernetes.io/component"

# The aim for the process is 25 MiB; twice that leaves room for a garbled answer of 1 MiB and its parsing. No limit on
# processor time: it idles until the one moment in which being throttled would cost a job its work.
_RESOURCES: Final = {"requests": {"cpu": "10m", "memory": "32Mi"}, "limits": {"memory": "64Mi"}}

_SECONDS_TO_END: Final = 5  # it holds nothing; what it said of the node stands there without it
_UNAVAILABLE: Final = "10%"  # Kubernetes' default of one node at a time takes hours on a large fleet


@dataclass(frozen=True, slots=True)
class Place:
    """Where nodes are asked about in the same way."""

    name: str
    arguments: tuple[str, ...]
    host_network: bool
    flavors: tuple[str, ...]


class NodeAgent(Component):
    """The node agents of every place, their identity and their rights."""

    def __init__(
        self,
        name: str,
        fleet: Fleet,
        *,
        namespace: pulumi.Resource,
        policies: Sequence[pulumi.Resource],
        opts: pulumi.ResourceOptions | None = None,
    ) -> None:
        super().__init__(name, opts)
        objects = manifests(fleet)
        pods = {role: objects.pop(role) for role in list(objects) if objects[role]["kind"] == "DaemonSet"}
        rights = self.kubernetes_all(objects, depends_on=[namespace, *policies])
        self.kubernetes_all(pods, depends_on=rights)
        self.register_outputs({})


def places(fleet: Fleet) -> list[Place]:
    """Every place with somebody to ask, by name."""
    if not fleet.eviction.node_agent:
        return []
    flavors: dict[str, list[str]] = {}
    for flavor in fleet.flavors.values():
        place = flavor.location if flavor.location in METADATA_PLACES else _BROKER
        flavors.setdefault(place, []).append(flavor.name)
    found = []
    for name, of_place in sorted(flavors.items()):
        if arguments := _arguments(fleet, name):
            found.append(Place(name, arguments, name != _BROKER, tuple(sorted(of_place))))
    return found


def identity(name: str, rules: list[dict[str, Any]]) -> dict[str, Manifest]:
    """The service account of pods that work on Nodes, and its rights in the cluster, by role."""
    rbac = "rbac.authorization.k8s.io"
    account = {"kind": "ServiceAccount", "name": name, "namespace": SYSTEM_NAMESPACE}
    return {
        "service-account": manifest(
            "v1", "ServiceAccount", name, namespace=SYSTEM_NAMESPACE, automountServiceAccountToken=True
        ),
        "cluster-role": manifest(f"{rbac}/v1", "ClusterRole", name, rules=rules),
        "cluster-role-binding": manifest(
            f"{rbac}/v1",
            "ClusterRoleBinding",
            name,
            roleRef={"apiGroup": rbac, "kind": "ClusterRole", "name": name},
            subjects=[account],
        ),
    }


def manifests(fleet: Fleet) -> dict[str, Manifest]:
    """Every object of the node agent by role, in the order of creation; none where there is nobody to ask."""
    if not (found := places(fleet)):
        return {}
    objects = identity(NODE_AGENT_NAME, CLUSTER_RULES)
    if any(place.name == "gcp" for place in found):
        objects["quota"] = _leave_for_critical_pods()
    return objects | {f"daemon-set-{place.name}": _daemon_set(fleet, place) for place in found}


def needs_host_network(fleet: Fleet) -> bool:
    """Whether some of its pods share their node's network, which Pod Security allows in privileged namespaces only."""
    return any(place.host_network for place in places(fleet))


CLUSTER_RULES: Final = [{"apiGroups": [""], "resources": ["nodes"], "verbs": ["get", "patch"]}]
"""What it may do, at all: read a node and patch one. Policies leave it its own node, and of that our fields."""


def _arguments(fleet: Fleet, place: str) -> tuple[str, ...]:
    """Whom it asks; nothing where there is nobody."""
    settings = fleet.eviction
    if place == _BROKER:
        return ("--provider", "none", "--notices-url", settings.notices_url) if settings.notices_url else ()
    if place == "gcp":
        return ("--provider", place, "--gcp-notice-seconds", f"{settings.gcp_notice.total_seconds():g}")
    return ("--provider", place)


def _leave_for_critical_pods() -> Manifest:
    """GKE takes pods of this priority only where a quota names it; the number is that of its own, and no limit."""
    scope = {"scopeName": "PriorityClass", "operator": "In", "values": [PRIORITY_CLASS]}
    spec = {"hard": {"pods": "1G"}, "scopeSelector": {"matchExpressions": [scope]}}
    return manifest("v1", "ResourceQuota", NODE_AGENT_NAME, namespace=SYSTEM_NAMESPACE, spec=spec)


def _daemon_set(fleet: Fleet, place: Place) -> Manifest:
    labels = {_NAME_LABEL: NODE_AGENT_NAME, _PLACE_LABEL: place.name}
    spec = {
        "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": _UNAVAILABLE}},
        "selector": {"matchLabels": labels},
        "template": {"metadata": {"labels": labels}, "spec": _pod_spec(fleet.agent.image, place)},
    }
    annotations = {"pulumi.com/skipAwait": "true"}
    name = f"{NODE_AGENT_NAME}-{place.name}"
    return manifest("apps/v1", "DaemonSet", name, namespace=SYSTEM_NAMESPACE, annotations=annotations, spec=spec)


def _pod_spec(image: str, place: Place) -> dict[str, Any]:
    return {
        "serviceAccountName": NODE_AGENT_NAME,
        "priorityClassName": PRIORITY_CLASS,
        "terminationGracePeriodSeconds": _SECONDS_TO_END,
        **({"hostNetwork": True} if place.host_network else {}),
        "affinity": {"nodeAffinity": nodes_of(place.flavors)},
        "tolerations": TOLERATIONS,
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": _NOBODY,
            "runAsGroup": _NOBODY,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "containers": [_container(image, place)],
    }


TOLERATIONS: Final[list[Mapping[str, str]]] = [
    # Of the cloud nodes, of a node with a notice, of GPUs, of spot on GKE and AKS, and whatever else the site has.
    {"operator": "Exists", "effect": "NoSchedule"},
    # Nodes that keep everything off that asks for no GPU. No other NoExecute: such a node is lost, or not there yet.
    {"key": GPU_RESOURCE, "operator": "Exists", "effect": "NoExecute"},
]
"""It runs beside every pod that a notice may be about."""


def nodes_of(flavors: Sequence[str]) -> dict[str, Any]:
    """The nodes of these flavors; not those that a broker only pretends, where a pod is a machine that is paid for."""
    ours = {"key": FLAVOR_LABEL, "operator": "In", "values": list(flavors)}
    real = {"key": "type", "operator": "NotIn", "values": ["virtual-kubelet"]}
    terms = [{"matchExpressions": [ours, real]}]
    return {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}


def _container(image: str, place: Place) -> dict[str, Any]:
    # The kubelet asks for the health of pods on its own network over loopback, which has one address everywhere.
    asked = {"host": "127.0.0.1"} if place.host_network else {}
    return {
        "name": "node",
        "image": image,
        "command": ["python", "-m", "runtime.node"],
        "args": [*place.arguments, "--port", str(PORT)],
        "env": [{"name": "NODE_NAME", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}}],
        "ports": [{"name": "health", "containerPort": PORT}],
        "livenessProbe": {
            "httpGet": {**asked, "path": "/healthz", "port": "health"},
            "periodSeconds": 20,
            "failureThreshold": 3,
        },
        "resources": _RESOURCES,
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "privileged": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
    }
