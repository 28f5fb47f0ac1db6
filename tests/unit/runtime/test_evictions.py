"""Whole evictions on a cluster in memory: from the notice on a Node until the job runs again, losing nothing."""

from __future__ import annotations

import asyncio
import copy
import logging
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from runtime import metrics
from runtime.clock import format_time
from runtime.eviction.marker import answer_to_json, asked_in, marker_from_json
from runtime.eviction.notice import Certainty, Notice, NoticeKind, notices_to_json
from runtime.eviction.pods import PODSET_LABEL, WORKLOAD_ANNOTATION
from runtime.eviction.sequence import plan
from runtime.eviction.steps import Step
from runtime.eviction.view import Answer, Marker, Phase, View
from runtime.evictions import Evictions
from runtime.kube import LOCAL_QUEUES, NODES, PODS
from runtime.routing.act import Actor, Context
from runtime.routing.decide import decide
from runtime.routing.history import NO_HISTORY
from runtime.routing.observe import snapshot
from runtime.routing.snapshot import Stage
from runtime.watching import Watching
from stacks.labels import (
    CHECKPOINT_ANSWER_ANNOTATION,
    CHECKPOINT_REQUEST_ANNOTATION,
    EVICTION_ANNOTATION,
    FLAVOR_LABEL,
    NOTICES_ANNOTATION,
    QUEUE_LABEL,
)
from tests.builders import LOCAL, SPOT, a_config
from tests.fakes import kueue
from tests.fakes.cluster import Denied
from tests.fakes.workloads import condition, reserve
from tests.fakes.world import OTHER_TWIN, TWIN, Killed, World

WRITES = ("PATCH", "POST", "PUT")
WRITTEN = 13
"""Writes of a whole eviction, four of them events."""


