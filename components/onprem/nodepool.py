"""On-prem pools: labels the nodes that the file names, so that their flavor finds them, and they their MIG layout.

It does not join nodes to the cluster or install drivers. Pools whose nodes are not named are left alone: their kubelets
must set the labels (`gpufleet plan` prints them).
"""

from __future__ import annotations

from collections.abc import Sequence

import pulumi

from components.base import Component
from components.names import Manifest
from stacks import layouts
from stacks.catalogue import catalogue
from stacks.flavors import flavor_name
from stacks.fleet import Fleet
from stacks.labels import FLAVOR_LABEL, GPU_LABEL, LOCATION_LABEL, POOL_LABEL


class OnPremNodePool(Component):
    """The nodes of one on-prem pool, each labelled by a patch that is withdrawn when the pool goes."""

    def __init__(
        self,
        name: str,
        pool_name: str,
        fleet: Fleet,
        *,
        after: Sequence[pulumi.Resource] = (),
        opts: pulumi.ResourceOptions | None = None,
    ) -> None:
        super().__init__(name, opts)
        self.nodes = self.kubernetes_all(manifests(pool_name, fleet), patch=True, depends_on=list(after))
        self.register_outputs({})


def node_labels(pool_name: str, fleet: Fleet) -> dict[str, str]:
    """The labels that every node of the pool must carry."""
    pool = fleet.onprem_pools[pool_name]
    return {
        FLAVOR_LABEL: flavor_name(pool),
        GPU_LABEL: catalogue().gpus[pool.gpu].name,
        POOL_LABEL: pool_name,
        LOCATION_LABEL: pool.location,
        **layouts.node_labels(fleet, pool_name),
    }


def manifests(pool_name: str, fleet: Fleet) -> dict[str, Manifest]:
    """One patch per named node."""
    return {
        node: {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {
                "name": node,
                # The labels are ours by their prefix: one that was changed by hand is taken back.
                "annotations": {"pulumi.com/patchForce": "true"},
                "labels": node_labels(pool_name, fleet),
            },
        }
        for node in fleet.onprem_pools[pool_name].node_names
    }
