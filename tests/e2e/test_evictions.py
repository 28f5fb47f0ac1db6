"""Notices on nodes of the real control plane: jobs are asked to save, stopped in time, and run again elsewhere."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from infra.local.kwok import KwokPool, nodes
from runtime.eviction.notice import Certainty, Notice, NoticeKind, notices_to_json
from runtime.eviction.view import Phase
from stacks.labels import EVICTING_TAINT, NOTICES_ANNOTATION
from tests.e2e.conftest import Stack, condition, wait_for
from tests.e2e.evicting import LOCAL, MERGE, SPOT, answer, attempts, failures, marker, node_of, phase, requests
from tests.e2e.test_chaos import agent_pid

NOTICE_SECONDS = 60.0


def cloud_job(stack: Stack, team: str, gpus: int = 4) -> str:
    """A job that runs in the cloud for longer than the test."""
    filler = stack.submit(team, 8, job_class="urgent", run=300, longest=320)
    wait_for("the filler", lambda: stack.flavor(team, filler))
    job = stack.submit(team, gpus, job_class="urgent", run=300, longest=320)
    wait_for("the job in the cloud", lambda: stack.flavor(team, job) == SPOT)
    wait_for("its pod", lambda: node_of(stack, team, job))
    wait_for("its pods to be ready", lambda: condition(stack.workload(team, job), "PodsReady"))
    return job


def say(stack: Stack, node: str, *notices: Notice) -> None:
    """Write the notices on the node as the node agent does; none takes all back."""
    annotation = notices_to_json(notices) if notices else None
    others = [t for t in stack.kube.get("v1", "Node", node)["spec"].get("taints", []) if t["key"] != EVICTING_TAINT]
    mine = [{"key": EVICTING_TAINT, "value": notices[0].kind.value, "effect": "NoSchedule"}] if notices else []
    body = {
        "metadata": {"annotations": {NOTICES_ANNOTATION: annotation}},
        "spec": {"unschedulable": bool(notices) or None, "taints": [*others, *mine]},
    }
    stack.kube.request("PATCH", stack.kube.path("v1", "Node", node), body, content_type=MERGE)


def a_notice(node: str, kind: NoticeKind = NoticeKind.SPOT, seconds: float | None = NOTICE_SECONDS) -> Notice:
    now = time.time()
    certainty = Certainty.LIKELY if kind is NoticeKind.REBALANCE else Certainty.CERTAIN
    return Notice(f"{kind.value}-{node}", kind, "test", certainty, now, None if seconds is None else now + seconds)


@contextmanager
def noticed(stack: Stack, node: str, *notices: Notice) -> Iterator[None]:
    """The notices stand while the test goes on; the node is as before afterwards, be it deleted meanwhile."""
    manifest = stack.kube.get("v1", "Node", node)
    say(stack, node, *notices)
    try:
        yield
    finally:
        if any(one["metadata"]["name"] == node for one in stack.kube.list("v1", "Node")[0]):
            say(stack, node)
        else:
            labels = manifest["metadata"]["labels"]
            for fresh in nodes([KwokPool("again", (node,), labels, tuple(manifest["spec"].get("taints", ())))]):
                stack.kube.ensure(fresh)


def test_a_job_on_a_node_that_goes_is_asked_stopped_and_runs_again_elsewhere(stack: Stack, team: str) -> None:
    job = cloud_job(stack, team)
    node, uid = node_of(stack, team, job), stack.workload(team, job)["metadata"]["uid"]
    created = stack.workload(team, job)["metadata"]["creationTimestamp"]
    assert node is not None
    with noticed(stack, node, a_notice(node)):
        wait_for("the question", lambda: phase(stack, team, job) is Phase.ASKED)
        wait_for("the request on the pod", lambda: requests(stack, team, job))
        answer(stack, team, job, 1200)
        wait_for("it to run again", lambda: attempts(stack, uid) == 2)
        stack.kube.delete("v1", "Node", node)
        wait_for("a pod on another node", lambda: node_of(stack, team, job) not in (None, node))
    found = marker(stack, team, job)
    assert found is not None
    assert (found.phase, found.step, found.attempts) == (Phase.DONE, 1200, 1)
    assert found.lost_gpu_seconds <= 4 * 5
    workload = stack.workload(team, job)
    assert (workload["metadata"]["uid"], workload["metadata"]["creationTimestamp"]) == (uid, created)
    assert stack.flavor(team, job) == SPOT
    assert failures(stack, team, job) == 0
    closings = [one for one in stack.ledger()[1] if one.attempt.workload_uid == uid]
    assert len(closings) == 1


def test_a_warning_asks_the_job_and_lets_it_run_on(stack: Stack, team: str) -> None:
    job = cloud_job(stack, team)
    node = node_of(stack, team, job)
    assert node is not None
    with noticed(stack, node, a_notice(node, NoticeKind.REBALANCE, None)):
        wait_for("the question", lambda: phase(stack, team, job) is Phase.ASKED)
        time.sleep(4)
        assert phase(stack, team, job) is Phase.ASKED
        assert stack.workload(team, job)["spec"].get("active") is not False
        say(stack, node)
        wait_for("the marker to be crossed out", lambda: marker(stack, team, job) is None)
    assert node_of(stack, team, job) == node


def test_a_job_that_its_owner_stops_meanwhile_is_left_to_him(stack: Stack, team: str) -> None:
    job = cloud_job(stack, team)
    node = node_of(stack, team, job)
    assert node is not None
    path = stack.kube.path("kueue.x-k8s.io/v1beta2", "Workload", stack.workload(team, job)["metadata"]["name"], team)
    with noticed(stack, node, a_notice(node, seconds=60)):
        wait_for("the question", lambda: phase(stack, team, job) is Phase.ASKED)
        stack.kube.request("PATCH", path, {"spec": {"active": False}}, content_type=MERGE)
        wait_for("the marker to be crossed out", lambda: marker(stack, team, job) is None)
        time.sleep(3)
        assert stack.workload(team, job)["spec"]["active"] is False


@pytest.mark.parametrize("moment", [Phase.ASKED, Phase.STOPPED])
def test_an_agent_that_is_killed_in_the_middle_goes_on(stack: Stack, team: str, moment: Phase) -> None:
    job = cloud_job(stack, team)
    node, uid = node_of(stack, team, job), stack.workload(team, job)["metadata"]["uid"]
    assert node is not None
    with noticed(stack, node, a_notice(node)):
        reached = {Phase.ASKED: (Phase.ASKED, Phase.STOPPED, Phase.DONE), Phase.STOPPED: (Phase.STOPPED, Phase.DONE)}
        wait_for(f"phase {moment}", lambda: phase(stack, team, job) in reached[moment])
        pid = agent_pid(stack)
        assert pid is not None
        os.kill(pid, signal.SIGKILL)
        wait_for("it to run again", lambda: attempts(stack, uid) == 2 and stack.flavor(team, job), 90)
        wait_for("a pod on another node", lambda: node_of(stack, team, job) not in (None, node))
    found = marker(stack, team, job)
    assert found is not None
    assert found.attempts == 1
    assert failures(stack, team, job) == 0


def test_a_node_that_vanishes_without_a_word_costs_no_job(stack: Stack, team: str) -> None:
    job = cloud_job(stack, team)
    node, uid = node_of(stack, team, job), stack.workload(team, job)["metadata"]["uid"]
    assert node is not None
    with noticed(stack, node):
        stack.kube.delete("v1", "Node", node)
        wait_for("it to run again", lambda: attempts(stack, uid) == 2 or failures(stack, team, job))
        wait_for("a pod on another node", lambda: node_of(stack, team, job) not in (None, node))
    assert stack.flavor(team, job) == SPOT


def test_a_job_on_a_local_node_under_maintenance_keeps_its_place(stack: Stack, team: str) -> None:
    job = stack.submit(team, 8, job_class="urgent", run=300, longest=320)
    wait_for("a local start", lambda: stack.flavor(team, job) == LOCAL)
    wait_for("its pods to be ready", lambda: condition(stack.workload(team, job), "PodsReady"))
    node = wait_for("its node", lambda: node_of(stack, team, job))
    created = stack.workload(team, job)["metadata"]["creationTimestamp"]
    with noticed(stack, node, a_notice(node, NoticeKind.MAINTENANCE, 50)):
        wait_for("the eviction's end", lambda: phase(stack, team, job) is Phase.DONE)
        again = wait_for("another node", lambda: node_of(stack, team, job) not in (None, node))
        assert again
    assert stack.workload(team, job)["metadata"]["creationTimestamp"] == created
