"""Where a job goes and how it comes back: recalls, another flavor, windows, money, and what people do by hand."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest

from infra.local.errors import KubeError
from runtime.cost.ledger import TopUp
from runtime.cost.topups import to_text
from runtime.routing.release import MOST_RETURNS
from stacks.labels import (
    GATE_NAME,
    MOVE_ANNOTATION,
    QUEUE_LABEL,
    RECALL_ANNOTATION,
    SYSTEM_NAMESPACE,
    TOP_UPS_NAME,
    burst_queue,
    window_queue,
)
from tests.e2e.aftermath import losses
from tests.e2e.conftest import AGENT_USER, KUEUE, WIDE_FLEET_FILE, Stack, condition, reserved_flavor, wait_for
from tests.e2e.evicting import answer, failures, gpufleet, marker, requests
from tests.e2e.test_chaos import agent_pid

LOCAL, SPOT, ON_DEMAND = "h100-onprem", "h100-aws-spot", "h100-aws-on-demand"
SPOT_GPUS = 32
MINUTES_LEFT = 5
MERGE = "application/merge-patch+json"


@pytest.fixture
def full(wide: Stack, team: str) -> Iterator[Stack]:
    """A team whose own GPUs are taken for long, by a class that nobody preempts."""
    filler = wide.submit(team, wide.fleet.teams[team].quota[LOCAL], job_class="urgent", run=300, longest=320)
    wait_for("the filler", lambda: wide.flavor(team, filler))
    yield wide
    wide.clear(team)


def edit(stack: Stack, team: str, job: str, body: dict[str, Any], *, workload: bool = False) -> None:
    """Change a Job, or its Workload, as an administrator who may do everything."""
    path = stack.kube.path("batch/v1", "Job", job, team)
    if workload:
        path = stack.kube.path(KUEUE, "Workload", stack.workload(team, job)["metadata"]["name"], team)
    stack.kube.request("PATCH", path, body, content_type=MERGE)


def recall(stack: Stack, team: str, job: str) -> None:
    edit(stack, team, job, {"metadata": {"annotations": {RECALL_ANNOTATION: "maintenance"}}}, workload=True)


def move(stack: Stack, team: str, job: str, queue: str) -> None:
    """Move a job between queues under the agent's name: nobody else may."""
    path = stack.kube.path("batch/v1", "Job", job, team)
    answer = stack.request_as(AGENT_USER, "PATCH", path, {"metadata": {"labels": {QUEUE_LABEL: queue}}}, MERGE)
    assert answer.status_code == 200, answer.text


@contextmanager
def without_policy(stack: Stack, name: str) -> Iterator[None]:
    """As in a cluster where somebody took an admission policy away."""
    api, kind = "admissionregistration.k8s.io/v1", "ValidatingAdmissionPolicyBinding"
    binding = stack.kube.get(api, kind, name)
    stack.kube.delete(api, kind, name)
    try:
        yield
    finally:
        kept = {
            key: binding["metadata"][key] for key in ("name", "labels", "annotations") if key in binding["metadata"]
        }
        stack.kube.create({"apiVersion": api, "kind": kind, "metadata": kept, "spec": binding["spec"]})


def label(stack: Stack, team: str, job: str) -> str:
    return str(stack.kube.get("batch/v1", "Job", job, team)["metadata"]["labels"][QUEUE_LABEL])


def gate(stack: Stack, team: str, job: str) -> str | None:
    checks = stack.workload(team, job).get("status", {}).get("admissionChecks", [])
    return next((check["state"] for check in checks if check["name"] == GATE_NAME), None)


@contextmanager
def cloud_quota(stack: Stack, flavor: str, gpus: int) -> Iterator[None]:
    """Give Kueue fewer cloud GPUs than the agent believes there are."""
    [cohort] = [one for one in stack.kube.list(KUEUE, "Cohort")[0] if not one["spec"].get("parentName")]
    path = stack.kube.path(KUEUE, "Cohort", cohort["metadata"]["name"])
    changed = json.loads(json.dumps(cohort["spec"]))
    for one in (one for group in changed["resourceGroups"] for one in group["flavors"] if one["name"] == flavor):
        for resource in (resource for resource in one["resources"] if resource["name"] == "nvidia.com/gpu"):
            resource["nominalQuota"] = str(gpus)
    stack.kube.request("PATCH", path, {"spec": changed}, content_type=MERGE)
    try:
        yield
    finally:
        stack.kube.request("PATCH", path, {"spec": cohort["spec"]}, content_type=MERGE)