class Floor(World):
    """A world with nodes and pods: `tick` is one agent's whole life, its caches and evictions included."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self.pods = 0

    def node(self, name: str, *notices: Notice, flavor: str = SPOT) -> None:
        annotations = {NOTICES_ANNOTATION: notices_to_json(notices)} if notices else {}
        metadata = {"name": name, "labels": {FLAVOR_LABEL: flavor}, "annotations": annotations}
        status = {"conditions": [{"type": "Ready", "status": "True"}]}
        self.cluster.put(NODES, {"metadata": metadata, "spec": {}, "status": status})

    def kubelet(self, node: str) -> None:
        """Give the job its pod while Kueue lets it run, and take it away while not."""
        raw = self.workload()
        runs = raw["spec"]["active"] and any(
            entry["type"] == "Admitted" and entry["status"] == "True" for entry in raw["status"]["conditions"]
        )
        there = self.pod_name()
        if there and not runs:
            self.cluster.remove(PODS, there, "vision")
        elif runs and not there:
            self.pods += 1
            metadata = {
                "name": f"job-1-{self.pods}",
                "namespace": "vision",
                "labels": {PODSET_LABEL: "main"},
                "annotations": {WORKLOAD_ANNOTATION: "job-job-1"},
                "ownerReferences": [{"kind": "Job", "name": "job-1", "uid": "owner-job-1", "controller": True}],
            }
            requests = {"nvidia.com/gpu": "1"}
            spec = {"nodeName": node, "containers": [{"name": "main", "resources": {"requests": requests}}]}
            status = {"phase": "Running"}
            self.cluster.put(PODS, {"metadata": metadata, "spec": spec, "status": status})
        if runs:
            self.change(lambda raw: condition(raw, "PodsReady", at=self.now))

    def pod_name(self) -> str:
        return next((key[2] for key in self.cluster.objects if key[0] == "v1/pods"), "")

    def asked(self) -> str:
        """The request that the job's pod is shown."""
        if not (name := self.pod_name()):
            return ""
        annotations = self.cluster.get(PODS, name, "vision")["metadata"]["annotations"]
        return asked_in(annotations.get(CHECKPOINT_REQUEST_ANNOTATION, ""))

    def save(self) -> None:
        """The job answers what it is asked, with a checkpoint of this moment."""
        if request := self.asked():
            text = answer_to_json(Answer(request, 1_200, "s3://b/1200", self.now))
            self.cluster.change(
                PODS,
                self.pod_name(),
                "vision",
                lambda raw: raw["metadata"]["annotations"].setdefault(CHECKPOINT_ANSWER_ANNOTATION, text),
            )

    def marker(self) -> Marker | None:
        text = self.workload()["metadata"].get("annotations", {}).get(EVICTION_ANNOTATION)
        return None if text is None else marker_from_json(text)

    def over(self) -> bool:
        """Whether the job runs again, and its loss is accounted."""
        marker = self.marker()
        gone = marker is not None and marker.phase is Phase.DONE and marker.accounted
        return gone and self.job().stage is Stage.RUNNING_CLOUD and self.pod_name() == f"job-1-{self.pods}"

    def live(self, ticks: int = 1, between: Callable[[], object] = lambda: None) -> None:
        """One agent's life; `between` is what happens after each of its ticks."""

        async def life() -> None:
            store = self.store()
            watching = Watching(self.cluster.kube(), self.config, self.clock(), lambda *_: None, asyncio.Event())
            context = Context(
                self.cluster.kube(), store, self.clock(), self.config, "pod-1", lambda: self.leading,
                watching.observer.reduce,
            )  # fmt: skip
            actor = Actor(context)
            evictions = Evictions(context, watching, actor.warn)
            caches = asyncio.create_task(watching.run())
            await store.refresh()
            try:
                for _ in range(ticks):
                    await self._tick(watching, actor, evictions, context)
                    between()
                    if self.over():
                        break
            finally:
                caches.cancel()
                await asyncio.gather(caches, return_exceptions=True)
                await evictions.close()

        asyncio.run(life())

    async def _tick(self, watching: Watching, actor: Actor, evictions: Evictions, context: Context) -> None:
        while not watching.complete:  # noqa: ASYNC110
            await asyncio.sleep(0)
        for _ in range(12):
            await asyncio.sleep(0)  # the watches catch up
        seen = watching.snapshot(context.store.books, NO_HISTORY)
        await evictions.tick(seen.jobs)
        decision = decide(seen, self.config, self.now, f"d-{self.now}")
        evictions.decided(decision.may_leave)
        await actor.act(decision)
        await actor.finish()


@pytest.fixture(scope="module")
def started(tmp_path_factory: pytest.TempPathFactory) -> Floor:
    floor = Floor(tmp_path_factory.mktemp("started") / "ledger")
    start(floor)
    return floor


@pytest.fixture
def floor(started: Floor, tmp_path: Path) -> Floor:
    """The job runs on node n1 of the spot flavor, which has just got its notice."""
    floor = Floor(Path(shutil.copytree(started.directory, tmp_path / "ledger")))
    floor.cluster.objects = copy.deepcopy(started.cluster.objects)
    floor.cluster.version, floor.now, floor.pods = started.cluster.version, started.now, started.pods
    return floor


def start(floor: Floor) -> None:
    """Bring the job to run; ten minutes later comes the notice."""
    for twin in (TWIN, OTHER_TWIN):
        metadata = {"name": twin, "namespace": "vision"}
        status = {"conditions": [{"type": "Active", "status": "True"}]}
        floor.cluster.put(LOCAL_QUEUES, {"metadata": metadata, "spec": {}, "status": status})
    floor.node("n1")
    floor.node("n2")
    floor.submit()
    for _ in range(3):
        floor.tick()
        floor.now += 1
        kueue.step(floor.cluster, floor.now)
        floor.kubelet("n1")
    assert (floor.job().stage, floor.pod_name()) == (Stage.RUNNING_CLOUD, "job-1-1")
    floor.now += 600
    floor.node("n1", a_notice(floor))
    floor.cluster.requests.clear()


