"""The base of every component: its type token, its children's options, and how it makes Kubernetes objects.

A component does no I/O and never reads configuration by itself; it is given frozen models and resolved inputs. Children
are named `f"{name}-{role}"` by keys of the fleet file, never by an index, so that reordering the file replaces nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pulumi

from components.names import Manifest
from stacks.fleet import Fleet


class Component(pulumi.ComponentResource):
    """A component resource with the type token `gpufleet:index:<Class>`."""

    def __init__(self, name: str, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__(f"gpufleet:index:{type(self).__name__}", name, None, opts)
        self._component_name = name

    def kubernetes(
        self, role: str, manifest: Manifest, *, patch: bool = False, **options: Any
    ) -> pulumi.CustomResource:
        """Create one Kubernetes object from its manifest, under the logical name `<component>-<role>`.

        With `patch`, the object belongs to somebody else and only the given fields are ours, until we withdraw them.

        The manifest goes to the provider as it is: the typed classes of the SDK would only rename its keys, cost half a
        second of import, and know nothing of Kueue's kinds.
        """
        return pulumi.CustomResource(
            type_token(manifest["apiVersion"], manifest["kind"]) + ("Patch" if patch else ""),
            f"{self._component_name}-{role}",
            dict(manifest),
            pulumi.ResourceOptions(parent=self, **options),
        )

    def kubernetes_all(self, manifests: Mapping[str, Manifest], **options: Any) -> list[pulumi.Resource]:
        """Create every object of a set with the same options, in the set's order."""
        return [self.kubernetes(role, manifest, **options) for role, manifest in manifests.items()]


def keeps_data(fleet: Fleet) -> dict[str, bool]:
    """Options of what must outlive its place in the file: ledgers, and namespaces with everything in them."""
    return {"retain_on_delete": fleet.on_destroy == "keep-data"}


def type_token(api_version: str, kind: str) -> str:
    """The provider's type token of a Kubernetes kind, e.g. `kubernetes:core/v1:ConfigMap`."""
    version = api_version if "/" in api_version else f"core/{api_version}"
    return f"kubernetes:{version}:{kind}"
