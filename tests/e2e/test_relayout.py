"""Another MIG layout for nodes of the real control plane, while jobs run on their slices.

A thread plays what is on such nodes: the MIG manager, which sees that the label changed, and the device plugin; and
jobs that answer when they are asked to save.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest

from infra.local.embedded import kwok_pool
from infra.local.errors import KubeError
from infra.local.kubeclient import KubeClient
from infra.replay.jobs import job_manifest
from infra.replay.trace import TraceJob
from runtime.eviction.view import Phase
from runtime.relayout.record import record_from_json
from runtime.routing.requests import holds_gpus
from stacks.agent_config import agent_config
from stacks.labels import AGENT_DRAIN_TAINT, GPU_RESOURCE, MIG_STATE_LABEL, RELAYOUT_ANNOTATION
from stacks.layouts import MIG_CONFIG_LABEL
from stacks.load import load_text
from tests.e2e.conftest import FLEET_FILE, KUEUE, QUIET, Stack, complaints, condition, wait_for
from tests.e2e.evicting import MERGE, answer, failures, phase
from tests.e2e.test_chaos import kill_agent

TEAM, POOL, NODES = "red", "cut", ("cut-0", "cut-1")
SLICE = "nvidia.com/mig-1g.10gb"
FIRST, SECOND, THIRD = "7x1g.10gb", "3g.40gb, 4x1g.10gb", "2g.20gb, 5x1g.10gb"
SLICES_OF_A_JOB = 16
"""Both jobs fit on one node with any of the layouts."""

PATIENCE_SECONDS = 180.0


def fleet_file(layout: str, former: str = "") -> str:
    """The fleet with a rack of slices, whose layout the agent may change at any time."""
    before = f", former: {{0-7: [{former}]}}" if former else ""
    pool = (
        f"      {POOL}: {{cluster: lab, location: onprem, gpu: h100-sxm-80gb, gpus_per_node: 8, nodes: 2, "
        f"node_names: [{', '.join(NODES)}], usd_per_gpu_hour: 1.10,\n"
        f"        mig: {{strategy: mixed, layout: {{0-7: [{layout}]}}{before}}}}}\n"
    )
    text = FLEET_FILE.replace(
        "{kind: existing}", "{kind: existing, software: {kueue: existing, gpu_operator: existing}}"
    )
    text = text.replace("    classes:\n", f"{pool}    gpu_layer: {{relayout: {{}}}}\n    classes:\n", 1)
    return text.replace("red: {quota: {h100-onprem: 8}", "red: {quota: {h100-onprem: 8, h100-mig-onprem: 16}", 1)


def layouts(text: str) -> dict[str, dict[str, int]]:
    """What nodes offer by the names of the file's layouts."""
    found = agent_config(load_text(text, "fleet")).gpu_layouts
    assert found is not None
    pool = found.pools[POOL]
    return {one.name: one.devices for one in (pool.wanted, pool.former) if one is not None}


