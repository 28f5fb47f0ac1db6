"""The burst rule on the real control plane: local first, then wait, then the cloud if the money allows."""

from __future__ import annotations

import pytest

from tests.e2e.conftest import FLEET_FILE, Stack, condition, wait_for

LOCAL, CLOUD = "h100-onprem", "h100-aws-spot"


def test_with_gpus_free_a_job_starts_locally_at_once(stack: Stack, team: str) -> None:
    job = stack.submit(team, 4)
    assert wait_for("the job to be admitted", lambda: stack.flavor(team, job)) == LOCAL


def test_without_free_gpus_a_job_waits_its_limit_and_then_runs_in_the_cloud(stack: Stack, team: str) -> None:
    filler = stack.submit(team, 8, run=30, longest=40)
    wait_for("the filler", lambda: stack.flavor(team, filler))
    job = stack.submit(team, 4)
    wait_for("a waiting verdict", lambda: stack.verdict(team, job).get("code") == "waiting")
    assert wait_for("the job in the cloud", lambda: stack.flavor(team, job)) == CLOUD
    workload = stack.workload(team, job)
    uid = workload["metadata"]["uid"]
    [opening] = [one for one in stack.ledger()[0] if one.attempt.workload_uid == uid]
    assert (opening.team, opening.flavor, opening.gpus) == (team, CLOUD, 4)
    wait_for("the job's end", lambda: condition(stack.workload(team, job), "Finished"))
    closing = wait_for(
        "the closing", lambda: next((c for c in stack.ledger()[1] if c.attempt == opening.attempt), None)
    )
    conditions = {one["type"]: one for one in stack.workload(team, job)["status"]["conditions"]}
    assert conditions["Finished"]["status"] == "True"
    ran_hours = (closing.ended_at - closing.started_at) / 3600
    assert float(closing.usd) == pytest.approx(4 * 3.60 * ran_hours, abs=0.01)
    assert 9 / 60 <= ran_hours <= 14 / 60
    assert closing.usd <= opening.committed_usd


def test_an_urgent_job_leaves_earlier_than_a_normal_one(stack: Stack, team: str) -> None:
    filler = stack.submit(team, 8, job_class="urgent", run=30, longest=40)  # of a class that nobody preempts
    wait_for("the filler", lambda: stack.flavor(team, filler))
    normal = stack.submit(team, 1)
    urgent = stack.submit(team, 1, job_class="urgent")
    wait_for("the urgent job in the cloud", lambda: stack.flavor(team, urgent) == CLOUD)
    assert stack.flavor(team, normal) is None


def test_a_class_that_never_bursts_stays_in_its_queue(stack: Stack, team: str) -> None:
    filler = stack.submit(team, 8, run=12, longest=20)
    wait_for("the filler", lambda: stack.flavor(team, filler))
    job = stack.submit(team, 8, job_class="local")
    wait_for("the verdict", lambda: stack.verdict(team, job).get("code") == "class-stays-local")
    assert wait_for("local room", lambda: stack.flavor(team, job)) == LOCAL


@pytest.mark.parametrize("team", ["blue"], indirect=True)
def test_an_exhausted_budget_holds_the_job_and_a_refilled_one_lets_it_go(stack: Stack, team: str) -> None:
    filler = stack.submit(team, 4, run=60, longest=70)
    wait_for("the filler", lambda: stack.flavor(team, filler))
    # 8 GPUs x 40 minutes x 3.60 = 19.20 of 20 USD.
    first = stack.submit(team, 8, run=10, longest=40)
    wait_for("the first in the cloud", lambda: stack.flavor(team, first) == CLOUD)
    second = stack.submit(team, 8, run=10, longest=40)
    verdict = wait_for("the budget verdict", lambda: stack.verdict(team, second).get("code") == "budget" and
                       stack.verdict(team, second))  # fmt: skip
    assert verdict["facts"]["scope"] == "team blue"
    assert stack.flavor(team, second) is None
    changed = stack.up(FLEET_FILE.replace("monthly: 20 USD", "monthly: 200 USD"))
    assert stack.changes(changed) == {"update": 1}  # the ConfigMap alone, which the agent reads again
    wait_for("the second in the cloud", lambda: stack.flavor(team, second) == CLOUD)
    restored = stack.up(FLEET_FILE)
    assert restored.succeeded


def test_without_a_longest_run_time_a_hard_budget_keeps_a_job_local(stack: Stack, team: str) -> None:
    filler = stack.submit(team, 8, run=30, longest=40)
    wait_for("the filler", lambda: stack.flavor(team, filler))
    job = stack.submit(team, 1)
    # As a user would have written it without the label: the field is mutable while the job is suspended.
    path = stack.kube.path("batch/v1", "Job", job, team)
    body = {"metadata": {"labels": {"kueue.x-k8s.io/max-exec-time-seconds": None}}}
    stack.kube.request("PATCH", path, body, content_type="application/merge-patch+json")
    wait_for("the verdict", lambda: stack.verdict(team, job).get("code") == "no-runtime-limit")
    assert stack.flavor(team, job) is None


def test_with_the_agent_away_local_work_starts_and_nothing_starts_in_the_cloud(stack: Stack, team: str) -> None:
    filler = stack.submit(team, 4, run=60, longest=70)
    wait_for("the filler", lambda: stack.flavor(team, filler))
    stack.scale_agent(0)
    try:
        local = stack.submit(team, 4)
        assert wait_for("the local job", lambda: stack.flavor(team, local)) == LOCAL
        waiting = stack.submit(team, 8)
        with pytest.raises(pytest.fail.Exception):
            wait_for("a start that must not happen", lambda: stack.flavor(team, waiting), 12)
    finally:
        stack.scale_agent(1)
    wait_for("the job in the cloud", lambda: stack.flavor(team, waiting) == CLOUD)
