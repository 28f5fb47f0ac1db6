"""Creates, changes, reads and deletes objects by server-side apply, under one field manager of our own.

It does not decide what changed. Invariants: an object that this very resource did not make is never taken over
silently (each object carries the URN that made it); an object that a half-finished run of the same resource left
is adopted; a field that the program sets is taken back from whoever changed it, unless the program says otherwise.
"""

from __future__ import annotations

from collections.abc import Mapping
from http import HTTPStatus
from typing import Any
from urllib.parse import quote

from infra.local.plugins.kubernetes.client import Answer, KubeClient
from infra.local.plugins.kubernetes.conditions import conditions_of, timeout_of
from infra.local.plugins.kubernetes.discovery import Discovery
from infra.local.plugins.kubernetes.errors import NotReady, ObjectExists, ProviderError, ServerRefused
from infra.local.plugins.kubernetes.identity import Identity, annotation, metadata_of
from infra.local.plugins.kubernetes.values import UNKNOWN, has_unknowns
from infra.local.plugins.kubernetes.waiting import Report, Waiter

FIELD_MANAGER = "gpufleet-pulumi"
MADE_BY = "gpufleet-pulumi/urn"
APPLY = "application/apply-patch+yaml"

# The official provider's annotations.
PATCH_FORCE = "pulumi.com/patchForce"
DELETION_PROPAGATION = "pulumi.com/deletionPropagationPolicy"

# Set by the server at creation, so a dry run's values for them are not the ones that `up` will see.
_MADE_AT_CREATION = ("uid", "resourceVersion", "creationTimestamp")


class Objects:
    """The objects of one cluster, as one Pulumi stack sees them."""

    def __init__(self, client: KubeClient, discovery: Discovery, default_namespace: str) -> None:
        self._client = client
        self._discovery = discovery
        self._default_namespace = default_namespace
        self._waiter = Waiter(client)

    def create(self, urn: str, manifest: Mapping[str, Any], report: Report) -> Mapping[str, Any]:
        """Make the object and wait for its conditions; return it as it then is."""
        identity, path = self.locate(manifest)
        existing = self.get(path)
        if existing is not None and metadata_of(existing).get("deletionTimestamp"):
            self._waiter.until_gone(identity, path, existing, timeout_of(manifest), report)
            existing = None
        if existing is not None and annotation(existing, MADE_BY) != urn:
            raise _exists(identity, existing)
        live = self.apply(path, _signed(manifest, urn), force=existing is not None).body
        return self._settle(identity, path, manifest, live, report)

    def update(self, urn: str, manifest: Mapping[str, Any], report: Report) -> Mapping[str, Any]:
        """Change the object to this manifest and wait for its conditions; return it as it then is."""
        identity, path = self.locate(manifest)
        live = self.apply(path, _signed(manifest, urn), force=_takes_back(manifest)).body
        return self._settle(identity, path, manifest, live, report)

    def preview_create(self, urn: str, manifest: Mapping[str, Any]) -> Mapping[str, Any]:
        """What `create` would return, as far as the API server can say now; raises what it would refuse."""
        planned = _unborn(manifest)
        if not self._can_ask(manifest):
            return planned
        identity, path = self.locate(manifest)
        try:
            answer = self.apply(path, _signed(manifest, urn), force=False, dry_run=True)
        except ServerRefused as refusal:
            if _says_nothing(refusal):
                return planned
            existing = self.get(path)
            if existing is None:
                raise
        else:
            if answer.status == HTTPStatus.CREATED:
                return _unborn(answer.body)
            existing = self.get(path)
        if existing is not None and annotation(existing, MADE_BY) != urn:
            raise _exists(identity, existing)
        return planned  # ours: it will be deleted first by a replacement, or adopted

    def preview_update(self, urn: str, manifest: Mapping[str, Any]) -> Mapping[str, Any]:
        """What `update` would return, as far as the API server can say now; raises what it would refuse."""
        if not self._can_ask(manifest):
            return manifest
        path = self.locate(manifest)[1]
        try:
            return self.apply(path, _signed(manifest, urn), force=_takes_back(manifest), dry_run=True).body
        except ServerRefused as refusal:
            if _says_nothing(refusal):
                return manifest
            raise

    def delete(self, manifest: Mapping[str, Any], report: Report) -> None:
        """Delete the object and wait until it is gone; nothing to do where it or its kind is gone already."""
        if self._discovery.find(str(manifest["apiVersion"]), str(manifest["kind"])) is None:
            return
        identity, path = self.locate(manifest)
        policy = annotation(manifest, DELETION_PROPAGATION) or "background"
        options = {"propagationPolicy": policy.capitalize()}
        try:
            answer = self._client.request("DELETE", path, options).body
        except ServerRefused as refusal:
            if refusal.is_missing:
                return
            raise
        if answer.get("kind") == manifest["kind"] and (live := self.get(path)) is not None:
            self._waiter.until_gone(identity, path, live, timeout_of(manifest), report)

    def read(self, api_version: str, kind: str, namespace: str | None, name: str) -> Mapping[str, Any] | None:
        """The object as it is, or None."""
        mapped = self._discovery.find(api_version, kind)
        return self.get(f"{mapped.collection(namespace)}/{quote(name)}") if mapped else None

    def locate(self, manifest: Mapping[str, Any]) -> tuple[Identity, str]:
        """The object's identity and URL path; waits a little for a kind that is just being defined."""
        api_version, kind = str(manifest["apiVersion"]), str(manifest["kind"])
        mapped = self._discovery.require(api_version, kind)
        metadata = metadata_of(manifest)
        namespace = str(metadata.get("namespace") or self._default_namespace) if mapped.namespaced else None
        identity = Identity(api_version, kind, str(metadata["name"]), namespace)
        return identity, f"{mapped.collection(namespace)}/{quote(identity.name)}"

    def get(self, path: str) -> Mapping[str, Any] | None:
        """The object at a path, or None."""
        return self._client.find(path)

    def apply(
        self,
        path: str,
        manifest: Mapping[str, Any],
        *,
        force: bool,
        dry_run: bool = False,
        manager: str = FIELD_MANAGER,
    ) -> Answer:
        """One server-side apply."""
        query = {"fieldManager": manager, "force": str(force).lower(), "fieldValidation": "Strict"}
        if dry_run:
            query["dryRun"] = "All"
        return self._client.request("PATCH", path, manifest, query=query, content_type=APPLY)

    def _can_ask(self, manifest: Mapping[str, Any]) -> bool:
        """Whether a dry run is possible: everything is known, and the kind is served."""
        if has_unknowns(manifest):
            return False
        return self._discovery.find(str(manifest["apiVersion"]), str(manifest["kind"])) is not None

    def _settle(
        self, identity: Identity, path: str, manifest: Mapping[str, Any], live: Mapping[str, Any], report: Report
    ) -> Mapping[str, Any]:
        conditions = conditions_of(manifest)
        if not conditions:
            return live
        try:
            return self._waiter.until(identity, path, live, conditions, timeout_of(manifest), report)
        except ProviderError as error:
            raise NotReady(error, live) from error


