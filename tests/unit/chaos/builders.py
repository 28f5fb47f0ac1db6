"""Nodes and notices of drills, complete and ordinary."""

from __future__ import annotations

from typing import Any

from infra.chaos.terms import DrillKind, DrillTerms
from infra.local.kwok import SIMULATED_LABEL
from runtime.eviction.notice import Certainty, Notice, NoticeKind
from stacks.labels import BURST_TAINT, FLAVOR_LABEL, POOL_LABEL
from tests.builders import NOON, SPOT

Raw = dict[str, Any]
BURST: dict[str, str] = {"key": BURST_TAINT, "value": "true", "effect": "NoSchedule"}


def a_node(name: str = "node-0", *, pool: str = "spot", ready: bool = True, simulated: bool = True, **spec: Any) -> Raw:
    """A Ready node of a spot pool with our burst taint."""
    labels = {POOL_LABEL: pool, FLAVOR_LABEL: SPOT} | ({SIMULATED_LABEL: "true"} if simulated else {})
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": name,
            "uid": f"uid-{name}",
            "resourceVersion": "7",
            "labels": labels,
            "annotations": {"own": "x"},
        },
        "spec": {"taints": [BURST], "providerID": f"fake:///{name}"} | spec,
        "status": {
            "allocatable": {"nvidia.com/gpu": "8"},
            "conditions": [{"type": "Ready", "status": str(ready)}],
            "images": [{"names": ["train"]}],
        },
    }


def a_drill(**changes: Any) -> DrillTerms:
    """One node of pool spot, two minutes of notice."""
    values: dict[str, Any] = {
        "pool": "spot",
        "nodes": 1,
        "kind": DrillKind.SPOT,
        "notice_seconds": 120.0,
        "every_seconds": 0.0,
        "away_seconds": 30.0,
        "patience_seconds": 300.0,
        "seed": 8,
    }
    return DrillTerms(**(values | changes))


def a_notice(notice_id: str = "drill-1-node-0", *, source: str = "drill", **changes: Any) -> Notice:
    """A spot notice of a drill."""
    values: dict[str, Any] = {
        "kind": NoticeKind.SPOT,
        "certainty": Certainty.CERTAIN,
        "noticed_at": NOON,
        "deadline": NOON + 120,
    }
    return Notice(id=notice_id, source=source, **(values | changes))
