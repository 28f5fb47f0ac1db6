"""Follow the Deployments that the pod runner carries out.

It only reads. Invariant: what was never listed is unknown, not empty, so that a slow API server ends no process.
"""

from __future__ import annotations

import datetime
import sys
import threading

from infra.local.errors import KubeError
from infra.local.kubeclient import KubeClient, Manifest

SELECTOR = "app.kubernetes.io/managed-by=gpufleet"
_RELIST_SECONDS = 1.0


class DeploymentCache:
    """The Deployments of the namespace, kept current by a thread; `changed` is set on each difference."""

    def __init__(self, client: KubeClient, namespace: str) -> None:
        self.changed = threading.Event()
        self._client = client
        self._namespace = namespace
        self._stopped = threading.Event()
        self._lock = threading.Lock()
        self._items: dict[str, Manifest] | None = None
        self._thread = threading.Thread(target=self._follow, name="deployments", daemon=True)

    def start(self) -> None:
        """Begin to follow."""
        self._thread.start()

    def stop(self) -> None:
        """Stop following; the thread ends with its connection."""
        self._stopped.set()

    def items(self) -> dict[str, Manifest] | None:
        """Return the Deployments by name, None until the first list: unknown is not the same as none."""
        with self._lock:
            return None if self._items is None else dict(self._items)

    def _follow(self) -> None:
        while not self._stopped.is_set():
            try:
                listed, version = self._client.list("apps/v1", "Deployment", self._namespace, label_selector=SELECTOR)
                self._replace({item["metadata"]["name"]: _typed(item) for item in listed})
                events = self._client.watch(
                    "apps/v1", "Deployment", self._namespace, resource_version=version, label_selector=SELECTOR
                )
                for kind, item in events:
                    self._note(kind, item)
            except KubeError as error:
                say(f"watch of deployments ended: {error}")
                self._stopped.wait(_RELIST_SECONDS)

    def _replace(self, items: dict[str, Manifest]) -> None:
        with self._lock:
            self._items = items
        self.changed.set()

    def _note(self, kind: str, item: Manifest) -> None:
        with self._lock:
            if self._items is not None:
                if kind == "DELETED":
                    self._items.pop(item["metadata"]["name"], None)
                elif kind in ("ADDED", "MODIFIED"):
                    self._items[item["metadata"]["name"]] = item
        self.changed.set()


def _typed(item: Manifest) -> Manifest:
    """Restore what the server leaves out inside lists."""
    return {"apiVersion": "apps/v1", "kind": "Deployment", **item}


def say(text: str) -> None:
    """Write a line to the log."""
    sys.stderr.write(f"{datetime.datetime.now(datetime.UTC).isoformat(timespec='seconds')} {text}\n")
    sys.stderr.flush()
