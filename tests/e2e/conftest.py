"""The embedded stack, deployed by the real Pulumi engine, for everything that is tried on a real control plane.

One stack serves the whole session. Tests use teams of their own, so that one test's jobs and money are not another's.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import httpx2
import pytest
from rich.console import Console

from infra.local import components, kueue, ports, processes
from infra.local.embedded import kwok_pool
from infra.local.engine import Engine, EngineResult
from infra.local.errors import KubeError
from infra.local.kubeclient import KubeClient
from infra.local.pki import make
from infra.local.toolchain import Toolchain
from infra.replay.jobs import job_manifest
from infra.replay.trace import TraceJob
from runtime.clock import Clock, parse_time
from runtime.cost.entries import closing_from_dict, opening_from_dict
from runtime.cost.ledger import Closing, Opening
from stacks.fleet import Fleet
from stacks.labels import AGENT_NAME, GPU_RESOURCE, PROJECT_LABEL, SYSTEM_NAMESPACE
from stacks.load import load_text
from tests.conftest import ROOT, Plane

KUEUE = "kueue.x-k8s.io/v1beta2"
AGENT_USER = f"system:serviceaccount:{SYSTEM_NAMESPACE}:{AGENT_NAME}"

QUIET = Console(quiet=True)

Answer = TypeVar("Answer")

FLEET_FILE = """\
config:
  gpufleet:fleet:
    schema_version: 1
    organization: acme
    clusters:
      lab: {kind: existing}
    pools:
      rack: {cluster: lab, location: onprem, gpu: h100-sxm-80gb, gpus_per_node: 8, nodes: 2, node_names: [rack-0, rack-1], usd_per_gpu_hour: 1.10}
      spot: {cluster: lab, location: aws, provisioner: existing, market: spot, instance_types: [p5.48xlarge], max_gpus: 32, usd_per_gpu_hour: 3.60}
    classes:
      urgent: {priority: 1000, max_wait: 2m}
      normal: {priority: 100, max_wait: 4m, default: true}
      local: {priority: 10, burst: never}
    teams:
      red: {quota: {h100-onprem: 8}, borrow: {h100-onprem: 0}}
      blue: {quota: {h100-onprem: 4}, borrow: {h100-onprem: 0}, budget: {monthly: 20 USD}}
      green: {quota: {h100-onprem: 4}, borrow: {h100-onprem: 0}}
    burst:
      policy: {kind: constant, wait: 4m}
      order: [spot]
      budget: {monthly: 5000 USD}
      expected_runtime: 10m
    agent: {replay_speed: 60, interval: 300ms}
    on_destroy: remove-everything
"""


WIDE_FLEET_FILE = """\
config:
  gpufleet:fleet:
    schema_version: 1
    organization: acme
    clusters:
      lab: {kind: existing}
    pools:
      rack: {cluster: lab, location: onprem, gpu: h100-sxm-80gb, gpus_per_node: 8, nodes: 2, node_names: [rack-0, rack-1], usd_per_gpu_hour: 1.10}
      old: {cluster: lab, location: onprem, gpu: a100-sxm-80gb, gpus_per_node: 8, nodes: 2, node_names: [old-0, old-1], usd_per_gpu_hour: 0.60}
      spot: {cluster: lab, location: aws, provisioner: existing, market: spot, instance_types: [p5.48xlarge], max_gpus: 32, usd_per_gpu_hour: 3.60}
      od: {cluster: lab, location: aws, provisioner: existing, market: on-demand, instance_types: [p5.48xlarge], max_gpus: 16, usd_per_gpu_hour: 9.60}
    classes:
      urgent: {priority: 1000, max_wait: 2m}
      normal: {priority: 100, max_wait: 4m, default: true}
      night: {priority: 50, max_wait: 4m, window: "22:00-06:00 UTC"}
      local: {priority: 10, burst: never}
    teams:
      red: {quota: {h100-onprem: 8}, borrow: {h100-onprem: 0, a100-onprem: 0}, lend: {h100-onprem: 0}}
      blue: {quota: {h100-onprem: 4}, borrow: {h100-onprem: 0, a100-onprem: 0}, lend: {h100-onprem: 0}, budget: {daily: 20 USD}}
      green: {quota: {h100-onprem: 4}, borrow: {h100-onprem: 0, a100-onprem: 0}, lend: {h100-onprem: 0}}
      amber: {quota: {a100-onprem: 4}, borrow: {h100-onprem: 0}, weight: 3}
      cyan: {quota: {a100-onprem: 4}, borrow: {h100-onprem: 0}}
      olive: {quota: {a100-onprem: 8}, borrow: {h100-onprem: 0}}
    projects:
      daily: {budget: {daily: 20 USD}}
      paper: {budget: {daily: 20 USD}}
    burst:
      policy: {kind: constant, wait: 4m}
      order: [spot, od]
      budget: {monthly: 50000 USD}
      expected_runtime: 10m
    agent: {replay_speed: 60, interval: 300ms}
    on_destroy: remove-everything
