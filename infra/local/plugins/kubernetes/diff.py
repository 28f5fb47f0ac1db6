"""What changed between two versions of a resource's inputs, and which change needs a new object.

Pure. It compares what the program said before with what it says now; what others changed in the cluster is found by
`refresh` (see `projection`). Invariants: equal inputs give no change; every change carries the path that
`pulumi preview --diff` prints; a replacement under an unchanged name deletes first, because the name is taken.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any

from infra.local.plugins.kubernetes.identity import annotation, metadata_of
from infra.local.plugins.kubernetes.values import is_unknown

Path = tuple[str | int, ...]

AUTONAMED = "pulumi.com/autonamed"

_IDENTITY: tuple[Path, ...] = (("apiVersion",), ("kind",), ("metadata", "name"), ("metadata", "namespace"))
_PLAIN_KEY = re.compile(r"[A-Za-z_][\w-]*")

# Fields that the API server refuses to change, by group and kind. Sources: `self == oldSelf` rules in Kueue 0.19's
# CRDs; ValidateUpdate of the built-in kinds in k8s.io/kubernetes 1.36, pkg/apis/*/validation.
IMMUTABLE: Mapping[tuple[str, str], tuple[Path, ...]] = {
    ("kueue.x-k8s.io", "AdmissionCheck"): (("spec", "controllerName"),),
    ("kueue.x-k8s.io", "LocalQueue"): (("spec", "clusterQueue"),),
    ("kueue.x-k8s.io", "Topology"): (("spec", "levels"),),
    ("apps", "Deployment"): (("spec", "selector"),),
    ("apps", "DaemonSet"): (("spec", "selector"),),
    ("apps", "StatefulSet"): (
        ("spec", "selector"),
        ("spec", "serviceName"),
        ("spec", "podManagementPolicy"),
        ("spec", "volumeClaimTemplates"),
    ),
    ("batch", "Job"): (("spec", "selector"), ("spec", "template"), ("spec", "completionMode")),
    ("rbac.authorization.k8s.io", "RoleBinding"): (("roleRef",),),
    ("rbac.authorization.k8s.io", "ClusterRoleBinding"): (("roleRef",),),
    ("scheduling.k8s.io", "PriorityClass"): (("value",), ("preemptionPolicy",)),
    ("storage.k8s.io", "StorageClass"): (
        ("provisioner",),
        ("parameters",),
        ("reclaimPolicy",),
        ("volumeBindingMode",),
    ),
    ("node.k8s.io", "RuntimeClass"): (("handler",),),
    ("apiextensions.k8s.io", "CustomResourceDefinition"): (("spec", "scope"), ("spec", "group")),
    ("", "PersistentVolumeClaim"): (("spec",),),
    ("", "Secret"): (("type",),),
}

# Below an immutable path, what may change all the same.
_MUTABLE: Mapping[tuple[str, str], tuple[Path, ...]] = {
    ("", "PersistentVolumeClaim"): (("spec", "resources"), ("spec", "volumeAttributesClassName")),
}

# Objects that their owner may seal with `immutable: true`, and what is sealed then.
_SEALABLE: Mapping[tuple[str, str], tuple[Path, ...]] = {
    ("", "ConfigMap"): (("data",), ("binaryData",), ("immutable",)),
    ("", "Secret"): (("data",), ("stringData",), ("immutable",)),
}


class Change(Enum):
    """How one field differs."""

    ADD = "add"
    UPDATE = "update"
    DELETE = "delete"


@dataclass(frozen=True)
class FieldChange:
    """One field that differs; `replaces` when the object cannot keep living with it."""

    path: Path
    change: Change
    replaces: bool


@dataclass(frozen=True)
class Difference:
    """All that differs between two versions of a resource."""

    fields: tuple[FieldChange, ...]
    delete_first: bool

    @property
    def replaces(self) -> bool:
        """Whether the object must be made anew."""
        return any(field.replaces for field in self.fields)


def difference(old: Mapping[str, Any], new: Mapping[str, Any], namespace: str | None) -> Difference:
    """Compare two versions of a manifest.

    Args:
        old: the inputs in the state.
        new: the inputs of this run; may hold unknowns, which count as changed.
        namespace: where the object is, which the old inputs need not say.
    """
    group, kind = str(old.get("apiVersion")).rpartition("/")[0], str(old.get("kind"))
    immutable = (*_IDENTITY, *IMMUTABLE.get((group, kind), ()))
    if old.get("immutable") is True:
        immutable += _SEALABLE.get((group, kind), ())
    mutable = _MUTABLE.get((group, kind), ())
    fields = tuple(
        FieldChange(path, change, _lies_below(path, immutable) and not _lies_below(path, mutable))
        for path, change in _changes((), _placed(old, new, namespace), new)
    )
    keeps_name = metadata_of(old).get("name") == metadata_of(new).get("name") and annotation(new, AUTONAMED) is None
    moved = any(field.path[:2] == ("metadata", "namespace") for field in fields)
    return Difference(fields, delete_first=keeps_name and not moved and any(field.replaces for field in fields))


def render(path: Path) -> str:
    """A path as Pulumi writes it: `metadata.labels["a.b/c"]`, `spec.containers[0].image`."""
    text = ""
    for step in path:
        if isinstance(step, int):
            text += f"[{step}]"
        elif _PLAIN_KEY.fullmatch(step):
            text += f".{step}" if text else step
        else:
            escaped = step.replace("\\", "\\\\").replace('"', '\\"')
            text += f'["{escaped}"]'
    return text


def _placed(old: Mapping[str, Any], new: Mapping[str, Any], namespace: str | None) -> Mapping[str, Any]:
    """The old manifest with its namespace written as the new one writes it, where both mean the same."""
    if namespace and metadata_of(old).get("namespace") is None and metadata_of(new).get("namespace") == namespace:
        return {**old, "metadata": {**metadata_of(old), "namespace": namespace}}
    return old


def _lies_below(path: Path, fields: tuple[Path, ...]) -> bool:
    """Whether the path is one of the fields, inside one, or around one (a whole `spec` that came or went)."""
    return any(path[: len(field)] == field[: len(path)] for field in fields)


def _changes(path: Path, old: Any, new: Any) -> Iterator[tuple[Path, Change]]:
    if isinstance(old, Mapping) and isinstance(new, Mapping):
        for name in sorted(old.keys() | new.keys()):
            if name not in new:
                yield (*path, name), Change.DELETE
            elif name not in old:
                yield (*path, name), Change.ADD
            else:
                yield from _changes((*path, name), old[name], new[name])
    elif isinstance(old, list) and isinstance(new, list):
        for index in range(max(len(old), len(new))):
            if index >= len(new):
                yield (*path, index), Change.DELETE
            elif index >= len(old):
                yield (*path, index), Change.ADD
            else:
                yield from _changes((*path, index), old[index], new[index])
    elif is_unknown(new) or old != new or isinstance(old, bool) != isinstance(new, bool):
        yield path, Change.UPDATE
