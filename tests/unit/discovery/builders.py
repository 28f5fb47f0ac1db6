"""Cluster objects as API servers send them, with the labels that GPU Feature Discovery and the clouds set."""

from __future__ import annotations

from typing import Any

H100 = {
    "nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3",
    "nvidia.com/gpu.count": "8",
    "nvidia.com/gpu.memory": "81559",
    "nvidia.com/gpu.replicas": "1",
    "nvidia.com/gpu.sharing-strategy": "none",
    "nvidia.com/mig.config": "all-disabled",
    "nvidia.com/mig.config.state": "success",
}
A100_MIXED = {
    "nvidia.com/gpu.product": "NVIDIA-A100-SXM4-40GB",
    "nvidia.com/gpu.count": "8",
    "nvidia.com/gpu.memory": "40960",
    "nvidia.com/mig.strategy": "mixed",
    "nvidia.com/mig.config": "all-balanced",
}
KARPENTER_SPOT = {
    "karpenter.sh/nodepool": "gpu-spot",
    "karpenter.sh/capacity-type": "spot",
    "karpenter.k8s.aws/instance-gpu-name": "h100",
    "karpenter.k8s.aws/instance-gpu-memory": "81920",
    "node.kubernetes.io/instance-type": "p5.48xlarge",
    "topology.kubernetes.io/region": "us-east-1",
}
GKE_SPOT = {
    "cloud.google.com/gke-accelerator": "nvidia-h100-80gb",
    "cloud.google.com/gke-nodepool": "h100-pool",
    "cloud.google.com/gke-spot": "true",
    "node.kubernetes.io/instance-type": "a3-highgpu-8g",
    "topology.kubernetes.io/region": "us-central1",
}


def node(
    name: str,
    labels: dict[str, Any] | None = None,
    *,
    gpus: int | str = 8,
    cpus: str = "190",
    memory: str = "2097152000Ki",
    provider: str = "",
    **resources: str,
) -> dict[str, Any]:
    """One Node; `resources` are named as `mig_1g_5gb`."""
    offered = {"cpu": cpus, "memory": memory, "pods": "110"}
    offered |= {"nvidia.com/gpu": str(gpus)} if gpus else {}
    offered |= {f"nvidia.com/{key.replace('_', '-', 1).replace('_', '.')}": value for key, value in resources.items()}
    spec = {"providerID": provider} if provider else {}
    return {"metadata": {"name": name, "labels": labels or {}}, "spec": spec, "status": {"allocatable": offered}}


def raw(name: str, *, namespace: str = "", labels: dict[str, str] | None = None, **body: Any) -> dict[str, Any]:
    """Any other object."""
    metadata: dict[str, Any] = {"name": name, "labels": labels or {}}
    return {"metadata": metadata | ({"namespace": namespace} if namespace else {}), **body}


def queue(name: str, flavor: str, gpus: int | str, *, cohort: str = "", **limits: Any) -> dict[str, Any]:
    """A ClusterQueue with one flavor of GPUs."""
    resources = [{"name": "cpu", "nominalQuota": "10"}, {"name": "nvidia.com/gpu", "nominalQuota": gpus, **limits}]
    group = {"coveredResources": ["cpu", "nvidia.com/gpu"], "flavors": [{"name": flavor, "resources": resources}]}
    return raw(name, spec={"cohortName": cohort, "resourceGroups": [group]})