"""
"""A second local flavor that teams share (half of it is of one that has no jobs), a second cloud flavor, a window."""


def wait_for(what: str, look: Callable[[], Answer | None], seconds: float = 60) -> Answer:
    """The first truthy answer of `look`, or a failure that says what was awaited.

    The limit is for what never comes, not for what comes late: how long things take is measured in tests/bench.
    """
    deadline = time.monotonic() + seconds
    while True:
        if answer := look():
            return answer
        if time.monotonic() > deadline:
            pytest.fail(f"waited {seconds:g} s in vain for {what}")
        time.sleep(0.2)


@dataclass
class Stack:
    """A deployed embedded stack."""

    plane: Plane
    engine: Engine
    file: Path
    kube: KubeClient
    text: str = FLEET_FILE
    _names: dict[str, int] = field(default_factory=dict)

    @property
    def fleet(self) -> Fleet:
        return load_text(self.text, "fleet")

    def up(self, text: str | None = None) -> EngineResult:
        """Run `pulumi up` with this file, and return what it said."""
        self.text = text or self.text
        salt = [line for line in self.file.read_text().splitlines() if line.startswith("encryptionsalt")]
        self.file.write_text("\n".join([*salt, self.text]))
        return self.engine.up("local", "--config-file", str(self.file), as_json=True)

    def reshape(self, text: str) -> None:
        """Give the plane the nodes of another fleet, and deploy that."""
        pools = load_text(text, "fleet").pools
        self.plane.control.start([kwok_pool(name, pool) for name, pool in pools.items()], console=QUIET)
        result = self.up(text)
        assert result.succeeded, complaints(result)

    def restart_kueue(self, options: kueue.KueueOptions = kueue.DEFAULT_OPTIONS) -> None:
        """Start Kueue again, as after an upgrade; it then also sees the CRDs that came since."""
        state = self.plane.state
        keys, chosen = make(state.pki), ports.remembered(state)
        components.write_configuration(state, keys, chosen, options)
        record = processes.records(state)["kueue"]
        processes.stop(state, ["kueue"], 5.0)
        processes.spawn(state, "kueue", record.command, ports=record.ports)
        wait_for("Kueue's webhooks", self._kueue_answers)

    def restart(self, name: str) -> None:
        """Start a part again that has ended, on its port, which somebody's outgoing connection may hold for a moment."""
        record = processes.records(self.plane.state)[name]

        def stays_up() -> bool:
            started = processes.spawn(self.plane.state, name, record.command, ports=record.ports)
            time.sleep(2)
            return started.alive

        wait_for(f"{name} to listen again", stays_up)

    def _kueue_answers(self) -> bool:
        try:
            return kueue.webhooks_answer(self.kube)
        except KubeError:
            return False

    def fleet_now(self) -> float:
        """The present in fleet time, as the agent counts it."""
        created = self.kube.get("v1", "Namespace", SYSTEM_NAMESPACE)["metadata"]["creationTimestamp"]
        return Clock(parse_time(created), self.fleet.agent.replay_speed).now()

    def changes(self, result: EngineResult) -> dict[str, int]:
        """What an `up` changed, by kind of change, without what stayed the same."""
        assert result.succeeded, complaints(result)
        summary: dict[str, int] = {}
        for line in result.stdout.splitlines():
            event = json.loads(line) if line.startswith("{") else {}
            summary = event.get("summaryEvent", {}).get("resourceChanges", summary)
        return {kind: count for kind, count in summary.items() if kind != "same"}

    def submit(
        self,
        team: str,
        gpus: int,
        *,
        job_class: str = "normal",
        run: float = 10,
        longest: float = 20,
        project: str | None = None,
    ) -> str:
        """Submit a job that runs `run` fleet minutes; return its name."""
        number = self._names[team] = self._names.get(team, 0) + 1
        job = TraceJob(f"{team}-{number}", team, job_class, gpus, 0, run * 60, run * 60, longest * 60)
        manifest = job_manifest(job, self.fleet, 60, run_id="t")
        if project is not None:
            manifest["spec"]["template"]["metadata"].setdefault("labels", {})[PROJECT_LABEL] = project
        self.kube.create(manifest)
        return str(manifest["metadata"]["name"])

    def workload(self, team: str, job: str) -> dict[str, Any]:
        """The Workload of a job; empty while Kueue has not made it."""
        items, _ = self.kube.list(KUEUE, "Workload", team)
        owned = [item for item in items if item["metadata"]["ownerReferences"][0]["name"] == job]
        return owned[0] if owned else {}

    def flavor(self, team: str, job: str) -> str | None:
        """The flavor on which a job is admitted, or None."""
        workload = self.workload(team, job)
        if not condition(workload, "Admitted"):
            return None
        return reserved_flavor(workload)

    def verdict(self, team: str, job: str) -> dict[str, Any]:
        """The verdict recorded on a job; empty while there is none."""
        text = self.workload(team, job).get("metadata", {}).get("annotations", {}).get("gpufleet.dev/verdict")
        return dict(json.loads(text)) if text else {}

    def ledger(self) -> tuple[list[Opening], list[Closing]]:
        """Everything in the agent's ledger."""
        root = self.plane.state.root / "volumes"
        files = [path for path in root.rglob("*.json") if path.name.endswith((".open.json", ".close.json"))]
        openings = [opening_from_dict(json.loads(p.read_text())) for p in files if p.name.endswith(".open.json")]
        closings = [closing_from_dict(json.loads(p.read_text())) for p in files if p.name.endswith(".close.json")]
        return openings, closings

    def request_as(
        self, user: str, method: str, path: str, body: Any, content_type: str, *, node: str = ""
    ) -> httpx2.Response:
        """One raw request under another name; with a node, as by the token of a pod that runs there."""
        headers = {"Impersonate-User": user, "Content-Type": content_type}
        if node:
            headers["Impersonate-Extra-authentication.kubernetes.io%2fnode-name"] = node
        return self.kube._http.request(method, path, content=json.dumps(body), headers=headers)

    def scale_agent(self, replicas: int) -> None:
        """Send the agent away, or bring it back, behind Pulumi's back."""
        path = self.kube.path("apps/v1", "Deployment", AGENT_NAME, SYSTEM_NAMESPACE)
        merge = "application/merge-patch+json"
        self.kube.request("PATCH", path, {"spec": {"replicas": replicas}}, content_type=merge)
        wait_for(f"{replicas} replicas of the agent", lambda: self._available() == replicas)

    def _available(self) -> int:
        deployment = self.kube.get("apps/v1", "Deployment", AGENT_NAME, SYSTEM_NAMESPACE)
        return int(deployment.get("status", {}).get("availableReplicas") or 0)

    def clear(self, team: str) -> None:
        """Delete a team's jobs and wait until its quota is free."""
        path = self.kube.path("batch/v1", "Job", None, team)
        self.kube.request("DELETE", path, parameters={"propagationPolicy": "Background"})
        # The garbage collector learns of new kinds of owners twice a minute; a Workload may outlive its owner so long.
        wait_for(f"no workload of {team}", lambda: not self.kube.list(KUEUE, "Workload", team)[0], 120)


