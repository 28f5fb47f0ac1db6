"""What we rely on in Kueue, one test each, on the pinned release and without the agent.

A red test here after an upgrade of Kueue says which of our promises to look at; docs/architecture.md lists them.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from stacks.labels import GATE_NAME, VERDICT_ANNOTATION, VERDICT_CONDITION
from tests.e2e.agentless import (
    APPLY,
    LOCAL,
    MERGE,
    ON_DEMAND,
    ON_DEMAND_GPUS,
    SPOT,
    gate_state,
    move,
    pass_the_gate,
    patch_workload,
    reserved_flavor,
    send_to_the_gate,
    submit,
    twin,
    window,
    without_agent,
    workload_path,
)
from tests.e2e.conftest import AGENT_USER, KUEUE, Stack, condition, wait_for

TEAM_GPUS = 8
SETTLED_SECONDS = 3.0
"""Kueue tries its queues again about once a second; what has not happened after three cycles does not."""


@pytest.fixture(scope="module", autouse=True)
def nobody_decides(stack: Stack) -> Iterator[None]:
    with without_agent(stack):
        yield


def stays(what: str, look: Callable[[], bool]) -> None:
    """Fail unless it is so now and goes on to be."""
    deadline = time.monotonic() + SETTLED_SECONDS
    while time.monotonic() < deadline:
        assert look(), f"not any more: {what}"
        time.sleep(0.2)


def fill(stack: Stack, team: str) -> str:
    """Take all of a team's local GPUs."""
    filler = submit(stack, team, TEAM_GPUS, job_class="urgent")
    wait_for("the filler", lambda: stack.flavor(team, filler) == LOCAL)
    return filler


def fill_on_demand(stack: Stack, team: str) -> str:
    """Take all quota of the smaller cloud flavor, with a job that stays at the gate."""
    return send_to_the_gate(stack, team, ON_DEMAND_GPUS, ON_DEMAND)


def waiting(stack: Stack, team: str, gpus: int = TEAM_GPUS, *, queue: str | None = None) -> str:
    """Submit a job that finds no quota, and move it to another queue where one is named."""
    name = submit(stack, team, gpus)
    wait_for("its Workload", lambda: stack.workload(team, name))
    if queue:
        move(stack, team, name, queue)
        wait_for("its new queue", lambda: queue_of(stack, team, name) == queue)
    time.sleep(1)  # creation times have a resolution of a second
    return name


def delete(stack: Stack, team: str, job: str) -> None:
    path = stack.kube.path("batch/v1", "Job", job, team)
    stack.kube.request("DELETE", path, {"propagationPolicy": "Background"})


def queue_of(stack: Stack, team: str, job: str) -> str:
    return str(stack.workload(team, job)["spec"]["queueName"])


def reserved(stack: Stack, team: str, job: str) -> str | None:
    return reserved_flavor(stack.workload(team, job))


def identity(stack: Stack, team: str, job: str) -> tuple[str, str]:
    metadata = stack.workload(team, job)["metadata"]
    return metadata["uid"], metadata["creationTimestamp"]


def suspended(stack: Stack, team: str, job: str) -> bool:
    return bool(stack.kube.get("batch/v1", "Job", job, team)["spec"]["suspend"])


def stop(stack: Stack, team: str, job: str) -> None:
    """The first half of a recall: deactivate, and wait until nothing of it runs or holds quota."""
    patch_workload(stack, team, job, active=False)
    wait_for("no quota", lambda: not condition(stack.workload(team, job), "QuotaReserved"))
    wait_for("a suspended job", lambda: suspended(stack, team, job))


def test_the_label_of_a_suspended_job_moves_its_workload_which_keeps_its_identity(stack: Stack, team: str) -> None:
    fill(stack, team)
    job = waiting(stack, team)
    before = identity(stack, team, job)
    move(stack, team, job, twin(team))
    wait_for("quota in the cloud", lambda: reserved(stack, team, job) == SPOT)
    assert queue_of(stack, team, job) == twin(team)
    assert identity(stack, team, job) == before


def test_a_released_older_job_beats_a_younger_unreleased_one_for_freed_local_gpus(stack: Stack, team: str) -> None:
    filler = fill(stack, team)
    fill_on_demand(stack, team)
    older = waiting(stack, team, queue=twin(team, ON_DEMAND))
    younger = waiting(stack, team)
    delete(stack, team, filler)
    assert wait_for("the older", lambda: stack.flavor(team, older)) == LOCAL
    stays("the younger waits", lambda: reserved(stack, team, younger) is None)


