"""Requests to empty a node: what stands on it, what follows from that, and when the node is empty."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from runtime.errors import Conflict, NotFound
from runtime.eviction.drains import Drain, ask, drains_of, holders, take_back
from runtime.eviction.notice import Certainty, NoticeKind
from runtime.kube import NODES, PODS
from stacks.labels import AGENT_DRAIN_TAINT, BURST_TAINT, DRAIN_REASON_ANNOTATION, DRAIN_TAINT
from tests.builders import NOON
from tests.fakes.cluster import Denied, FakeCluster

BURST = {"key": BURST_TAINT, "value": "true", "effect": "NoSchedule"}
UPGRADE = Drain(NoticeKind.UPGRADE, NOON, NOON + 600)


def node(*taints: dict[str, Any], **annotations: str) -> dict[str, Any]:
    return {"metadata": {"name": "n1", "annotations": annotations}, "spec": {"taints": list(taints)}}


def taint(value: str | None, key: str = DRAIN_TAINT, effect: str = "NoSchedule") -> dict[str, Any]:
    return {"key": key, "effect": effect, **({} if value is None else {"value": value})}


def with_node(*taints: dict[str, Any]) -> FakeCluster:
    cluster = FakeCluster()
    cluster.put(NODES, node(*taints))
    return cluster


def taints_on(cluster: FakeCluster) -> list[tuple[str, str]]:
    found = cluster.get(NODES, "n1")["spec"].get("taints") or []
    return [(one["key"], one.get("value", "")) for one in found]


def a_pod(cluster: FakeCluster, name: str, *, gpus: object = 1, phase: str = "Running", **metadata: Any) -> None:
    resources = {"requests": {"nvidia.com/gpu": gpus}} if gpus else {}
    spec = {"nodeName": "n1", "containers": [{"name": "main", "resources": resources}]}
    cluster.put(
        PODS, {"metadata": {"name": name, "namespace": "any", **metadata}, "spec": spec, "status": {"phase": phase}}
    )


# What follows from a taint


@pytest.mark.parametrize("key", [DRAIN_TAINT, AGENT_DRAIN_TAINT])
def test_a_request_reads_back_as_a_certain_notice_with_its_deadline(key: str) -> None:
    [notice] = drains_of(node(BURST, taint(UPGRADE.value, key)), NOON + 100)
    assert (notice.kind, notice.certainty) == (NoticeKind.UPGRADE, Certainty.CERTAIN)
    assert (notice.noticed_at, notice.deadline) == (NOON, NOON + 600)


def test_a_request_is_the_same_notice_each_time_it_is_read() -> None:
    raw = node(taint(UPGRADE.value))
    assert drains_of(raw, NOON) == drains_of(raw, NOON + 5_000)


def test_both_requests_stand_beside_each_other() -> None:
    notices = drains_of(node(taint(UPGRADE.value), taint(UPGRADE.value, AGENT_DRAIN_TAINT)), NOON)
    assert len({notice.id for notice in notices}) == 2


def test_the_value_of_a_taint_is_one() -> None:
    assert UPGRADE.value == f"driver-upgrade.{NOON:.0f}.{NOON + 600:.0f}"
    assert len(UPGRADE.value) <= 63


@pytest.mark.parametrize("value", [None, ""])
def test_a_taint_set_by_hand_without_a_value_is_maintenance_without_a_deadline(value: str | None) -> None:
    [notice] = drains_of(node(taint(value)), NOON)
    assert (notice.kind, notice.certainty, notice.deadline) == (NoticeKind.MAINTENANCE, Certainty.CERTAIN, None)


@pytest.mark.parametrize(
    "value",
    [
        *("now", "maintenance", "maintenance.", "maintenance.1.2.3", "spot-interruption.1.2", "node-loss.1", "move.1"),
        *("maintenance.-1", "maintenance.1e9", "maintenance.\u0661", "maintenance.999999999999999", "." * 63),
    ],
)
def test_what_nobody_can_read_is_only_a_warning(value: str) -> None:
    [notice] = drains_of(node(taint(value)), NOON)
    assert notice.certainty is Certainty.LIKELY


def test_the_reason_of_an_administrator_is_the_detail_of_her_own_request_alone() -> None:
    raw = node(
        taint(UPGRADE.value), taint(UPGRADE.value, AGENT_DRAIN_TAINT), **{DRAIN_REASON_ANNOTATION: "new \n kernel"}
    )
    assert [notice.detail for notice in drains_of(raw, NOON)] == ["new   kernel", ""]


@pytest.mark.parametrize("raw", [{}, {"metadata": None, "spec": None}, {"metadata": {}, "spec": {"taints": None}}])
def test_a_node_without_a_request_is_not_emptied(raw: dict[str, Any]) -> None:
    assert drains_of(raw, NOON) == ()
    assert drains_of(node(BURST), NOON) == ()


# Asking


def test_asking_leaves_all_other_taints_and_replaces_its_own() -> None:
    cluster = with_node(BURST, taint("maintenance.1", AGENT_DRAIN_TAINT), taint("maintenance.2"))
    asyncio.run(ask(cluster.kube(), "n1", UPGRADE))
    assert taints_on(cluster) == [
        (BURST_TAINT, "true"), (DRAIN_TAINT, "maintenance.2"), (AGENT_DRAIN_TAINT, UPGRADE.value),
    ]  # fmt: skip


def test_taking_back_leaves_what_others_asked_for() -> None:
    cluster = with_node(BURST, taint("maintenance.1", AGENT_DRAIN_TAINT), taint("maintenance.2"))
    assert asyncio.run(take_back(cluster.kube(), "n1"))
    assert not asyncio.run(take_back(cluster.kube(), "n1"))
    assert taints_on(cluster) == [(BURST_TAINT, "true"), (DRAIN_TAINT, "maintenance.2")]


def test_an_administrators_reason_comes_and_goes_with_her_request() -> None:
    cluster = with_node()
    asyncio.run(ask(cluster.kube(), "n1", UPGRADE, key=DRAIN_TAINT, reason="new kernel"))
    assert cluster.get(NODES, "n1")["metadata"]["annotations"] == {DRAIN_REASON_ANNOTATION: "new kernel"}
    asyncio.run(take_back(cluster.kube(), "n1", key=DRAIN_TAINT))
    assert cluster.get(NODES, "n1")["metadata"]["annotations"] == {}


def test_a_node_that_changes_meanwhile_is_read_again() -> None:
    cluster = with_node(BURST)
    tries = 0

    def changes(method: str, path: str, body: Any) -> None:
        nonlocal tries
        if method == "PATCH":
            tries += 1
            if tries == 1:
                raise Denied(409)

    cluster.rule = changes
    asyncio.run(ask(cluster.kube(), "n1", UPGRADE))
    assert (tries, taints_on(cluster)[-1]) == (2, (AGENT_DRAIN_TAINT, UPGRADE.value))


def test_a_node_that_never_rests_is_an_error() -> None:
    cluster = with_node()

    def changes(method: str, path: str, body: Any) -> None:
        if method == "PATCH":
            raise Denied(409)

    cluster.rule = changes
    with pytest.raises(Conflict):
        asyncio.run(ask(cluster.kube(), "n1", UPGRADE))


def test_a_node_that_is_not_there_is_an_error() -> None:
    with pytest.raises(NotFound, match="no node n2"):
        asyncio.run(ask(with_node().kube(), "n2", UPGRADE))


# Whether it is empty


def test_a_node_is_empty_when_no_pod_holds_its_gpus() -> None:
    cluster = with_node()
    a_pod(cluster, "done", phase="Succeeded")
    a_pod(cluster, "failed", phase="Failed")
    a_pod(cluster, "exporter", gpus=None)
    a_pod(cluster, "monitor", ownerReferences=[{"kind": "DaemonSet", "name": "monitor"}])
    assert asyncio.run(holders(cluster.kube(), "n1")) == []
    a_pod(cluster, "train", ownerReferences=[{"kind": "Job", "name": "train"}])
    a_pod(cluster, "odd", gpus="many")
    assert asyncio.run(holders(cluster.kube(), "n1")) == ["any/odd", "any/train"]
