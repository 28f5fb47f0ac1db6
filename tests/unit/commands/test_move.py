from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from infra.commands import move, orders
from runtime import kube
from runtime.eviction.wish import MoveWish, wish_from_json
from runtime.routing.explain import verdict_to_json
from runtime.routing.verdict import Code, Verdict
from stacks.labels import MOVE_ANNOTATION, VERDICT_ANNOTATION
from tests.builders import LOCAL, NOON, ON_DEMAND, SPOT
from tests.fakes.cluster import Denied, FakeCluster
from tests.fakes.workloads import a_workload, check, condition, reserve
from tests.unit.commands.a_fleet import a_fleet, only_in_namespace
from tests.unit.commands.conftest import Ended

Run = Callable[..., Ended]
Raw = dict[str, Any]


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> FakeCluster:
    """A job that runs on spot GPUs."""
    return with_job(
        monkeypatch, condition(check(reserve(a_workload("one", queue=f"vision-burst-{SPOT}")), "Ready"), "Admitted")
    )


def with_job(monkeypatch: pytest.MonkeyPatch, raw: Raw) -> FakeCluster:
    cluster = a_fleet(monkeypatch, raw)
    monkeypatch.setattr(move, "connect", lambda _stack: cluster.kube())
    monkeypatch.setattr(orders, "POLL_SECONDS", 0.0)
    return cluster


def wish_on(cluster: FakeCluster) -> MoveWish | None:
    annotations = cluster.get(kube.WORKLOADS, "job-one", "vision")["metadata"].get("annotations") or {}
    text = annotations.get(MOVE_ANNOTATION)
    return None if text is None else wish_from_json(text)


@pytest.mark.parametrize("name", [("vision/one",), ("one", "-n", "vision"), ("job-one", "-n", "vision")])
def test_a_wish_is_written_where_the_agent_reads_it(gpufleet: Run, cluster: FakeCluster, name: tuple[str, ...]) -> None:
    ended = gpufleet("move", *name, "--to", "on-demand", "--within", "2h", "--reason", " spot \n is poor", "--yes")
    assert ended.code == 0, ended.err
    wish = wish_on(cluster)
    assert wish is not None
    assert (wish.to, wish.reason, wish.problem) == ("on-demand", "spot is poor", "")
    assert wish.until - wish.asked_at == pytest.approx(7_200)
    assert "as soon as on-demand is free" in ended.out


def test_without_a_target_any_other_flavor_will_do(gpufleet: Run, cluster: FakeCluster) -> None:
    ended = gpufleet("move", "vision/one", "--yes", "--json")
    assert json.loads(ended.out) == {
        "job": "vision/one", "to": None, "within_seconds": 600.0, "from": SPOT, "waited": False,
    }  # fmt: skip
    assert wish_on(cluster) is not None


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (("vision/won",), 1, "no job won in namespace vision; did you mean one?"),
        (("vision/one", "--to", "on-demnad"), 2, "did you mean on-demand?"),
        (("vision/one", "--to", LOCAL), 2, "is no cloud flavor and no market"),
        (("vision/one", "--to", "spot"), 1, f"runs on {SPOT} already"),
        (("vision/one", "--to", SPOT), 1, f"runs on {SPOT} already"),
        (("vision/one", "--within", "8d"), 2, "8d is not between 0s and 7d"),
        (("vision/one", "--within", "soon"), 2, "--within"),
        (("vision/one", "--reason", "x" * 201), 2, "at most 200 characters"),
        (("one",), 2, "write NAMESPACE/JOB"),
        (("a/b/c",), 2, "write NAMESPACE/JOB"),
    ],
)
def test_what_cannot_be_is_refused_and_nothing_is_written(
    gpufleet: Run, cluster: FakeCluster, arguments: tuple[str, ...], code: int, said: str
) -> None:
    ended = gpufleet("move", *arguments, "--yes")
    assert ended.code == code
    assert said in ended.said
    assert wish_on(cluster) is None


@pytest.mark.parametrize(
    "raw",
    [
        a_workload("one"),
        condition(reserve(a_workload("one"), LOCAL), "Admitted"),
        condition(a_workload("one"), "Finished"),
    ],
)
def test_only_what_runs_in_the_cloud_is_moved(gpufleet: Run, monkeypatch: pytest.MonkeyPatch, raw: Raw) -> None:
    cluster = with_job(monkeypatch, raw)
    ended = gpufleet("move", "vision/one", "--to", "on-demand", "--yes")
    assert ended.code == 1
    assert "does not run in the cloud" in ended.said
    assert wish_on(cluster) is None


def test_a_running_job_is_left_alone_unless_somebody_says_yes(gpufleet: Run, cluster: FakeCluster) -> None:
    ended = gpufleet("move", "vision/one", "--to", "on-demand")
    assert ended.code == 1
    assert "add --yes" in ended.said
    assert wish_on(cluster) is None


