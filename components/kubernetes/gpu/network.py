"""NVIDIA's Network Operator: cards with InfiniBand or RoCE as devices of pods, and networks on them.

Its drivers of the cards are left to the host, as are its telemetry and firmware. The schema of NicClusterPolicy and
IPPool is taken from its documentation, and no CRD was at hand to check it.
"""

from __future__ import annotations

import json
from typing import Any, Final

from components.kubernetes.gpu.operator import TOLERATIONS, release
from components.names import Manifest, manifest
from stacks.fleet import Fleet
from stacks.gpulayer import NetworkOperator
from stacks.labels import POOL_LABEL, SYSTEM_NAMESPACE
from stacks.layouts import operator_part
from stacks.pools.gpu_nodes import ADDRESSES_PER_NODE, Rdma

CHART: Final = "network-operator"
_REPOSITORY: Final = "nvcr.io/nvidia/mellanox"
_MELLANOX: Final = "15b3"  # PCI vendor
_LINKS: Final = {"infiniband": "infiniband", "roce": "ether"}
_PRIVILEGED: Final = {"pod-security.kubernetes.io/enforce": "privileged"}
_POLICY_NAME: Final = "nic-cluster-policy"  # the only one that the operator carries out
_CNI_VERSION: Final = "0.3.1"


def releases(fleet: Fleet) -> dict[str, dict[str, Any]]:
    """The release of the Network Operator, where the file asks for it."""
    settings = fleet.gpu_layer.network_operator
    if settings is None:
        return {}
    # The GPU Operator brings node feature discovery along, whoever installed it; a second one fights the first.
    alone = operator_part(fleet, next(iter(fleet.pools))) == "skip"
    values = {"nfd": {"enabled": alone}, "operator": {"tolerations": TOLERATIONS}}
    return {"network-operator": release(CHART, settings.version, settings.namespace, values)}


def namespaces(fleet: Fleet) -> dict[str, Manifest]:
    """Its namespace."""
    settings = fleet.gpu_layer.network_operator
    if settings is None:
        return {}
    return {"network-namespace": manifest("v1", "Namespace", settings.namespace, labels=_PRIVILEGED)}


def manifests(fleet: Fleet) -> dict[str, Manifest]:
    """Its policy, and for each pool with addresses a network."""
    settings = fleet.gpu_layer.network_operator
    pools = {name: pool.rdma for name, pool in fleet.onprem_pools.items() if pool.rdma is not None}
    if settings is None or not pools:
        return {}
    networks = {name: rdma for name, rdma in pools.items() if rdma.addresses is not None}
    objects = {"nic-policy": _policy(settings, list(pools.values()), with_networks=bool(networks))}
    for name, rdma in networks.items():
        objects[f"addresses-{name}"] = _addresses(settings, name, rdma)
        objects[f"network-{name}"] = _network(name, rdma)
    return objects


def _policy(settings: NetworkOperator, cards: list[Rdma], *, with_networks: bool) -> Manifest:
    spec: dict[str, Any] = {
        "tolerations": TOLERATIONS,
        "rdmaSharedDevicePlugin": {
            **_image(settings, "k8s-rdma-shared-dev-plugin"),
            "config": json.dumps({"configList": _devices(settings, cards)}, indent=2),
        },
    }
    if with_networks:
        spec["nvIpam"] = {**_image(settings, "nvidia-k8s-ipam"), "enableWebhook": False}
        spec["secondaryNetwork"] = {
            "cniPlugins": _image(settings, "plugins"),
            "multus": _image(settings, "multus-cni"),
            "ipoib": _image(settings, "ipoib-cni"),
        }
    return manifest("mellanox.com/v1alpha1", "NicClusterPolicy", _POLICY_NAME, spec=spec)


def _devices(settings: NetworkOperator, cards: list[Rdma]) -> list[dict[str, Any]]:
    """One resource for each fabric: `rdma/infiniband`, `rdma/roce`; by interface where all its pools name theirs."""
    devices = []
    for fabric in sorted({card.fabric for card in cards}):
        names = [card.interface for card in cards if card.fabric == fabric]
        selectors: dict[str, Any] = {"vendors": [_MELLANOX], "linkTypes": [_LINKS[fabric]]}
        if all(names):
            selectors = {"ifNames": sorted({name for name in names if name})}
        devices.append({"resourceName": fabric, "rdmaHcaMax": settings.pods_per_card, "selectors": selectors})
    return devices


def _addresses(settings: NetworkOperator, name: str, rdma: Rdma) -> Manifest:
    expression = {"key": POOL_LABEL, "operator": "In", "values": [name]}
    spec = {
        "subnet": str(rdma.addresses),
        "perNodeBlockSize": ADDRESSES_PER_NODE,
        "nodeSelector": {"nodeSelectorTerms": [{"matchExpressions": [expression]}]},
    }
    return manifest(
        "nv-ipam.nvidia.com/v1alpha1", "IPPool", f"gpufleet-{name}", namespace=settings.namespace, spec=spec
    )


def _network(name: str, rdma: Rdma) -> Manifest:
    """An interface of the pod's own beside the card: IP over InfiniBand, or macvlan over Ethernet."""
    kind: dict[str, Any] = {"type": "ipoib"} if rdma.fabric == "infiniband" else {"type": "macvlan", "mode": "bridge"}
    config = {
        "cniVersion": _CNI_VERSION,
        "name": name,
        **kind,
        "master": rdma.interface,
        "ipam": {"type": "nv-ipam", "poolName": f"gpufleet-{name}"},
    }
    annotations = {"k8s.v1.cni.cncf.io/resourceName": f"rdma/{rdma.fabric}"}
    return manifest(
        "k8s.cni.cncf.io/v1",
        "NetworkAttachmentDefinition",
        name,
        namespace=SYSTEM_NAMESPACE,
        annotations=annotations,
        spec={"config": json.dumps(config)},
    )


def _image(settings: NetworkOperator, image: str) -> dict[str, str]:
    return {"image": image, "repository": _REPOSITORY, "version": f"network-operator-v{settings.version}"}
