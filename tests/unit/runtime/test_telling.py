from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from runtime.routing.decision import Hold, Release
from runtime.routing.verdict import Code, Verdict
from tests.builders import SPOT
from tests.fakes.cluster import Denied
from tests.fakes.world import (
    RELEASED,
    TWIN,
    WAITING,
    World,
    a_decision,
    at_gate,
)


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path / "ledger")


def test_people_read_the_verdict_in_a_condition_whose_time_is_that_of_its_last_turn(world: World) -> None:
    world.submit()
    world.act(a_decision(holds=(Hold(world.job(), WAITING),)))
    first = world.burst()
    assert (first["status"], first["reason"], first["observedGeneration"]) == ("False", "Waiting", 1)
    assert first["message"]
    world.now += 60
    world.act(a_decision(holds=(Hold(world.job(), Verdict(Code.CLOUD_FULL, {"gpus": 1})),)))
    second = world.burst()
    assert (second["reason"], second["lastTransitionTime"]) == ("CloudFull", first["lastTransitionTime"])


def test_a_cleared_job_says_so_in_the_very_write_that_opens_the_gate(world: World) -> None:
    world.act(a_decision(clears=(at_gate(world),)))
    told = world.burst()
    assert (told["status"], told["reason"], world.gate()) == ("True", "Cleared", "Ready")


def test_a_hold_that_was_refused_is_told_again_in_full(world: World) -> None:
    world.submit()
    refusals = [Denied(500)]

    def deny(method: str, path: str, body: object) -> None:
        if method == "PATCH" and refusals:
            raise refusals.pop()

    world.cluster.rule = deny
    hold = a_decision(holds=(Hold(world.job(), WAITING),))
    world.act(hold)
    assert world.code() is None
    world.act(hold)
    assert (world.code(), world.burst()["reason"]) == ("waiting", "Waiting")


def test_a_policy_that_denies_the_condition_costs_people_the_condition_and_nothing_else(world: World) -> None:
    world.submit("a")
    world.submit("b")

    def deny(method: str, path: str, body: object) -> None:
        if path.endswith("/status"):
            raise Denied(403)

    world.cluster.rule = deny
    decision = a_decision(holds=(Hold(world.job("a"), WAITING),), releases=(Release(world.job("b"), RELEASED, SPOT),))
    assert world.act(decision) == 0
    assert (world.code("a"), world.code("b"), world.queue("b")) == ("waiting", "released", TWIN)


def test_a_verdict_that_alternates_is_told_by_one_event_for_each_change(world: World) -> None:
    world.submit()
    budget, full = Verdict(Code.BUDGET, {}), Verdict(Code.CLOUD_FULL, {})

    async def story() -> None:
        store = world.store()
        await store.refresh()
        actor = world.actor(store)
        for said in (budget, full) * 5:
            await world.acted(actor, a_decision(holds=(Hold(world.job(), said),)))

    asyncio.run(story())
    assert [event["reason"] for event in world.events()] == ["BurstHeldByBudget"]
