"""Steps of evictions carried out on a cluster in memory."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from runtime.cost.losses import Loss, LossKey
from runtime.errors import StoreDown
from runtime.events import Event
from runtime.eviction import act
from runtime.eviction.act import Evictor
from runtime.eviction.marker import answer_from_json, asked_in, marker_from_json, marker_to_json
from runtime.eviction.notice import Certainty, Notice, NoticeKind
from runtime.eviction.steps import Account, Ask, CheckpointRequest, EvictPod, Mark, Step, Stop
from runtime.eviction.view import Answer, HeldWorkload, Marker, Phase, PodView
from runtime.kube import PODS
from runtime.routing.act import Context
from runtime.routing.observe import Observer
from runtime.store import Store
from stacks.labels import CHECKPOINT_ANSWER_ANNOTATION, CHECKPOINT_REQUEST_ANNOTATION, EVICTION_ANNOTATION
from tests.builders import NOON, SPOT
from tests.fakes.cluster import Denied
from tests.fakes.workloads import condition
from tests.fakes.world import World
from tests.unit.eviction.test_hooks import Server, hangs, says, until

Raw = dict[str, Any]
NOTICE = Notice("spot-i-1", NoticeKind.SPOT, "aws", Certainty.CERTAIN, NOON, NOON + 120)
ASKED = Marker(
    "spot-i-1", NoticeKind.SPOT, ("n1",), Phase.ASKED, request="spot-1", asked_at=NOON, noticed_at=NOON, flavor=SPOT
)
STOPPED = replace(ASKED, phase=Phase.STOPPED, stopped_at=NOON + 20, attempts=1)
GONE = replace(STOPPED, gone_at=NOON + 50, lost_gpu_seconds=30.0)
REQUEST = CheckpointRequest("spot-1", NoticeKind.SPOT, True, NOON + 85)
ANSWER = b'{"version":1,"request":"spot-1","step":1200,"url":"s3://b/1200","at":1790000010.0}'


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path / "ledger")


class Life:
    """One agent's evictor; `told` are its events."""

    def __init__(self, world: World, store: Store) -> None:
        self.world = world
        self.told: list[Event] = []
        observer = Observer(world.config, world.clock(), lambda *_: None)
        self.evictor = Evictor(
            Context(
                world.cluster.kube(),
                store,
                world.clock(),
                world.config,
                "pod-1",
                lambda: world.leading,
                observer.reduce,
            ),
            self.told.append,
        )

    async def act(self, *steps: Step, pods: Iterable[PodView] = ()) -> int:
        return await self.evictor.act(steps, {job.uid: job for job in self.world.jobs()}, pods)


def act_once(world: World, *steps: Step) -> int:
    async def story() -> int:
        store = world.store()
        await store.refresh()
        life = Life(world, store)
        try:
            return await life.act(*steps)
        finally:
            await life.evictor.close()

    return asyncio.run(story())


def held(name: str = "job-1", **changes: Any) -> HeldWorkload:
    values: dict[str, Any] = {
        "uid": name, "namespace": "vision", "name": f"job-{name}", "team": "vision", "job_class": "p1", "gpus": 1,
        "active": True, "holds_quota": True, "finished": False, "started_at": NOON - 600, "marker": None,
        "last_checkpoint_at": None, "flavor": SPOT,
    }  # fmt: skip
    return HeldWorkload(**(values | changes))


def a_pod(world: World, name: str = "train-0", hook: str = "", **changes: Any) -> PodView:
    """A pod that is in the cluster, as it was seen."""
    raw = {"metadata": {"name": name, "namespace": "vision", "uid": f"uid-{name}"}, "status": {}}
    world.cluster.put(PODS, raw)
    pod = PodView(f"uid-{name}", "vision", name, "n1", 1, "job-job-1", True, 30.0, "", None, hook, False)
    return replace(pod, **changes)


def note(world: World, name: str, annotation: str) -> str:
    return str(world.cluster.get(PODS, name, "vision")["metadata"].get("annotations", {}).get(annotation, ""))


def marker(world: World, name: str = "job-1") -> Marker | None:
    text = world.workload(name)["metadata"].get("annotations", {}).get(EVICTION_ANNOTATION)
    return None if text is None else marker_from_json(text)


def carries(world: World, written: Marker, name: str = "job-1", *, active: bool = False) -> None:
    def edit(raw: Raw) -> None:
        raw["metadata"].setdefault("annotations", {})[EVICTION_ANNOTATION] = marker_to_json(written)
        raw["spec"]["active"] = active

    world.change(edit, name)


def complaints(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]


def on_write(world: World, *, of: str, do: Callable[[], object]) -> None:
    """Do something once, right before the first write to paths that end like this."""

    def rule(method: str, path: str, body: Any) -> None:
        if method != "GET" and path.endswith(of):
            world.cluster.rule = lambda *_: None
            do()

    world.cluster.rule = rule