def test_whoever_may_not_write_it_is_told_so(gpufleet: Run, cluster: FakeCluster) -> None:
    def rule(method: str, path: str, body: Any) -> None:
        if method == "PATCH":
            raise Denied(403, "denied by a policy")

    cluster.rule = rule
    ended = gpufleet("move", "vision/one", "--to", "on-demand", "--yes")
    assert (ended.code, "it takes an administrator" in ended.said) == (1, True)


def test_a_teams_user_is_told_that_it_takes_an_administrator(gpufleet: Run, cluster: FakeCluster) -> None:
    only_in_namespace(cluster)
    ended = gpufleet("move", "vision/one", "--yes")
    assert (ended.code, "takes an administrator" in ended.said) == (1, True)


def agent(cluster: FakeCluster, verdict: Verdict, target: str = SPOT, wish: str | None = None) -> None:
    """The agent ends the move at the third look, with the job in the twin of a flavor; or somebody writes another."""
    looks = 0

    def rule(method: str, path: str, body: Any) -> None:
        nonlocal looks
        looks += method == "GET" and path.endswith("/workloads/job-one")
        if looks == 3:
            looks += 1

            def end(raw: Raw) -> None:
                annotations = raw["metadata"]["annotations"]
                raw["spec"]["queueName"] = f"vision-burst-{target}"
                annotations[MOVE_ANNOTATION] = wish
                if wish is None:
                    del annotations[MOVE_ANNOTATION]
                annotations[VERDICT_ANNOTATION] = verdict_to_json(verdict, "d-1", NOON)

            cluster.change(kube.WORKLOADS, "job-one", "vision", end)

    cluster.rule = rule


def test_waiting_ends_with_what_the_agent_said(gpufleet: Run, cluster: FakeCluster) -> None:
    agent(cluster, Verdict(Code.RELEASED, {"notice": "move", "lost": SPOT, "target": ON_DEMAND}), ON_DEMAND)
    ended = gpufleet("move", "vision/one", "--to", "on-demand", "--yes", "--wait")
    assert ended.code == 0, ended.err
    assert f"may use GPUs of {ON_DEMAND} at once: it is moved from {SPOT}" in ended.out


def test_waiting_for_a_move_that_comes_to_nothing_fails_with_the_reason(gpufleet: Run, cluster: FakeCluster) -> None:
    agent(cluster, Verdict(Code.MOVE_REFUSED, {"to": "on-demand", "cause": "expired"}))
    ended = gpufleet("move", "vision/one", "--to", "on-demand", "--yes", "--wait")
    assert ended.code == 1
    assert "was not moved to on-demand: the time for it is over" in ended.said


def test_a_job_that_was_sent_elsewhere_was_not_moved(gpufleet: Run, cluster: FakeCluster) -> None:
    facts = {"notice": "move", "lost": SPOT, "target": SPOT, "wanted": "on-demand"}
    agent(cluster, Verdict(Code.RELEASED, facts))
    ended = gpufleet("move", "vision/one", "--to", "on-demand", "--yes", "--wait")
    assert ended.code == 1
    assert "is not on its way to on-demand: it may use GPUs of h100-spot at once" in ended.said


def test_waiting_ends_where_somebody_wants_something_else_meanwhile(gpufleet: Run, cluster: FakeCluster) -> None:
    agent(cluster, Verdict(Code.MOVING, {"target": ON_DEMAND}), wish='{"id":"move-other"}')
    ended = gpufleet("move", "vision/one", "--to", "on-demand", "--yes", "--wait")
    assert (ended.code, "somebody wants vision/one elsewhere since" in ended.said) == (1, True)


def test_waiting_for_an_agent_that_does_not_come_ends_with_a_hint(
    gpufleet: Run, cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(move, "_ENDING_SECONDS", -1_000.0)
    ended = gpufleet("move", "vision/one", "--to", "on-demand", "--yes", "--wait")
    assert (ended.code, "does the agent run" in ended.said) == (1, True)


def test_explain_says_what_stands_in_the_way_of_a_move(gpufleet: Run, cluster: FakeCluster) -> None:
    verdict = Verdict(
        Code.MOVE_WAITS, {"to": "on-demand", "until": NOON, "cause": "cloud-full", "gpus": 1, "free_gpus": 0}
    )
    text = verdict_to_json(verdict, "d-1", NOON)
    cluster.change(
        kube.WORKLOADS, "job-one", "vision",
        lambda raw: raw["metadata"].setdefault("annotations", {}).update({VERDICT_ANNOTATION: text}),
    )  # fmt: skip
    ended = gpufleet("explain", "vision/one", "--json")
    [told] = json.loads(ended.out)
    assert told["why"].startswith("runs on where it is, and goes on on on-demand as soon as it may")