def test_an_unreleased_older_job_beats_a_younger_released_one_for_freed_local_gpus(stack: Stack, team: str) -> None:
    filler = fill(stack, team)
    fill_on_demand(stack, team)
    older = waiting(stack, team)
    younger = waiting(stack, team, queue=twin(team, ON_DEMAND))
    delete(stack, team, filler)
    assert wait_for("the older", lambda: stack.flavor(team, older)) == LOCAL
    stays("the younger waits", lambda: reserved(stack, team, younger) is None)


def test_a_job_that_waits_in_one_twin_moves_to_another_by_its_label_and_gets_quota_there(
    stack: Stack, team: str
) -> None:
    fill(stack, team)
    fill_on_demand(stack, team)
    job = waiting(stack, team, queue=twin(team, ON_DEMAND))
    before = identity(stack, team, job)
    stays("no quota on demand", lambda: reserved(stack, team, job) is None)
    move(stack, team, job, twin(team, SPOT))
    wait_for("quota on spot", lambda: reserved(stack, team, job) == SPOT)
    assert identity(stack, team, job) == before


def test_the_quota_of_a_job_at_the_gate_is_held(stack: Stack, team: str) -> None:
    fill(stack, team)
    gated = fill_on_demand(stack, team)
    behind = waiting(stack, team, 1, queue=twin(team, ON_DEMAND))
    stays("nothing left behind it", lambda: reserved(stack, team, behind) is None)
    assert (reserved(stack, team, gated), stack.flavor(team, gated)) == (ON_DEMAND, None)
    assert suspended(stack, team, gated)


def test_a_job_at_the_gate_does_not_move_when_local_gpus_come_free(stack: Stack, team: str) -> None:
    filler = fill(stack, team)
    gated = send_to_the_gate(stack, team)
    delete(stack, team, filler)
    wait_for("free GPUs", lambda: not stack.workload(team, filler))
    stays("it waits in the cloud", lambda: reserved(stack, team, gated) == SPOT)


def test_ready_admits_and_starts_the_job(stack: Stack, team: str) -> None:
    fill(stack, team)
    job = send_to_the_gate(stack, team)
    stays("nothing starts before", lambda: stack.flavor(team, job) is None and suspended(stack, team, job))
    pass_the_gate(stack, team, job)
    assert wait_for("the job in the cloud", lambda: stack.flavor(team, job)) == SPOT
    wait_for("its start", lambda: not suspended(stack, team, job))


def test_the_label_of_a_job_at_the_gate_moves_nothing(stack: Stack, team: str) -> None:
    fill(stack, team)
    job = send_to_the_gate(stack, team)
    move(stack, team, job, team)
    stays("at the gate", lambda: (queue_of(stack, team, job), reserved(stack, team, job)) == (twin(team), SPOT))


def test_an_evicted_job_needs_the_queue_of_its_workload_as_well(stack: Stack, team: str) -> None:
    job = submit(stack, team, TEAM_GPUS)
    wait_for("a local start", lambda: stack.flavor(team, job) == LOCAL)
    stop(stack, team, job)
    fill(stack, team)
    patch_workload(stack, team, job, active=True)
    wait_for("a job that was evicted", lambda: condition(stack.workload(team, job), "Requeued"))
    move(stack, team, job, twin(team))
    stays("still in its team's queue", lambda: queue_of(stack, team, job) == team)
    patch_workload(stack, team, job, queueName=twin(team))
    wait_for("quota in the cloud", lambda: reserved(stack, team, job) == SPOT)


@pytest.mark.parametrize("runs", [False, True], ids=["at-the-gate", "running"])
def test_the_recall_sequence_returns_a_job_to_its_queue(stack: Stack, team: str, runs: bool) -> None:
    filler = fill(stack, team)
    job = send_to_the_gate(stack, team, TEAM_GPUS)
    before = identity(stack, team, job)
    if runs:
        pass_the_gate(stack, team, job)
        wait_for("the job in the cloud", lambda: stack.flavor(team, job) == SPOT)
    stop(stack, team, job)
    move(stack, team, job, team)
    patch_workload(stack, team, job, queueName=team, active=True)
    stays("waiting in its queue", lambda: queue_of(stack, team, job) == team and reserved(stack, team, job) is None)
    delete(stack, team, filler)
    assert wait_for("a local start", lambda: stack.flavor(team, job)) == LOCAL
    assert identity(stack, team, job) == before


def test_a_recalled_job_keeps_its_place_before_younger_ones(stack: Stack, team: str) -> None:
    filler = fill(stack, team)
    job = send_to_the_gate(stack, team, TEAM_GPUS)
    time.sleep(1)
    younger = waiting(stack, team)
    stop(stack, team, job)
    move(stack, team, job, team)
    patch_workload(stack, team, job, queueName=team, active=True)
    wait_for("its queue", lambda: queue_of(stack, team, job) == team)
    time.sleep(SETTLED_SECONDS)
    delete(stack, team, filler)
    assert wait_for("a local start", lambda: stack.flavor(team, job)) == LOCAL
    assert reserved(stack, team, younger) is None


