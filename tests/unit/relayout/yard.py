"""Nodes with MIG, a scripted MIG manager and pods, on fake time and the fake API server, with the real round."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import httpx2

from runtime.clock import Clock
from runtime.events import Event
from runtime.kube import NODES, PODS
from runtime.relayout.record import Record, record_from_json
from runtime.relayout.view import LayoutNode, layout_node, pools_of
from runtime.relayouts import Relayouts
from stacks.agent_config import AgentConfig
from stacks.labels import (
    AGENT_DRAIN_TAINT,
    FLAVOR_LABEL,
    MIG_STATE_LABEL,
    POOL_LABEL,
    RELAYOUT_ANNOTATION,
)
from stacks.layouts import MIG_CONFIG_LABEL
from tests.builders import NOON, a_config
from tests.fakes.cluster import FakeCluster

Raw = dict[str, Any]

DEVICES = {
    "a": {"nvidia.com/mig-1g.10gb": 56},
    "b": {"nvidia.com/mig-2g.20gb": 24},
    "c": {"nvidia.com/mig-3g.40gb": 8, "nvidia.com/gpu": 4},
    "all-disabled": {"nvidia.com/gpu": 8},
}
"""What a node offers by layout; the names in a pool begin with its own."""

EVER, NEVER = "00:00-24:00 UTC", "Mon 00:00-00:01 UTC"
"""Windows; it is a Saturday."""


def layout(pool: str, letter: str) -> Raw:
    return {"name": f"{pool}-{letter}", "devices": DEVICES[letter]}


def offered(label: str) -> dict[str, int]:
    return DEVICES[label if label == "all-disabled" else label.rpartition("-")[2]]


def configured(
    wanted: dict[str, str], former: dict[str, str] | None = None, *, most: int = 1, window: str = EVER, **changes: Any
) -> AgentConfig:
    """Pools and the letters of their layouts; the kubelets renew a ConfigMap within five seconds."""
    pools = {
        pool: {"wanted": layout(pool, letter), "mode_change": "live"}
        | ({"former": layout(pool, former[pool])} if former and pool in former else {})
        for pool, letter in wanted.items()
    }
    return a_config(
        gpu_layouts={"pools": pools, "windows": [window], "most_nodes": most}, **{"replay_speed": 24, **changes}
    )


@dataclass
class Yard:
    """A cluster, its MIG managers, and an agent that may be started anew at any time."""

    config: AgentConfig
    cluster: FakeCluster = field(default_factory=FakeCluster)
    now: float = NOON
    told: list[Event] = field(default_factory=list)
    broken: set[tuple[str, str]] = field(default_factory=set)
    """Nodes and layouts that fail there."""
    deaf: set[str] = field(default_factory=set)
    """Nodes whose MIG manager does nothing."""
    applied: dict[str, str] = field(default_factory=dict)
    leads: bool = True

    def __post_init__(self) -> None:
        self.restart()

    def restart(self) -> None:
        self.agent = Relayouts(self.cluster.kube(), Clock(real_now=lambda: self.now), lambda: self.leads)

    def add(self, name: str, pool: str, label: str | None = None, **changes: Any) -> None:
        """A node that has had its layout for long."""
        labels = {POOL_LABEL: pool, FLAVOR_LABEL: "h100-mig-onprem"}
        if label:
            labels |= {MIG_CONFIG_LABEL: label, MIG_STATE_LABEL: "success"}
            self.applied[name] = label
        status = {
            "allocatable": self._offers(label or "all-disabled"),
            "conditions": [{"type": "Ready", "status": "True"}],
        }
        self.cluster.put(NODES, {"metadata": {"name": name, "labels": labels}, "spec": {}, "status": status} | changes)

    def put_pod(self, name: str, node: str, resource: str = "nvidia.com/mig-1g.10gb") -> None:
        spec = {"nodeName": node, "containers": [{"name": "main", "resources": {"limits": {resource: "1"}}}]}
        metadata = {"name": name, "namespace": "vision"}
        self.cluster.put(PODS, {"metadata": metadata, "spec": spec, "status": {"phase": "Running"}})

    def nodes(self) -> list[Raw]:
        return [raw for key, raw in self.cluster.objects.items() if key[0] == "v1/nodes"]

    def pods_on(self, node: str) -> list[str]:
        found = (raw for key, raw in self.cluster.objects.items() if key[0] == "v1/pods")
        return [raw["metadata"]["name"] for raw in found if raw["spec"]["nodeName"] == node]

    def node(self, name: str) -> LayoutNode:
        found = layout_node(self.cluster.get(NODES, name), pools_of(self.config), self.now)
        assert found is not None
        return found

    def record(self, name: str) -> Record | None:
        text = self.cluster.get(NODES, name)["metadata"].get("annotations", {}).get(RELAYOUT_ANNOTATION)
        return None if text is None else record_from_json(text)

    def phase(self, name: str) -> str:
        """The phase of a node's change; `none` where there is none."""
        found = self.record(name)
        return "none" if found is None else found.phase.value

    def seen(self) -> list[LayoutNode]:
        """What the agent's cache has."""
        pools = pools_of(self.config)
        found = (layout_node(raw, pools, self.now) for raw in self.nodes())
        return [replace(node, version="") for node in found if node is not None]

    def tick(self, seconds: float = 3.0, seen: Sequence[LayoutNode] | None = None) -> None:
        """One round of the agent, so much later."""
        self.now += seconds
        asyncio.run(self.agent.round(self.seen() if seen is None else seen, self.config, self.told.append))

    def mig_managers(self, *, finish: bool = True) -> None:
        """Each sees a label that changed, says so, and then carries it out."""
        for raw in self.nodes():
            name, labels = raw["metadata"]["name"], raw["metadata"]["labels"]
            label, state = labels.get(MIG_CONFIG_LABEL), labels.get(MIG_STATE_LABEL)
            done = label == self.applied.get(name) and state in ("success", "failed")
            if name in self.deaf or label is None or done:
                continue
            if state != "pending":
                self.label(name, MIG_STATE_LABEL, "pending")
                continue
            if finish:
                fails = (name, label) in self.broken
                self.applied[name] = label
                if not fails:
                    self.offer(name, label)
                self.label(name, MIG_STATE_LABEL, "failed" if fails else "success")

    def jobs_leave(self) -> None:
        """Pods on nodes with our taint go, as the sequence of evictions makes them."""
        for raw in self.nodes():
            if any(taint["key"] == AGENT_DRAIN_TAINT for taint in raw["spec"].get("taints") or ()):
                for pod in self.pods_on(raw["metadata"]["name"]):
                    self.cluster.remove(PODS, pod, "vision")

    def label(self, name: str, key: str, value: str) -> None:
        self.cluster.change(NODES, name, "", lambda raw: raw["metadata"]["labels"].update({key: value}))

    def offer(self, name: str, label: str) -> None:
        """The device plugin tells the kubelet what a node has with a layout."""
        allocatable = self._offers(label)
        self.cluster.change(NODES, name, "", lambda raw: raw["status"].update(allocatable=allocatable))

    def annotate(self, name: str, text: str) -> None:
        self.cluster.change(
            NODES,
            name,
            "",
            lambda raw: raw["metadata"].setdefault("annotations", {}).update({RELAYOUT_ANNOTATION: text}),
        )

    def untaint(self, name: str) -> None:
        self.cluster.change(NODES, name, "", lambda raw: raw["spec"].update(taints=[]))

    def run(self, rounds: int = 30, seconds: float = 6.0) -> None:
        """Let everybody do their part."""
        for _ in range(rounds):
            self.tick(seconds)
            self.jobs_leave()
            self.mig_managers()

    def alarms(self) -> dict[str, str]:
        """The alarms that stand, by node."""
        return {alarm.subject: alarm.kind.value for alarm in self.agent.alarms}

    def lose_the_next_answer(self) -> None:
        """The next write is carried out, and nobody hears of it."""
        left = [True]

        def loses(method: str, path: str) -> bool:
            return method == "PATCH" and bool(left) and left.pop()

        self.cluster.loses = loses

    def refuse_the_next_write(self) -> None:
        """The next write is not carried out."""
        left = [True]

        def refuses(method: str, path: str, body: Any) -> None:
            if method == "PATCH" and left and left.pop():
                raise httpx2.ConnectError("connection refused")

        self.cluster.rule = refuses

    @staticmethod
    def _offers(label: str) -> dict[str, str]:
        """As the kubelet says it: what former layouts had is still there, with 0."""
        former = {name: "0" for devices in DEVICES.values() for name in devices}
        return {"cpu": "96", **former, **{name: str(count) for name, count in offered(label).items()}}
