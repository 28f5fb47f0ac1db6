"""A control plane with simulated spot nodes and a job on most of them, for what is done to nodes in benchmarks.

The agent runs as a process with its own service account. Jobs answer a request to save at once, as one with nothing to
save would.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from rich.console import Console

from components.kubernetes import agent, kueue, node_agent
from infra.local.controlplane import ControlPlane
from infra.local.embedded import TOOLS, kwok_pool
from infra.local.kubeclient import KubeClient, Manifest
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

_MERGE: Final = "application/merge-patch+json"
_PATIENCE_SECONDS: Final = 60.0
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


@contextmanager
def ground(root: Path, *also: Manifest) -> Iterator[Ground]:
    """Start a plane under this directory, deploy the agent, the node agent's rights and `also`, and stop it again."""
    fleet = load_text(_FLEET, "bench")
    tools = resolve(TOOLS, console=Console(stderr=True), only_present=True)
    state = State.at(root / "state", "bench")
    plane = ControlPlane(state, tools)
    plane.start([kwok_pool(name, pool) for name, pool in fleet.pools.items()], console=Console(quiet=True))
    try:
        with KubeClient(plane.kubeconfig) as kube:
            node_objects = [one for one in node_agent.manifests(fleet).values() if one["kind"] != "DaemonSet"]
            for manifest in [*agent.manifests(fleet).values(), *node_objects, *kueue.manifests(fleet).values(), *also]:
                kube.ensure(manifest)
            with Watcher(plane.kubeconfig, _TEAM) as watcher:
                yield Ground(fleet, state, kube, watcher)
    finally:
        plane.stop()


class Ground:
    """The nodes, the jobs on them, and who watches both."""

    def __init__(self, fleet: Fleet, state: State, kube: KubeClient, watcher: Watcher) -> None:
        self.fleet, self.state, self.kube, self.watcher = fleet, state, kube, watcher
        self._submitted = 0
        watcher.answer = self._answer
        self._jobs = {self._submit() for _ in range(_NODES - _SPARE_NODES)}
        self.await_jobs()

    def await_jobs(self) -> None:
        """Wait until every job runs."""
        until("every job to run", lambda: set(self.watcher.jobs().values()) == self._jobs)

    def replace(self, job: str) -> None:
        """Take a job away whose pod was evicted, since nobody puts it back, and submit another."""
        path = self.kube.path("batch/v1", "Job", job, _TEAM)
        self.kube.request("DELETE", path, parameters={"propagationPolicy": "Background"})
        self._jobs = {*self._jobs - {job}, self._submit()}

    def give_back(self, node: str) -> None:
        """Make the node as good as new, as if another machine had come under its name."""
        raw = self.kube.get("v1", "Node", node)
        kept = [taint for taint in raw["spec"].get("taints", []) if taint["key"] not in _TAINTS]
        annotations = {NOTICES_ANNOTATION: None, CORDONED_ANNOTATION: None}
        body = {"metadata": {"annotations": annotations}, "spec": {"unschedulable": None, "taints": kept}}
        self.kube.request("PATCH", self.kube.path("v1", "Node", node), body, content_type=_MERGE)

    def _submit(self) -> str:
        self._submitted += 1
        job = TraceJob(f"job-{self._submitted}", _TEAM, "normal", _GPUS, 0, 86_400, 86_400, 172_800)
        manifest = job_manifest(job, self.fleet, 1, run_id="b")
        manifest["metadata"]["labels"][QUEUE_LABEL] = burst_queue(_TEAM, _SPOT)
        self.kube.create(manifest)
        return str(manifest["metadata"]["name"])

    def _answer(self, pod: str, request: str) -> None:
        answer = {"version": 1, "request": request, "step": 1, "url": "", "at": time.time()}
        body = {"metadata": {"annotations": {CHECKPOINT_ANSWER_ANNOTATION: json.dumps(answer)}}}
        self.kube.request("PATCH", self.kube.path("v1", "Pod", pod, _TEAM), body, content_type=_MERGE)


def until(what: str, look: Callable[[], bool], seconds: float = _PATIENCE_SECONDS) -> None:
    """Wait until something is so; TimeoutError when it does not become so."""
    deadline = time.monotonic() + seconds
    while not look():
        if time.monotonic() > deadline:
            raise TimeoutError(f"waited {seconds:g} s in vain for {what}")
        time.sleep(0.02)