def test_a_check_that_is_not_active_stops_the_twins_only(stack: Stack, team: str) -> None:
    def is_active(queue: str) -> bool:
        return condition(stack.kube.get(KUEUE, "ClusterQueue", queue), "Active")

    declare_the_check(stack, "False")
    try:
        wait_for("twins that are not active", lambda: not any(map(is_active, (twin(team), twin(team, ON_DEMAND)))))
        stays("the team's own queue is active", lambda: is_active(team))
        job = submit(stack, team, 4)
        assert wait_for("a local start", lambda: stack.flavor(team, job)) == LOCAL
    finally:
        declare_the_check(stack, "True")
        wait_for("active twins", lambda: all(map(is_active, (twin(team), twin(team, ON_DEMAND)))))


def declare_the_check(stack: Stack, status: str) -> None:
    said = {"type": "Active", "status": status, "reason": "Trial", "message": ""}
    said |= {"lastTransitionTime": "2026-01-01T00:00:00Z"}
    check = {"apiVersion": KUEUE, "kind": "AdmissionCheck", "metadata": {"name": GATE_NAME}}
    stack.kube.apply({**check, "status": {"conditions": [said]}}, subresource="status", manager="gpufleet-router")


def test_a_held_local_queue_starts_nothing_new_and_goes_on_when_let_go(stack: Stack, team: str) -> None:
    hold(stack, team, "None")  # as the agent left it depends on its time of day
    running = submit(stack, team, 2, job_class="night")
    wait_for("a start inside the window", lambda: stack.flavor(team, running) == LOCAL)
    hold(stack, team, "Hold")
    try:
        later = submit(stack, team, 2, job_class="night")
        wait_for("its Workload", lambda: stack.workload(team, later))
        stays("what waits is held", lambda: reserved(stack, team, later) is None)
        assert stack.flavor(team, running) == LOCAL
        other = submit(stack, team, 2)
        assert wait_for("a start from the team's other queue", lambda: stack.flavor(team, other)) == LOCAL
    finally:
        hold(stack, team, "None")
    assert wait_for("a start after it was let go", lambda: stack.flavor(team, later)) == LOCAL


def hold(stack: Stack, team: str, policy: str) -> None:
    path = stack.kube.path(KUEUE, "LocalQueue", window(team), team)
    answer = stack.request_as(AGENT_USER, "PATCH", path, {"spec": {"stopPolicy": policy}}, MERGE)
    assert answer.is_success, answer.text


def test_our_condition_and_annotation_survive_what_kueue_writes(stack: Stack, team: str) -> None:
    fill(stack, team)
    job = waiting(stack, team)
    say(stack, team, job)
    move(stack, team, job, twin(team))
    wait_for("the gate", lambda: gate_state(stack.workload(team, job)) == "Pending")
    assert is_said(stack.workload(team, job)), "after reservation"
    pass_the_gate(stack, team, job)
    wait_for("the job in the cloud", lambda: stack.flavor(team, job) == SPOT)
    assert is_said(stack.workload(team, job)), "after admission"
    stop(stack, team, job)
    assert is_said(stack.workload(team, job)), "after eviction"
    move(stack, team, job, team)
    patch_workload(stack, team, job, queueName=team, active=True)
    stays("said after requeueing", lambda: is_said(stack.workload(team, job)))


def say(stack: Stack, team: str, job: str) -> None:
    """Write as the agent does: an annotation by a merge patch, a condition by server-side apply."""
    path = workload_path(stack, team, job)
    annotation = {"metadata": {"annotations": {VERDICT_ANNOTATION: "{}"}}}
    said = {"type": VERDICT_CONDITION, "status": "False", "reason": "Waiting", "message": "waited 1m of 2m"}
    said |= {"lastTransitionTime": "2026-01-01T00:00:00Z"}
    body = {"apiVersion": KUEUE, "kind": "Workload", "metadata": {"name": path.rpartition("/")[2]}}
    status = {**body, "status": {"conditions": [said]}}
    for answer in (
        stack.request_as(AGENT_USER, "PATCH", path, annotation, MERGE),
        stack.request_as(AGENT_USER, "PATCH", f"{path}/status?force=true&fieldManager=a-verdict", status, APPLY),
    ):
        assert answer.is_success, answer.text


def is_said(workload: dict[str, Any]) -> bool:
    found = [one["message"] for one in workload["status"]["conditions"] if one["type"] == VERDICT_CONDITION]
    return found == ["waited 1m of 2m"] and workload["metadata"]["annotations"].get(VERDICT_ANNOTATION) == "{}"
