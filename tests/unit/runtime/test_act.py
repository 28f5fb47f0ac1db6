from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from runtime.clock import Clock
from runtime.cost.ledger import Books, Closing
from runtime.errors import StoreDown
from runtime.kube import JOBS, WORKLOADS
from runtime.routing.act import HOLD_BURST, Actor, Context
from runtime.routing.decide import decide
from runtime.routing.decision import Clear, Close, Decision, Hold, Recall, Release
from runtime.routing.observe import Observer, snapshot
from runtime.routing.snapshot import Job, Snapshot, Stage
from runtime.routing.verdict import Code, Verdict
from runtime.store import Owner, Store
from stacks.labels import GATE_NAME, QUEUE_LABEL, VERDICT_ANNOTATION
from tests.builders import HOUR, NOON, SPOT, a_config, an_opening
from tests.fakes import kueue
from tests.fakes.cluster import Denied, FakeCluster
from tests.fakes.workloads import a_batch_job, a_workload, check, condition, reserve, unreserve, verdict

Raw = dict[str, Any]


class Killed(BaseException):
    """The process ends here, without a word."""


class World:
    """A cluster and a ledger that outlive agents; `tick` is one agent's whole life: start, observe, decide, act, die."""

    def __init__(self, directory: Path) -> None:
        self.cluster = FakeCluster()
        self.directory = directory
        self.now = NOON
        self.config = a_config()
        self.leading = True

    def submit(self, name: str = "job-1", **spec: Any) -> None:
        self.cluster.put(JOBS, a_batch_job(name))
        self.cluster.put(WORKLOADS, a_workload(name, **spec))

    def workload(self, name: str = "job-1") -> Raw:
        return self.cluster.get(WORKLOADS, f"job-{name}", "vision")

    def queue(self, name: str = "job-1") -> str:
        return str(self.cluster.get(JOBS, name, "vision")["metadata"]["labels"][QUEUE_LABEL])

    def gate(self, name: str = "job-1") -> str | None:
        checks = self.workload(name)["status"].get("admissionChecks", [])
        return next((entry["state"] for entry in checks if entry["name"] == GATE_NAME), None)

    def code(self, name: str = "job-1") -> str | None:
        text = self.workload(name)["metadata"].get("annotations", {}).get(VERDICT_ANNOTATION)
        return json.loads(text)["code"] if text else None

    def jobs(self) -> list[Job]:
        observer = Observer(self.config, Clock(), lambda *_: None)
        raws = [raw for key, raw in self.cluster.objects.items() if key[0].endswith("/workloads")]
        return [job for raw in raws if (job := observer.reduce(raw)) is not None]

    def job(self, name: str = "job-1") -> Job:
        return next(job for job in self.jobs() if job.uid == name)

    def store(self) -> Store:
        return Store(self.directory.as_uri(), self.clock(), Owner("cluster-1", 1.0))

    def clock(self) -> Clock:
        return Clock(real_now=lambda: self.now)

    def books(self) -> Books:
        store = self.store()
        asyncio.run(store.refresh())
        assert store.books is not None
        return store.books

    def actor(self, store: Store) -> Actor:
        observer = Observer(self.config, Clock(), lambda *_: None)
        context = Context(
            self.cluster.kube(), store, self.clock(), self.config, "pod-1", lambda: self.leading, observer.reduce
        )
        return Actor(context)

    def act(self, decision: Decision) -> int:
        async def life() -> int:
            store = self.store()
            await store.refresh()
            return await self.actor(store).act(decision)

        return asyncio.run(life())

    def tick(self, judge: Callable[[Snapshot], Decision] | None = None) -> int:
        async def life() -> int:
            store = self.store()
            await store.refresh()
            seen = snapshot(self.jobs(), store.books)
            decision = judge(seen) if judge else decide(seen, self.config, self.now, f"d-{self.now}")
            return await self.actor(store).act(decision)

        return asyncio.run(life())

    def settle(self, rounds: int = 8) -> None:
        """Agent and Kueue take turns, a second each."""
        for _ in range(rounds):
            self.now += 1
            kueue.step(self.cluster, self.now)
            self.now += 1
            self.tick()


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path / "ledger")


def a_decision(**actions: Any) -> Decision:
    return Decision(id="d-1", decided_at=NOON, **actions)


RELEASED = Verdict(Code.RELEASED, {"waited_s": 3_600.0})
RECALLED = Verdict(Code.RECALLED, {"cause": "budget"})
CLEARED = Verdict(Code.CLEARED, {"flavor": SPOT})
WAITING = Verdict(Code.WAITING, {})


def test_a_waiting_job_reaches_the_cloud_and_its_end_is_charged(world: World) -> None:
    world.submit()
    world.tick()
    world.settle()
    assert (world.queue(), world.gate(), world.job().stage) == ("vision-burst", "Ready", Stage.RUNNING_CLOUD)
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
    assert (world.queue(), world.gate(), world.job().stage) == ("vision-burst", "Ready", Stage.RUNNING_CLOUD)
    assert len(world.books().openings) == 1
    assert len(list(world.directory.rglob("*.open.json"))) == 1


