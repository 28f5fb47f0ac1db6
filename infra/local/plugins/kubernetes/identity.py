"""What names an object: its kind, its place and the texts that users read.

Invariant: the Pulumi id is `namespace/name`, or `name` where the kind has no namespaces; it is never derived from
the URN, so that a replacement under another name has another id.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from infra.local.plugins.kubernetes.values import is_unknown

# Pulumi's token for the API group that has no name.
CORE_GROUP = "core"
PATCH_SUFFIX = "Patch"


@dataclass(frozen=True)
class Identity:
    """One object of a cluster."""

    api_version: str
    kind: str
    name: str
    namespace: str | None

    def __str__(self) -> str:
        place = f"{self.namespace}/{self.name}" if self.namespace else self.name
        return f"{self.kind} {place} ({self.api_version})"

    @property
    def resource_id(self) -> str:
        """The id that Pulumi keeps."""
        return f"{self.namespace}/{self.name}" if self.namespace else self.name


def metadata_of(manifest: Mapping[str, Any]) -> Mapping[str, Any]:
    """The object's metadata, empty where it is absent or not known yet."""
    metadata = manifest.get("metadata")
    return metadata if isinstance(metadata, Mapping) else {}


def annotation(manifest: Mapping[str, Any], name: str) -> str | None:
    """One annotation's text, or None where it is absent or not known yet."""
    annotations = metadata_of(manifest).get("annotations")
    value = annotations.get(name) if isinstance(annotations, Mapping) else None
    return None if value is None or is_unknown(value) else str(value)


def is_patch(type_token: str, manifest: Mapping[str, Any]) -> bool:
    """Whether a resource such as `kubernetes:core/v1:NodePatch` changes an object that somebody else made.

    The manifest decides between that and a kind whose own name ends in Patch.
    """
    return type_token.rpartition(":")[2] == f"{manifest.get('kind')}{PATCH_SUFFIX}"


def kind_of_token(type_token: str) -> tuple[str, str]:
    """The apiVersion and kind in a type token such as `kubernetes:core/v1:NodePatch`."""
    _, module, kind = type_token.split(":")
    if module.startswith(f"{CORE_GROUP}/"):
        module = module.removeprefix(f"{CORE_GROUP}/")
    return module, kind.removesuffix(PATCH_SUFFIX)


def at_id(manifest: Mapping[str, Any], resource_id: str) -> dict[str, Any]:
    """The manifest at the place where its object is, whatever the default namespace is by now."""
    namespace, name = place_of_id(resource_id)
    place = {"name": name, "namespace": namespace} if namespace else {"name": name}
    return {**manifest, "metadata": {**metadata_of(manifest), **place}}


def place_of_id(resource_id: str) -> tuple[str | None, str]:
    """The namespace and name in an id."""
    namespace, _, name = resource_id.rpartition("/")
    return namespace or None, name