def a_notice(floor: Floor, **changes: Any) -> Notice:
    values: dict[str, Any] = {
        "certainty": Certainty.CERTAIN,
        "noticed_at": floor.now,
        "deadline": floor.now + 120,
    } | changes
    return Notice("spot-i-1", NoticeKind.SPOT, "aws", **values)


def go_on(floor: Floor, seconds: float = 5.0) -> None:
    """What everybody but the agent does."""
    floor.now += seconds
    kueue.step(floor.cluster, floor.now)
    floor.kubelet("n2")
    floor.save()


def activations(floor: Floor) -> int:
    """How often the job was made active again."""
    return sum(
        bool(body) and body.get("spec", {}).get("active") is True
        for method, path, body in floor.cluster.requests
        if method == "PATCH" and path.endswith("/workloads/job-job-1")
    )


def check_nothing_is_lost(floor: Floor) -> None:
    marker = floor.marker()
    assert marker is not None
    assert (marker.phase, marker.attempts, marker.accounted) == (Phase.DONE, 1, True)
    assert (floor.job().stage, floor.queue(), floor.job().queue) == (Stage.RUNNING_CLOUD, TWIN, TWIN)
    assert floor.pod_name() == "job-1-2", "one pod went and one came"
    books = floor.books()
    [loss] = books.losses.values()
    assert (loss.number, loss.answered, loss.step, loss.url) == (1, True, 1_200, "s3://b/1200")
    assert loss.lost_gpu_seconds <= 10, "what it did since it saved"
    assert (len(books.openings), len(books.closings)) == (2, 1)


def test_a_notice_leads_through_every_step_to_a_job_that_runs_again(floor: Floor) -> None:
    story = []

    def next_step() -> None:
        marker = floor.marker()
        story.append((marker.phase if marker else None, bool(marker and marker.gone_at), floor.job().stage))
        go_on(floor)

    floor.live(9, next_step)
    check_nothing_is_lost(floor)
    assert activations(floor) == 1
    assert list(dict.fromkeys(story)) == [
        (Phase.ASKED, False, Stage.RUNNING_CLOUD),
        (Phase.STOPPED, False, Stage.EVICTED),
        (Phase.STOPPED, True, Stage.EVICTED),
        (Phase.DONE, True, Stage.RELEASED),
        (Phase.DONE, True, Stage.RUNNING_CLOUD),
    ]
    assert [raw["reason"] for raw in floor.events()].count("CheckpointRequested") == 1
    assert sum(method in WRITES for method, _, _ in floor.cluster.requests) == WRITTEN


@pytest.mark.parametrize("write", range(1, WRITTEN + 1))
def test_an_agent_killed_at_any_write_is_continued_by_the_next_and_nothing_is_lost(floor: Floor, write: int) -> None:
    count = 0

    def kill(method: str, path: str, body: object) -> None:
        nonlocal count
        if method in WRITES:
            count += 1
            if count == write:
                raise Killed

    floor.cluster.rule = kill
    killed = False
    try:
        floor.live(9, lambda: go_on(floor))
    except Killed:
        killed = True
        go_on(floor)
        floor.live(9, lambda: go_on(floor))
    assert killed
    check_nothing_is_lost(floor)
    assert activations(floor) <= 2, "one of them may have been cut off before it arrived"


@pytest.mark.parametrize("write", [1, 3, 4, 6, 7, 8])
def test_a_write_whose_answer_is_lost_does_no_harm(floor: Floor, write: int) -> None:
    count = 0

    def loses(method: str, path: str) -> bool:
        nonlocal count
        count += method in WRITES
        return method in WRITES and count == write

    floor.cluster.loses = loses
    floor.live(9, lambda: go_on(floor))
    check_nothing_is_lost(floor)
    assert activations(floor) == 1


def test_a_label_that_an_earlier_requeue_left_elsewhere_is_set_right(floor: Floor) -> None:
    """That one was cut off after the label of the job, and what it chose is taken by now."""
    for _ in range(3):
        floor.live()
        go_on(floor)
    assert floor.job().stage is Stage.EVICTED
    jobs = kueue.resource_of(floor.workload()["metadata"]["ownerReferences"][0])
    floor.cluster.change(
        jobs, "job-1", "vision", lambda raw: raw["metadata"]["labels"].update({QUEUE_LABEL: OTHER_TWIN})
    )
    floor.live(9, lambda: go_on(floor))
    check_nothing_is_lost(floor)