@dataclass
class Rack:
    """The nodes, and what is played on them; `seen` is called with each phase of a node that was not seen before."""

    stack: Stack
    jobs: list[str] = field(default_factory=list)
    known: dict[str, dict[str, int]] = field(default_factory=dict)
    fails: set[tuple[str, str]] = field(default_factory=set)
    violations: list[str] = field(default_factory=list)
    phases: list[tuple[str, str]] = field(default_factory=list)
    seen: Callable[[str, str], object] = lambda node, phase: None
    _labels: dict[str, str] = field(default_factory=dict)
    _done: threading.Event = field(default_factory=threading.Event)

    @contextmanager
    def played(self) -> Iterator[None]:
        """Play while the block goes on."""
        thread = threading.Thread(target=self._play, name="rack")
        thread.start()
        try:
            yield
        finally:
            self._done.set()
            thread.join()

    def install(self, text: str, layout: str) -> None:
        """Give the nodes a layout as if they had had it for long."""
        self.known |= layouts(text)
        for node in NODES:
            self._labels[node] = layout
            self._offer(self.stack.kube, node, layout)
            self._label(self.stack.kube, node, {MIG_CONFIG_LABEL: layout, MIG_STATE_LABEL: "success"})

    def up(self, text: str) -> str:
        """Deploy a file; the name of the layout that it wants."""
        self.known |= layouts(text)
        result = self.stack.up(text)
        assert result.succeeded, complaints(result)
        return next(iter(layouts(text)))

    def submit(self) -> str:
        """A job of one pod on slices, which runs for longer than the test."""
        name = f"slices-{len(self.jobs)}"
        trace = TraceJob(name, TEAM, "urgent", 1, 0, 300 * 60, 300 * 60, 320 * 60)
        manifest = job_manifest(trace, self.stack.fleet, 60, run_id="m")
        for container in manifest["spec"]["template"]["spec"]["containers"]:
            for asked in container["resources"].values():
                if asked.pop(GPU_RESOURCE, None) is not None:
                    asked[SLICE] = str(SLICES_OF_A_JOB)
        self.stack.kube.create(manifest)
        self.jobs.append(str(manifest["metadata"]["name"]))
        return self.jobs[-1]

    def runs(self) -> bool:
        """Whether every job runs."""
        workloads = [self.stack.workload(TEAM, job) for job in self.jobs]
        return all(condition(one, "Admitted") and condition(one, "PodsReady") for one in workloads)

    def label(self, node: str) -> str:
        return str(self.stack.kube.get("v1", "Node", node)["metadata"]["labels"].get(MIG_CONFIG_LABEL, ""))

    def phase(self, node: str) -> str:
        """How far the change of a node is; `none` where there is none."""
        return _phase(self.stack.kube.get("v1", "Node", node))

    def in_service(self, node: str) -> bool:
        taints = self.stack.kube.get("v1", "Node", node)["spec"].get("taints", [])
        return AGENT_DRAIN_TAINT not in [taint["key"] for taint in taints]

    def arrived(self, layout: str) -> bool:
        """Whether all nodes are in service with a layout."""
        return all(
            self.label(node) == layout and self.in_service(node) and self.phase(node) == "none" for node in NODES
        )

    def _play(self) -> None:
        with KubeClient(self.stack.plane.kubeconfig) as kube:
            while not self._done.wait(0.2):
                try:
                    for node in kube.list("v1", "Node")[0]:
                        if node["metadata"]["name"] in NODES:
                            self._manage(kube, node)
                    for job in self.jobs:
                        if phase(self.stack, TEAM, job) is Phase.ASKED:
                            answer(self.stack, TEAM, job, 100)
                except (KubeError, KeyError, IndexError):
                    continue  # an object went between two requests

    def _manage(self, kube: KubeClient, raw: dict[str, Any]) -> None:
        name, labels = raw["metadata"]["name"], raw["metadata"]["labels"]
        if (step := (name, _phase(raw))) not in self.phases:
            self.phases.append(step)
            self.seen(*step)
        label = labels.get(MIG_CONFIG_LABEL, "")
        if label == self._labels[name]:
            return
        if labels.get(MIG_STATE_LABEL) != "pending":
            pods, _ = kube.list("v1", "Pod", TEAM)
            self.violations += [
                f"{name} was relabelled under {pod['metadata']['name']}"
                for pod in pods
                if pod["spec"].get("nodeName") == name
                and holds_gpus(pod["spec"])
                and pod.get("status", {}).get("phase") not in ("Succeeded", "Failed")
            ]
            self._label(kube, name, {MIG_STATE_LABEL: "pending"})
            return
        self._labels[name] = label
        if (name, label) in self.fails:
            self._label(kube, name, {MIG_STATE_LABEL: "failed"})
            return
        self._offer(kube, name, label)
        self._label(kube, name, {MIG_STATE_LABEL: "success"})

    def _offer(self, kube: KubeClient, node: str, layout: str) -> None:
        """As the kubelet does: what former layouts offered stays there with 0."""
        former = {resource: "0" for devices in self.known.values() for resource in devices}
        devices = {resource: str(count) for resource, count in self.known[layout].items()}
        quantities = {**former, **devices}
        body = {"status": {"allocatable": quantities, "capacity": quantities}}
        kube.request("PATCH", f"{kube.path('v1', 'Node', node)}/status", body, content_type=MERGE)

    def _label(self, kube: KubeClient, node: str, labels: dict[str, str]) -> None:
        kube.request("PATCH", kube.path("v1", "Node", node), {"metadata": {"labels": labels}}, content_type=MERGE)