def reserved_flavor(workload: dict[str, Any]) -> str | None:
    """The flavor of GPUs that a Workload holds quota of, or None; pods that ask for no GPU do not count."""
    assignments = workload.get("status", {}).get("admission", {}).get("podSetAssignments", [])
    flavors = {one["flavors"][GPU_RESOURCE] for one in assignments if GPU_RESOURCE in one.get("flavors", {})}
    return next(iter(flavors), None) if len(flavors) < 2 else pytest.fail(f"GPUs of several flavors: {flavors}")


def condition(workload: dict[str, Any], kind: str) -> bool:
    """Whether a condition of a Workload is true."""
    conditions = workload.get("status", {}).get("conditions", [])
    return any(one["type"] == kind and one["status"] == "True" for one in conditions)


def complaints(result: EngineResult) -> str:
    """What Pulumi said of errors, without its thousand lines of debugging."""
    events = [json.loads(line) for line in result.stdout.splitlines() if line.startswith("{")]
    said = [event["diagnosticEvent"] for event in events if "diagnosticEvent" in event]
    return "".join(one["message"] for one in said if one["severity"] in {"error", "warning"}) + result.stderr


@pytest.fixture(scope="session")
def stack(plane: Plane, tools: Toolchain, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """The stack, deployed."""
    directory = tmp_path_factory.mktemp("stack")
    plane.control.start([kwok_pool(name, pool) for name, pool in load_text(FLEET_FILE, "fleet").pools.items()])
    engine = Engine(tools.path("pulumi"), ROOT, directory / "pulumi", Path(sys.executable), plane.kubeconfig)
    engine.install()
    engine.select_or_init("local")
    file = directory / "fleet.yaml"
    file.write_text("")
    with KubeClient(plane.kubeconfig) as kube:
        deployed = Stack(plane, engine, file, kube)
        result = deployed.up()
        assert result.succeeded, complaints(result)
        yield deployed


@pytest.fixture(scope="module")
def wide(stack: Stack) -> Iterator[Stack]:
    """The stack with the wide fleet, for one module."""
    stack.reshape(WIDE_FLEET_FILE)
    yield stack
    stack.reshape(FLEET_FILE)


@pytest.fixture
def team(stack: Stack, request: pytest.FixtureRequest) -> Iterator[str]:
    """A team whose jobs are removed before and after the test."""
    name = getattr(request, "param", "red")
    yield name
    try:
        stack.clear(name)
    except KubeError as error:
        pytest.fail(f"cannot clear team {name}: {error}")
