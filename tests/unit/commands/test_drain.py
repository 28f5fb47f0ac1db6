from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from infra.commands import drain, orders
from runtime import kube
from runtime.eviction.drains import drains_of
from runtime.eviction.notice import Notice, NoticeKind
from runtime.eviction.pods import PODSET_LABEL, WORKLOAD_ANNOTATION
from stacks.labels import DRAIN_REASON_ANNOTATION, FLAVOR_LABEL
from tests.builders import NOON, SPOT
from tests.fakes.cluster import Denied, FakeCluster
from tests.fakes.workloads import a_workload, check, condition, reserve
from tests.unit.commands.a_fleet import a_fleet
from tests.unit.commands.conftest import Ended

Run = Callable[..., Ended]


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> FakeCluster:
    """Two spot nodes; on the first runs the job vision/one."""
    job = condition(check(reserve(a_workload("one", queue=f"vision-burst-{SPOT}")), "Ready"), "Admitted")
    cluster = a_fleet(monkeypatch, job)
    monkeypatch.setattr(drain, "connect", lambda _stack: cluster.kube())
    monkeypatch.setattr(orders, "POLL_SECONDS", 0.0)
    for name in ("node-0", "node-1"):
        cluster.put(kube.NODES, {"metadata": {"name": name, "labels": {FLAVOR_LABEL: SPOT}}, "spec": {}})
    cluster.put(kube.NODES, {"metadata": {"name": "login-0"}, "spec": {}})
    metadata = {
        "name": "one-0",
        "namespace": "vision",
        "labels": {PODSET_LABEL: "main"},
        "annotations": {WORKLOAD_ANNOTATION: "job-one"},
        "ownerReferences": [{"kind": "Job", "name": "one", "uid": "owner-one", "controller": True}],
    }
    spec = {"nodeName": "node-0", "containers": [{"name": "main", "resources": {"requests": {"nvidia.com/gpu": "1"}}}]}
    cluster.put(kube.PODS, {"metadata": metadata, "spec": spec, "status": {"phase": "Running"}})
    return cluster


def notices(cluster: FakeCluster, name: str = "node-0") -> list[Notice]:
    return list(drains_of(cluster.get(kube.NODES, name), NOON))


def test_nodes_are_marked_for_the_agent_and_their_jobs_are_named(gpufleet: Run, cluster: FakeCluster) -> None:
    arguments = ("node-0", "node-1", "--within", "30m", "--for", "driver-upgrade", "--reason", "580.1")
    ended = gpufleet("drain", *arguments, "--yes", "--json")
    assert ended.code == 0, ended.err
    assert [one["jobs"] for one in json.loads(ended.out)["nodes"]] == [["vision/one"], []]
    for name in ("node-0", "node-1"):
        [notice] = notices(cluster, name)
        assert (notice.kind, notice.detail) == (NoticeKind.UPGRADE, "580.1")
        assert notice.deadline is not None
        assert notice.deadline - notice.noticed_at == pytest.approx(1_800, abs=1)


def test_undone_the_nodes_are_as_before(gpufleet: Run, cluster: FakeCluster) -> None:
    gpufleet("drain", "node-0", "--yes", "--reason", "x")
    ended = gpufleet("drain", "node-0", "node-1", "--undo")
    assert ended.code == 0, ended.err
    assert ended.out.splitlines() == ["node-0: takes jobs again", "node-1: was not drained"]
    assert notices(cluster) == []
    assert DRAIN_REASON_ANNOTATION not in cluster.get(kube.NODES, "node-0")["metadata"]["annotations"]


def test_a_node_that_left_the_fleet_meanwhile_can_be_let_go(gpufleet: Run, cluster: FakeCluster) -> None:
    gpufleet("drain", "node-1")
    raw = cluster.get(kube.NODES, "node-1")
    raw["metadata"]["labels"].clear()
    cluster.put(kube.NODES, raw)
    assert gpufleet("drain", "node-1", "--undo").out == "node-1: takes jobs again\n"
    assert notices(cluster, "node-1") == []