def _phase(raw: dict[str, Any]) -> str:
    text = raw["metadata"].get("annotations", {}).get(RELAYOUT_ANNOTATION)
    return "none" if text is None else record_from_json(text).phase.value


@pytest.fixture(scope="module")
def rack(stack: Stack) -> Iterator[Rack]:
    """Two nodes with slices, and a job on each, or both on one."""
    text = fleet_file(FIRST)
    found = Rack(stack)
    pools = load_text(text, "fleet").pools
    stack.plane.control.start([kwok_pool(name, pool) for name, pool in pools.items()], console=QUIET)
    stack.kube.ensure({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "gpu-operator"}})
    found.install(text, next(iter(layouts(text))))
    found.up(text)
    with found.played():
        found.submit()
        found.submit()
        wait_for("the jobs on slices", found.runs)
        yield found
    stack.clear(TEAM)
    stack.reshape(FLEET_FILE)
    stack.kube.delete("v1", "Namespace", "gpu-operator")


def unharmed(rack: Rack, uids: set[str]) -> None:
    """No job was lost, and none sat on a node whose layout changed."""
    wait_for("the jobs to run again", rack.runs, PATIENCE_SECONDS)
    assert {rack.stack.workload(TEAM, job)["metadata"]["uid"] for job in rack.jobs} == uids
    assert [failures(rack.stack, TEAM, job) for job in rack.jobs] == [0, 0]
    assert rack.violations == []


def uids(rack: Rack) -> set[str]:
    return {item["metadata"]["uid"] for item in rack.stack.kube.list(KUEUE, "Workload", TEAM)[0]}


def test_a_layout_changes_node_by_node_and_no_job_is_lost(rack: Rack) -> None:
    jobs = uids(rack)
    wanted = rack.up(fleet_file(SECOND, FIRST))
    wait_for("both nodes in the new layout", lambda: rack.arrived(wanted), PATIENCE_SECONDS)
    unharmed(rack, jobs)
    assert [node for node, reached in rack.phases if reached == "draining"] == list(NODES)


@pytest.mark.long
def test_a_layout_that_fails_is_taken_back_and_another_is_tried(rack: Rack) -> None:
    jobs, before = uids(rack), rack.label(NODES[0])
    text = fleet_file(THIRD, SECOND)
    rack.fails.add((NODES[0], next(iter(layouts(text)))))
    rack.up(text)
    wait_for("the way back", lambda: rack.phase(NODES[0]) == "refused", PATIENCE_SECONDS)
    assert (rack.label(NODES[0]), rack.label(NODES[1])) == (before, before)
    wait_for("the node in service", lambda: rack.in_service(NODES[0]))
    unharmed(rack, jobs)
    wanted = rack.up(fleet_file(FIRST, SECOND))
    wait_for("both nodes in another layout", lambda: rack.arrived(wanted), PATIENCE_SECONDS)
    unharmed(rack, jobs)


@pytest.mark.long
def test_an_agent_that_is_killed_at_each_step_is_followed_by_one_that_goes_on(rack: Rack) -> None:
    jobs, killed = uids(rack), list[tuple[str, str]]()

    def kill(node: str, phase: str) -> None:
        killed.append((node, phase))
        kill_agent(rack.stack)

    rack.phases = [(node, "none") for node in NODES]
    text = fleet_file(THIRD, FIRST)
    rack.fails = {(NODES[0], next(iter(layouts(text))))}
    rack.seen = kill
    try:
        rack.up(text)
        wait_for("the way back", lambda: rack.phase(NODES[0]) == "refused", 2 * PATIENCE_SECONDS)
        wanted = rack.up(fleet_file(SECOND, FIRST))
        wait_for("both nodes in the other layout", lambda: rack.arrived(wanted), 2 * PATIENCE_SECONDS)
    finally:
        rack.seen = lambda node, phase: None
    unharmed(rack, jobs)
    assert {phase for _, phase in killed} >= {"draining", "applying", "returning", "refused"}
