"""Kueue's manager as a plain process beside the API server, with its webhooks.

It does not edit Kueue's manifests by hand: CRDs and webhook rules are those of the module that the binary was built
from, with services replaced by loopback URLs.

Invariants: the certificate rotator stays on with a prepared secret, because without it the manager insists on
certificates in a root-owned directory. Conversion is set on exactly the CRDs which the rotator edits: one more makes
it fail forever, one less stops it.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from infra.local.kubeclient import KubeClient, Manifest
from infra.local.pki import Pki
from stacks.kinds import JOB_KINDS

NAMESPACE = "kueue-system"
# Every kind that can burst. Kueue answers the webhooks of all of them from the start, and begins to manage a kind when
# its CRD appears (it looks after 1, 2, 4 … 120 s: pkg/controller/jobframework/setup.go, WaitForAPI). We install none.
FRAMEWORKS = tuple(kind.framework for kind in JOB_KINDS)
_OWN_GROUP = "kueue.x-k8s.io"
_JOB_RESOURCES = frozenset((kind.group, kind.plural) for kind in JOB_KINDS)
_CONVERTED = frozenset({"workloads", "clusterqueues", "localqueues", "cohorts", "multikueueclusters"})

# An admitted job whose pods are not all ready after this time goes back to its queue.
_PODS_READY_TIMEOUT = "30m"
_PODS_READY_REQUEUE = {"timestamp": "Eviction", "backoffBaseSeconds": 60, "backoffMaxSeconds": 3600}

# Kueue's default of 300 requests per second caps admissions near 45 per second; these do not limit.
_REQUESTS_PER_SECOND = 2000
_CONCURRENCY = {"Job.batch": 10, "Workload.kueue.x-k8s.io": 10}

# Kueue's own default order of strategies.
_FAIR_PREEMPTION = ("LessThanOrEqualToFinalShare", "LessThanInitialShare")

# The visibility server writes to the root directory and MultiKueue needs a second cluster.
_GATES_OFF = ("VisibilityOnDemand", "MultiKueue")

# Topology-aware scheduling can only be switched off together with all gates that depend on it.
_TOPOLOGY_GATES = (
    "TopologyAwareScheduling",
    "TASProfileMixed",
    "TASFailedNodeReplacement",
    "TASFailedNodeReplacementFailFast",
    "TASReplaceNodeOnPodTermination",
    "TASReplaceNodeOnNodeTaints",
    "TASHandleOverlappingFlavors",
    "TASMultiLayerTopology",
    "TASRecomputeAssignmentWithinSchedulingCycle",
)


@dataclass(frozen=True)
class KueueOptions:
    """What is off unless asked for, because it costs every plane and few need it.

    `topology` switches topology-aware scheduling on, `fair_sharing` lets teams' weights order borrowing and preemption.
    """

    topology: bool = False
    fair_sharing: bool = False


DEFAULT_OPTIONS = KueueOptions()


def configuration(ports: Mapping[str, int], pki: Pki, options: KueueOptions = DEFAULT_OPTIONS) -> Manifest:
    """Return the manager's configuration; `ports` has kueue-health, kueue-metrics and kueue-webhook."""
    gates_off = (*_GATES_OFF, *(() if options.topology else _TOPOLOGY_GATES))
    fair = {"preemptionStrategies": list(_FAIR_PREEMPTION)}
    return {
        "apiVersion": "config.kueue.x-k8s.io/v1beta2",
        "kind": "Configuration",
        "health": {"healthProbeBindAddress": f"127.0.0.1:{ports['kueue-health']}"},
        "metrics": {"bindAddress": f"127.0.0.1:{ports['kueue-metrics']}", "enableClusterQueueResources": True},
        "webhook": {"host": "127.0.0.1", "port": ports["kueue-webhook"], "certDir": str(pki.webhook_directory)},
        "leaderElection": {"leaderElect": False},
        "internalCertManagement": {"enable": True},
        "controller": {"groupKindConcurrency": dict(_CONCURRENCY)},
        "clientConnection": {"qps": _REQUESTS_PER_SECOND, "burst": 2 * _REQUESTS_PER_SECOND},
        "waitForPodsReady": {
            "timeout": _PODS_READY_TIMEOUT,
            "recoveryTimeout": _PODS_READY_TIMEOUT,
            "blockAdmission": False,
            "requeuingStrategy": dict(_PODS_READY_REQUEUE),
        },
        "integrations": {"frameworks": list(FRAMEWORKS)},
        **({"fairSharing": fair} if options.fair_sharing else {}),
        "featureGates": dict.fromkeys(gates_off, False),
    }


