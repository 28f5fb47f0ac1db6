"""The embedded stack with the agent away: what the API server and Kueue do, and nobody else.

The fleet is the suite's own with a class that has a window and a second cloud flavor. Steps that the agent would take
are taken here under its name, one request at a time, so that every one of them is seen to be allowed.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from infra.local.kubeclient import FIELD_MANAGER
from stacks.kinds import JobKind
from stacks.labels import GATE_NAME, QUEUE_LABEL, burst_queue, window_queue
from tests.e2e.conftest import AGENT_USER, FLEET_FILE, KUEUE, Stack, condition, wait_for
from tests.e2e.kinds import KINDS

MERGE = "application/merge-patch+json"
APPLY = "application/apply-patch+yaml"
LOCAL, SPOT, ON_DEMAND = "h100-onprem", "h100-aws-spot", "h100-aws-on-demand"
ON_DEMAND_GPUS = 16
JOB = KINDS["Job"]

_SECOND_FLAVOR = f"""\
      demand: {{cluster: lab, location: aws, provisioner: existing, market: on-demand, instance_types: [p5.48xlarge], max_gpus: {ON_DEMAND_GPUS}, usd_per_gpu_hour: 9.60}}
    classes:
      night: {{priority: 10, window: "22:00-06:00 UTC"}}
"""
FLEET = FLEET_FILE.replace("    classes:\n", _SECOND_FLAVOR).replace("order: [spot]", "order: [spot, demand]")


@contextmanager
def without_agent(stack: Stack) -> Iterator[Stack]:
    """The stack with this fleet, and nobody who decides; afterwards as it was before."""
    before = stack.text
    assert stack.up(FLEET).succeeded
    stack.scale_agent(0)
    try:
        yield stack
    finally:
        stack.scale_agent(1)
        assert stack.up(before).succeeded


def twin(team: str, flavor: str = SPOT) -> str:
    return burst_queue(team, flavor)


def window(team: str) -> str:
    return window_queue(team, "night")


def move(stack: Stack, team: str, job: str, queue: str, kind: JobKind = JOB) -> None:
    """Move a suspended job to another queue by its label alone."""
    path = stack.kube.path(kind.api_version, kind.kind, job, team)
    _succeed(stack, path, {"metadata": {"labels": {QUEUE_LABEL: queue}}})


def patch_workload(stack: Stack, team: str, job: str, **spec: Any) -> None:
    _succeed(stack, workload_path(stack, team, job), {"spec": spec})


def workload_path(stack: Stack, team: str, job: str) -> str:
    name = wait_for("a Workload", lambda: stack.workload(team, job))["metadata"]["name"]
    return stack.kube.path(KUEUE, "Workload", str(name), team)


def send_to_the_gate(stack: Stack, team: str, gpus: int = 4, flavor: str = SPOT, **job: Any) -> str:
    """Submit a job, and move it to a twin of its queue, where it gets quota in the cloud and waits for an answer."""
    name = submit(stack, team, gpus, **job)
    wait_for("its Workload", lambda: stack.workload(team, name))
    move(stack, team, name, twin(team, flavor))
    wait_for("the gate", lambda: gate_state(stack.workload(team, name)) == "Pending")
    return name


def submit(stack: Stack, team: str, gpus: int, *, job_class: str = "normal", run: float = 300) -> str:
    """A job whose run outlasts the test, unless `run` (in fleet minutes) says otherwise."""
    return stack.submit(team, gpus, job_class=job_class, run=run, longest=run + 100)


def pass_the_gate(stack: Stack, team: str, job: str) -> None:
    """Answer Ready, as the agent does: by server-side apply of one entry, for the Workload that was read."""
    metadata = stack.workload(team, job)["metadata"]
    entry = {"name": GATE_NAME, "state": "Ready", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"}
    body = {
        "apiVersion": KUEUE,
        "kind": "Workload",
        "metadata": {"name": metadata["name"], "resourceVersion": metadata["resourceVersion"]},
        "status": {"admissionChecks": [entry]},
    }
    path = f"{workload_path(stack, team, job)}/status?force=true&fieldManager={FIELD_MANAGER}"
    answer = stack.request_as(AGENT_USER, "PATCH", path, body, APPLY)
    assert answer.is_success, answer.text


def gate_state(workload: dict[str, Any]) -> str | None:
    """What our check says; None where there is no such check, or the quota behind it is gone."""
    checks = workload.get("status", {}).get("admissionChecks", []) if condition(workload, "QuotaReserved") else []
    return next((str(one["state"]) for one in checks if one["name"] == GATE_NAME), None)


def reserved_flavor(workload: dict[str, Any]) -> str | None:
    """The flavor of the quota that a Workload holds."""
    if not condition(workload, "QuotaReserved"):
        return None
    [assignment] = workload["status"]["admission"]["podSetAssignments"]
    return str(assignment["flavors"]["nvidia.com/gpu"])


def _succeed(stack: Stack, path: str, body: dict[str, Any]) -> None:
    answer = stack.request_as(AGENT_USER, "PATCH", path, body, MERGE)
    assert answer.is_success, answer.text
