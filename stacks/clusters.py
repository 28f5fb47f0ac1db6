"""Which Kubernetes clusters the fleet uses, how Pulumi reaches or makes them, and who installs the software in them."""

from __future__ import annotations

from typing import Annotated, Final, Literal, Self

from pydantic import AfterValidator, Field, model_validator

from stacks.model import Model
from stacks.quantities import Ipv4Cidr

Part = Literal["managed", "existing", "skip"]
"""Who is responsible for one part of the software: `managed` = gpufleet installs and upgrades it; `existing` = it is
there and gpufleet uses it; `skip` = it is not there, and nothing that needs it may be asked for."""

OLDEST_KUBERNETES: Final = 34
"""The oldest minor version of Kubernetes 1 that Kueue 0.19 supports."""


def _is_supported(version: str) -> str:
    if int(version.partition(".")[2]) < OLDEST_KUBERNETES:
        raise ValueError(f"Kueue needs Kubernetes 1.{OLDEST_KUBERNETES} or newer")
    return version


KubernetesVersion = Annotated[str, Field(pattern=r"^1\.[0-9]{2}$", examples=["1.35"]), AfterValidator(_is_supported)]
"""A Kubernetes minor version, 1.34 or newer. Quote it: YAML reads a bare 1.40 as the number 1.4."""

AwsRegion = Annotated[str, Field(pattern=r"^[a-z]{2}(-[a-z]+)+-[0-9]$", examples=["us-east-1"])]
"""A region of AWS."""

GcpRegion = Annotated[str, Field(pattern=r"^[a-z]+-[a-z]+[0-9]{1,2}$", examples=["us-central1"])]
"""A region of Google Cloud."""


class KubeconfigSecret(Model):
    """A kubeconfig kept as a Pulumi secret beside the fleet object."""

    secret: Annotated[str, Field(min_length=1)]
    """Name of the sibling secret, set by `pulumi config set --secret gpufleet:NAME`."""


class KubeconfigContext(Model):
    """A context of the ambient kubeconfig, for people who already use kubectl."""

    context: Annotated[str, Field(min_length=1)]
    """Name of the context."""


class Software(Model):
    """Who installs each part of the software. Every part is `managed`, `existing` or `skip`."""

    kueue: Literal["managed", "existing"]
    """The queueing system; every job goes through it, so it cannot be skipped."""

    gpu_operator: Part
    """NVIDIA's GPU Operator: drivers, device plugin, MIG manager, metrics. GKE and images with a driver do without."""

    karpenter: Part = "skip"
    """The node autoscaler that pools with `provisioner: karpenter` need. AWS only."""

    keda: Part = "skip"
    """The autoscaler of deployments that the section `scaling` needs."""

    prometheus: Part = "skip"
    """The Prometheus Operator, which turns `targets` into alerts."""


class ExistingCluster(Model):
    """A cluster that somebody else created; gpufleet adds its objects to it and never deletes it."""

    kind: Literal["existing"]
    """`existing`: the cluster is there already, with Kueue installed."""

    kubeconfig: KubeconfigSecret | KubeconfigContext | None = None
    """Where the credentials are. Default: the ambient kubeconfig (`KUBECONFIG`), as kubectl would use it."""

    software: Software = Software(kueue="existing", gpu_operator="existing")
    """Who installs what. Default: Kueue and the GPU Operator are there, nothing else is used."""


class EksNetwork(Model):
    """The network of an EKS cluster."""

    vpc: Ipv4Cidr
    """Address range of the VPC, e.g. `10.0.0.0/16`. Cannot be changed without a new cluster."""

    services: Ipv4Cidr = Field(default="172.20.0.0/16", validate_default=True)
    """Address range of Kubernetes Services. May overlap nothing that pods must reach."""

    availability_zones: Annotated[int, Field(strict=True, ge=2, le=6)] = 3
    """In how many zones to make subnets. GPU capacity differs by zone: more zones find more of it."""


class HybridNodes(Model):
    """EKS Hybrid Nodes: machines of one's own that join the cluster over a link."""

    nodes: Ipv4Cidr
    """Address range of the machines, RFC 1918, apart from the VPC and the Services."""

    pods: Ipv4Cidr
    """Address range of the pods on them, RFC 1918, apart from all others."""


class EksCluster(Model):
    """A cluster on Amazon EKS, created and owned by gpufleet; protected against accidental deletion."""

    kind: Literal["eks"]
    """`eks`."""

    region: AwsRegion
    """AWS region, e.g. `us-east-1`. Cannot be changed without a new cluster."""

    version: KubernetesVersion
    """Kubernetes version. Upgrades go one minor version at a time."""

    network: EksNetwork
    """The VPC and its parts."""

    hybrid: HybridNodes | None = None
    """Set it when on-prem pools join this cluster. They need a link to it."""

    software: Software = Software(kueue="managed", gpu_operator="managed", karpenter="managed")
    """Who installs what. Default: gpufleet installs Kueue, the GPU Operator and Karpenter."""


class GkeNetwork(Model):
    """The network of a GKE cluster: the ranges of its subnet."""

    nodes: Ipv4Cidr
    """Address range of the nodes."""

    pods: Ipv4Cidr
    """Address range of the pods."""

    services: Ipv4Cidr
    """Address range of Kubernetes Services."""


class GkeCluster(Model):
    """A Standard cluster on Google Kubernetes Engine, created and owned by gpufleet; protected against deletion."""

    kind: Literal["gke"]
    """`gke`."""

    project: Annotated[str, Field(pattern=r"^[a-z][a-z0-9-]{4,28}[a-z0-9]$", examples=["acme-ml"])]
    """Id of the Google Cloud project."""

    region: GcpRegion
    """Region, e.g. `us-central1`. Cannot be changed without a new cluster."""

    version: KubernetesVersion
    """Kubernetes version."""

    network: GkeNetwork
    """The subnet's ranges."""

    software: Software = Software(kueue="managed", gpu_operator="skip")
    """Who installs what. Default: gpufleet installs Kueue; GKE itself installs drivers and the device plugin."""

    @model_validator(mode="after")
    def _no_karpenter(self) -> Self:
        if self.software.karpenter != "skip":
            raise ValueError("software.karpenter: Karpenter has no provider for GKE that supports GPUs; set it to skip")
        return self


Cluster = Annotated[ExistingCluster | EksCluster | GkeCluster, Field(discriminator="kind")]
"""One cluster, told apart by `kind`."""
