from __future__ import annotations

import asyncio
import random
from collections import Counter
from pathlib import Path

import httpx2
import pytest

from runtime.cost.ledger import Books, Opening
from runtime.errors import StoreDown
from runtime.routing.decide import decide
from runtime.routing.observe import snapshot
from runtime.routing.snapshot import Stage
from runtime.store import Owner, Store
from stacks.kinds import JOB_KINDS
from stacks.labels import RECALL_ANNOTATION
from tests.fakes import kueue
from tests.fakes.cluster import Denied
from tests.fakes.world import Raw, World


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path / "ledger")


DECISIONS = 200


@pytest.mark.parametrize("seed", range(2))
def test_a_storm_of_errors_ends_in_one_opening_for_each_attempt_and_no_job_in_between(
    world: World, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    monkeypatch.setattr("runtime.routing.act._loop_time", lambda: world.now)
    chance = random.Random(seed)
    names = [f"j{number}" for number in range(6)]
    for number, name in enumerate(names):
        world.submit(name, kind=JOB_KINDS[number % len(JOB_KINDS)])

    def storm(method: str, path: str, body: object) -> None:
        if method != "GET" and chance.random() < 0.3:
            raise chance.choice(
                [Denied(409), Denied(429), Denied(500), Denied(503), Denied(403), httpx2.ReadTimeout("no answer")]
            )

    async def flaky(self: Store, opening: Opening) -> Opening:
        if chance.random() < 0.2:
            raise StoreDown("the store is slow")
        return await open_(self, opening)

    open_ = Store.open
    monkeypatch.setattr(Store, "open", flaky)

    def loses(method: str, path: str) -> bool:
        return method != "GET" and chance.random() < 0.1

    def ask_for_a_recall(raw: Raw) -> None:
        raw["metadata"].setdefault("annotations", {})[RECALL_ANNOTATION] = "maintenance"

    async def story() -> None:
        store = Store("memory://", world.clock(), Owner("cluster-1", 1.0))
        actor = world.actor(store)
        world.cluster.rule, world.cluster.loses = storm, loses
        for number in range(DECISIONS):
            if calm := number >= DECISIONS - 50:
                world.cluster.rule, world.cluster.loses = (lambda *_: None), (lambda *_: False)
            elif chance.random() < 0.1:
                world.change(ask_for_a_recall, chance.choice(names))
            world.now += 120 if calm else 60
            if calm or chance.random() < 0.7:
                kueue.step(world.cluster, world.now)
            await store.refresh()
            await world.acted(
                actor, decide(snapshot(world.jobs(), store.books), world.config, world.now, f"d-{number}")
            )
            assert store.books is not None
            check_ledger(world, store.books)

    asyncio.run(story())
    for name in names:
        assert world.job(name).stage is Stage.RUNNING_CLOUD
        assert (world.gate(name), world.code(name)) == ("Ready", "cleared")
        assert world.queue(name) == world.workload(name)["spec"]["queueName"]


def check_ledger(world: World, books: Books) -> None:
    """Whoever was let through was paid for and has our verdict, and no job has two attempts that cost at once."""
    still_open = Counter(attempt.workload_uid for attempt in books.openings if attempt not in books.closings)
    assert not [uid for uid, count in still_open.items() if count > 1]
    for job in world.jobs():
        if job.stage is Stage.RUNNING_CLOUD:
            assert any(
                attempt.workload_uid == job.uid and attempt.reserved_at == job.attempt for attempt in books.openings
            )
            assert job.verdict_code in ("cleared", "recalled")
