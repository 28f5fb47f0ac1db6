"""Which URL serves a kind, and whether its objects live in namespaces: the API server's own discovery.

Invariants: one request per group and version and process while the answers are hits; a miss asks again, so that a
CRD created earlier in the same run is found, but not more often than `RECHECK_SECONDS`, so that a thousand objects
of an absent kind do not become a thousand requests.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from infra.local.plugins.kubernetes.client import KubeClient
from infra.local.plugins.kubernetes.errors import Cancelled, KindNotServed, ServerRefused

RECHECK_SECONDS = 0.5

# An established CRD appears in discovery within about a second; a kind that is absent for longer is a mistake.
KIND_PATIENCE_SECONDS = 6.0


@dataclass(frozen=True)
class Mapped:
    """Where the objects of one kind are."""

    base: str
    plural: str
    namespaced: bool

    def collection(self, namespace: str | None) -> str:
        """The path of all objects of the kind, in one namespace where it has namespaces."""
        inside = f"/namespaces/{namespace}" if self.namespaced and namespace else ""
        return f"{self.base}{inside}/{self.plural}"


class Discovery:
    """The kinds of one API server, remembered for the life of this process."""

    def __init__(self, client: KubeClient) -> None:
        self._client = client
        self._known: dict[tuple[str, str], Mapped] = {}
        self._announced: dict[tuple[str, str], bool] = {}
        self._asked_at: dict[str, float] = {}
        self._lock = threading.Lock()

    def find(self, api_version: str, kind: str) -> Mapped | None:
        """The kind's mapping, or None while it is not served."""
        if mapped := self._known.get((api_version, kind)):
            return mapped
        with self._lock:
            asked_at = self._asked_at.get(api_version)
            if asked_at is None or time.monotonic() - asked_at >= RECHECK_SECONDS:
                self._ask(api_version)
        return self._known.get((api_version, kind))

    def require(self, api_version: str, kind: str) -> Mapped:
        """The kind's mapping, waiting a few seconds for it to appear.

        Raises:
            KindNotServed: it does not.
        """
        deadline = time.monotonic() + KIND_PATIENCE_SECONDS
        while not (mapped := self.find(api_version, kind)):
            if time.monotonic() > deadline:
                raise KindNotServed(
                    f"the API server serves no kind {kind} in {api_version}; is its CustomResourceDefinition "
                    "installed, and does this resource depend on it?"
                )
            if self._client.cancelled.wait(RECHECK_SECONDS):
                raise Cancelled(f"cancelled while waiting for kind {kind} in {api_version}")
        return mapped

    def is_namespaced(self, api_version: str, kind: str) -> bool | None:
        """Whether the kind has namespaces; None when neither the server nor this program says."""
        if mapped := self.find(api_version, kind):
            return mapped.namespaced
        group = api_version.rpartition("/")[0]
        return self._announced.get((group, kind))

    def announce(self, definition: Mapping[str, Any]) -> None:
        """Remember the scope that a CustomResourceDefinition of this very program will give its kind."""
        spec = definition.get("spec")
        names = spec.get("names") if isinstance(spec, Mapping) else None
        if isinstance(spec, Mapping) and isinstance(names, Mapping):
            self._announced[str(spec.get("group")), str(names.get("kind"))] = spec.get("scope") == "Namespaced"

    def _ask(self, api_version: str) -> None:
        base = f"/apis/{api_version}" if "/" in api_version else f"/api/{api_version}"
        try:
            resources = self._client.request("GET", base).body.get("resources") or []
        except ServerRefused as refusal:
            if not refusal.is_missing:
                raise
            resources = []
        for resource in resources:
            if "/" not in resource["name"]:
                mapped = Mapped(base, resource["name"], bool(resource["namespaced"]))
                self._known[api_version, resource["kind"]] = mapped
        self._asked_at[api_version] = time.monotonic()