def test_the_ledgers_word_and_the_requeue_of_one_tick_do_not_overwrite_each_other(floor: Floor) -> None:
    for _ in range(10):
        floor.live()
        marker = floor.marker()
        if marker is not None and marker.phase is Phase.DONE:
            break
        go_on(floor)
    assert marker is not None
    assert (marker.phase, marker.accounted) == (Phase.DONE, True)


def test_a_requeue_is_not_repeated_on_what_was_seen_before_it(floor: Floor) -> None:
    for _ in range(3):
        floor.live()
        go_on(floor)
    stale = floor.jobs()
    assert [job.stage for job in stale] == [Stage.EVICTED]
    floor.live()
    assert activations(floor) == 1
    floor.change(lambda raw: raw["spec"].update(active=False))  # its owner thinks better of it

    async def life() -> int:
        store = floor.store()
        await store.refresh()
        decision = decide(snapshot(stale, store.books), floor.config, floor.now, "d-stale")
        assert decision.requeues
        return await floor.acted(floor.actor(store), decision)

    assert asyncio.run(life()) == 1
    assert activations(floor) == 1
    assert floor.workload()["spec"]["active"] is False


def test_a_workload_that_changes_under_a_requeue_is_read_again_without_a_warning(
    floor: Floor, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(3):
        floor.live()
        go_on(floor)
    touched = 0

    def touch(method: str, path: str, body: Any) -> None:
        nonlocal touched
        if method == "PATCH" and body.get("spec", {}).get("active") is True and touched < 2:
            touched += 1
            floor.change(lambda raw: condition(raw, f"Odd{touched}"))

    floor.cluster.rule = touch
    floor.live()
    marker = floor.marker()
    assert marker is not None
    assert (touched, marker.phase, floor.workload()["spec"]["active"]) == (2, Phase.DONE, True)
    assert [record for record in caplog.records if record.levelno >= logging.WARNING] == []


def test_a_job_that_its_owner_stopped_meanwhile_is_left_alone(floor: Floor) -> None:
    floor.live()
    floor.change(lambda raw: raw["spec"].update(active=False))
    for _ in range(6):
        go_on(floor)
        floor.live()
    assert (floor.marker(), floor.workload()["spec"]["active"], activations(floor)) == (None, False, 0)
    assert not floor.books().losses


def test_a_notice_that_is_called_off_before_the_stop_leaves_nothing(floor: Floor) -> None:
    floor.live()
    assert floor.marker() is not None
    floor.node("n1")
    for _ in range(3):
        floor.live()
    assert (floor.marker(), floor.job().stage, floor.pod_name()) == (None, Stage.RUNNING_CLOUD, "job-1-1")


def test_a_warning_only_asks(floor: Floor) -> None:
    floor.node("n1", a_notice(floor, certainty=Certainty.LIKELY, deadline=None))
    floor.live(6, lambda: go_on(floor, 60))
    assert (floor.job().stage, floor.pod_name(), activations(floor)) == (Stage.RUNNING_CLOUD, "job-1-1", 0)
    assert floor.asked() != ""


def test_a_node_that_is_gone_without_a_word_costs_no_retry_of_its_job(floor: Floor) -> None:
    floor.cluster.remove(NODES, "n1")
    floor.live()
    assert floor.workload()["spec"]["active"] is False, "stopped at once, before its pod counts as failed"
    floor.live(8, lambda: go_on(floor))
    assert (floor.job().stage, floor.pod_name(), activations(floor)) == (Stage.RUNNING_CLOUD, "job-1-2", 1)
    [loss] = floor.books().losses.values()
    assert loss.kind == NoticeKind.LOSS


def test_a_dry_run_writes_nothing_and_says_each_step_once(floor: Floor, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "runtime.evictions")
    before = floor.cluster.version
    floor.config = a_config(dry_run=True)

    def time_passes() -> None:
        floor.now += 30

    floor.live(5, time_passes)
    assert floor.cluster.version == before
    assert floor.cluster.writes() == []
    assert not floor.books().losses
    said = [(r.__dict__["step"], r.__dict__["workload"]) for r in caplog.records if r.name == "runtime.evictions"]
    assert said == [("ask", "job-job-1"), ("stop", "job-job-1")]


def test_a_replica_that_does_not_lead_writes_nothing(floor: Floor) -> None:
    floor.leading = False
    floor.live(3, lambda: go_on(floor))
    assert floor.cluster.writes() == []


def test_an_api_server_that_is_away_for_most_of_the_notice_costs_time_and_nothing_else(floor: Floor) -> None:

    def away(method: str, path: str, body: Any) -> None:
        if method in WRITES:
            raise Denied(503)

    floor.cluster.rule = away
    floor.live(3, lambda: go_on(floor, 10))
    floor.cluster.rule = lambda *_: None
    floor.live(9, lambda: go_on(floor))
    check_nothing_is_lost(floor)
    assert activations(floor) == 1


def test_nothing_is_planned_while_nothing_goes(floor: Floor) -> None:
    floor.node("n1")
    before = floor.cluster.version
    floor.live(3)
    assert floor.cluster.version == before


def test_the_time_until_it_runs_again_is_measured_once_and_from_new_pods_only(floor: Floor) -> None:

    def measured() -> float:
        child = metrics.stopped_to_running_seconds.labels(kind="spot-interruption")
        return next(s.value for m in child.collect() for s in m.samples if s.name.endswith("_count"))

    before = measured()
    floor.live(9, lambda: go_on(floor))
    assert floor.job().stage is Stage.RUNNING_CLOUD
    assert measured() - before == 1


def test_a_silent_node_is_lost_when_its_time_is_up_though_nothing_changes(floor: Floor) -> None:
    taint = {"key": "node.kubernetes.io/unreachable", "effect": "NoExecute", "timeAdded": format_time(floor.now)}
    floor.node("n1")
    floor.cluster.change(NODES, "n1", "", lambda raw: raw["spec"].update(taints=[taint]))

    def time_passes() -> None:
        active.append(floor.workload()["spec"]["active"])
        floor.now += 25

    active: list[bool] = []
    floor.live(4, time_passes)
    assert active == [True, True, True, False]


def submit_another(floor: Floor, name: str) -> None:
    """A job that runs on local GPUs."""
    floor.submit(name)
    floor.change(lambda raw: condition(reserve(raw, LOCAL), "Admitted")["status"].update(admissionChecks=[]), name)


def test_a_job_that_no_plan_can_be_made_for_keeps_no_other_from_being_saved(
    floor: Floor, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    submit_another(floor, "odd")

    def fails_for_odd(view: View, now: float) -> tuple[Step, ...]:
        if any(workload.name == "job-odd" for workload in view.workloads):
            raise ZeroDivisionError("a bug")
        return plan(view, now)

    monkeypatch.setattr("runtime.evictions.plan", fails_for_odd)
    errors = metrics.errors.labels(kind="ZeroDivisionError")._value.get
    before = errors()
    floor.live(9, lambda: go_on(floor))
    check_nothing_is_lost(floor)
    assert [record.__dict__["workload"] for record in caplog.records if record.levelno >= logging.ERROR] == ["job-odd"]
    assert errors() - before > 1, "each round counts"


def test_a_plan_that_fails_for_no_job_alone_fails_the_round(floor: Floor, monkeypatch: pytest.MonkeyPatch) -> None:
    submit_another(floor, "odd")

    def fails(view: View, now: float) -> tuple[Step, ...]:
        if len(view.workloads) > 1:
            raise ZeroDivisionError("a bug")
        return ()

    monkeypatch.setattr("runtime.evictions.plan", fails)
    with pytest.raises(ZeroDivisionError):
        floor.live()