def alarms(stack: Stack, kind: str) -> list[str]:
    """Lines of the agent's log that speak of an alarm."""
    logs = sorted(stack.plane.state.logs.glob("pod.*.log"))
    return [line for path in logs for line in path.read_text().splitlines() if kind in line]


def test_a_job_recalled_while_it_runs_in_the_cloud_goes_home_with_its_workload(full: Stack, team: str) -> None:
    job = full.submit(team, 4, run=200, longest=220)
    wait_for("the job in the cloud", lambda: full.flavor(team, job) == SPOT)
    uid = full.workload(team, job)["metadata"]["uid"]
    recall(full, team, job)
    wait_for("its old queue", lambda: label(full, team, job) == team)
    wait_for("its Workload in it", lambda: full.workload(team, job)["spec"]["queueName"] == team)
    assert full.workload(team, job)["metadata"]["uid"] == uid
    closing = wait_for("its end", lambda: next((c for c in full.ledger()[1] if c.attempt.workload_uid == uid), None))
    assert 0 < closing.usd < Decimal("50")


def test_a_job_recalled_from_the_gate_never_ran_and_cost_nothing(full: Stack, team: str) -> None:
    full.scale_agent(0)
    try:
        job = full.submit(team, 4)
        wait_for("its Workload", lambda: full.workload(team, job))
        move(full, team, job, burst_queue(team, SPOT))
        wait_for("the gate", lambda: gate(full, team, job) == "Pending")
        recall(full, team, job)
    finally:
        full.scale_agent(1)
    wait_for("its old queue", lambda: label(full, team, job) == team)
    uid = full.workload(team, job)["metadata"]["uid"]
    assert not [one for one in full.ledger()[0] if one.attempt.workload_uid == uid]


def test_a_job_recalled_while_it_waits_in_a_twin_goes_home(full: Stack, team: str) -> None:
    with cloud_quota(full, SPOT, 0):
        job = full.submit(team, 4)
        wait_for("the release", lambda: label(full, team, job) == burst_queue(team, SPOT))
        assert reserved_flavor(full.workload(team, job)) is None
        recall(full, team, job)
        wait_for("its old queue", lambda: label(full, team, job) == team)


@pytest.mark.long
def test_a_job_that_waits_for_spot_in_vain_goes_to_on_demand_with_the_same_workload(full: Stack, team: str) -> None:
    with cloud_quota(full, SPOT, 0):
        job = full.submit(team, 4)
        wait_for("the release to spot", lambda: label(full, team, job) == burst_queue(team, SPOT))
        uid = full.workload(team, job)["metadata"]["uid"]
        wait_for("the release to on-demand", lambda: label(full, team, job) == burst_queue(team, ON_DEMAND), 90)
        wait_for("the job in the cloud", lambda: full.flavor(team, job) == ON_DEMAND)
    assert full.workload(team, job)["metadata"]["uid"] == uid
    [opening] = [one for one in full.ledger()[0] if one.attempt.workload_uid == uid]
    assert opening.flavor == ON_DEMAND


