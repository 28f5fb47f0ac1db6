from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from runtime import events
from runtime.kube import Kube
from runtime.routing import outbox
from runtime.routing.decision import Hold, Release
from runtime.routing.pace import HOLD_BURST, HOLDS_PER_SECOND, Ration
from tests.builders import SPOT
from tests.fakes.cluster import Denied
from tests.fakes.world import RELEASED, TWIN, WAITING, World, a_decision


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path / "ledger")


def holds(world: World, *names: str) -> tuple[Hold, ...]:
    return tuple(Hold(world.job(name), WAITING) for name in names)


def live(world: World, story: Callable[[Any], Coroutine[Any, Any, None]]) -> None:
    async def life() -> None:
        store = world.store()
        await store.refresh()
        await story(world.actor(store))

    asyncio.run(life())


def test_no_job_waits_for_what_only_people_read(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("a", "b", "c"):
        world.submit(name)
    write, may_write = Kube.create_event, asyncio.Event()

    async def slow(self: Kube, namespace: str, body: Any) -> None:
        await may_write.wait()
        await write(self, namespace, body)

    monkeypatch.setattr(Kube, "create_event", slow)

    async def story(actor: Any) -> None:
        await actor.act(a_decision(releases=(Release(world.job("a"), RELEASED, SPOT),)))
        await actor.act(a_decision(releases=(Release(world.job("b"), RELEASED, SPOT),), holds=holds(world, "c")))
        assert (world.queue("a"), world.queue("b"), world.code("c"), world.events()) == (TWIN, TWIN, None, [])
        may_write.set()
        await actor.finish()
        assert (world.code("c"), len(world.events())) == ("waiting", 2)

    live(world, story)


def test_a_newer_decision_replaces_the_holds_of_the_former(world: World) -> None:
    names = [f"j{number}" for number in range(5)]
    for name in names:
        world.submit(name)

    async def story(actor: Any) -> None:
        await actor.act(a_decision(holds=holds(world, *names)))
        await actor.act(a_decision(holds=holds(world, "j4")))
        await actor.finish()

    live(world, story)
    assert [world.code(name) for name in names] == [None] * 4 + ["waiting"]


def test_a_verdict_that_is_being_written_is_written_before_the_job_is_released(world: World) -> None:
    world.submit("a")

    async def story(actor: Any) -> None:
        began = asyncio.Event()
        world.cluster.rule = lambda *_: began.set()
        await actor.act(a_decision(holds=holds(world, "a")))
        await began.wait()
        await actor.act(a_decision(releases=(Release(world.job("a"), RELEASED, SPOT),)))
        await actor.finish()

    live(world, story)
    assert (world.queue("a"), world.code("a")) == (TWIN, "released")


@pytest.mark.parametrize("end", ["a stop", "a lost lease"])
def test_nobody_is_told_anything_by_an_agent_that_stops_or_does_not_lead(world: World, end: str) -> None:
    names = [f"j{number}" for number in range(5)]
    for name in names:
        world.submit(name)

    async def story(actor: Any) -> None:
        def end_it(method: str, path: str, body: object) -> None:
            if end == "a stop":
                actor.stop()
            else:
                world.leading = False

        world.cluster.rule = end_it
        await actor.act(a_decision(holds=holds(world, *names)))
        await actor.finish()
        actor.warn(events.bad_expected_runtime(world.job("j0"), "odd"))
        await actor.finish()

    live(world, story)
    assert [world.code(name) for name in names] == ["waiting"] + [None] * 4, "what has begun is finished"
    assert world.events() == []


def test_a_verdict_that_is_refused_stops_no_other_and_is_not_tried_again_at_once(world: World) -> None:
    for name in ("a", "b"):
        world.submit(name)

    def deny(method: str, path: str, body: object) -> None:
        if path.endswith("/job-a"):
            raise Denied(403)

    world.cluster.rule = deny

    async def story(actor: Any) -> None:
        for _ in range(3):
            await actor.act(a_decision(holds=holds(world, "a", "b")))
            await actor.finish()

    live(world, story)
    assert (world.code("a"), world.code("b")) == (None, "waiting")
    assert [path for method, path, *_ in world.cluster.requests if path.endswith("/job-a")] != []


def test_a_bug_in_telling_is_logged_and_ends_no_other_telling(
    world: World, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    world.submit("a")

    async def story(actor: Any) -> None:
        monkeypatch.setattr("runtime.events.body", lambda *_: 1 / 0)
        actor.warn(events.bad_expected_runtime(world.job("a"), "odd"))
        await actor.finish()
        monkeypatch.undo()
        actor.warn(events.bad_expected_runtime(world.job("a"), "odd"))
        await actor.finish()

    live(world, story)
    assert [record.getMessage() for record in caplog.records if record.levelname == "ERROR"] == ["people were not told"]
    assert len(world.events()) == 1


def test_when_too_much_waits_the_oldest_is_dropped(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outbox, "MOST_TELLINGS", 2)
    for name in "abcde":
        world.submit(name)

    async def story(actor: Any) -> None:
        for name in "abcde":
            actor.warn(events.bad_expected_runtime(world.job(name), "odd"))
        await actor.finish()

    live(world, story)
    assert sorted(event["regarding"]["name"] for event in world.events()) == ["d", "e"]


def test_a_ration_lets_a_burst_through_and_then_so_many_a_second() -> None:
    now = 100.0
    ration = Ration(lambda: now)
    assert [ration.take() for _ in range(int(HOLD_BURST))] == [0.0] * int(HOLD_BURST)
    assert ration.take() == pytest.approx(1 / HOLDS_PER_SECOND)
    assert ration.take() == pytest.approx(2 / HOLDS_PER_SECOND)
    now += 3 / HOLDS_PER_SECOND
    assert ration.take() == 0.0