def test_of_several_nodes_each_is_done_and_those_that_could_not_be_are_named(
    gpufleet: Run, cluster: FakeCluster
) -> None:
    def rule(method: str, path: str, body: Any) -> None:
        if method == "PATCH" and path.endswith("/node-0"):
            raise Denied(409, "somebody is always faster")

    cluster.rule = rule
    ended = gpufleet("drain", "node-0", "node-1", "--yes")
    assert (ended.code, "node node-0 was not changed" in ended.said) == (1, True)
    assert len(notices(cluster, "node-1")) == 1


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (("node-2",), 1, "the fleet has no node node-2; did you mean node-"),
        (("login-0",), 1, "the fleet has no node login-0"),
        (("node-1", "node-2"), 1, "no node node-2"),
        (("node-0", "--within", "0s"), 2, "not between"),
        (("node-0", "--within", "9d"), 2, "not between"),
        (("node-0", "--within", "noon"), 2, "--within"),
        (("node-0", "--for", "spot-interruption"), 2, "--for"),
        (("node-0", "--reason", "x" * 300), 2, "at most 200 characters"),
    ],
)
def test_what_cannot_be_is_refused_before_anything_is_written(
    gpufleet: Run, cluster: FakeCluster, arguments: tuple[str, ...], code: int, said: str
) -> None:
    ended = gpufleet("drain", *arguments, "--yes")
    assert ended.code == code
    assert said in ended.said
    assert not cluster.writes()


def test_jobs_are_not_made_to_leave_without_a_yes(gpufleet: Run, cluster: FakeCluster) -> None:
    ended = gpufleet("drain", "node-0")
    assert (ended.code, "add --yes" in ended.said, notices(cluster)) == (1, True, [])
    assert gpufleet("drain", "node-1").code == 0, "nothing runs there"


def test_whoever_may_not_is_told_so(gpufleet: Run, cluster: FakeCluster) -> None:
    def rule(method: str, path: str, body: Any) -> None:
        if method == "PATCH":
            raise Denied(403, "denied by a policy")

    cluster.rule = rule
    ended = gpufleet("drain", "node-1")
    assert (ended.code, "it takes an administrator" in ended.said) == (1, True)


def test_waiting_ends_when_the_last_pod_with_gpus_is_gone(gpufleet: Run, cluster: FakeCluster) -> None:
    looks = 0

    def rule(method: str, path: str, body: Any) -> None:
        nonlocal looks
        looks += method == "GET" and path.endswith("/pods") and bool(notices(cluster))
        if looks == 3:
            looks += 1
            cluster.remove(kube.PODS, "one-0", "vision")

    cluster.rule = rule
    ended = gpufleet("drain", "node-0", "--yes", "--wait")
    assert ended.code == 0, ended.err
    assert "done in" in ended.err


def test_waiting_for_an_api_server_that_stays_away_ends_and_says_so(
    gpufleet: Run, cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    def rule(method: str, path: str, body: Any) -> None:
        if method == "GET" and path.endswith("/pods") and notices(cluster):
            raise Denied(503, "away")

    cluster.rule = rule
    monkeypatch.setattr(drain, "_PATIENCE_SECONDS", -1_000.0)
    ended = gpufleet("drain", "node-0", "--yes", "--wait")
    assert (ended.code, "not empty in time; the API server does not answer" in ended.said) == (1, True)
    assert notices(cluster), "the request stands"


def test_a_node_that_is_not_empty_in_time_is_an_error_that_names_the_pods(
    gpufleet: Run, cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(drain, "_PATIENCE_SECONDS", -1_000.0)
    ended = gpufleet("drain", "node-0", "--yes", "--wait")
    assert (ended.code, "still there: vision/one-0" in ended.said) == (1, True)
