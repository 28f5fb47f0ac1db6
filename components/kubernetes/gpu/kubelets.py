"""Kubelet settings that place pods near GPUs, as files for machines of one's own.

A kubelet reads files, and nothing in the cluster may write them: the ConfigMap holds a file that whoever sets up the
machines puts into the kubelet's folder of drop-ins. `configuration` is also what images of clouds take at boot.
"""

from __future__ import annotations

from typing import Any, Final

import yaml

from components.names import Manifest, manifest
from stacks.fleet import Fleet
from stacks.labels import POOL_LABEL, SYSTEM_NAMESPACE
from stacks.pools.gpu_nodes import Kubelet

FILE: Final = "90-gpufleet.conf"
"""Kubelets read files with this ending from `--config-dir`, in the order of their names."""


def manifests(fleet: Fleet) -> dict[str, Manifest]:
    """A ConfigMap for each on-prem pool with settings of its own."""
    return {
        f"kubelet-{name}": manifest(
            "v1",
            "ConfigMap",
            f"gpufleet-kubelet-{name}",
            namespace=SYSTEM_NAMESPACE,
            labels={POOL_LABEL: name},
            data={FILE: yaml.safe_dump(configuration(pool.kubelet), sort_keys=False)},
        )
        for name, pool in fleet.onprem_pools.items()
        if pool.kubelet is not None
    }


def configuration(kubelet: Kubelet) -> dict[str, Any]:
    """The part of a KubeletConfiguration that the pool asks for."""
    settings: dict[str, Any] = {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "cpuManagerPolicy": kubelet.cpu_manager,
        "topologyManagerPolicy": kubelet.topology_manager,
        "topologyManagerScope": kubelet.topology_scope,
    }
    if kubelet.reserved_cpus is not None:
        settings["reservedSystemCPUs"] = kubelet.reserved_cpus
    return settings