# Stopping and marking


def test_a_stop_and_its_marker_are_one_write(world: World) -> None:
    world.submit()
    assert act_once(world, Stop(held(), STOPPED)) == 0
    assert (world.workload()["spec"]["active"], marker(world)) == (False, STOPPED)
    assert len(world.cluster.writes()) == 1


def test_a_marker_is_written_and_taken_away_and_active_stays(world: World) -> None:
    world.submit()
    act_once(world, Mark(held(), ASKED))
    assert marker(world) == ASKED
    act_once(world, Mark(held(marker=ASKED), None))
    assert (marker(world), world.workload()["spec"]["active"]) == (None, True)


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(lambda raw: raw["spec"].update(active=False), id="stopped by its owner"),
        pytest.param(lambda raw: raw["metadata"].update(uid="another"), id="another job of the same name"),
        pytest.param(
            lambda raw: raw["metadata"].update(annotations={EVICTION_ANNOTATION: marker_to_json(ASKED)}),
            id="marked by another replica",
        ),
    ],
)
def test_a_job_that_changed_since_it_was_seen_is_left_alone_without_a_warning(
    world: World, change: Callable[[Raw], object], caplog: pytest.LogCaptureFixture
) -> None:
    world.submit()
    world.change(change)
    assert act_once(world, Stop(held(), STOPPED)) == 1
    assert world.cluster.writes() == []
    assert complaints(caplog) == []


