"""The GPU layer: operator, drivers, named MIG layouts, sharing, metrics, network, and what autoscalers need to know.

Beside an operator of somebody else's there are only the ConfigMaps that its settings name (docs/gpu-layer.md), and only
where a pool is partitioned. Helm releases exist only where the file says `software.gpu_operator: managed`, or has a
`gpu_layer.network_operator`: everything else is plain objects, which any cluster takes.

On GKE nothing of this runs: `gke` says what its node pools are to be made with.

Order: namespaces and ConfigMaps, the operators' releases, what their CRDs define; a driver's canary before the others.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import pulumi

from components.base import Component, keeps_data
from components.kubernetes.gpu import drivers, exporter, kubelets, network, operator, overlays, partitions, readings
from components.names import Manifest
from stacks.fleet import Fleet

_RELEASE_TYPE: Final = "kubernetes:helm.sh/v3:Release"


class GpuLayer(Component):
    """Every part of the GPU layer; `configured` is there before nodes are labelled."""

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
        spaces = self.kubernetes_all(namespaces(fleet), **keeps_data(fleet))
        self.configured = self.kubernetes_all(config_maps(fleet), depends_on=[namespace, *spaces])
        made = [self._release(role, inputs, self.configured) for role, inputs in releases(fleet).items()]
        self.kubernetes_all(network.manifests(fleet), depends_on=[namespace, *made])
        self.kubernetes_all(overlays.manifests(fleet))
        self._reader(fleet, [namespace, *policies, *made])
        canary = self.kubernetes_all(drivers.manifests(fleet, canary=True), depends_on=made)
        self.kubernetes_all(drivers.manifests(fleet, canary=False), depends_on=[*made, *canary])
        self.register_outputs({})

    def _reader(self, fleet: Fleet, after: list[pulumi.Resource]) -> None:
        objects = {f"reader-{role}": one for role, one in readings.manifests(fleet).items()}
        pods = {role: objects.pop(role) for role in list(objects) if objects[role]["kind"] == "DaemonSet"}
        self.kubernetes_all(pods, depends_on=self.kubernetes_all(objects, depends_on=after))

    def _release(self, role: str, inputs: Mapping[str, Any], after: list[pulumi.Resource]) -> pulumi.CustomResource:
        # As the SDK's own class does, whose import takes half a second: `compat` has the provider read values as given.
        return pulumi.CustomResource(
            _RELEASE_TYPE,
            f"{self._component_name}-{role}",
            {**inputs, "compat": "true"},
            pulumi.ResourceOptions(parent=self, depends_on=after),
        )


def manifests(fleet: Fleet) -> dict[str, Manifest]:
    """Every object of the GPU layer by role, in the order of creation; Helm releases are no objects."""
    return {
        **namespaces(fleet),
        **config_maps(fleet),
        **network.manifests(fleet),
        **overlays.manifests(fleet),
        **{f"reader-{role}": one for role, one in readings.manifests(fleet).items()},
        **drivers.manifests(fleet, canary=True),
        **drivers.manifests(fleet, canary=False),
    }


def namespaces(fleet: Fleet) -> dict[str, Manifest]:
    """The namespaces of operators that gpufleet installs."""
    return {**operator.namespaces(fleet), **network.namespaces(fleet)}


def config_maps(fleet: Fleet) -> dict[str, Manifest]:
    """What operators and people read."""
    return {**partitions.manifests(fleet), **exporter.manifests(fleet), **kubelets.manifests(fleet)}


def releases(fleet: Fleet) -> dict[str, dict[str, Any]]:
    """Helm releases by role, as Pulumi's `helm.v3.Release` takes them."""
    return {**operator.releases(fleet), **network.releases(fleet)}