def test_a_job_moves_once_what_it_is_to_have_is_free_though_the_agent_is_killed_on_the_way(
    full: Stack, team: str
) -> None:
    spot = [full.submit(team, gpus, job_class="urgent", run=300, longest=320) for gpus in (4, 8, 8, 8)]
    wait_for("the jobs on spot", lambda: all(full.flavor(team, one) == SPOT for one in spot))
    taken = [full.submit(team, 8, job_class="urgent", run=300, longest=320) for _ in range(2)]
    wait_for("on-demand to be full", lambda: all(full.flavor(team, one) == ON_DEMAND for one in taken))
    job = spot[0]
    before = full.workload(team, job)["metadata"]
    gpufleet(full, "move", f"{team}/{job}", "--to", "on-demand", "--within", "10m", "--yes")
    wait_for("the refusal", lambda: full.verdict(team, job).get("code") == "move-waits")
    assert (full.verdict(team, job)["facts"]["cause"], marker(full, team, job)) == ("cloud-full", None)
    [told] = gpufleet(full, "explain", f"{team}/{job}")
    assert "no cloud flavor has 4 GPUs free" in told["why"]
    path = full.kube.path("batch/v1", "Job", taken[0], team)
    full.kube.request("DELETE", path, parameters={"propagationPolicy": "Background"})
    wait_for("the request on the pod", lambda: requests(full, team, job))
    pid = agent_pid(full)
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    answer(full, team, job, 1_200)
    wait_for("the job on demand", lambda: full.flavor(team, job) == ON_DEMAND, 120)
    [loss] = wait_for("its loss in the ledger", lambda: losses(full).get(before["uid"]))
    assert (loss.kind, loss.flavor, loss.step) == ("move", SPOT, 1_200)
    after = full.workload(team, job)["metadata"]
    assert (after["uid"], after["creationTimestamp"]) == (before["uid"], before["creationTimestamp"])
    assert MOVE_ANNOTATION not in after["annotations"]
    openings = [one.flavor for one in full.ledger()[0] if one.attempt.workload_uid == before["uid"]]
    assert sorted(openings) == sorted([SPOT, ON_DEMAND])
    assert failures(full, team, job) == 0


