"""How fast a notice is acted on, on the embedded control plane: cordon, first word to the job, back in the queue.

The node agent and the agent are processes with their own service accounts; machines are fakes that say to the
millisecond when their notice began. Jobs answer a request at once, as one with nothing to save would, so that times are
those of the machinery alone. Everything is seen through watches, by this process's clock.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from rich.console import Console

from components.kubernetes import agent, kueue, node_agent
from infra.local.controlplane import ControlPlane
from infra.local.embedded import TOOLS, kwok_pool
from infra.local.kubeclient import KubeClient
from infra.local.procfs import resident_mib
from infra.local.state import State
from infra.local.toolchain import resolve
from infra.replay.jobs import job_manifest
from infra.replay.trace import TraceJob
from stacks.fleet import Fleet
from stacks.labels import (
    CHECKPOINT_ANSWER_ANNOTATION,
    CORDONED_ANNOTATION,
    EVICTING_TAINT,
    NOTICES_ANNOTATION,
    QUEUE_LABEL,
    burst_queue,
)
from stacks.load import load_text
from tests.bench.parts.sightings import Watcher
from tests.fakes import nodeagent
from tests.fakes.metadata import SPOT, FakeMetadata

EVICTIONS: Final = 20
IDLE_SECONDS: Final = 30.0
_MERGE: Final = "application/merge-patch+json"
_PATIENCE_SECONDS: Final = 60.0
_ACT_SECONDS: Final = 15.0
"""How long one step of an eviction is waited for; none takes more than a few seconds."""

_NOTICE_SECONDS: Final = 120.0
_LONGEST_PHASE_SECONDS: Final = 2.0
"""Notices begin at any moment between two looks of whoever looks; nobody looks more rarely than this."""

_SPARE_NODES: Final = 2  # a job that was evicted needs a place to go
_NODES: Final = 6
_GPUS: Final = 8
_TEAM, _SPOT = "vision", "h100-aws-spot"

_FLEET: Final = f"""\
config:
  gpufleet:fleet:
    schema_version: 1
    organization: acme
    clusters:
      lab: {{kind: existing}}
    pools:
      rack: {{cluster: lab, location: onprem, gpu: h100-sxm-80gb, gpus_per_node: 8, nodes: 1, usd_per_gpu_hour: 1.10}}
      spot: {{cluster: lab, location: aws, provisioner: existing, market: spot, instance_types: [p5.48xlarge], max_gpus: {_NODES * _GPUS}, usd_per_gpu_hour: 3.60}}
    classes:
      normal: {{priority: 100, default: true}}
    teams:
      vision: {{quota: {{h100-onprem: 8}}}}
    burst:
      policy: {{kind: always}}
      order: [spot]
      budget: {{monthly: 900000 USD}}
      expected_runtime: 10m
    agent: {{interval: 500ms, replicas: 1}}
