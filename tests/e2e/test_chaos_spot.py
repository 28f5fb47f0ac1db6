"""`gpufleet chaos spot` on the real control plane: nobody is lost, the report says what happened, nothing is left."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from runtime.eviction.marker import marker_from_json
from runtime.eviction.view import Marker, Phase
from stacks.labels import EVICTION_ANNOTATION, NOTICES_ANNOTATION, POOL_LABEL, SYSTEM_NAMESPACE
from tests.conftest import ROOT
from tests.e2e.conftest import Stack, condition, wait_for

LOCAL, CLOUD, POOL = "h100-onprem", "h100-aws-spot", "spot"
LONGEST_DRILL_SECONDS = 120


def start(stack: Stack, *arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [str(Path(sys.executable).with_name("gpufleet")), "chaos", *arguments],
        cwd=ROOT,
        env={**os.environ, "KUBECONFIG": str(stack.plane.kubeconfig)},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def cloud_jobs(stack: Stack, team: str, count: int) -> list[str]:
    """Jobs that each fill a spot node, and know of no contract: SIGTERM ends them."""
    filler = stack.submit(team, 8, job_class="urgent", run=300, longest=320)
    wait_for("the filler", lambda: stack.flavor(team, filler) == LOCAL)
    jobs = [stack.submit(team, 8, job_class="urgent", run=300, longest=320) for _ in range(count)]
    for job in jobs:
        runs_in_cloud(stack, team, job)
    return jobs


def runs_in_cloud(stack: Stack, team: str, job: str) -> None:
    wait_for(f"{job} in the cloud", lambda: stack.flavor(team, job) == CLOUD)
    wait_for(f"the pods of {job}", lambda: condition(stack.workload(team, job), "PodsReady"))


def marker(stack: Stack, team: str, job: str) -> Marker:
    return marker_from_json(stack.workload(team, job)["metadata"]["annotations"][EVICTION_ANNOTATION])


def machines(stack: Stack) -> dict[str, Any]:
    """Everything of the pool's Nodes that is neither a moment nor a number of the API server's."""
    found = {}
    for node in stack.kube.list("v1", "Node", label_selector=f"{POOL_LABEL}={POOL}")[0]:
        metadata, spec = node["metadata"], dict(node["spec"])
        spec["taints"] = sorted((one["key"], one.get("value"), one["effect"]) for one in spec.get("taints", []))
        ready = [one["status"] for one in node["status"].get("conditions", []) if one["type"] == "Ready"]
        amounts = (node["status"]["allocatable"], node["status"]["capacity"])
        found[metadata["name"]] = (metadata["labels"], metadata.get("annotations"), spec, amounts, ready)
    return found


def records(stack: Stack) -> list[Any]:
    found, _ = stack.kube.list("v1", "ConfigMap", SYSTEM_NAMESPACE, label_selector="gpufleet.dev/drill")
    return found


def noticed(stack: Stack) -> list[str]:
    nodes, _ = stack.kube.list("v1", "Node")
    return [one["metadata"]["name"] for one in nodes if NOTICES_ANNOTATION in one["metadata"].get("annotations", {})]


def test_three_spot_nodes_go_and_no_job_is_lost(stack: Stack, team: str) -> None:
    jobs = cloud_jobs(stack, team, 3)
    uids = {job: stack.workload(team, job)["metadata"]["uid"] for job in jobs}
    before = machines(stack)

    drill = start(
        stack, *("spot", "--pool", POOL, "--nodes", "3", "--notice", "20s", "--away", "3s", "--seed", "8", "--json")
    )
    out, err = drill.communicate(timeout=LONGEST_DRILL_SECONDS)

    assert drill.returncode == 0, f"{out}\n{err}"
    report = json.loads(out)
    assert (report["jobs_lost"], report["lost"], report["missed"]) == (0, [], [])
    assert len(report["machines"]) == 3
    assert all(
        one["noticed_at"] <= one["deadline"] <= one["lost_at"] < one["returned_at"] for one in report["machines"]
    )
    told = {one["job"].removeprefix(f"{team}/"): one for one in report["jobs"]}
    assert set(told) == set(jobs)
    for job, one in told.items():
        found, workload = marker(stack, team, job), stack.workload(team, job)
        assert workload["metadata"]["uid"] == uids[job]
        assert (found.phase, found.attempts, one["evictions"]) == (Phase.DONE, 1, 1)
        assert one["backoff_spent"] == 0
        assert one["lost_gpu_seconds"] == pytest.approx(found.lost_gpu_seconds, abs=0.01)
        [node] = [node for node in report["machines"] if node["name"] in one["nodes"]]
        for stage, at in (("stopped", found.stopped_at), ("gone", found.gone_at), ("requeued", found.requeued_at)):
            assert at is not None
            assert one[stage] == pytest.approx(at - node["noticed_at"], abs=0.01)
        assert 0 <= one["detected"] <= one["stopped"] <= one["gone"] <= one["requeued"] <= one["running"]
        assert one["detected"] < 5
        assert (one["outcome"], one["flavor_after"]) == ("running", CLOUD)
        assert stack.flavor(team, job) == CLOUD
    wait_for("the nodes to be as before", lambda: machines(stack) == before)
    assert not records(stack)


def test_a_drill_that_is_interrupted_puts_everything_back(stack: Stack, team: str) -> None:
    [job] = cloud_jobs(stack, team, 1)
    before = machines(stack)
    drill = start(stack, *("spot", "--pool", POOL, "--notice", "1h", "--kind", "maintenance"))
    wait_for("the notice", lambda: noticed(stack))

    drill.send_signal(signal.SIGTERM)
    _, err = drill.communicate(timeout=30)

    assert drill.returncode == 130, err
    assert "everything was put back" in err
    assert not noticed(stack)
    assert not records(stack)
    wait_for("the nodes to be as before", lambda: machines(stack) == before)
    assert stack.flavor(team, job) == CLOUD


def test_what_a_killed_drill_leaves_is_found_and_put_back(stack: Stack, team: str) -> None:
    cloud_jobs(stack, team, 1)
    before = machines(stack)
    drill = start(stack, *("spot", "--pool", POOL, "--notice", "1s", "--away", "1h"))
    wait_for("the machine to go", lambda: len(machines(stack)) < len(before))
    time.sleep(1)
    drill.kill()
    drill.communicate(timeout=10)

    second = start(stack, "spot", "--pool", POOL)
    _, refused = second.communicate(timeout=30)
    cleaning = start(stack, "clean", "--yes")
    out, err = cleaning.communicate(timeout=60)

    assert second.returncode == 1
    assert "gpufleet chaos clean" in refused
    assert cleaning.returncode == 0, err
    assert "created again" in out
    assert not records(stack)
    wait_for("the nodes to be as before", lambda: machines(stack) == before)
