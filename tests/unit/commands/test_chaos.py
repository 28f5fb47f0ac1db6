"""`gpufleet chaos` on a cluster in memory, where the test plays the agent. Times are real, and short."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import httpx2
import pytest

from infra.chaos import drill as drills
from infra.chaos import machines
from infra.commands import chaos
from runtime import kube
from runtime.eviction.marker import marker_from_json, marker_to_json
from runtime.eviction.notice import NoticeKind, notices_from_json, notices_to_json
from runtime.eviction.view import Marker, Phase
from stacks.labels import CORDONED_ANNOTATION, EVICTION_ANNOTATION, GPU_RESOURCE, NOTICES_ANNOTATION, SYSTEM_NAMESPACE
from tests.builders import SPOT
from tests.fakes.cluster import Denied, FakeCluster
from tests.fakes.workloads import a_workload, check, condition, reserve
from tests.unit.chaos.builders import a_node, a_notice
from tests.unit.commands.a_fleet import a_fleet
from tests.unit.commands.conftest import Ended

Run = Callable[..., Ended]
Raw = dict[str, Any]
WORKLOAD_PATH = "/workloads/job-one"
QUICK = ("spot", "--pool", "spot", "--notice", "30ms", "--away", "20ms", "--patience", "200ms", "--seed", "8")


class Cluster(FakeCluster):
    """One that deletes objects, too, and says which."""

    deleted: list[str]

    def _route(self, request: httpx2.Request, body: Any) -> httpx2.Response:
        if request.method != "DELETE":
            return super()._route(request, body)
        resource, namespace, name = found_in(request.url.path)
        try:
            self.remove(resource, name, namespace)
        except KeyError:
            raise Denied(404, f"{name} not found") from None
        self.deleted.append(f"{resource.plural}/{name}")
        return httpx2.Response(200, json={"kind": "Status", "status": "Success"})


def found_in(path: str) -> tuple[kube.Resource, str, str]:
    parts = path.strip("/").split("/")
    namespace = parts[3] if "namespaces" in parts else ""
    return kube.Resource("v1", parts[-2]), namespace, parts[-1]


def a_cloud_job() -> Raw:
    return condition(check(reserve(a_workload("one", queue=f"vision-burst-{SPOT}"), SPOT), "Ready"), "Admitted")


def a_pod(node: str = "node-0") -> Raw:
    container = {"name": "train", "resources": {"requests": {GPU_RESOURCE: "1"}}}
    owner = {"kind": "Job", "name": "one", "uid": "owner-one", "controller": True}
    return {
        "metadata": {
            "name": f"one-{node}",
            "namespace": "vision",
            "labels": {"kueue.x-k8s.io/podset": "main"},
            "annotations": {"kueue.x-k8s.io/workload": "job-one"},
            "ownerReferences": [owner],
        },
        "spec": {"nodeName": node, "containers": [container]},
        "status": {"phase": "Running"},
    }


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Cluster:
    """Two simulated spot nodes; one job of one GPU runs on the first."""
    made = a_fleet(monkeypatch, a_cloud_job())
    found = Cluster(objects=made.objects, version=made.version)
    found.deleted = []
    monkeypatch.setattr(chaos, "connect", lambda _stack: found.kube())
    monkeypatch.setattr(drills, "POLL_SECONDS", 0.01)
    monkeypatch.setattr(machines, "_RETRY_SECONDS", 0.01)
    monkeypatch.setattr(machines, "_CLEAN_SECONDS", 0.05)
    for name in ("node-0", "node-1"):
        found.put(kube.NODES, a_node(name))
    found.put(kube.PODS, a_pod())
    job = {"metadata": {"name": "one", "namespace": "vision"}, "status": {"failed": 1}}
    found.put(kube.JOBS, job)
    return found


def plays_agent(cluster: Cluster) -> None:
    """From now on a job whose node has a notice is stopped, and runs on the second node two looks later."""
    looks = 0

    def agent(method: str, path: str, body: Any) -> None:
        nonlocal looks
        if method != "GET" or not path.endswith(WORKLOAD_PATH):
            return
        try:
            text = cluster.get(kube.NODES, "node-0")["metadata"]["annotations"].get(NOTICES_ANNOTATION, "[]")
        except KeyError:
            text = "[]"
        notices = notices_from_json(text)
        looks += bool(notices) or looks > 0
        if looks == 1:
            [notice] = notices
            now = notice.noticed_at + 0.01
            marker = Marker(notice.id, NoticeKind.SPOT, ("node-0",), Phase.STOPPED, stopped_at=now, attempts=1)
            evict(cluster, replace(marker, noticed_at=notice.noticed_at), a_workload("one", active=False))
        elif looks == 3:
            evict(cluster, replace(marker_on(cluster), phase=Phase.DONE, lost_gpu_seconds=2.5), a_cloud_job())
            cluster.put(kube.PODS, a_pod("node-1"))

    cluster.rule = agent


def evict(cluster: Cluster, marker: Marker, raw: Raw) -> None:
    now = time.time()
    if marker.phase is Phase.DONE:
        marker = replace(marker, gone_at=now, requeued_at=now, accounted=True)
    raw["metadata"]["annotations"] = {EVICTION_ANNOTATION: marker_to_json(marker)}
    cluster.put(kube.WORKLOADS, raw)


def marker_on(cluster: Cluster) -> Marker:
    raw = cluster.get(kube.WORKLOADS, "job-one", "vision")
    return marker_from_json(raw["metadata"]["annotations"][EVICTION_ANNOTATION])


def spec_of(cluster: Cluster, name: str = "node-0") -> tuple[Raw, Raw]:
    node = cluster.get(kube.NODES, name)
    return node["spec"], node["metadata"]["annotations"]


def records(cluster: Cluster) -> list[str]:
    return [key[2] for key in cluster.objects if key[2].startswith("gpufleet-drill-")]


def test_a_drill_follows_the_job_and_puts_everything_back(gpufleet: Run, cluster: Cluster) -> None:
    before = spec_of(cluster)
    plays_agent(cluster)

    ended = gpufleet("chaos", *QUICK, "--json")

    assert ended.code == 0, ended.err
    told = json.loads(ended.out)
    [job] = told["jobs"]
    assert (told["jobs_lost"], told["passed"], told["lost_gpu_seconds"]) == (0, True, 2.5)
    assert (job["job"], job["outcome"], job["evictions"], job["backoff_spent"]) == ("vision/one", "running", 1, 0)
    assert job["detected"] == job["stopped"] == pytest.approx(0.01, abs=0.002)
    assert job["running"] >= job["requeued"] >= job["stopped"]
    assert cluster.deleted[:2] == ["nodes/node-0", "pods/one-node-0"]
    assert spec_of(cluster) == before
    assert not records(cluster)


def test_the_record_is_written_before_anything_else(gpufleet: Run, cluster: Cluster) -> None:
    plays_agent(cluster)

    gpufleet("chaos", *QUICK)

    first, second = cluster.writes()[:2]
    assert first == f"POST /api/v1/namespaces/{SYSTEM_NAMESPACE}/configmaps"
    assert second == "PATCH /api/v1/nodes/node-0"


def test_people_get_a_plan_a_table_and_a_verdict(gpufleet: Run, cluster: Cluster) -> None:
    plays_agent(cluster)

    ended = gpufleet("chaos", *QUICK)

    assert "spot notice of 30ms for 1 node of pool spot (seed 8)" in ended.out
    assert "node-0: 1 running GPU pod" in ended.out
    assert "1 jobs, 0 lost, 2.5 GPU-seconds to compute again" in ended.out
    assert "DETECTED" in ended.out


def test_a_job_that_fails_is_lost(gpufleet: Run, cluster: Cluster) -> None:
    def rule(method: str, path: str, body: Any) -> None:
        if method == "GET" and path.endswith(WORKLOAD_PATH):
            cluster.put(kube.WORKLOADS, condition(a_cloud_job(), "Finished", reason="Failed"))

    cluster.rule = rule
    ended = gpufleet("chaos", *QUICK)

    assert ended.code == 1
    assert "1 lost" in ended.out
    assert "vision/one is lost: gpufleet explain vision/one" in ended.said


def test_a_job_that_nobody_moves_fails_the_drill_with_a_hint(gpufleet: Run, cluster: Cluster) -> None:
    ended = gpufleet("chaos", *QUICK, "--json")

    assert ended.code == 1
    assert json.loads(ended.out)["missed"] == ["vision/one"]
    assert "does the agent run" in ended.said
    assert not records(cluster)


def test_a_dry_run_says_what_it_would_do_and_writes_nothing(gpufleet: Run, cluster: Cluster) -> None:
    ended = gpufleet("chaos", *QUICK, "--dry-run", "--json")

    told = json.loads(ended.out)
    assert (ended.code, told["machines"][0]["name"], told["workloads"]) == (0, "node-0", ["vision/job-one"])
    assert told["loses_nodes"] is True
    assert not cluster.writes()


def test_real_machines_are_not_touched_without_a_yes(gpufleet: Run, cluster: Cluster) -> None:
    for name in ("node-0", "node-1"):
        cluster.put(kube.NODES, a_node(name, simulated=False))

    ended = gpufleet("chaos", *QUICK)

    assert (ended.code, cluster.writes()) == (1, [])
    assert "stops 1 job on real machines; add --yes" in ended.said


def test_real_machines_stay_at_the_deadline(gpufleet: Run, cluster: Cluster) -> None:
    cluster.put(kube.NODES, a_node("node-0", simulated=False))
    before = spec_of(cluster)
    plays_agent(cluster)

    ended = gpufleet("chaos", *QUICK, "--yes")

    assert "the machines stay" in ended.out
    assert [one for one in cluster.deleted if not one.startswith("configmaps/")] == []
    assert spec_of(cluster) == before


def test_a_real_machine_that_deletion_would_end_is_refused(gpufleet: Run, cluster: Cluster) -> None:
    node = a_node("node-0", simulated=False)
    node["metadata"]["finalizers"] = ["karpenter.sh/termination"]
    cluster.put(kube.NODES, node)

    ended = gpufleet("chaos", *QUICK, "--yes", "--lose-nodes")

    assert (ended.code, cluster.writes()) == (1, [])
    assert "leave --lose-nodes out" in ended.said


def test_nodes_without_jobs_show_nothing_and_are_left_alone(gpufleet: Run, cluster: Cluster) -> None:
    cluster.remove(kube.PODS, "one-node-0", "vision")

    ended = gpufleet("chaos", *QUICK)

    assert (ended.code, cluster.writes()) == (1, [])
    assert "no job of the fleet runs" in ended.said


def test_whoever_may_not_write_nodes_is_told_so_and_leaves_nothing(gpufleet: Run, cluster: Cluster) -> None:
    def rule(method: str, path: str, body: Any) -> None:
        if method == "PATCH" and "/nodes/" in path:
            raise Denied(403, "only the node agent writes notices")

    cluster.rule = rule
    ended = gpufleet("chaos", *QUICK)

    assert ended.code == 1
    assert "a drill takes an administrator" in ended.said
    assert not records(cluster)


def test_ctrl_c_ends_a_drill_and_puts_everything_back(gpufleet: Run, cluster: Cluster) -> None:
    before = spec_of(cluster)

    def rule(method: str, path: str, body: Any) -> None:
        if method == "GET" and path.endswith(WORKLOAD_PATH):
            os.kill(os.getpid(), signal.SIGINT)

    cluster.rule = rule
    ended = gpufleet("chaos", "spot", "--pool", "spot", "--notice", "1h")

    assert ended.code == 130
    assert "everything was put back" in ended.err
    assert spec_of(cluster) == before
    assert not records(cluster)


def test_an_api_server_that_is_away_for_a_moment_ends_no_drill(gpufleet: Run, cluster: Cluster) -> None:
    plays_agent(cluster)
    agent, requests = cluster.rule, 0

    def rule(method: str, path: str, body: Any) -> None:
        nonlocal requests
        requests += cluster.deleted != []
        if 2 < requests < 8:
            raise httpx2.ConnectError("connection refused")
        agent(method, path, body)

    cluster.rule = rule
    ended = gpufleet("chaos", *QUICK)

    assert ended.code == 0, ended.err
    assert not records(cluster)


def test_what_cannot_be_put_back_stays_on_record_until_clean_does(gpufleet: Run, cluster: Cluster) -> None:
    before = spec_of(cluster)
    plays_agent(cluster)
    agent = cluster.rule

    def rule(method: str, path: str, body: Any) -> None:
        if method == "POST" and path.endswith("/nodes"):
            raise Denied(503, "away")
        agent(method, path, body)

    cluster.rule = rule
    ended = gpufleet("chaos", *QUICK)
    assert ended.code == 1
    assert "gpufleet chaos clean" in ended.said
    assert len(records(cluster)) == 1

    cluster.rule = lambda method, path, body: None
    refused = gpufleet("chaos", *QUICK)
    assert refused.code == 1
    assert "runs or was killed" in refused.said

    cleaned = gpufleet("chaos", "clean", "--yes")
    assert cleaned.code == 0, cleaned.err
    assert "node-0: created again" in cleaned.out
    assert spec_of(cluster) == before
    assert not records(cluster)


def test_a_drill_that_may_still_run_is_not_undone_without_a_yes(gpufleet: Run, cluster: Cluster) -> None:
    about = {"pool": "spot", "began_at": time.time(), "until": time.time() + 600}
    metadata = {
        "name": "gpufleet-drill-1",
        "namespace": SYSTEM_NAMESPACE,
        "labels": {"gpufleet.dev/drill": "1"},
    }
    cluster.put(kube.CONFIG_MAPS, {"metadata": metadata, "data": {"drill": json.dumps(about)}})

    ended = gpufleet("chaos", "clean")

    assert ended.code == 1
    assert "may run for another" in ended.said
    assert records(cluster)


def test_a_record_that_cannot_be_read_is_named(gpufleet: Run, cluster: Cluster) -> None:
    metadata = {"name": "gpufleet-drill-1", "namespace": SYSTEM_NAMESPACE, "labels": {"gpufleet.dev/drill": "1"}}
    cluster.put(kube.CONFIG_MAPS, {"metadata": metadata, "data": {"drill": "{"}})

    ended = gpufleet("chaos", "clean", "--yes")

    assert ended.code == 1
    assert f"ConfigMap {SYSTEM_NAMESPACE}/gpufleet-drill-1" in ended.said


def test_a_drill_whose_record_somebody_removed_still_puts_everything_back(gpufleet: Run, cluster: Cluster) -> None:
    before = spec_of(cluster)
    plays_agent(cluster)

    def forgets(method: str, path: str, body: Any) -> None:
        if method == "GET" and path.endswith(WORKLOAD_PATH):
            for name in records(cluster):
                cluster.remove(kube.CONFIG_MAPS, name, SYSTEM_NAMESPACE)
            raise Denied(422, "no")

    cluster.rule = forgets
    gpufleet("chaos", *QUICK)
    assert spec_of(cluster) == before


def test_clean_finds_a_notice_without_a_record(gpufleet: Run, cluster: Cluster) -> None:
    before = spec_of(cluster)
    node = a_node()
    node["metadata"]["annotations"] |= {
        NOTICES_ANNOTATION: notices_to_json([a_notice("drill-9-node-0")]),
        CORDONED_ANNOTATION: "drill-9-node-0",
    }
    node["spec"] |= {"unschedulable": True}
    cluster.put(kube.NODES, node)

    first, second = gpufleet("chaos", "clean"), gpufleet("chaos", "clean")

    assert first.out == "node-0: notice taken back\n"
    assert second.out == "no drill has left anything\n"
    assert spec_of(cluster) == before


@pytest.mark.parametrize(
    ("option", "value", "said"),
    [
        ("--notice", "2h", "at most 1h"),
        ("--notice", "120", "not a duration"),
        ("--nodes", "0", "greater than or equal to 1"),
        ("--kind", "quake", "rebalance"),
        ("--pool", "sopt", "did you mean spot"),
    ],
)
def test_a_wrong_option_is_named(gpufleet: Run, cluster: Cluster, option: str, value: str, said: str) -> None:
    ended = gpufleet("chaos", "spot", *(() if option == "--pool" else ("--pool", "spot")), option, value)

    assert ended.code in (1, 2)
    assert said in ended.said
    assert not cluster.writes()
