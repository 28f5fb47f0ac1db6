"""Completes and checks the inputs of one resource before anything is compared or written.

It asks the API server for nothing but the kind's scope. Invariants: an input that is wrong is reported with its
property path; a resource that has a name keeps it; a name made here is marked, so that a replacement may take
another one.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from infra.local.plugins.kubernetes.conditions import conditions_of, timeout_of
from infra.local.plugins.kubernetes.diff import AUTONAMED
from infra.local.plugins.kubernetes.discovery import Discovery
from infra.local.plugins.kubernetes.errors import ConditionSyntaxError
from infra.local.plugins.kubernetes.identity import annotation, is_patch, metadata_of
from infra.local.plugins.kubernetes.values import is_unknown

SEED_BYTES = 4

# RFC 1123 subdomain: what the API server accepts as the name of most kinds.
LONGEST_NAME = 253


@dataclass(frozen=True)
class Failure:
    """One input that is wrong."""

    path: str
    reason: str


@dataclass(frozen=True)
class Naming:
    """How to name an object whose program gives none."""

    resource_name: str
    seed: bytes
    proposed: str | None = None
    forbidden: bool = False

    def make(self) -> str:
        """A name that is the same for the same seed."""
        if self.proposed:
            return self.proposed
        stem = re.sub(r"[^a-z0-9.-]+", "-", self.resource_name.lower()).strip("-.")
        suffix = self.seed[:SEED_BYTES].hex()
        return f"{stem[: LONGEST_NAME - len(suffix) - 1]}-{suffix}".lstrip("-")


@dataclass(frozen=True)
class Checked:
    """Complete inputs, or what is wrong with them."""

    inputs: dict[str, Any]
    failures: tuple[Failure, ...] = ()


def check(
    type_token: str,
    old: Mapping[str, Any],
    new: Mapping[str, Any],
    naming: Naming,
    discovery: Discovery,
    default_namespace: str,
) -> Checked:
    """Complete the inputs of one resource: its name, and its namespace where the kind has them."""
    inputs = dict(new)
    if is_unknown(inputs.get("metadata")):
        return Checked(inputs)
    failures = [
        Failure(path, "is missing; expected text") for path in ("apiVersion", "kind") if not _is_text(inputs.get(path))
    ]
    if not isinstance(inputs.get("metadata", {}), Mapping):
        failures.append(Failure("metadata", f"is {inputs['metadata']!r}; expected an object"))
    if failures:
        return Checked(inputs, tuple(failures))
    metadata = inputs["metadata"] = dict(inputs.get("metadata", {}))
    failures = [*_name(type_token, inputs, metadata, old, naming), *_wait(inputs)]
    if inputs["kind"] == "CustomResourceDefinition":
        discovery.announce(inputs)
    failures += _namespace(inputs, metadata, old, discovery, default_namespace)
    return Checked(inputs, tuple(failures))


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and bool(value)


def _name(
    type_token: str, inputs: Mapping[str, Any], metadata: dict[str, Any], old: Mapping[str, Any], naming: Naming
) -> list[Failure]:
    if "name" in metadata:
        return [] if _is_text(metadata["name"]) else [Failure("metadata.name", f"is {metadata['name']!r}")]
    if is_patch(type_token, inputs):
        return [Failure("metadata.name", "is missing; a Patch resource must name the object that it changes")]
    if "generateName" in metadata:
        return [Failure("metadata.generateName", "cannot be applied twice; leave it out, and a name will be made")]
    if naming.forbidden:
        return [Failure("metadata.name", "is missing, and automatic naming is disabled for this stack")]
    kept = metadata_of(old).get("name") if annotation(old, AUTONAMED) else None
    metadata["name"] = kept or naming.make()
    if not is_unknown(metadata.get("annotations")):
        metadata["annotations"] = {**(metadata.get("annotations") or {}), AUTONAMED: "true"}
    return []


def _namespace(
    inputs: Mapping[str, Any],
    metadata: dict[str, Any],
    old: Mapping[str, Any],
    discovery: Discovery,
    default_namespace: str,
) -> list[Failure]:
    api_version, kind = inputs["apiVersion"], inputs["kind"]
    namespaced = discovery.is_namespaced(api_version, kind)
    if namespaced is False and metadata.get("namespace"):
        reason = f"is {metadata['namespace']!r}, but a {kind} is cluster-wide; remove the namespace"
        return [Failure("metadata.namespace", reason)]
    if namespaced and not metadata.get("namespace"):
        metadata["namespace"] = default_namespace
    elif namespaced is None and "namespace" not in metadata and (known := metadata_of(old).get("namespace")):
        metadata["namespace"] = known
    return []


def _wait(inputs: Mapping[str, Any]) -> list[Failure]:
    try:
        conditions_of(inputs)
        timeout_of(inputs)
    except ConditionSyntaxError as error:
        return [Failure("metadata.annotations", str(error))]
    return []