def test_a_change_between_read_and_write_is_a_conflict_and_no_warning(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    world.submit()
    on_write(world, of="job-job-1", do=lambda: world.change(lambda raw: condition(raw, "Odd")))
    assert act_once(world, Stop(held(), STOPPED)) == 1
    assert (world.workload()["spec"]["active"], marker(world)) == (True, None)
    assert complaints(caplog) == []


def test_a_job_that_is_gone_is_done_with(world: World, caplog: pytest.LogCaptureFixture) -> None:
    assert act_once(world, Stop(held(), STOPPED)) == 0
    assert complaints(caplog) == []


def test_one_step_that_fails_stops_no_other(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    names = [f"job-{number}" for number in range(6)]
    for name in names:
        world.submit(name)
    codes = {"job-job-1": 403, "job-job-2": 500, "job-job-3": 422}

    def rule(method: str, path: str, body: Any) -> None:
        if method == "PATCH" and (code := codes.get(path.rpartition("/")[2])):
            raise Denied(code)

    world.cluster.rule = rule
    monkeypatch.setattr(
        "runtime.eviction.act.marker_to_json", lambda one: 1 / 0 if one.notice == "bug" else marker_to_json(one)
    )
    steps = [Stop(held(name), replace(STOPPED, notice="bug") if name == "job-4" else STOPPED) for name in names]
    assert act_once(world, *steps) == 4
    assert [world.workload(name)["spec"]["active"] for name in names] == [False, True, True, True, True, False]


# Leading


def all_steps(world: World) -> list[Step]:
    for name in ("job-1", "job-2", "job-3", "job-4"):
        world.submit(name)
    carries(world, GONE, "job-4")
    pod = a_pod(world)
    gone = held("job-4", active=False, marker=GONE)
    return [
        Ask(held("job-1"), (pod,), ASKED, REQUEST),
        Stop(held("job-2"), STOPPED),
        Mark(held("job-3"), ASKED),
        EvictPod(a_pod(world, "notebook"), NOTICE),
        Account(gone, replace(GONE, accounted=True), 30.0),
    ]


def test_a_replica_that_does_not_lead_writes_nothing(world: World) -> None:
    steps = all_steps(world)
    world.leading = False
    assert act_once(world, *steps) == len(steps)
    assert world.cluster.writes() == []
    assert not world.books().losses


def test_a_lease_that_is_lost_between_read_and_write_stops_the_write(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    world.submit()

    def rule(method: str, path: str, body: Any) -> None:
        world.leading = False

    world.cluster.rule = rule
    assert act_once(world, Stop(held(), STOPPED)) == 1
    assert world.cluster.writes() == []
    assert complaints(caplog) == []


def test_a_lease_that_is_lost_after_the_marker_keeps_pods_from_being_asked(world: World) -> None:
    world.submit()

    def lose() -> None:
        world.leading = False

    on_write(world, of="job-job-1", do=lose)

    async def story() -> None:
        async with Server(says(ANSWER)) as server:
            life = Life(world, world.store())
            pod = a_pod(world, hook=server.pod().hook)
            assert await life.act(Ask(held(), (pod,), ASKED, REQUEST), pods=[pod]) == 1
            await asyncio.sleep(0.02)
            await life.evictor.close()
            assert server.requests == []

    asyncio.run(story())
    assert len(world.cluster.writes()) == 1
    assert note(world, "train-0", CHECKPOINT_REQUEST_ANNOTATION) == ""


# Asking


def test_the_marker_is_written_before_any_pod_is_asked(world: World) -> None:
    world.submit()
    pods = (a_pod(world), a_pod(world, "train-1"))
    assert act_once(world, Ask(held(), pods, ASKED, REQUEST)) == 0
    first, *others = world.cluster.writes()
    assert first.endswith("/workloads/job-job-1")
    assert len(others) == 2
    assert marker(world) == ASKED
    assert {asked_in(note(world, pod.name, CHECKPOINT_REQUEST_ANNOTATION)) for pod in pods} == {"spot-1"}


def test_pods_that_were_asked_before_are_not_asked_again(world: World) -> None:
    world.submit()
    carries(world, ASKED, active=True)
    pods = (a_pod(world, asked="spot-1"), a_pod(world, "train-1"))
    act_once(world, Ask(held(marker=ASKED), pods, ASKED, REQUEST))
    assert world.cluster.writes() == ["PATCH /api/v1/namespaces/vision/pods/train-1"]


def test_another_pod_of_the_same_name_and_one_that_is_gone_are_passed_over(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    world.submit()
    pods = (a_pod(world, uid="former"), replace(a_pod(world, "x"), name="gone"), a_pod(world, "train-1"))
    assert act_once(world, Ask(held(), pods, ASKED, REQUEST)) == 0
    assert note(world, "train-0", CHECKPOINT_REQUEST_ANNOTATION) == ""
    assert note(world, "train-1", CHECKPOINT_REQUEST_ANNOTATION) != ""
    assert complaints(caplog) == []


def test_a_pod_that_cannot_be_shown_the_request_keeps_no_hook_from_being_called(world: World) -> None:
    world.submit()

    def rule(method: str, path: str, body: Any) -> None:
        if path.endswith("/train-0"):
            raise Denied(403)

    world.cluster.rule = rule

    async def story() -> None:
        async with Server(says(ANSWER)) as server:
            life = Life(world, world.store())
            pods = (a_pod(world), a_pod(world, "train-1", server.pod().hook))
            assert await life.act(Ask(held(), pods, ASKED, REQUEST), pods=pods) == 1
            await until(lambda: note(world, "train-1", CHECKPOINT_ANSWER_ANNOTATION))
            await life.evictor.close()

    asyncio.run(story())


def ask_with_hook(world: World, after: Callable[[Life, Server, PodView], Any], handler: Any = None) -> None:
    world.submit()

    async def story() -> None:
        async with Server(handler or says(ANSWER)) as server:
            life = Life(world, world.store())
            pod = a_pod(world, hook=server.pod().hook)
            await life.act(Ask(held(), (pod,), ASKED, REQUEST), pods=[pod])
            await after(life, server, pod)
            await life.evictor.close()

    asyncio.run(story())


def test_what_a_hook_answers_is_kept_on_its_pod(world: World) -> None:
    async def after(life: Life, server: Server, pod: PodView) -> None:
        await until(lambda: note(world, "train-0", CHECKPOINT_ANSWER_ANNOTATION))

    ask_with_hook(world, after)
    kept = answer_from_json(note(world, "train-0", CHECKPOINT_ANSWER_ANNOTATION))
    assert kept == Answer("spot-1", 1_200, "s3://b/1200", 1_790_000_010.0)


def test_an_answer_waits_for_an_api_server_that_is_away_and_the_pod_is_not_called_again(
    world: World, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(act, "KEEP_AGAIN_SECONDS", 0.005)
    denied = 0

    def rule(method: str, path: str, body: Any) -> None:
        nonlocal denied
        if body and CHECKPOINT_ANSWER_ANNOTATION in body["metadata"].get("annotations", {}) and denied < 3:
            denied += 1
            raise Denied(503)

    world.cluster.rule = rule

    async def after(life: Life, server: Server, pod: PodView) -> None:
        await until(lambda: note(world, "train-0", CHECKPOINT_ANSWER_ANNOTATION))
        await life.act(Ask(held(marker=ASKED), (replace(pod, asked="spot-1"),), ASKED, REQUEST), pods=[pod])
        await asyncio.sleep(0.01)
        assert len(server.requests) == 1

    ask_with_hook(world, after)
    assert complaints(caplog) == ["an answer was not kept"]


def test_an_answer_that_comes_when_this_replica_leads_no_more_is_not_written(world: World) -> None:
    async def answer_late(writer: asyncio.StreamWriter) -> None:
        world.leading = False
        await says(ANSWER)(writer)

    async def after(life: Life, server: Server, pod: PodView) -> None:
        await until(lambda: server.ended)
        await asyncio.sleep(0.02)
        assert note(world, "train-0", CHECKPOINT_ANSWER_ANNOTATION) == ""
        world.leading = True
        await life.act(Ask(held(marker=ASKED), (replace(pod, asked="spot-1"),), ASKED, REQUEST), pods=[pod])
        await until(lambda: len(server.requests) == 2)

    ask_with_hook(world, after, answer_late)


def test_an_answer_of_a_pod_that_is_gone_is_no_warning(world: World, caplog: pytest.LogCaptureFixture) -> None:
    async def vanish(writer: asyncio.StreamWriter) -> None:
        world.cluster.remove(PODS, "train-0", "vision")
        await says(ANSWER)(writer)

    async def after(life: Life, server: Server, pod: PodView) -> None:
        await until(lambda: server.ended)
        await asyncio.sleep(0.02)

    ask_with_hook(world, after, vanish)
    assert complaints(caplog) == []


def test_a_call_under_way_ends_when_its_pod_is_gone(world: World) -> None:
    async def after(life: Life, server: Server, pod: PodView) -> None:
        await until(lambda: server.requests)
        await life.act(pods=[])
        await until(lambda: server.ended)

    ask_with_hook(world, after, hangs)


# Evicting pods that are not Kueue's


def evictions(world: World) -> int:
    return sum(write.endswith("/eviction") for write in world.cluster.writes())


def test_a_pod_is_evicted_once_through_the_eviction_api(world: World) -> None:
    async def story() -> None:
        life = Life(world, world.store())
        pod = a_pod(world)
        for _ in range(3):
            assert await life.act(EvictPod(pod, NOTICE), pods=[pod]) == 0
        await life.evictor.close()

    asyncio.run(story())
    assert world.cluster.writes() == ["POST /api/v1/namespaces/vision/pods/train-0/eviction"]
    assert "deletionTimestamp" in world.cluster.get(PODS, "train-0", "vision")["metadata"]


def test_another_pod_of_the_same_name_is_not_evicted(world: World) -> None:
    act_once(world, EvictPod(a_pod(world, uid="former"), NOTICE))
    assert "deletionTimestamp" not in world.cluster.get(PODS, "train-0", "vision")["metadata"]


def test_a_disruption_budget_is_waited_for_with_one_word(world: World, caplog: pytest.LogCaptureFixture) -> None:
    def rule(method: str, path: str, body: Any) -> None:
        if path.endswith("/eviction") and evictions(world) < 5:
            raise Denied(429, "Cannot evict pod as it would violate the pod's disruption budget.")

    world.cluster.rule = rule

    async def story() -> None:
        life = Life(world, world.store())
        pod = a_pod(world)
        for _ in range(7):
            await life.act(EvictPod(pod, NOTICE), pods=[pod])
        await life.evictor.close()

    asyncio.run(story())
    assert evictions(world) == 5
    assert complaints(caplog) == ["a pod is not evicted yet"]


# Accounting


def test_a_loss_is_in_the_ledger_before_the_marker_says_so(world: World) -> None:
    world.submit()
    carries(world, GONE)
    on_write(world, of="job-job-1", do=lambda: recorded.extend(world.directory.rglob("losses/**/*.json")))
    recorded: list[Path] = []
    step = Account(held(active=False, marker=GONE), replace(GONE, accounted=True), 30.0)
    assert act_once(world, step) == 0
    assert len(recorded) == 1
    [loss] = world.books().losses.values()
    assert (loss.key, loss.lost_gpu_seconds, loss.answered) == (LossKey("job-1", 1), 30.0, False)
    found = marker(world)
    assert found is not None
    assert found.accounted


def test_a_ledger_that_is_away_leaves_the_marker_as_it_is(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.submit()
    carries(world, GONE)

    async def down(self: Store, loss: Loss) -> Loss:
        raise StoreDown("full")

    monkeypatch.setattr(Store, "lose", down)
    step = Account(held(active=False, marker=GONE), replace(GONE, accounted=True), 30.0)
    assert act_once(world, step) == 1
    assert marker(world) == GONE


@pytest.mark.parametrize(("recorded", "total"), [(False, 45.0), (True, 30.0)])
def test_what_is_owed_of_the_loss_before_counts_unless_that_is_in_the_ledger_after_all(
    world: World, recorded: bool, total: float
) -> None:
    world.submit()
    if recorded:
        carries(world, GONE)
        act_once(world, Account(held(active=False, marker=GONE), replace(GONE, accounted=True), 15.0))
    second = replace(GONE, attempts=2, owed_gpu_seconds=15.0)
    carries(world, second)
    act_once(world, Account(held(active=False, marker=second), replace(second, accounted=True), 30.0, 15.0))
    assert world.books().losses[LossKey("job-1", 2)].lost_gpu_seconds == total
