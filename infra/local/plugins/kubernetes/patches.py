"""Patch resources (`NodePatch` and the like): a few fields of an object that somebody else made.

Invariants: each patch has a field manager of its own, so that releasing one leaves the others; a patch never makes
the object (the apply carries its uid, which a missing or another object does not match); deleting a patch gives its
fields up and leaves the object.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

from infra.local.plugins.kubernetes.errors import FieldsTaken, ObjectMissing, ServerRefused
from infra.local.plugins.kubernetes.identity import Identity, annotation, metadata_of
from infra.local.plugins.kubernetes.objects import FIELD_MANAGER, PATCH_FORCE, Objects
from infra.local.plugins.kubernetes.values import has_unknowns

_DIGEST_CHARACTERS = 16


class Patches:
    """The patches of one stack."""

    def __init__(self, objects: Objects) -> None:
        self._objects = objects

    def write(self, urn: str, manifest: Mapping[str, Any], *, preview: bool) -> Mapping[str, Any]:
        """Set the patch's fields; in a preview only ask whether that would work.

        Raises:
            ObjectMissing: there is nothing to patch.
            FieldsTaken: somebody else owns a field, and the patch does not force.
        """
        if preview and has_unknowns(manifest):
            return manifest
        identity, path = self._objects.locate(manifest)
        existing = self._objects.get(path)
        if existing is None:
            if preview:
                return manifest  # it may be made earlier in the same run
            raise ObjectMissing(f"{identity} does not exist; a Patch resource changes an object, it does not make one")
        force = annotation(manifest, PATCH_FORCE) == "true"
        try:
            return self._objects.apply(
                path, _pinned(manifest, existing), force=force, dry_run=preview, manager=manager_of(urn)
            ).body
        except ServerRefused as refusal:
            if not refusal.ownership_conflicts:
                raise
            raise FieldsTaken(_taken(identity, refusal.ownership_conflicts)) from refusal

    def release(self, urn: str, manifest: Mapping[str, Any]) -> None:
        """Give the patch's fields up: those that nobody else owns disappear from the object."""
        path = self._objects.locate(manifest)[1]
        existing = self._objects.get(path)
        if existing is None:
            return
        metadata = {name: value for name, value in metadata_of(manifest).items() if name in {"name", "namespace"}}
        nothing = {"apiVersion": manifest["apiVersion"], "kind": manifest["kind"], "metadata": metadata}
        self._objects.apply(path, _pinned(nothing, existing), force=False, manager=manager_of(urn))


def manager_of(urn: str) -> str:
    """The field manager of one patch resource."""
    return f"{FIELD_MANAGER}-patch-{hashlib.sha256(urn.encode()).hexdigest()[:_DIGEST_CHARACTERS]}"


def _pinned(manifest: Mapping[str, Any], existing: Mapping[str, Any]) -> dict[str, Any]:
    return {**manifest, "metadata": {**metadata_of(manifest), "uid": metadata_of(existing)["uid"]}}


def _taken(identity: Identity, conflicts: list[str]) -> str:
    return (
        f"{identity}: somebody else owns {'; '.join(conflicts)}. Leave the field to its owner, "
        f'or take it with the annotation {PATCH_FORCE}: "true"'
    )
