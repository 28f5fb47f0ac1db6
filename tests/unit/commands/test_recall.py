from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from infra.commands import orders, recall
from runtime import kube
from stacks.labels import RECALL_ANNOTATION
from tests.builders import LOCAL, SPOT
from tests.fakes.cluster import Denied, FakeCluster
from tests.fakes.workloads import a_workload, check, condition, reserve
from tests.unit.commands.a_fleet import a_fleet
from tests.unit.commands.conftest import Ended

Run = Callable[..., Ended]
TWIN = f"vision-burst-{SPOT}"


def a_released_job() -> dict[str, Any]:
    return a_workload("one", queue=TWIN)


def a_cloud_job() -> dict[str, Any]:
    return condition(check(reserve(a_workload("one", queue=TWIN), SPOT), "Ready"), "Admitted")


def reason_on(cluster: FakeCluster) -> str | None:
    annotations = cluster.get(kube.WORKLOADS, "job-one", "vision")["metadata"].get("annotations") or {}
    found: str | None = annotations.get(RECALL_ANNOTATION)
    return found


def test_a_pending_job_is_recalled_without_a_question(gpufleet: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = a_fleet(monkeypatch, a_released_job())

    ended = gpufleet("recall", "vision/one", "--reason", "  data may \n not leave ")

    assert ended.code == 0, ended.err
    assert reason_on(cluster) == "data may not leave"
    assert "goes back to its team's queue and keeps its age" in ended.out


def test_a_running_job_is_left_alone_unless_somebody_says_yes(gpufleet: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = a_fleet(monkeypatch, a_cloud_job())

    ended = gpufleet("recall", "vision/one", "--reason", "costs")

    assert ended.code == 1
    assert "add --yes" in ended.said
    assert reason_on(cluster) is None


def test_a_running_job_is_recalled_with_yes_and_what_is_lost_is_said(
    gpufleet: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = a_fleet(monkeypatch, a_cloud_job())

    ended = gpufleet("recall", "vision/one", "--reason", "costs", "--yes")

    assert "what it has not saved is lost" in ended.out
    assert reason_on(cluster) == "costs"


@pytest.mark.parametrize("local", [a_workload("one"), condition(reserve(a_workload("one"), LOCAL), "Admitted")])
def test_a_job_that_is_not_in_the_cloud_needs_no_recall(
    gpufleet: Run, monkeypatch: pytest.MonkeyPatch, local: dict[str, Any]
) -> None:
    cluster = a_fleet(monkeypatch, local)

    ended = gpufleet("recall", "vision/one", "--reason", "costs", "--json")

    assert json.loads(ended.out)["recalled"] is False
    assert reason_on(cluster) is None


def test_whoever_may_not_recall_is_told_so(gpufleet: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = a_fleet(monkeypatch, a_released_job())

    def rule(method: str, path: str, body: Any) -> None:
        if method == "PATCH":
            raise Denied(403, "denied by a policy")

    cluster.rule = rule
    ended = gpufleet("recall", "vision/one", "--reason", "costs")

    assert ended.code == 1
    assert "it takes an administrator" in ended.said


def test_waiting_ends_when_the_agent_has_taken_the_note_off(gpufleet: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = a_fleet(monkeypatch, a_released_job())
    monkeypatch.setattr(orders, "POLL_SECONDS", 0.0)
    reads = 0

    def agent(method: str, path: str, body: Any) -> None:
        nonlocal reads
        reads += method == "GET" and path.endswith("/workloads/job-one")
        if reads == 3:
            reads += 1
            raw = a_workload("one")
            cluster.put(kube.WORKLOADS, raw)

    cluster.rule = agent
    ended = gpufleet("recall", "vision/one", "--reason", "costs", "--wait")

    assert ended.code == 0, ended.err
    assert "done in" in ended.err


def test_waiting_for_an_agent_that_does_not_come_ends_with_a_hint(
    gpufleet: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    a_fleet(monkeypatch, a_released_job())
    monkeypatch.setattr(orders, "POLL_SECONDS", 0.0)
    monkeypatch.setattr(recall, "_NOT_TAKEN_SECONDS", 0.0)

    ended = gpufleet("recall", "vision/one", "--reason", "costs", "--wait")

    assert ended.code == 1
    assert "does the agent run" in ended.said


@pytest.mark.parametrize(
    "arguments", [("one", "-"), ("/one", "-"), ("a/b/c", "-"), ("vision/one", " "), ("vision/one", "x" * 201)]
)
def test_a_wrong_name_or_reason_is_wrong_usage(
    gpufleet: Run, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, str]
) -> None:
    a_fleet(monkeypatch, a_released_job())

    assert gpufleet("recall", arguments[0], "--reason", arguments[1]).code == 2


def test_a_job_that_is_not_there_is_named_with_the_nearest(gpufleet: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    a_fleet(monkeypatch, a_released_job())

    ended = gpufleet("recall", "vision/on", "--reason", "costs")

    assert ended.code == 1
    assert "did you mean" in ended.said