@pytest.mark.parametrize("write", range(1, 5))
def test_a_recall_killed_at_any_write_still_brings_the_job_back(world: World, write: int) -> None:
    world.submit(queue="vision-burst")
    world.cluster.change(
        JOBS, "job-1", "vision", lambda raw: raw["metadata"]["labels"].update({QUEUE_LABEL: "vision-burst"})
    )
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
    raw = verdict(unreserve(reserve(a_workload(queue="vision-burst", active=False))), "recalled")
    world.cluster.put(WORKLOADS, raw)
    world.act(a_decision(recalls=(Recall(world.job(), RECALLED),)))
    assert world.workload()["spec"]["active"] is True
    world.cluster.change(WORKLOADS, "job-job-1", "vision", lambda raw: raw["spec"].update(active=False))
    assert world.job().stage is Stage.STOPPED


def test_a_recall_waits_until_the_quota_is_gone(world: World) -> None:
    world.submit()
    world.cluster.put(WORKLOADS, verdict(reserve(a_workload(queue="vision-burst", active=False)), "recalled"))
    assert world.act(a_decision(recalls=(Recall(world.job(), RECALLED),))) == 0
    assert world.cluster.writes() == []


def test_a_released_job_without_quota_comes_back_by_label_and_queue_without_being_stopped(world: World) -> None:
    world.submit(queue="vision-burst")
    world.act(a_decision(recalls=(Recall(world.job(), RECALLED),)))
    assert (world.queue(), world.workload()["spec"]["queueName"]) == ("vision", "vision")
    assert world.workload()["spec"]["active"] is True
    assert world.code() is None


def test_a_job_evicted_before_is_released_by_label_and_queue(world: World) -> None:
    world.submit()
    world.cluster.put(WORKLOADS, unreserve(reserve(a_workload(), "h100-onprem")))
    world.act(a_decision(releases=(Release(world.job(), RELEASED),)))
    assert (world.queue(), world.workload()["spec"]["queueName"]) == ("vision-burst", "vision-burst")


def at_gate(world: World) -> Clear:
    world.submit()
    world.cluster.put(WORKLOADS, reserve(a_workload(queue="vision-burst")))
    return Clear(world.job(), an_opening(), CLEARED)


def test_money_is_committed_before_the_gate_opens(world: World) -> None:
    clear = at_gate(world)
    committed: list[bool] = []

    def look(method: str, path: str, body: object) -> None:
        if path.endswith("/status"):
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

    def touch(method: str, path: str, body: object) -> None:
        nonlocal answers
        if path.endswith("/status"):
            answers += 1
            if answers < 3:
                world.cluster.change(WORKLOADS, "job-job-1", "vision", lambda raw: condition(raw, f"Odd{answers}"))

    world.cluster.rule = touch
    world.act(a_decision(clears=(clear,)))
    assert (answers, world.gate(), len(world.books().openings)) == (3, "Ready", 1)


def test_an_eviction_between_read_and_answer_keeps_the_gate_shut(world: World) -> None:
    clear = at_gate(world)

    def evict(method: str, path: str, body: object) -> None:
        if path.endswith("/status"):
            world.cluster.rule = lambda method, path, body: None
            world.cluster.change(WORKLOADS, "job-job-1", "vision", lambda raw: condition(raw, "Evicted"))

    world.cluster.rule = evict
    world.act(a_decision(clears=(clear,)))
    assert world.gate() == "Pending"


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
    world.act(a_decision(clears=(clear,), releases=(Release(clear.job, RELEASED),), holds=(Hold(clear.job, WAITING),)))
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
    world.act(a_decision(releases=tuple(Release(job, RELEASED) for job in world.jobs())))
    assert [world.queue(name) for name in ("a", "b", "c")] == ["vision-burst", "vision", "vision-burst"]


def test_an_event_that_cannot_be_written_changes_nothing(world: World) -> None:
    world.submit()

    def deny(method: str, path: str, body: object) -> None:
        if path.endswith("/events"):
            raise Denied(403)

    world.cluster.rule = deny
    assert world.act(a_decision(releases=(Release(world.job(), RELEASED),))) == 0
    assert world.queue() == "vision-burst"


def test_users_find_an_event_on_their_own_job(world: World) -> None:
    world.submit()
    world.act(a_decision(releases=(Release(world.job(), RELEASED),)))
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


def test_verdicts_of_holding_jobs_are_rationed_and_the_rest_is_told_later(world: World) -> None:
    names = [f"j{number}" for number in range(300)]
    for name in names:
        world.submit(name)
    world.act(a_decision(holds=tuple(Hold(job, WAITING) for job in world.jobs())))
    told = sum(world.code(name) == "waiting" for name in names)
    assert told == HOLD_BURST


def test_the_same_action_on_the_same_observation_is_not_repeated_at_once(world: World) -> None:
    world.submit()
    decision = a_decision(releases=(Release(world.job(), RELEASED),))

    async def twice() -> None:
        store = world.store()
        await store.refresh()
        actor = world.actor(store)
        await actor.act(decision)
        before = len(world.cluster.requests)
        await actor.act(decision)
        assert len(world.cluster.requests) == before
        await actor.act(a_decision(releases=(Release(replace(world.job(), priority=9), RELEASED),)))
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
        world.act(a_decision(closes=(close,), clears=(clear,), releases=(Release(world.job("other"), RELEASED),)))
    assert (world.gate(), world.queue("other")) == ("Ready", "vision-burst")


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
