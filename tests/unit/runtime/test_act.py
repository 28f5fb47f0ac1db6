from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from runtime import events
from runtime.cost.ledger import Closing
from runtime.errors import StoreDown
from runtime.kube import LOCAL_QUEUES, WORKLOADS
from runtime.routing import act
from runtime.routing.decision import Close, Hold, Recall, Release, SetQueue
from runtime.routing.snapshot import Stage
from runtime.routing.verdict import Code, Verdict
from runtime.store import Store
from tests.builders import HOUR, NOON, SPOT, a_config, an_opening
from tests.fakes import kueue
from tests.fakes.cluster import Denied
from tests.fakes.workloads import a_workload, check, condition, reserve, unreserve, verdict
from tests.fakes.world import (
    NIGHT,
    OTHER_TWIN,
    RECALLED,
    RELEASED,
    TWIN,
    WAITING,
    Killed,
    Raw,
    World,
    a_decision,
    answers_gate,
    at_gate,
)


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path / "ledger")


def test_a_waiting_job_reaches_the_cloud_and_its_end_is_charged(world: World) -> None:
    world.submit()
    world.tick()
    world.settle()
    assert (world.queue(), world.gate(), world.job().stage) == (TWIN, "Ready", Stage.RUNNING_CLOUD)
    assert len(world.books().openings) == 1
    world.cluster.change(WORKLOADS, "job-job-1", "vision", lambda raw: condition(raw, "Finished", at=world.now + HOUR))
    world.now += HOUR + 1
    world.tick()
    (closing,) = world.books().closings.values()
    assert closing.usd == pytest.approx(Decimal(2), abs=Decimal("0.01"))


@pytest.mark.parametrize("write", range(1, 7))
def test_an_agent_killed_at_any_write_is_continued_by_the_next_and_money_is_committed_once(
    world: World, write: int
) -> None:
    world.submit()
    count = 0

    def kill(method: str, path: str, body: object) -> None:
        nonlocal count
        if method in ("PATCH", "POST"):
            count += 1
            if count == write:
                raise Killed

    world.cluster.rule = kill
    killed = 0
    for _ in range(8):
        try:
            world.tick()
        except Killed:
            killed += 1
        kueue.step(world.cluster, world.now)
        world.now += 1
    assert killed == 1
    assert (world.queue(), world.gate(), world.job().stage) == (TWIN, "Ready", Stage.RUNNING_CLOUD)
    assert len(world.books().openings) == 1
    assert len(list(world.directory.rglob("*.open.json"))) == 1


@pytest.mark.parametrize("write", range(1, 5))
def test_a_recall_killed_at_any_write_still_brings_the_job_back(world: World, write: int) -> None:
    world.submit(queue=TWIN)
    world.config = a_config(classes=a_config().model_dump(mode="json")["classes"] | {"p1": NEVER}, default_class="p1")
    kueue.step(world.cluster, world.now)
    count = 0

    def kill(method: str, path: str, body: object) -> None:
        nonlocal count
        if method == "PATCH":
            count += 1
            if count == write:
                raise Killed

    world.cluster.rule = kill
    for _ in range(8):
        try:
            world.tick()
        except Killed:
            assert count == write
        kueue.step(world.cluster, world.now)
        world.now += 1
    after = world.workload()
    assert (world.queue(), after["spec"]["queueName"], after["spec"]["active"]) == ("vision", "vision", True)
    assert world.job().stage is Stage.QUEUED
    assert world.code() != Code.RECALLED, "our mark does not outlive the recall"
    assert not world.books().openings


NEVER = {"burst": "never", "expected_runtime": "1h"}


def test_a_stop_by_somebody_else_after_a_recall_is_not_undone(world: World) -> None:
    world.submit()
    raw = verdict(unreserve(reserve(a_workload(queue=TWIN, active=False))), "recalled")
    world.cluster.put(WORKLOADS, raw)
    world.act(a_decision(recalls=(Recall(world.job(), RECALLED),)))
    assert world.workload()["spec"]["active"] is True
    world.cluster.change(WORKLOADS, "job-job-1", "vision", lambda raw: raw["spec"].update(active=False))
    assert world.job().stage is Stage.STOPPED


def test_a_recall_waits_until_the_quota_is_gone(world: World) -> None:
    world.submit()
    world.cluster.put(WORKLOADS, verdict(reserve(a_workload(queue=TWIN, active=False)), "recalled"))
    assert world.act(a_decision(recalls=(Recall(world.job(), RECALLED),))) == 0
    assert world.cluster.writes() == []


