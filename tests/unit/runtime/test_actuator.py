from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from runtime.routing.decide import decide
from runtime.routing.decision import Clear, Decision, Recall, Release
from runtime.routing.observe import snapshot
from runtime.routing.release import SYNC_SECONDS
from runtime.routing.snapshot import Snapshot, Stage
from stacks.agent_config import AgentConfig
from stacks.kinds import JOB_KINDS, JobKind
from stacks.labels import QUEUE_LABEL, RECALL_ANNOTATION, VERDICT_ANNOTATION
from tests.builders import NOON, ON_DEMAND, SPOT, a_config, a_team, an_opening
from tests.fakes import kueue
from tests.fakes.cluster import Denied
from tests.fakes.workloads import reserve, unreserve, verdict
from tests.fakes.world import (
    CLEARED,
    NIGHT,
    OTHER_TWIN,
    RECALLED,
    RELEASED,
    TWIN,
    Killed,
    World,
    a_decision,
)


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path / "ledger")


def test_a_release_that_kueue_has_not_carried_out_yet_is_not_taken_for_taken_back(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("runtime.routing.act._loop_time", lambda: world.now)
    world.submit()

    async def story() -> None:
        store = world.store()
        await store.refresh()
        actor = world.actor(store)
        for _ in range(2):
            await actor.act(decide(snapshot(world.jobs(), store.books), world.config, world.now, "d"))
            world.now += 1
            assert (world.job().stage, world.code()) == (Stage.QUEUED, "released")
        assert moves(world) == [TWIN]
        world.now += SYNC_SECONDS
        await actor.act(decide(snapshot(world.jobs(), store.books), world.config, world.now, "d"))
        assert moves(world) == [TWIN, TWIN]

    asyncio.run(story())


def moves(world: World) -> list[str]:
    """Every queue that a label was set to."""
    return [
        body["metadata"]["labels"][QUEUE_LABEL]
        for method, _, body in world.cluster.requests
        if method == "PATCH" and "labels" in body.get("metadata", {})
    ]


@pytest.mark.parametrize("kind", JOB_KINDS, ids=lambda kind: kind.kind)
def test_a_job_of_every_kind_is_released_cleared_and_recalled(world: World, kind: JobKind) -> None:
    world.submit(kind=kind)
    world.act(a_decision(releases=(Release(world.job(), RELEASED, SPOT),)))
    kueue.step(world.cluster, world.now - 10)
    assert world.job().stage is Stage.AT_GATE
    world.act(a_decision(clears=(Clear(world.job(), an_opening(), CLEARED),)))
    kueue.step(world.cluster, world.now)
    assert world.job().stage is Stage.RUNNING_CLOUD
    for _ in range(2):
        world.act(a_decision(recalls=(Recall(world.job(), RECALLED),)))
        kueue.step(world.cluster, world.now)
    assert (world.job().stage, world.queue()) == (Stage.QUEUED, "vision")


@pytest.mark.parametrize("write", range(1, 6))
@pytest.mark.parametrize("start", ["pending", "pending after an eviction", "at the gate", "running"])
def test_a_recall_that_an_administrator_wants_survives_a_kill_at_any_write_from_every_stage(
    world: World, start: str, write: int
) -> None:
    world.submit(queue=TWIN)
    if start == "pending after an eviction":
        world.change(lambda raw: unreserve(reserve(raw)))
    if start in ("at the gate", "running"):
        kueue.step(world.cluster, NOON - 10)
    if start == "running":
        world.act(a_decision(clears=(Clear(world.job(), an_opening(), CLEARED),)))
        kueue.step(world.cluster, world.now)
    world.change(lambda raw: raw["metadata"].setdefault("annotations", {}).update({RECALL_ANNOTATION: "maintenance"}))
    count = 0

    def kill(method: str, path: str, body: object) -> None:
        nonlocal count
        count += method == "PATCH"
        if method == "PATCH" and count == write:
            raise Killed

    world.cluster.rule = kill

    def judge(seen: Snapshot) -> Decision:
        (job,) = seen.jobs
        asked = job.recall_reason is not None or job.stage is Stage.RECALLING
        return a_decision(recalls=(Recall(job, RECALLED),) if asked else ())

    for _ in range(8):
        try:
            world.tick(judge)
        except Killed:
            assert count == write
        world.now += 1
        if start in ("at the gate", "running"):
            kueue.step(world.cluster, world.now)
    after = world.workload()
    assert (world.queue(), after["spec"]["queueName"], after["spec"]["active"]) == ("vision", "vision", True)
    assert world.job().stage is Stage.QUEUED
    assert after["metadata"]["annotations"].keys() == {VERDICT_ANNOTATION}
    assert world.code() == "kept-local"


def windowed() -> AgentConfig:
    return a_config(teams={"vision": a_team("vision", window_queues={"p1": NIGHT}), "nlp": a_team("nlp")})


def test_a_job_of_a_class_with_a_window_goes_back_to_the_queue_of_the_window(world: World) -> None:
    world.config = windowed()
    world.submit(queue=TWIN)
    world.act(a_decision(recalls=(Recall(world.job(), RECALLED),)))
    assert (world.queue(), world.workload()["spec"]["queueName"]) == (NIGHT, NIGHT)


def test_a_pending_job_changes_its_target_and_is_told_so_once_for_each(world: World) -> None:
    world.submit(queue=TWIN)
    job = world.job()
    world.act(a_decision(releases=(Release(job, RELEASED, ON_DEMAND),)))
    assert (world.queue(), world.code()) == (OTHER_TWIN, "released")
    assert [event["reason"] for event in world.events()] == ["BurstRetargeted"]


def test_a_job_that_reserved_quota_since_it_was_seen_does_not_change_its_target(world: World) -> None:
    world.submit(queue=TWIN)
    job = world.job()
    kueue.step(world.cluster, world.now)
    assert world.act(a_decision(releases=(Release(job, RELEASED, ON_DEMAND),))) == 1
    assert world.queue() == TWIN


@pytest.mark.parametrize(
    "changes",
    [{"team": "gone"}, {"owner_kind": "Pod", "owner_version": "v1"}],
    ids=["a team that left the fleet", "a kind that stays local"],
)
def test_what_cannot_be_released_is_refused_before_anything_is_written(world: World, changes: dict[str, Any]) -> None:
    world.submit()
    assert world.act(a_decision(releases=(Release(replace(world.job(), **changes), RELEASED, SPOT),))) == 1
    assert world.act(a_decision(releases=(Release(world.job(), RELEASED, "gone"),))) == 1
    assert world.cluster.writes() == []


def test_a_release_whose_label_is_refused_leaves_no_mark_that_would_look_like_somebody_took_the_job_back(
    world: World,
) -> None:
    world.submit()

    def deny(method: str, path: str, body: object) -> None:
        if path.endswith("/jobs/job-1"):
            raise Denied(403)

    world.cluster.rule = deny
    assert world.act(a_decision(releases=(Release(world.job(), RELEASED, SPOT),))) == 1
    assert (world.code(), world.events()) == (None, [])


def test_a_recall_under_way_is_not_blamed_on_somebody_else(world: World) -> None:
    world.submit(queue=TWIN)
    world.change(lambda raw: verdict(raw, "released"))
    codes: list[str | None] = []

    def look(method: str, path: str, body: object) -> None:
        if path.endswith("/jobs/job-1"):
            codes.append(world.code())

    world.cluster.rule = look
    world.act(a_decision(recalls=(Recall(world.job(), RECALLED),)))
    assert codes == ["recalled"], "a job back in its queue that says released counts as taken back"
