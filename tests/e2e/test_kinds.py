"""Every kind of job goes the whole way: it waits, is released by its label alone, starts in the cloud, and comes back."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from infra.local.errors import KubeError
from infra.local.kubeclient import Manifest
from stacks.kinds import JOB_KINDS, JobKind
from stacks.labels import FLAVOR_LABEL, QUEUE_LABEL, RECALL_ANNOTATION, burst_queue
from tests.e2e.conftest import KUEUE, Stack, condition, reserved_flavor, wait_for
from tests.e2e.kinds import at, install, job_of, selectors

LOCAL, SPOT = "h100-onprem", "h100-aws-spot"
TEAM = "red"
MERGE = "application/merge-patch+json"


@pytest.fixture(scope="module", params=JOB_KINDS, ids=lambda kind: kind.kind)
def kind(stack: Stack, request: pytest.FixtureRequest) -> JobKind:
    """A kind of which Kueue knows the CRD; it looks for new ones ever more rarely, so it is started again."""
    found: JobKind = request.param
    served = stack.kube.find("apiextensions.k8s.io/v1", "CustomResourceDefinition", f"{found.plural}.{found.group}")
    install(stack.kube, found)
    if served is None and found.kind != "Job":
        stack.restart_kueue()
    return found


@pytest.fixture
def submitted(stack: Stack, kind: JobKind) -> Iterator[Manifest]:
    """A job of the kind that finds its team's GPUs taken."""
    filler = stack.submit(TEAM, 8, job_class="urgent", run=120, longest=140)
    wait_for("the filler", lambda: stack.flavor(TEAM, filler))
    manifest = job_of(kind, f"{kind.kind.lower()}-moves", TEAM, 4)
    wait_for("Kueue to take the kind", lambda: created(stack, manifest))
    wait_for("its Workload", lambda: stack.workload(TEAM, manifest["metadata"]["name"]))
    yield manifest
    path = stack.kube.path(kind.api_version, kind.kind, manifest["metadata"]["name"], TEAM)
    stack.kube.request("DELETE", path, parameters={"propagationPolicy": "Background"})
    stack.clear(TEAM)


def created(stack: Stack, manifest: Manifest) -> bool:
    try:
        stack.kube.create(manifest)
    except KubeError as error:
        if error.status == 403:  # its webhook answers before its controller is set up
            return False
        raise
    return True


def live(stack: Stack, kind: JobKind, name: str) -> dict[str, Any]:
    return stack.kube.get(kind.api_version, kind.kind, name, TEAM)


def test_a_job_of_this_kind_bursts_by_its_label_alone_and_can_be_recalled(
    stack: Stack, kind: JobKind, submitted: Manifest
) -> None:
    name = submitted["metadata"]["name"]
    before = stack.workload(TEAM, name)
    wait_for("the verdict that it waits", lambda: stack.verdict(TEAM, name).get("code") == "waiting")
    wait_for("its admission", lambda: condition(stack.workload(TEAM, name), "Admitted"))
    wait_for("its start", lambda: not at(live(stack, kind, name), kind.suspend))
    workload, job = stack.workload(TEAM, name), live(stack, kind, name)
    assert workload["metadata"]["uid"] == before["metadata"]["uid"], "it kept its Workload, and so its place"
    assert reserved_flavor(workload) == SPOT
    assert job["metadata"]["labels"][QUEUE_LABEL] == burst_queue(TEAM, SPOT) == workload["spec"]["queueName"]
    assert {FLAVOR_LABEL: SPOT}.items() <= {k: v for one in selectors(job) for k, v in one.items() if v == SPOT}.items()
    [opening] = [one for one in stack.ledger()[0] if one.attempt.workload_uid == workload["metadata"]["uid"]]
    assert (opening.flavor, opening.gpus) == (SPOT, 4)

    path = stack.kube.path(KUEUE, "Workload", workload["metadata"]["name"], TEAM)
    asked = {"metadata": {"annotations": {RECALL_ANNOTATION: "the link is down"}}}
    stack.kube.request("PATCH", path, asked, content_type=MERGE)
    wait_for("its old queue", lambda: live(stack, kind, name)["metadata"]["labels"][QUEUE_LABEL] == TEAM)
    wait_for("a suspended job", lambda: at(live(stack, kind, name), kind.suspend))
    assert stack.workload(TEAM, name)["metadata"]["uid"] == workload["metadata"]["uid"]
    closed = wait_for("the closing", lambda: [one for one in stack.ledger()[1] if one.attempt == opening.attempt])
    assert closed[0].usd <= opening.committed_usd