def test_a_released_job_without_quota_comes_back_by_label_and_queue_without_being_stopped(world: World) -> None:
    world.submit(queue=TWIN)
    world.act(a_decision(recalls=(Recall(world.job(), RECALLED),)))
    assert (world.queue(), world.workload()["spec"]["queueName"]) == ("vision", "vision")
    assert world.workload()["spec"]["active"] is True
    assert world.code() is None


def test_a_job_evicted_before_is_released_by_label_and_queue(world: World) -> None:
    world.submit()
    world.cluster.put(WORKLOADS, unreserve(reserve(a_workload(), "h100-onprem")))
    world.act(a_decision(releases=(Release(world.job(), RELEASED, SPOT),)))
    assert (world.queue(), world.workload()["spec"]["queueName"]) == (TWIN, TWIN)


def test_money_is_committed_before_the_gate_opens(world: World) -> None:
    clear = at_gate(world)
    committed: list[bool] = []

    def look(method: str, path: str, body: Any) -> None:
        if answers_gate(body):
            committed.append(any(world.directory.rglob("*.open.json")))

    world.cluster.rule = look
    world.act(a_decision(clears=(clear,)))
    assert committed == [True]
    assert world.gate() == "Ready"


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(lambda raw: condition(raw, "Evicted"), id="evicted"),
        pytest.param(lambda raw: reserve(raw, at=NOON), id="another attempt"),
        pytest.param(lambda raw: raw["metadata"].update(uid="another"), id="another job of the same name"),
        pytest.param(lambda raw: raw["spec"].update(active=False), id="stopped"),
    ],
)
def test_a_job_that_moved_on_since_it_was_seen_is_neither_paid_for_nor_cleared(
    world: World, change: Callable[[Raw], object]
) -> None:
    clear = at_gate(world)
    world.cluster.change(WORKLOADS, "job-job-1", "vision", change)
    assert world.act(a_decision(clears=(clear,))) == 1
    assert world.gate() == "Pending"
    assert not world.books().openings


def test_a_workload_that_changes_between_read_and_answer_is_read_again(world: World) -> None:
    clear = at_gate(world)
    answers = 0

    def touch(method: str, path: str, body: Any) -> None:
        nonlocal answers
        if answers_gate(body):
            answers += 1
            if answers < 3:
                world.cluster.change(WORKLOADS, "job-job-1", "vision", lambda raw: condition(raw, f"Odd{answers}"))

    world.cluster.rule = touch
    world.act(a_decision(clears=(clear,)))
    assert (answers, world.gate(), len(world.books().openings)) == (3, "Ready", 1)


def test_an_eviction_between_read_and_answer_keeps_the_gate_shut(world: World) -> None:
    clear = at_gate(world)

    def evict(method: str, path: str, body: Any) -> None:
        if answers_gate(body):
            world.cluster.rule = lambda method, path, body: None
            world.cluster.change(WORKLOADS, "job-job-1", "vision", lambda raw: condition(raw, "Evicted"))

    world.cluster.rule = evict
    world.act(a_decision(clears=(clear,)))
    assert world.gate() == "Pending"


def test_an_eviction_between_read_and_verdict_keeps_the_gate_shut(world: World) -> None:
    clear = at_gate(world)

    def evict(method: str, path: str, body: Any) -> None:
        if method == "PATCH":
            world.cluster.rule = lambda method, path, body: None
            world.change(lambda raw: condition(raw, "Evicted"))

    world.cluster.rule = evict
    assert world.act(a_decision(clears=(clear,))) == 1
    assert (world.gate(), world.code()) == ("Pending", None)


