"""What Kueue does beside the burst rule, and must go on doing: borrowing, preemption, fair sharing, topology."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from typing import Any

import pytest

from infra.local.errors import KubeError
from infra.local.kubeclient import Manifest
from infra.local.kueue import KueueOptions
from infra.local.kwok import KwokPool, nodes
from stacks.labels import GPU_RESOURCE, QUEUE_LABEL, burst_queue
from tests.e2e.conftest import KUEUE, Stack, condition, reserved_flavor, wait_for
from tests.e2e.test_routes import cloud_quota, edit, label

SHARED, LOCAL, SPOT, ON_DEMAND = "a100-onprem", "h100-onprem", "h100-aws-spot", "h100-aws-on-demand"
MERGE = "application/merge-patch+json"
NOT_FOUND = 404
LETTING_GO_SECONDS = 20.0
"""In which Kueue lets go of the Workloads of deleted jobs, unless it hangs."""

TOPOLOGY_ANNOTATION = "kueue.x-k8s.io/podset-required-topology"
RACK_LABEL = "gpufleet.dev/test-rack"


@pytest.mark.parametrize("team", ["amber"], indirect=True)
def test_a_team_borrows_what_others_leave_idle_before_it_goes_to_the_cloud(wide: Stack, team: str) -> None:
    """It owns 4 of the 16 GPUs, two other teams the rest."""
    local = [wide.submit(team, 8, run=200, longest=220) for _ in range(2)]
    wait_for("all the local GPUs", lambda: all(wide.flavor(team, job) == SHARED for job in local))
    third = wide.submit(team, 8)
    assert wait_for("the third", lambda: wide.flavor(team, third)) == SPOT
    uids = {wide.workload(team, job)["metadata"]["uid"] for job in local}
    assert not [one for one in wide.ledger()[0] if one.attempt.workload_uid in uids]


def test_a_burst_job_that_runs_locally_and_is_preempted_is_decided_anew(wide: Stack, team: str) -> None:
    filler = wide.submit(team, 8, job_class="urgent", run=300, longest=320)
    wait_for("the filler", lambda: wide.flavor(team, filler))
    with cloud_quota(wide, SPOT, 0), cloud_quota(wide, ON_DEMAND, 0):
        job = wide.submit(team, 8, run=300, longest=320)
        wait_for("the release", lambda: label(wide, team, job) == burst_queue(team, SPOT))
        path = wide.kube.path("batch/v1", "Job", filler, team)
        wide.kube.request("DELETE", path, parameters={"propagationPolicy": "Background"})
        assert wait_for("the freed local GPUs", lambda: wide.flavor(team, job)) == LOCAL
    uid = wide.workload(team, job)["metadata"]["uid"]
    assert not [one for one in wide.ledger()[0] if one.attempt.workload_uid == uid], "local GPUs cost nothing"
    urgent = wide.submit(team, 8, job_class="urgent")
    assert wait_for("the urgent job", lambda: wide.flavor(team, urgent)) == LOCAL
    assert wait_for("the preempted one in the cloud", lambda: wide.flavor(team, job)) in (SPOT, ON_DEMAND)
    [opening] = [one for one in wide.ledger()[0] if one.attempt.workload_uid == uid]
    assert opening.gpus == 8
    assert wide.verdict(team, job)["code"] == "cleared"


@pytest.fixture
def fair(wide: Stack) -> Iterator[Stack]:
    wide.restart_kueue(KueueOptions(fair_sharing=True))
    yield wide
    for team in ("amber", "cyan"):
        wide.clear(team)
    wide.restart_kueue()


def test_fair_sharing_gives_idle_gpus_by_weight_and_the_rest_goes_to_the_cloud(fair: Stack) -> None:
    """amber (weight 3) and cyan (weight 1) own 4 GPUs each, and a team without jobs has 8."""
    jobs = [(team, fair.submit(team, 1, run=300, longest=320)) for _ in range(16) for team in ("cyan", "amber")]
    wait_for("every job", lambda: all(fair.flavor(team, job) for team, job in jobs))
    local = [team for team, job in jobs if fair.flavor(team, job) == SHARED]
    assert len(local) == 16
    assert local.count("amber") > local.count("cyan") >= 4
    assert sum(fair.flavor(team, job) == SPOT for team, job in jobs) == 16


@pytest.fixture
def topology(stack: Stack) -> Iterator[Stack]:
    """Kueue with topology-aware scheduling, and queues of the twin layout whose local flavor has racks."""
    with ExitStack() as afterwards:  # goes through all of it, whatever fails: later tests need the cluster as it was
        afterwards.callback(stack.restart_kueue)
        stack.restart_kueue(KueueOptions(topology=True))
        for manifest in racks():
            metadata = manifest["metadata"]
            afterwards.callback(
                stack.kube.delete, manifest["apiVersion"], manifest["kind"], metadata["name"], metadata.get("namespace")
            )
            stack.kube.ensure(manifest)
        afterwards.callback(remove_jobs, stack, "racks")
        yield stack


def remove_jobs(stack: Stack, namespace: str) -> None:
    """Delete all jobs of a namespace, and in the end even Workloads that Kueue does not let go of."""
    kube = stack.kube
    path = kube.path("batch/v1", "Job", None, namespace)
    kube.request("DELETE", path, parameters={"propagationPolicy": "Background"})
    deadline = time.monotonic() + LETTING_GO_SECONDS
    while (left := kube.list(KUEUE, "Workload", namespace)[0]) and time.monotonic() < deadline:
        time.sleep(0.2)
    for workload in left:
        name = workload["metadata"]["name"]
        try:
            path = kube.path(KUEUE, "Workload", name, namespace)
            kube.request("PATCH", path, {"metadata": {"finalizers": []}}, content_type=MERGE)
        except KubeError as error:
            if error.status != NOT_FOUND:
                raise
        kube.delete(KUEUE, "Workload", name, namespace)


def racks() -> list[Manifest]:
    """Two racks of one node each, a topology over them, and a queue with its twin; no gate, since Kueue is meant."""
    pools = [
        KwokPool(f"{rack}", (f"{rack}-0",), {RACK_LABEL: rack, "gpufleet.dev/test": "racks"})
        for rack in ("left", "right")
    ]
    pools.append(KwokPool("rented", ("rented-0",), {"gpufleet.dev/test": "rented"}))
    spec = {"levels": [{"nodeLabel": RACK_LABEL}, {"nodeLabel": "kubernetes.io/hostname"}]}
    return [
        *nodes(pools),
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "racks"}},
        {"apiVersion": KUEUE, "kind": "Topology", "metadata": {"name": "racks"}, "spec": spec},
        kueue("ResourceFlavor", "racks", {"nodeLabels": {"gpufleet.dev/test": "racks"}, "topologyName": "racks"}),
        kueue("ResourceFlavor", "rented", {"nodeLabels": {"gpufleet.dev/test": "rented"}}),
        cluster_queue("racks", {"racks": 16}),
        kueue("LocalQueue", "racks", {"clusterQueue": "racks"}, "racks"),
        cluster_queue("racks-twin", {"racks": 0, "rented": 8}),
        kueue("LocalQueue", "racks-twin", {"clusterQueue": "racks-twin"}, "racks"),
    ]


def kueue(kind: str, name: str, spec: dict[str, Any], namespace: str | None = None) -> Manifest:
    metadata = {"name": name} | ({"namespace": namespace} if namespace else {})
    return {"apiVersion": KUEUE, "kind": kind, "metadata": metadata, "spec": spec}


def cluster_queue(name: str, flavors: dict[str, int]) -> Manifest:
    offered = [
        {"name": flavor, "resources": [{"name": GPU_RESOURCE, "nominalQuota": str(gpus)}]}
        for flavor, gpus in flavors.items()
    ]
    groups = [{"coveredResources": [GPU_RESOURCE], "flavors": offered}]
    return kueue("ClusterQueue", name, {"namespaceSelector": {}, "resourceGroups": groups})


def racked_job(name: str, gpus: int, annotations: dict[str, str]) -> Manifest:
    container = {
        "name": "main",
        "image": "train",
        "resources": {"requests": {GPU_RESOURCE: str(gpus)}, "limits": {GPU_RESOURCE: str(gpus)}},
    }
    template = {"metadata": {"annotations": annotations}, "spec": {"restartPolicy": "Never", "containers": [container]}}
    spec = {"suspend": True, "parallelism": 1, "completions": 1, "template": template}
    metadata = {"name": name, "namespace": "racks", "labels": {QUEUE_LABEL: "racks"}}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": spec}


def admitted(stack: Stack, job: str) -> bool:
    return condition(stack.workload("racks", job), "Admitted")


def test_a_local_flavor_with_a_topology_does_not_keep_jobs_from_the_cloud_unless_they_ask_for_it(
    topology: Stack,
) -> None:
    kube = topology.kube
    for name in ("a", "b"):
        kube.create(racked_job(name, 8, {TOPOLOGY_ANNOTATION: RACK_LABEL}))
    for name in ("a", "b"):
        wait_for(f"{name} to be admitted", partial(admitted, topology, name))
    assigned = [topology.workload("racks", name)["status"]["admission"]["podSetAssignments"][0] for name in ("a", "b")]
    assert all(one["topologyAssignment"] for one in assigned)
    assert assigned[0]["topologyAssignment"] != assigned[1]["topologyAssignment"]

    kube.create(racked_job("plain", 4, {}))
    kube.create(racked_job("strict", 4, {TOPOLOGY_ANNOTATION: RACK_LABEL}))
    for name in ("plain", "strict"):
        wait_for("its Workload", partial(topology.workload, "racks", name))
        edit(topology, "racks", name, {"metadata": {"labels": {QUEUE_LABEL: "racks-twin"}}})
    wait_for("the plain job in the cloud", lambda: reserved_flavor(topology.workload("racks", "plain")) == "rented")
    assert reserved_flavor(topology.workload("racks", "strict")) is None
    kube.delete("batch/v1", "Job", "a", "racks")
