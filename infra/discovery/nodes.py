"""What one Node says of its GPUs, its place and how it was bought; pure, and for any Node an API server may hold."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from infra.discovery.gpus import GKE_GPU, INSTANCE_TYPE, KARPENTER_GPU, MARKETS, PRODUCT, place_of_flavor, recognise
from infra.discovery.objects import Raw, at, count_label, labels_of, name_of, text_at, whole
from stacks.catalogue import catalogue
from stacks.labels import FLAVOR_LABEL, GPU_RESOURCE, LOCATION_LABEL, POOL_LABEL
from stacks.quantities import parse_mig_profile_name

NODE_POOL: Final = "karpenter.sh/nodepool"
NODE_GROUP: Final = "eks.amazonaws.com/nodegroup"
GKE_POOL: Final = "cloud.google.com/gke-nodepool"
REGION: Final = "topology.kubernetes.io/region"

_CLOUDS: Final = {"aws": "aws", "gce": "gcp"}  # provider id scheme → our name
_RENTED: Final = frozenset(
    {"azure", "oci", "ocid1", "ibm", "alicloud", "digitalocean", "linode", "vultr", "scaleway", "nebius", "coreweave"}
)
"""Schemes of provider ids of other clouds; their nodes are rented, but no pool kind of ours."""
_MIG_RESOURCE: Final = "nvidia.com/mig-"
_SINGLE_MIG: Final = re.compile(r".*-MIG-([0-9]g\.[0-9]+gb[a-z.+-]*?)(-SHARED)?")
_SHARED: Final = ".shared"


@dataclass(frozen=True, slots=True)
class NodeFacts:
    """One node with GPUs."""

    name: str
    gpu: str | None
    """Catalogue id; None where no label names a model of the catalogue."""
    gpu_source: str
    gpus: int | None
    """Physical GPUs; None where only its slices are known."""
    slices: tuple[tuple[str, int], ...]
    """MIG profiles and their number."""
    single: bool
    """Whether its slices are offered as whole GPUs."""
    sharing: str
    """`time_slicing`, `mps`, or empty."""
    replicas: int
    cpus: int
    memory: int
    location: str
    """`onprem`, `aws`, `gcp`, or the name of another cloud."""
    market: str
    market_source: str
    instance_type: str
    region: str
    pool: str
    """What its autoscaler, or gpufleet, calls the group it is in; empty where nothing says."""
    pool_source: str
    ours: bool
    """Whether gpufleet labelled it."""


def facts_of(node: Raw) -> NodeFacts | None:
    """What the node says; None for a node without NVIDIA GPUs."""
    labels, offered = labels_of(node), _offered(node)
    whole_gpus = offered.get(GPU_RESOURCE, 0) or offered.get(GPU_RESOURCE + _SHARED, 0)
    slices = _slices(offered)
    if not whole_gpus and not slices:
        return None
    model = recognise(labels)
    replicas, sharing = _sharing(labels)
    physical = count_label(labels, "nvidia.com/gpu.count")
    single = _SINGLE_MIG.fullmatch(labels.get(PRODUCT, ""))
    gpus: int | None = physical or whole_gpus // replicas
    if single and not slices:
        slices = _single(single[1], whole_gpus // replicas)
        gpus = None
    elif slices:
        slices = {profile: count // replicas for profile, count in slices.items()}
        gpus = physical or None
    market, market_source = _market(labels)
    pool, pool_source = _pool(labels)
    return NodeFacts(
        name=name_of(node),
        gpu=model.model,
        gpu_source=model.why,
        gpus=gpus,
        slices=tuple(sorted(slices.items())),
        single=bool(single) and bool(slices),
        sharing=sharing,
        replicas=replicas,
        cpus=offered.get("cpu", 0),
        memory=offered.get("memory", 0),
        location=_location(node, labels),
        market=market,
        market_source=market_source,
        instance_type=labels.get(INSTANCE_TYPE, ""),
        region=labels.get(REGION, ""),
        pool=pool,
        pool_source=pool_source,
        ours=FLAVOR_LABEL in labels,
    )


def lacks_gpus(node: Raw) -> bool:
    """Whether labels promise GPUs that the node does not offer: a driver or a device plugin is missing."""
    labels = labels_of(node)
    known = catalogue().instance_types
    promised = any(key in labels for key in (PRODUCT, KARPENTER_GPU, GKE_GPU)) or labels.get(INSTANCE_TYPE) in known
    return promised and facts_of(node) is None


def _offered(node: Raw) -> dict[str, int]:
    """The resources that count here, of what pods can have."""
    allocatable: Any = at(node, "status", "allocatable")
    if not isinstance(allocatable, Mapping):
        return {}
    wanted = ((key, value) for key, value in allocatable.items() if key in {"cpu", "memory"} or _is_nvidia(key))
    return {key: whole(value) for key, value in wanted}


def _is_nvidia(key: object) -> bool:
    return isinstance(key, str) and key.startswith("nvidia.com/")


def _slices(offered: Mapping[str, int]) -> dict[str, int]:
    found: dict[str, int] = {}
    for resource, count in offered.items():
        if resource.startswith(_MIG_RESOURCE) and count:
            found |= _single(resource.removeprefix(_MIG_RESOURCE).removesuffix(_SHARED), count)
    return found


def _single(profile: str, count: int) -> dict[str, int]:
    try:
        return {parse_mig_profile_name(profile): count}
    except ValueError:
        return {}


def _sharing(labels: Mapping[str, str]) -> tuple[int, str]:
    """How many pods each GPU is offered to, and by which means. The label counts replicas of each device."""
    replicas = count_label(labels, "nvidia.com/gpu.replicas")
    if replicas <= 1:
        return 1, ""
    return replicas, "mps" if labels.get("nvidia.com/gpu.sharing-strategy") == "mps" else "time_slicing"


def _location(node: Raw, labels: Mapping[str, str]) -> str:
    if labels.get(LOCATION_LABEL) in {"onprem", "aws", "gcp"}:
        return labels[LOCATION_LABEL]
    if labels.get(LOCATION_LABEL) == "broker" and labels.get(FLAVOR_LABEL):
        return place_of_flavor(labels[FLAVOR_LABEL])[0]
    scheme = text_at(node, "spec", "providerID").partition("://")[0].lower()
    if scheme in _CLOUDS:
        return _CLOUDS[scheme]
    if scheme in _RENTED:
        return scheme
    if labels.get("eks.amazonaws.com/compute-type") == "hybrid":
        return "onprem"
    if KARPENTER_GPU in labels or NODE_GROUP in labels:
        return "aws"
    if GKE_POOL in labels or GKE_GPU in labels:
        return "gcp"
    known = catalogue().instance_types.get(labels.get(INSTANCE_TYPE, ""))
    return known.provider if known else "onprem"


def _market(labels: Mapping[str, str]) -> tuple[str, str]:
    for key in ("karpenter.sh/capacity-type", "eks.amazonaws.com/capacityType"):
        value = labels.get(key, "").lower().replace("_", "-")
        if value in MARKETS:
            return value, f"label {key}"
    for key, market in (("gke-spot", "spot"), ("gke-preemptible", "spot"), ("gke-flex-start", "flex-start")):
        if labels.get(f"cloud.google.com/{key}") == "true":
            return market, f"label cloud.google.com/{key}"
    if labels.get("kubernetes.azure.com/scalesetpriority") == "spot":
        return "spot", "label kubernetes.azure.com/scalesetpriority"
    if market := place_of_flavor(labels.get(FLAVOR_LABEL, ""))[1]:
        return market, f"label {FLAVOR_LABEL}"
    return "on-demand", "REVIEW: no label says how the nodes were bought"


def _pool(labels: Mapping[str, str]) -> tuple[str, str]:
    sources = ((POOL_LABEL, "pool"), (NODE_POOL, "Karpenter NodePool"), (NODE_GROUP, "EKS node group"))
    for key, what in (*sources, (GKE_POOL, "GKE node pool")):
        if labels.get(key):
            return labels[key], what
    return "", ""