def outputs(live: Mapping[str, Any]) -> dict[str, Any]:
    """What Pulumi keeps of an object: all but the record of who owns which field, its largest and liveliest part."""
    metadata = {name: value for name, value in metadata_of(live).items() if name != "managedFields"}
    return {**live, "metadata": metadata}


def _signed(manifest: Mapping[str, Any], urn: str) -> dict[str, Any]:
    metadata = metadata_of(manifest)
    annotations = {**(metadata.get("annotations") or {}), MADE_BY: urn}
    return {**manifest, "metadata": {**metadata, "annotations": annotations}}


def _unborn(manifest: Mapping[str, Any]) -> dict[str, Any]:
    """The object before its creation: what the server will choose is not known."""
    if not isinstance(manifest.get("metadata"), Mapping):
        return dict(manifest)
    return {**manifest, "metadata": {**metadata_of(manifest), **dict.fromkeys(_MADE_AT_CREATION, UNKNOWN)}}


def _takes_back(manifest: Mapping[str, Any]) -> bool:
    return annotation(manifest, PATCH_FORCE) != "false"


def _says_nothing(refusal: ServerRefused) -> bool:
    """Whether a dry run failed for a reason that `up` will not meet: a namespace of this very run, a shy webhook."""
    return refusal.is_missing or (
        refusal.status == HTTPStatus.BAD_REQUEST and "does not support dry run" in str(refusal)
    )


def _exists(identity: Identity, existing: Mapping[str, Any]) -> ObjectExists:
    maker = annotation(existing, MADE_BY)
    managers = sorted({str(entry.get("manager")) for entry in metadata_of(existing).get("managedFields") or []})
    owner = f"it belongs to {maker}" if maker else f"its fields are managed by {', '.join(managers) or 'nobody'}"
    return ObjectExists(
        f"{identity} exists already, and this resource did not make it ({owner}). "
        "Choose another name, delete the object, or take it over with the import option or an alias"
    )
