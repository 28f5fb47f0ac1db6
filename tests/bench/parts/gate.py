"""What the gate costs on the embedded control plane: added delay at a steady rate, and admissions each second.

The agent runs as the pod runner starts it, with its own service account. Objects are applied as `gpufleet render`
prints them, without Pulumi and without admission policies: the API server's work for those is not the gate's.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from rich.console import Console

from components.kubernetes import agent, kueue
from infra.local.controlplane import ControlPlane
from infra.local.embedded import TOOLS, kwok_pool
from infra.local.errors import KubeError
from infra.local.kubeclient import KubeClient
from infra.local.state import State
from infra.local.toolchain import resolve
from infra.replay.audit import AuditReport, read_audit
from infra.replay.delays import gate_delays
from infra.replay.histories import Histories, histories_of
from infra.replay.jobs import job_manifest
from infra.replay.tally import quantile
from infra.replay.trace import TraceJob
from stacks.fleet import Fleet
from stacks.labels import AGENT_NAME, GPU_RESOURCE, QUEUE_LABEL, SYSTEM_NAMESPACE, burst_queue
from stacks.load import load_text

JOBS_PER_SECOND: Final = 5.0
STEADY_JOBS: Final = 150
ADMITTED_JOBS: Final = 300
_API: Final = "kueue.x-k8s.io/v1beta2"
_MERGE: Final = "application/merge-patch+json"
_PATIENCE_SECONDS: Final = 90.0
_LOOK_SECONDS: Final = 2.0  # a list of all Workloads costs the API server what some admissions do

_FLEET: Final = """\
config:
  gpufleet:fleet:
    schema_version: 1
    organization: acme
    clusters:
      lab: {kind: existing}
    pools:
      rack: {cluster: lab, location: onprem, gpu: h100-sxm-80gb, gpus_per_node: 8, nodes: 1, usd_per_gpu_hour: 1.10}
      spot: {cluster: lab, location: aws, provisioner: existing, market: spot, instance_types: [p5.48xlarge], max_gpus: 640, usd_per_gpu_hour: 3.60}
    classes:
      normal: {priority: 100, default: true}
    teams:
      vision: {quota: {h100-onprem: 8}}
    burst:
      policy: {kind: always}
      order: [spot]
      budget: {monthly: 900000 USD}
      expected_runtime: 10m
    agent: {interval: 500ms, replicas: 1}