def install(client: KubeClient, manifests: Path, pki: Pki, webhook_port: int) -> None:
    """Apply everything the manager needs before it starts; `manifests` holds crd/*.yaml and webhooks.yaml."""
    client.ensure({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}})
    client.ensure(_certificate_secret(pki))
    url = f"https://127.0.0.1:{webhook_port}"
    bundle = base64.b64encode(pki.authority.read_bytes()).decode()
    for manifest in _crds(manifests / "crd", url, bundle):
        client.ensure(manifest)
    for manifest in _webhooks(manifests / "webhooks.yaml", url, bundle):
        client.ensure(manifest)


def crds_established(client: KubeClient) -> bool:
    """Whether the API server serves every CRD that was applied."""
    crds, _ = client.list("apiextensions.k8s.io/v1", "CustomResourceDefinition")
    return bool(crds) and all(
        any(
            condition["type"] == "Established" and condition["status"] == "True"
            for condition in crd.get("status", {}).get("conditions") or []
        )
        for crd in crds
    )


def webhooks_answer(client: KubeClient) -> bool:
    """Whether an object passes Kueue's webhooks; raises KubeError while they cannot be reached."""
    client.create(
        {
            "apiVersion": "kueue.x-k8s.io/v1beta2",
            "kind": "ResourceFlavor",
            "metadata": {"generateName": "start-check-"},
        },
        dry_run=True,
    )
    return True


def _certificate_secret(pki: Pki) -> Manifest:
    files = {
        "ca.crt": pki.authority,
        "ca.key": pki.key("ca"),
        "tls.crt": pki.webhook_directory / "tls.crt",
        "tls.key": pki.webhook_directory / "tls.key",
    }
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": "kueue-webhook-server-cert", "namespace": NAMESPACE},
        "data": {name: base64.b64encode(path.read_bytes()).decode() for name, path in files.items()},
    }


def _crds(directory: Path, url: str, bundle: str) -> Iterator[Manifest]:
    for path in sorted(directory.glob("*.yaml")):
        crd: dict[str, Any] = yaml.load(path.read_text(), Loader=_Loader)
        if crd["spec"]["names"]["plural"] in _CONVERTED:
            webhook = {
                "conversionReviewVersions": ["v1"],
                "clientConfig": {"url": f"{url}/convert", "caBundle": bundle},
            }
            crd["spec"]["conversion"] = {"strategy": "Webhook", "webhook": webhook}
        for version in crd["spec"]["versions"]:
            # Each served version costs a watch cache of its own, and a conversion per event.
            version["served"] = version["storage"]
        yield crd


def _webhooks(path: Path, url: str, bundle: str) -> Iterator[Manifest]:
    for configuration_object in yaml.load_all(path.read_text(), Loader=_Loader):
        kept = []
        for webhook in configuration_object["webhooks"]:
            if all(_is_ours(rule) for rule in webhook["rules"]):
                service_path = webhook["clientConfig"]["service"]["path"]
                webhook["clientConfig"] = {"url": url + service_path, "caBundle": bundle}
                kept.append(webhook)
        configuration_object["webhooks"] = kept
        configuration_object["metadata"]["name"] = f"kueue-{configuration_object['metadata']['name']}"
        yield configuration_object


def _is_ours(rule: Mapping[str, Any]) -> bool:
    """Whether a webhook's rule is about Kueue's own objects, or about a kind that is managed here."""
    asked = {(group, resource.split("/")[0]) for group in rule["apiGroups"] for resource in rule["resources"]}
    return all(group == _OWN_GROUP or (group, resource) in _JOB_RESOURCES for group, resource in asked)


# The C parser where PyYAML has it: the CRDs are a megabyte of YAML, two seconds for the Python one.
_Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