def test_with_spot_full_the_next_job_goes_to_on_demand_at_once(full: Stack, team: str) -> None:
    fillers = [full.submit(team, 8, job_class="urgent", run=200, longest=220) for _ in range(SPOT_GPUS // 8)]
    wait_for("spot to be full", lambda: all(full.flavor(team, one) == SPOT for one in fillers))
    job = full.submit(team, 8, job_class="urgent")
    assert wait_for("the job in the cloud", lambda: full.flavor(team, job)) == ON_DEMAND


def test_a_class_starts_only_in_its_window(wide: Stack, team: str) -> None:
    opens = datetime.fromtimestamp(wide.fleet_now(), UTC) + timedelta(minutes=90)  # in 90 s: deploying takes some
    closes = opens + timedelta(hours=3)
    process = agent_pid(wide)
    changed = wide.up(WIDE_FLEET_FILE.replace("22:00-06:00 UTC", f"{opens:%H:%M}-{closes:%H:%M} UTC"))
    try:
        assert wide.changes(changed) == {"update": 1}, "the agent's ConfigMap alone"
        queue = window_queue(team, "night")
        wait_for("the queue to be held", lambda: stop_policy(wide, team, queue) == "Hold")
        job = wide.submit(team, 1, job_class="night")
        wait_for("the verdict", lambda: wide.verdict(team, job).get("code") == "window")
        assert wide.flavor(team, job) is None
        wait_for("the window to open", lambda: stop_policy(wide, team, queue) == "None", 150)
        assert wait_for("the job", lambda: wide.flavor(team, job)) == LOCAL
        assert agent_pid(wide) == process, "a changed ConfigMap is read again, by the same process"
    finally:
        assert wide.up(WIDE_FLEET_FILE).succeeded


def stop_policy(stack: Stack, team: str, queue: str) -> str:
    return str(stack.kube.get(KUEUE, "LocalQueue", queue, team)["spec"].get("stopPolicy") or "None")


@pytest.mark.long
def test_a_budget_refills_at_the_turn_of_its_own_day(full: Stack, team: str) -> None:
    """8 GPUs x 40 minutes x 3.60 = 19.20 of 20 USD: one a day, if it also ends on the day it began."""
    earliest = datetime.fromtimestamp(full.fleet_now(), UTC) + timedelta(minutes=110)  # deploying, and the first's 40
    turn = (earliest + timedelta(hours=1)).replace(minute=0, second=0, microsecond=0)  # in 110 to 170 s
    zone = f"Etc/GMT{turn.hour:+d}" if turn.hour <= 12 else f"Etc/GMT-{24 - turn.hour}"
    budget = "daily: {budget: {daily: 20 USD"
    assert full.up(WIDE_FLEET_FILE.replace(budget, f"{budget}, time_zone: {zone}")).succeeded
    try:
        first = full.submit(team, 8, run=60, longest=40, project="daily")  # stopped at its limit
        wait_for("the first in the cloud", lambda: full.flavor(team, first) == SPOT)
        second = full.submit(team, 8, run=30, longest=40, project="daily")
        wait_for("the budget verdict", lambda: full.verdict(team, second).get("code") == "budget")
        wait_for("the second in the cloud", lambda: full.flavor(team, second) == SPOT, 240)
        # What it runs after midnight is the next day's money, so the last minutes' worth may be left of this day's.
        assert full.fleet_now() >= turn.timestamp() - MINUTES_LEFT * 60
    finally:
        assert full.up(WIDE_FLEET_FILE).succeeded


def test_a_top_up_lets_the_next_job_go(full: Stack, team: str) -> None:
    """Ten minutes of 8 GPUs cost 4.80 of 20 USD a day; another forty would not fit, but for the top-up."""
    first = full.submit(team, 8, run=10, longest=40, project="paper")
    wait_for("the first's end", lambda: condition(full.workload(team, first), "Finished"))
    second = full.submit(team, 8, run=10, longest=40, project="paper")
    wait_for("the budget verdict", lambda: full.verdict(team, second).get("code") == "budget")
    now = full.fleet_now()
    granted = TopUp(
        id="deadline",
        scope="project paper",
        usd=Decimal(100),
        reason="paper deadline",
        author="admin@acme",
        granted_at=now,
        expires_at=now + 6 * 3600,
    )
    path = full.kube.path("v1", "ConfigMap", TOP_UPS_NAME, SYSTEM_NAMESPACE)
    full.kube.request("PATCH", path, {"data": {granted.id: to_text(granted)}}, content_type=MERGE)
    assert wait_for("the second in the cloud", lambda: full.flavor(team, second)) == SPOT
    kept = list(full.plane.state.root.glob("volumes/**/v1/top-ups/deadline.json"))
    assert len(kept) == 1


def test_a_label_that_somebody_keeps_taking_back_is_left_alone_with_an_alarm(full: Stack, team: str) -> None:
    home = {"metadata": {"labels": {QUEUE_LABEL: team}}}
    with without_policy(full, "gpufleet-jobs-keep-their-queue"), cloud_quota(full, SPOT, 0):
        job = full.submit(team, 4)
        for number in range(MOST_RETURNS + 1):
            wait_for(f"release {number + 1}", lambda: label(full, team, job) == burst_queue(team, SPOT))
            wait_for("the verdict", lambda: full.verdict(team, job).get("code") == "released")
            wait_for("the policy to be gone", lambda: may(full, team, job, home))
        wait_for("the verdict", lambda: full.verdict(team, job).get("code") == "taken-back")
    assert label(full, team, job) == team
    assert full.flavor(team, job) is None
    assert alarms(full, "label-reverted")


def may(stack: Stack, team: str, job: str, body: dict[str, Any]) -> bool:
    """Whether an administrator's change of a Job went through."""
    try:
        edit(stack, team, job, body)
    except KubeError:
        return False
    return True


def test_a_twin_that_is_deleted_is_alarmed_and_its_flavor_left_out(full: Stack, team: str) -> None:
    queue = burst_queue(team, SPOT)
    manifest = full.kube.get(KUEUE, "LocalQueue", queue, team)
    full.kube.delete(KUEUE, "LocalQueue", queue, team)
    try:
        job = full.submit(team, 4)
        assert wait_for("the job in the cloud", lambda: full.flavor(team, job)) == ON_DEMAND
        assert alarms(full, "twin-broken")
    finally:
        metadata = {key: manifest["metadata"][key] for key in ("name", "namespace", "labels")}
        full.kube.create({**manifest, "metadata": metadata, "status": {}})