"""
_TEAM, _SPOT = "vision", "h100-aws-spot"
_TWIN: Final = burst_queue(_TEAM, _SPOT)
_PLAIN: Final = "plain"


@dataclass(frozen=True)
class Rates:
    """Jobs each second, from the moment there is quota: admitted by Kueue, and with their pod on a node."""

    admitted: float
    started: float


@dataclass(frozen=True)
class GateFigures:
    """Seconds from reservation to Ready at a steady rate, and rates through the gate and without a check."""

    p50_seconds: float
    p99_seconds: float
    gated: Rates
    plain: Rates


def measure() -> GateFigures:
    """Start a plane, measure, stop it."""
    with tempfile.TemporaryDirectory(prefix="gpufleet-bench-") as directory, _deployed(Path(directory)) as bench:
        delays = bench.steady()
        gated = bench.admissions(_TWIN)
        bench.scale_agent(0)
        bench.queue(_PLAIN)
        plain = bench.admissions(_PLAIN)
    return GateFigures(quantile(delays, 0.5), quantile(delays, 0.99), gated, plain)


@contextmanager
def _deployed(root: Path) -> Iterator[_Bench]:
    fleet = load_text(_FLEET, "bench")
    tools = resolve(TOOLS, console=Console(stderr=True), only_present=True)
    state = State.at(root / "state", "bench")
    plane = ControlPlane(state, tools)
    plane.start([kwok_pool(name, pool) for name, pool in fleet.pools.items()], console=Console(quiet=True))
    try:
        with KubeClient(plane.kubeconfig) as kube:
            for manifest in {**agent.manifests(fleet), **kueue.manifests(fleet)}.values():
                kube.ensure(manifest)
            bench = _Bench(fleet, state, kube)
            _until("the twin to be active", lambda: bench.active(_TWIN))
            yield bench
    finally:
        plane.stop()


class _Bench:
    def __init__(self, fleet: Fleet, state: State, kube: KubeClient) -> None:
        self._fleet, self._state, self._kube = fleet, state, kube
        self._made = 0

    def steady(self) -> list[float]:
        """Seconds from reservation to Ready of each job that arrives at a steady rate."""
        began = time.monotonic()
        for number in range(STEADY_JOBS):
            time.sleep(max(0.0, began + number / JOBS_PER_SECOND - time.monotonic()))
            self._submit(_TWIN)
        _until("every job", lambda: self._admitted() == STEADY_JOBS)
        delays = [one.seconds for one in gate_delays(self._histories(), self._fleet)]
        self._clear()
        return sorted(delays)

    def admissions(self, queue: str) -> Rates:
        """How fast jobs go that all wait in the queue when there is quota."""
        self._cap(0)
        for _ in range(ADMITTED_JOBS):
            self._submit(queue)
        _until("every Workload", lambda: len(self._workloads()) == ADMITTED_JOBS)
        opened = time.time()
        self._cap(ADMITTED_JOBS)
        _until("every job to run", lambda: self._bound() == ADMITTED_JOBS)
        histories = self._histories()
        runs = [run for one in histories.jobs.values() for run in one.reservations if run.at >= opened]
        admitted = [run.admitted_at for run in runs if run.admitted_at is not None]
        bound = [one.at for one in histories.bindings if one.at >= opened]
        self._clear()
        return Rates(len(admitted) / (max(admitted) - opened), len(bound) / (max(bound) - opened))

    def queue(self, name: str) -> None:
        """Make the twin once more, without the check."""
        twin = kueue.burst_cluster_queues(self._fleet, _TEAM)[_TWIN]
        spec = {key: value for key, value in twin["spec"].items() if key != "admissionChecksStrategy"}
        self._kube.ensure({**twin, "metadata": {**twin["metadata"], "name": name}, "spec": spec})
        door = {"name": name, "namespace": _TEAM}
        self._kube.ensure({"apiVersion": _API, "kind": "LocalQueue", "metadata": door, "spec": {"clusterQueue": name}})
        _until("the queue to be active", lambda: self.active(name))

    def active(self, queue: str) -> bool:
        """Whether a ClusterQueue admits."""
        found = self._kube.find(_API, "ClusterQueue", queue) or {}
        return _is_true(found, "Active")

    def scale_agent(self, replicas: int) -> None:
        """Send the agent away."""
        path = self._kube.path("apps/v1", "Deployment", AGENT_NAME, SYSTEM_NAMESPACE)
        self._kube.request("PATCH", path, {"spec": {"replicas": replicas}}, content_type=_MERGE)
        _until("the agent's end", lambda: not self._kube.get("apps/v1", "Deployment", AGENT_NAME, SYSTEM_NAMESPACE)
               .get("status", {}).get("replicas"))  # fmt: skip

    def _histories(self) -> Histories:
        return histories_of(read_audit(self._state.audit_log, AuditReport()), self._fleet)

    def _submit(self, queue: str) -> None:
        self._made += 1
        job = TraceJob(f"job-{self._made}", _TEAM, "normal", 1, 0, 900, 900, 1_800)
        manifest = job_manifest(job, self._fleet, 1, run_id="b")
        manifest["metadata"]["labels"][QUEUE_LABEL] = queue
        self._kube.create(manifest)

    def _cap(self, gpus: int) -> None:
        """Give Kueue this many cloud GPUs; a queue that is stopped instead would make the agent take its jobs back."""
        cohort = kueue.organization_cohort(self._fleet)
        for flavor in (flavor for group in cohort["spec"]["resourceGroups"] for flavor in group["flavors"]):
            for resource in flavor["resources"]:
                resource["nominalQuota"] = str(gpus) if resource["name"] == GPU_RESOURCE else resource["nominalQuota"]
        self._kube.ensure(cohort)

    def _workloads(self) -> list[dict[str, Any]]:
        return self._kube.list(_API, "Workload", _TEAM)[0]

    def _admitted(self) -> int:
        return sum(_is_true(one, "Admitted") for one in self._workloads())

    def _bound(self) -> int:
        pods, _ = self._kube.list("v1", "Pod", _TEAM)
        return sum("nodeName" in pod["spec"] for pod in pods)

    def _clear(self) -> None:
        path = self._kube.path("batch/v1", "Job", None, _TEAM)

        def gone() -> bool:
            with suppress(KubeError):  # the API server deletes a collection one by one, and may be asked again
                self._kube.request("DELETE", path, parameters={"propagationPolicy": "Background"})
            return not self._workloads()

        _until("the end of every job", gone)


def _is_true(raw: dict[str, Any], kind: str) -> bool:
    return any(one["type"] == kind and one["status"] == "True" for one in raw.get("status", {}).get("conditions", []))


def _until(what: str, look: Callable[[], bool]) -> None:
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while not look():
        if time.monotonic() > deadline:
            raise TimeoutError(f"waited {_PATIENCE_SECONDS:g} s in vain for {what}")
        time.sleep(_LOOK_SECONDS)