"""

_TAINTS: Final = (EVICTING_TAINT, "node.kubernetes.io/unschedulable")


class MissingError(Exception):
    """A step of an eviction did not come."""


@dataclass(frozen=True)
class Times:
    """Seconds from the notice, one for each eviction, sorted."""

    cordon: list[float]
    signal: list[float]
    requeue: list[float]


@dataclass(frozen=True)
class Footprint:
    """An idle node agent."""

    memory_mib: float
    cpu_millicores: float


def measure(evictions: int = EVICTIONS, idle_seconds: float = IDLE_SECONDS) -> tuple[Times, Footprint]:
    """Start a plane, evict, look at an idle node agent, stop the plane.

    Raises:
        MissingError: nobody cordoned, asked or requeued.
    """
    with tempfile.TemporaryDirectory(prefix="gpufleet-bench-") as directory, _deployed(Path(directory)) as bench:
        found = [bench.evict() for _ in range(evictions)]
        columns = (sorted(column) for column in zip(*found, strict=True))
        return Times(*columns), bench.idle(idle_seconds)


@contextmanager
def _deployed(root: Path) -> Iterator[_Bench]:
    fleet = load_text(_FLEET, "bench")
    tools = resolve(TOOLS, console=Console(stderr=True), only_present=True)
    state = State.at(root / "state", "bench")
    plane = ControlPlane(state, tools)
    plane.start([kwok_pool(name, pool) for name, pool in fleet.pools.items()], console=Console(quiet=True))
    try:
        with KubeClient(plane.kubeconfig) as kube:
            node_objects = [one for one in node_agent.manifests(fleet).values() if one["kind"] != "DaemonSet"]
            for manifest in [*agent.manifests(fleet).values(), *node_objects, *kueue.manifests(fleet).values()]:
                kube.ensure(manifest)
            account = nodeagent.write_account(kube, state, root / "account")
            with Watcher(plane.kubeconfig, _TEAM) as watcher:
                yield _Bench(fleet, kube, watcher, account)
    finally:
        plane.stop()


class _Bench:
    def __init__(self, fleet: Fleet, kube: KubeClient, watcher: Watcher, account: Path) -> None:
        self._kube, self._watcher, self._account = kube, watcher, account
        self._random = random.Random(6)
        watcher.answer = self._answer
        for number in range(_NODES - _SPARE_NODES):
            job = TraceJob(f"job-{number}", _TEAM, "normal", _GPUS, 0, 86_400, 86_400, 172_800)
            manifest = job_manifest(job, fleet, 1, run_id="b")
            manifest["metadata"]["labels"][QUEUE_LABEL] = burst_queue(_TEAM, _SPOT)
            kube.create(manifest)
        _until("every job to run", lambda: len(watcher.placed()) == _NODES - _SPARE_NODES)

    def evict(self) -> tuple[float, float, float]:
        """Give one node that runs a job a notice; seconds to the cordon, the word to its pod, and the queue."""
        pod, node = self._random.choice(sorted(self._watcher.placed().items()))
        with self._agent_of(node) as (machine, _):
            time.sleep(self._random.uniform(0, _LONGEST_PHASE_SECONDS))
            job = self._watcher.expect(node, pod)
            end = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() + _NOTICE_SECONDS))
            began = time.time()
            machine.aws[SPOT] = json.dumps({"action": "terminate", "time": end})
            times = []
            for step in (f"cordon of {node}", f"request to {pod}", f"requeue of {job}"):
                try:
                    _until(step, lambda step=step: step in self._watcher.seen, _ACT_SECONDS)  # type: ignore[misc]
                except TimeoutError:
                    raise MissingError(f"no {step} within {_ACT_SECONDS:g} s of the notice") from None
                times.append(self._watcher.seen[step] - began)
        self._give_back(node)
        _until("every job to run", lambda: len(self._watcher.placed()) == _NODES - _SPARE_NODES)
        return times[0], times[1], times[2]

    def _give_back(self, node: str) -> None:
        """Make the node as good as new, as if another machine had come under its name."""
        raw = self._kube.get("v1", "Node", node)
        kept = [taint for taint in raw["spec"].get("taints", []) if taint["key"] not in _TAINTS]
        annotations = {NOTICES_ANNOTATION: None, CORDONED_ANNOTATION: None}
        body = {"metadata": {"annotations": annotations}, "spec": {"unschedulable": None, "taints": kept}}
        self._kube.request("PATCH", self._kube.path("v1", "Node", node), body, content_type=_MERGE)

    def idle(self, seconds: float) -> Footprint:
        """What a node agent takes while nothing happens."""
        node = sorted(self._watcher.placed().values())[0]
        with self._agent_of(node) as (_, process):
            before = _cpu_seconds(process.pid)
            time.sleep(seconds)
            used = _cpu_seconds(process.pid) - before
            return Footprint(resident_mib(process.pid), 1_000 * used / seconds)

    @contextmanager
    def _agent_of(self, node: str) -> Iterator[tuple[FakeMetadata, subprocess.Popen[bytes]]]:
        with FakeMetadata() as machine:
            arguments = ("--provider", "aws", "--metadata-url", machine.url, "--log-level", "ERROR")
            server = self._kube.server
            with nodeagent.node_agent(node, server=server, account=self._account, arguments=arguments) as process:
                _until("the node agent to look", lambda: machine.count(f"GET {SPOT}") > 1, _ACT_SECONDS)
                yield machine, process

    def _answer(self, pod: str, request: str) -> None:
        answer = {"version": 1, "request": request, "step": 1, "url": "", "at": time.time()}
        body = {"metadata": {"annotations": {CHECKPOINT_ANSWER_ANNOTATION: json.dumps(answer)}}}
        self._kube.request("PATCH", self._kube.path("v1", "Pod", pod, _TEAM), body, content_type=_MERGE)


def _cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _until(what: str, look: Callable[[], bool], seconds: float = _PATIENCE_SECONDS) -> None:
    deadline = time.monotonic() + seconds
    while not look():
        if time.monotonic() > deadline:
            raise TimeoutError(f"waited {seconds:g} s in vain for {what}")
        time.sleep(0.02)
