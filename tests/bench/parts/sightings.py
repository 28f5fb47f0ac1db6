"""When this process is told, by watches, that a notice was acted on: the cordon, the word to a pod or its end, the requeue."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from infra.local.errors import KubeError
from infra.local.kubeclient import KubeClient
from runtime.eviction.view import Phase
from stacks.labels import CHECKPOINT_REQUEST_ANNOTATION, EVICTION_ANNOTATION

KUEUE: Final = "kueue.x-k8s.io/v1beta2"
_LONGEST_SECONDS: Final = 3_600

Raw = dict[str, Any]


@dataclass
class Watcher:
    """What happens in the cluster, with the moment at which this process was told."""

    kubeconfig: Path
    namespace: str
    seen: dict[str, float] = field(default_factory=dict)
    answer: Callable[[str, str], None] = lambda pod, request: None
    _nodes: dict[str, Raw] = field(default_factory=dict)
    _pods: dict[str, Raw] = field(default_factory=dict)
    _workloads: dict[str, Raw] = field(default_factory=dict)
    _clients: list[KubeClient] = field(default_factory=list)
    _awaited: tuple[str, str, str] = ("", "", "")

    def __enter__(self) -> Watcher:
        self._begin("v1", "Node", None, self._nodes, self._node)
        self._begin("v1", "Pod", self.namespace, self._pods, self._pod)
        self._begin(KUEUE, "Workload", self.namespace, self._workloads, self._workload)
        return self

    def __exit__(self, *_: object) -> None:
        for client in self._clients:
            client.close()

    def expect(self, node: str, pod: str) -> str:
        """Look out for the eviction of a pod from a node; returns the name of its Workload."""
        owner = self._pods[pod]["metadata"]["ownerReferences"][0]["uid"]
        [workload] = [name for name, raw in self._workloads.items() if _owner(raw) == owner]
        self.seen.clear()
        self._awaited = node, pod, workload
        return workload

    def placed(self) -> Mapping[str, str]:
        """The running pods and their nodes."""
        return {name: raw["spec"]["nodeName"] for name, raw in self._running()}

    def jobs(self) -> Mapping[str, str]:
        """The running pods and their jobs."""
        return {name: raw["metadata"]["ownerReferences"][0]["name"] for name, raw in self._running()}

    def _running(self) -> list[tuple[str, Raw]]:
        return [
            (name, raw)
            for name, raw in list(self._pods.items())
            if raw.get("status", {}).get("phase") == "Running" and "deletionTimestamp" not in raw["metadata"]
        ]

    def _node(self, name: str, raw: Raw, at: float) -> None:
        if name == self._awaited[0] and raw["spec"].get("unschedulable"):
            self.seen.setdefault(f"cordon of {name}", at)

    def _pod(self, name: str, raw: Raw, at: float) -> None:
        if name != self._awaited[1]:
            return
        if "deletionTimestamp" in raw["metadata"]:
            self.seen.setdefault(f"end of {name}", at)
        text = _annotations(raw).get(CHECKPOINT_REQUEST_ANNOTATION)
        if text and f"request to {name}" not in self.seen:
            self.seen[f"request to {name}"] = at
            self.answer(name, json.loads(text)["request"])

    def _workload(self, name: str, raw: Raw, at: float) -> None:
        marker = json.loads(_annotations(raw).get(EVICTION_ANNOTATION, "{}"))
        on_its_way = marker.get("phase") == Phase.DONE and raw["spec"].get("active", True)
        if name == self._awaited[2] and on_its_way and f"request to {self._awaited[1]}" in self.seen:
            self.seen.setdefault(f"requeue of {name}", at)

    def _begin(
        self,
        version: str,
        kind: str,
        namespace: str | None,
        store: dict[str, Raw],
        changed: Callable[[str, Raw, float], None],
    ) -> None:
        client = KubeClient(self.kubeconfig)
        self._clients.append(client)
        items, resource_version = client.list(version, kind, namespace)
        store.update({item["metadata"]["name"]: item for item in items})

        def follow() -> None:
            try:
                for event, raw in client.watch(
                    version, kind, namespace, resource_version=resource_version, seconds=_LONGEST_SECONDS
                ):
                    at, name = time.time(), raw["metadata"]["name"]
                    if event == "DELETED":
                        store.pop(name, None)
                    else:
                        store[name] = raw
                        changed(name, raw, at)
            except KubeError:
                return  # closed

        threading.Thread(target=follow, daemon=True).start()


def _annotations(raw: Raw) -> Mapping[str, str]:
    return raw["metadata"].get("annotations") or {}


def _owner(raw: Raw) -> str:
    return str((raw["metadata"].get("ownerReferences") or [{}])[0].get("uid", ""))
