"""NVIDIADriver resources: which driver the nodes of each on-prem pool have, and how they change it.

One for each pool, named after it, so that a pin or a canary changes one pool's and no other. Pools whose nodes come
with a driver have none.
"""

from __future__ import annotations

from typing import Any, Final

from components.kubernetes.gpu.operator import TOLERATIONS
from components.names import Manifest, manifest
from stacks.drivers import Driver, drivers
from stacks.fleet import Fleet
from stacks.gpuversions import is_branch
from stacks.labels import POOL_LABEL
from stacks.layouts import operator_is_ours

_REPOSITORY: Final = "nvcr.io/nvidia"
_IMAGE: Final = "driver"

_OF_QUEUES: Final = "kueue.x-k8s.io/podset"
"""Label that Kueue gives to pods of jobs that it admitted."""


def manifests(fleet: Fleet, *, canary: bool) -> dict[str, Manifest]:
    """The driver of the pool that has an upgrade first, or those of the others."""
    if not operator_is_ours(fleet):
        return {}
    upgrade = fleet.gpu_layer.driver.upgrade
    first = upgrade.canary if upgrade is not None else None
    return {
        f"driver-{name}": _driver(fleet, name, driver)
        for name, driver in drivers(fleet).items()
        if (name == first) is canary
    }


def _driver(fleet: Fleet, pool: str, driver: Driver) -> Manifest:
    spec: dict[str, Any] = {
        "driverType": "gpu",
        "default": False,
        "repository": _REPOSITORY,
        "image": _IMAGE,
        "version": driver.version,
        "usePrecompiled": is_branch(driver.version),
        "kernelModuleType": driver.kernel_module,
        "nodeSelector": {POOL_LABEL: pool},
        "tolerations": TOLERATIONS,
        "upgradePolicy": _upgrade_policy(fleet),
    }
    if fleet.onprem_pools[pool].rdma is not None:
        # Drivers of the network cards are the host's; those of an operator would replace them under running jobs.
        spec["rdma"] = {"enabled": True, "useHostMofed": True}
    return manifest("nvidia.com/v1alpha1", "NVIDIADriver", f"gpufleet-{pool}", spec=spec)


def _upgrade_policy(fleet: Fleet) -> dict[str, Any]:
    settings = fleet.gpu_layer.driver
    if not settings.automatic:
        return {"autoUpgrade": False}
    return {
        "autoUpgrade": True,
        "maxParallelUpgrades": settings.most_nodes,
        "maxUnavailable": settings.most_nodes,
        "waitForCompletion": {"podSelector": _OF_QUEUES, "timeoutSeconds": 0},
        "podDeletion": {"force": False, "deleteEmptyDir": False},
        "drain": {"enable": False},
    }
