"""Nodes and jobs for notices: every pod on a node of its own, with nodes to spare, and some nodes for no job at all.

All of it is taken away afterwards, and the fleet's own cloud nodes take jobs again.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from infra.local import processes
from infra.local.embedded import kwok_pool
from infra.local.kubeclient import Manifest
from infra.local.kwok import KwokPool, nodes
from infra.replay.jobs import job_manifest
from infra.replay.trace import TraceJob
from stacks.labels import FLAVOR_LABEL
from tests.e2e.conftest import Stack, condition, reserved_flavor, wait_for
from tests.e2e.evicting import LOCAL, MERGE, SPOT, pods
from tests.e2e.machines import Machine, Say, as_it_stands
from tests.fakes.metadata import FakeMetadata

TEAM, POOL = "red", "spot"
EDGE, BARE, SPARE = "edge-", "bare-", "spare-"
OTHERS_TAINT = {"key": "example.com/reserved", "value": "batch", "effect": "PreferNoSchedule"}
"""A taint that has nothing to do with notices, and that whoever writes taints must not lose."""


@dataclass
class Yard:
    """A stack with nodes of one GPU each, some of the fleet and some bare, all of which are gone afterwards."""

    stack: Stack
    directory: Path
    jobs: dict[str, str] = field(default_factory=dict)
    machines: dict[str, Machine] = field(default_factory=dict)
    manifests: dict[str, Manifest] = field(default_factory=dict)
    _given: set[str] = field(default_factory=set)

    def bare_node(self) -> str:
        """A node on which no job of the fleet ever is, with taints that are not ours; another one each time."""
        return self._give(BARE)

    def idle_node(self) -> str:
        """A node of the fleet on which no job is; it takes none any more, so that this stays so."""
        self._given |= {pod["spec"].get("nodeName", "") for pod in self.stack.kube.list("v1", "Pod", TEAM)[0]}
        node = self._give(EDGE)
        cordon(self.stack, node, True)
        return node

    def spare(self) -> str:
        """The name of a job that nothing was said about yet; another one each time."""
        return self._give(SPARE)

    def _give(self, prefix: str) -> str:
        given = next(
            name for name in (*self.manifests, *self.jobs) if name.startswith(prefix) and name not in self._given
        )
        self._given.add(given)
        return given

    def bring_back(self, node: str) -> None:
        """Make a node again that was deleted."""
        self.stack.kube.ensure(self.manifests[node])

    @contextmanager
    def machine(self, node: str, *arguments: str, say: Say | None = None) -> Iterator[Machine]:
        """Put a node under the eyes of a node agent; what is to `say` stands before that looks for the first time."""
        directory = self.directory / node
        directory.mkdir(exist_ok=True)
        with FakeMetadata() as metadata:
            machine = Machine(self.stack, node, directory, arguments, metadata)
            machine.before = as_it_stands(machine.raw())
            if say is not None:
                say(machine)
            try:
                machine.start()
                yield machine
            finally:
                machine.stop()

    def submit(self, name: str, *, pods: int = 1, grace: int = 5) -> None:
        """Submit a job that runs for longer than the suite on one GPU in each pod, and ends within its grace."""
        minutes = 60.0
        trace = TraceJob(name, TEAM, "urgent", 1, 0, 300 * minutes, 300 * minutes, 320 * minutes)
        manifest = job_manifest(trace, self.stack.fleet, self.stack.fleet.agent.replay_speed, run_id="n")
        manifest["spec"] |= {"parallelism": pods, "completions": pods}
        manifest["spec"]["template"]["spec"]["terminationGracePeriodSeconds"] = grace
        self.stack.kube.create(manifest)
        self.jobs[name] = str(manifest["metadata"]["name"])

    def nodes_of(self, name: str) -> list[str]:
        """The nodes that the pods of a job are on."""
        return sorted(pod["spec"].get("nodeName", "") for pod in pods(self.stack, TEAM, self.jobs[name]))

    def pods_of(self, name: str) -> set[str]:
        """The UIDs of the pods of a job."""
        return {pod["metadata"]["uid"] for pod in pods(self.stack, TEAM, self.jobs[name])}

    def runs(self, name: str) -> bool:
        """Whether a job has all its pods running in the cloud."""
        workload = self.stack.workload(TEAM, self.jobs[name])
        admitted = condition(workload, "Admitted") and condition(workload, "PodsReady")
        return admitted and reserved_flavor(workload) == SPOT


@contextmanager
def yard(stack: Stack, directory: Path, *, fleet_nodes: int, bare_nodes: int) -> Iterator[Yard]:
    """Make the nodes, fill the team's own GPUs, and take everything away afterwards."""
    model = kwok_pool(POOL, stack.fleet.pools[POOL])
    taints = (*model.taints, OTHERS_TAINT)
    of_fleet = tuple(f"{EDGE}{number}" for number in range(fleet_nodes))
    bare = tuple(f"{BARE}{number}" for number in range(bare_nodes))
    unlabeled = {name: value for name, value in model.labels.items() if name != FLAVOR_LABEL}
    pools = [
        replace(model, name="edge", node_names=of_fleet, taints=taints, gpus_per_node=1),
        KwokPool("bare", bare, unlabeled, taints),
    ]
    with ExitStack() as afterwards:
        for node in model.node_names:
            afterwards.callback(cordon, stack, node, None)
            cordon(stack, node, True)
        manifests = {manifest["metadata"]["name"]: manifest for manifest in nodes(pools)}
        for name, manifest in manifests.items():
            afterwards.callback(stack.kube.delete, "v1", "Node", name)
            stack.kube.ensure(manifest)
        wait_for("the nodes", lambda: all_ready(stack, {*of_fleet, *bare}))
        afterwards.callback(stack.clear, TEAM)
        filler = stack.submit(TEAM, 8, job_class="urgent", run=300, longest=320)
        wait_for("the filler", lambda: stack.flavor(TEAM, filler) == LOCAL)
        yield Yard(stack, directory, manifests=manifests)


def cordon(stack: Stack, node: str, unschedulable: bool | None) -> None:
    """Cordon a node by hand, or take that back."""
    path = stack.kube.path("v1", "Node", node)
    stack.kube.request("PATCH", path, {"spec": {"unschedulable": unschedulable}}, content_type=MERGE)


def all_ready(stack: Stack, names: set[str]) -> bool:
    """Whether all these nodes are ready, and carry none of the taints that a new node has."""
    found = [node for node in stack.kube.list("v1", "Node")[0] if node["metadata"]["name"] in names]
    fresh = any(one["key"].startswith("node.") for node in found for one in node["spec"].get("taints", ()))
    return len(found) == len(names) and not fresh and all(condition(node, "Ready") for node in found)


@contextmanager
def without_api_server(stack: Stack) -> Iterator[None]:
    """The API server is killed, and comes back after the block; nobody waits for it."""
    server = processes.records(stack.plane.state)["apiserver"]
    os.kill(server.pid or 0, signal.SIGKILL)
    wait_for("its end", lambda: not server.alive)
    try:
        yield
    finally:
        stack.restart("apiserver")
