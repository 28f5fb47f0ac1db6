"""Every Kubernetes object of a fleet, as plain values.

The parts that have no component yet (`infra.coverage`) have no objects here either: none is invented.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from stacks.fleet import Fleet

Manifest = dict[str, Any]
"""A Kubernetes object as it would stand in YAML."""

KEPT_KINDS: Final = frozenset({"Namespace", "PersistentVolumeClaim"})
"""What `on_destroy: keep-data` leaves in the cluster; `components.base.keeps_data` is given for these."""

_PULUMI_ANNOTATIONS: Final = "pulumi.com/"


class Identity(NamedTuple):
    """What makes an object the same one in two versions of a file. The version of its API does not."""

    group: str
    kind: str
    namespace: str
    name: str

    @property
    def place(self) -> str:
        """`namespace/name`, or the name alone."""
        return f"{self.namespace}/{self.name}" if self.namespace else self.name


def objects_of(fleet: Fleet) -> list[Manifest]:
    """Every object that `pulumi up` creates, in order; patches of nodes are left out, as the nodes are not ours."""
    # Here, because these modules bring Pulumi's SDK along: an eighth of a second that no other command needs.
    from components.kubernetes import admission, agent, gpu, kueue, node_agent

    parts = (admission, agent, node_agent, gpu, kueue)
    return [manifest for part in parts for manifest in part.manifests(fleet).values()]


def node_patches(fleet: Fleet) -> list[Manifest]:
    """The labels that `pulumi up` puts on named on-prem nodes."""
    from components.onprem import nodepool

    return [manifest for name in fleet.onprem_pools for manifest in nodepool.manifests(name, fleet).values()]


def releases_of(fleet: Fleet) -> list[dict[str, Any]]:
    """Every Helm release that `pulumi up` makes: name, chart, version, namespace, repository and values."""
    from components.kubernetes import gpu

    shown = ("name", "chart", "version", "namespace", "repositoryOpts", "values")
    return [{key: release[key] for key in shown} for release in gpu.releases(fleet).values()]


def without_pulumi(manifest: Manifest) -> Manifest:
    """The object without the annotations that only Pulumi's provider reads."""
    metadata = manifest["metadata"]
    kept = {
        key: value for key, value in metadata.get("annotations", {}).items() if not key.startswith(_PULUMI_ANNOTATIONS)
    }
    others = {key: value for key, value in metadata.items() if key != "annotations"}
    return {**manifest, "metadata": {**others, "annotations": kept} if kept else others}


def identity(manifest: Mapping[str, Any]) -> Identity:
    """Which object a manifest describes."""
    group, slash, _ = manifest["apiVersion"].partition("/")
    metadata = manifest["metadata"]
    return Identity(group if slash else "", manifest["kind"], metadata.get("namespace", ""), metadata["name"])


def counts(manifests: Sequence[Mapping[str, Any]]) -> dict[str, int]:
    """How many objects there are of each kind, in the order of creation."""
    return dict(Counter(manifest["kind"] for manifest in manifests))