def test_a_store_that_is_down_keeps_the_gate_shut(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    clear = at_gate(world)

    async def down(self: Store, opening: object) -> None:
        raise StoreDown("the disk is full")

    monkeypatch.setattr(Store, "open", down)
    assert world.act(a_decision(clears=(clear,))) == 1
    assert world.gate() == "Pending"


def test_without_the_lease_nothing_is_written(world: World) -> None:
    clear = at_gate(world)
    world.leading = False
    world.act(
        a_decision(clears=(clear,), releases=(Release(clear.job, RELEASED, SPOT),), holds=(Hold(clear.job, WAITING),))
    )
    assert world.cluster.writes() == []
    assert not world.books().openings


def test_a_lease_lost_after_the_money_was_committed_keeps_the_gate_shut(world: World) -> None:
    clear = at_gate(world)

    def lose(method: str, path: str, body: object) -> None:
        world.leading = False

    world.cluster.rule = lose
    world.act(a_decision(clears=(clear,)))
    assert world.gate() == "Pending"


@pytest.mark.parametrize("code", [403, 404, 409, 422, 500])
def test_one_job_that_is_refused_does_not_stop_the_others(world: World, code: int) -> None:
    for name in ("a", "b", "c"):
        world.submit(name)

    def deny(method: str, path: str, body: object) -> None:
        if path.endswith("/jobs/b"):
            raise Denied(code)

    world.cluster.rule = deny
    world.act(a_decision(releases=tuple(Release(job, RELEASED, SPOT) for job in world.jobs())))
    assert [world.queue(name) for name in ("a", "b", "c")] == [TWIN, "vision", TWIN]


def test_an_event_that_cannot_be_written_changes_nothing(world: World) -> None:
    world.submit()

    def deny(method: str, path: str, body: object) -> None:
        if path.endswith("/events"):
            raise Denied(403)

    world.cluster.rule = deny
    assert world.act(a_decision(releases=(Release(world.job(), RELEASED, SPOT),))) == 0
    assert world.queue() == TWIN


def test_users_find_an_event_on_their_own_job(world: World) -> None:
    world.submit()
    world.act(a_decision(releases=(Release(world.job(), RELEASED, SPOT),)))
    (event,) = [raw for key, raw in world.cluster.objects.items() if key[0] == "events.k8s.io/v1/events"]
    assert event["regarding"] == {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "namespace": "vision",
        "name": "job-1",
        "uid": "owner-job-1",
    }
    assert event["reason"] == "ReleasedToBurst"
    assert event["note"]


def test_the_same_action_on_the_same_observation_is_not_repeated_at_once(world: World) -> None:
    world.submit()
    decision = a_decision(releases=(Release(world.job(), RELEASED, SPOT),))

    async def twice() -> None:
        store = world.store()
        await store.refresh()
        actor = world.actor(store)
        await world.acted(actor, decision)
        before = len(world.cluster.requests)
        await world.acted(actor, decision)
        assert len(world.cluster.requests) == before
        moved = replace(world.job(), priority=9)
        await world.acted(actor, a_decision(holds=(Hold(moved, WAITING),)))
        assert len(world.cluster.requests) > before

    asyncio.run(twice())


def test_a_close_that_fails_does_not_stop_a_clear(world: World) -> None:
    clear = at_gate(world)
    unknown = Closing(an_opening(uid="gone").attempt, NOON, NOON, Decimal(0), "x")
    assert world.act(
        a_decision(closes=(Close(replace(unknown, attempt=replace(unknown.attempt, workload_uid="gone"))),))
    )
    assert world.act(a_decision(clears=(clear,))) == 0
    assert world.gate() == "Ready"


def test_a_gate_already_answered_is_left_alone(world: World) -> None:
    clear = at_gate(world)
    world.cluster.change(WORKLOADS, "job-job-1", "vision", lambda raw: check(raw, "Ready"))
    world.act(a_decision(clears=(clear,)))
    assert world.cluster.writes() == []


def test_a_bug_that_one_job_trips_over_does_not_stop_the_others(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    clear = at_gate(world)
    world.submit("other")

    async def bug(self: Store, closing: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(Store, "close", bug)
    close = Close(Closing(an_opening().attempt, NOON, NOON, Decimal(0), "x"))
    with pytest.raises(ExceptionGroup):
        world.act(a_decision(closes=(close,), clears=(clear,), releases=(Release(world.job("other"), RELEASED, SPOT),)))
    assert (world.gate(), world.queue("other")) == ("Ready", TWIN)


def test_a_cloud_job_of_a_team_that_left_the_fleet_stays_committed_until_its_workload_is_gone(world: World) -> None:
    world.submit()
    world.settle(rounds=4)
    [opening] = world.books().openings.values()
    close = Close(Closing(opening.attempt, NOON, NOON + 9, Decimal(1), "workload deleted"), vanished=opening)
    assert world.act(a_decision(closes=(close,))) == 0
    assert not world.books().closings
    del world.cluster.objects[next(key for key in world.cluster.objects if key[0].endswith("/workloads"))]
    assert world.act(a_decision(closes=(close,))) == 0
    assert [closing.reason for closing in world.books().closings.values()] == ["workload deleted"]


def test_a_workload_that_left_the_fleet_is_not_asked_after_at_every_tick(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    world.submit()
    world.settle(rounds=4)
    [opening] = world.books().openings.values()
    close = Close(Closing(opening.attempt, NOON, NOON + 9, Decimal(1), "workload deleted"), vanished=opening)

    async def ticks() -> None:
        store = world.store()
        await store.refresh()
        actor, before = world.actor(store), len(world.cluster.requests)
        for _ in range(10):
            await actor.act(a_decision(closes=(close,)))
        assert len(world.cluster.requests) == before + 1

    caplog.clear()
    asyncio.run(ticks())
    assert [record.levelname for record in caplog.records] == ["WARNING"]


@pytest.mark.parametrize("end", ["a stop", "its age", "a lost lease"])
def test_what_has_not_begun_is_left_for_the_next_decision(
    world: World, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, end: str
) -> None:
    for number in range(100):
        world.submit(f"j{number}")
    decision = a_decision(releases=tuple(Release(job, RELEASED, SPOT) for job in world.jobs()))

    async def story() -> None:
        store = world.store()
        await store.refresh()
        actor = world.actor(store)

        def end_it(method: str, path: str, body: object) -> None:
            if end == "a stop":
                actor.stop()
            elif end == "a lost lease":
                world.leading = False
            else:
                monkeypatch.setattr(act, "LONGEST_SECONDS", -1.0)
                actor._until = 0.0

        world.cluster.rule = end_it
        assert await actor.act(decision) > 100 - 2 * act.PARALLEL_ACTIONS

    asyncio.run(story())
    moved = [f"j{number}" for number in range(100) if world.queue(f"j{number}") == TWIN]
    assert 0 < len(moved) <= act.PARALLEL_ACTIONS
    assert all(world.code(name) == "released" for name in moved), "what has begun is finished"
    assert not [record for record in caplog.records if record.levelname in ("WARNING", "ERROR")]


def test_a_job_whose_limit_was_raised_since_it_was_judged_is_not_let_through_for_the_old_price(world: World) -> None:
    clear = at_gate(world)
    raised = {"maximumExecutionTimeSeconds": 100 * HOUR}
    world.cluster.change(WORKLOADS, f"job-{clear.job.uid}", "vision", lambda raw: raw["spec"].update(raised))
    assert world.act(a_decision(clears=(clear,))) == 1
    assert (world.gate(), world.books().openings) == ("Pending", {})


def test_a_job_that_runs_by_now_is_not_recalled_by_an_old_decision(world: World) -> None:
    clear = at_gate(world)
    assert world.act(a_decision(clears=(clear,))) == 0
    assert world.act(a_decision(recalls=(Recall(clear.job, Verdict(Code.RECALLED, {})),))) == 1
    assert world.workload()["spec"].get("active", True) is True


def test_a_window_queue_is_held_and_let_go_by_its_stop_policy(world: World) -> None:
    world.cluster.put(LOCAL_QUEUES, {"metadata": {"name": NIGHT, "namespace": "vision"}, "spec": {}})
    for held, policy in ((True, "Hold"), (False, "None")):
        assert world.act(a_decision(queues=(SetQueue("vision", NIGHT, held),))) == 0
        assert world.cluster.get(LOCAL_QUEUES, NIGHT, "vision")["spec"]["stopPolicy"] == policy
    assert world.act(a_decision(queues=(SetQueue("vision", "gone", True),))) == 0


def test_a_job_that_was_moved_to_another_twin_since_it_was_judged_is_not_let_through(world: World) -> None:
    clear = at_gate(world)
    world.change(lambda raw: raw["spec"].update(queueName=OTHER_TWIN))
    assert world.act(a_decision(clears=(clear,))) == 1
    assert (world.gate(), world.books().openings) == ("Pending", {})


def test_the_verdict_stands_on_a_job_before_the_gate_opens(world: World) -> None:
    clear = at_gate(world)
    codes: list[str | None] = []

    def look(method: str, path: str, body: Any) -> None:
        if answers_gate(body):
            codes.append(world.code())

    world.cluster.rule = look
    world.act(a_decision(clears=(clear,)))
    assert codes == ["cleared"]


def test_a_dry_run_writes_nothing_and_says_each_thing_once(world: World, caplog: pytest.LogCaptureFixture) -> None:
    clear = at_gate(world)
    world.submit("other")
    world.config = world.config.model_copy(update={"dry_run": True})
    close = Close(Closing(an_opening().attempt, NOON, NOON, Decimal(0), "x"))
    decision = a_decision(
        closes=(close,),
        clears=(clear,),
        recalls=(Recall(clear.job, RECALLED),),
        releases=(Release(world.job("other"), RELEASED, SPOT),),
        holds=(Hold(world.job("other"), WAITING),),
        queues=(SetQueue("vision", NIGHT, True),),
    )

    async def story() -> None:
        store = world.store()
        await store.refresh()
        actor = world.actor(store)
        with caplog.at_level("INFO"):
            assert await actor.act(decision) == 0
            assert await actor.act(decision) == 0
            actor.warn(events.bad_expected_runtime(clear.job, "odd"))

    asyncio.run(story())
    assert world.cluster.requests == []
    assert not any(world.directory.rglob("*.open.json"))
    assert [record.getMessage() for record in caplog.records] == ["would act"] * 6 + ["would tell"]
