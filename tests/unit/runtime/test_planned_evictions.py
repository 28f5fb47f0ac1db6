"""Moves, drains and preemptions on a cluster in memory: the same sequence as for a machine that is taken away."""

from __future__ import annotations

import asyncio
import copy
import shutil
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from runtime.eviction import drains
from runtime.eviction.drains import Drain
from runtime.eviction.notice import NoticeKind
from runtime.eviction.view import Phase
from runtime.eviction.wish import MoveWish, wish_to_json
from runtime.kube import NODES, PODS
from runtime.routing.snapshot import Stage
from stacks.labels import AGENT_DRAIN_TAINT, MOVE_ANNOTATION
from tests.builders import ON_DEMAND, SPOT, a_config
from tests.fakes.workloads import condition, unreserve
from tests.fakes.world import OTHER_TWIN, TWIN, Killed
from tests.unit.runtime.test_evictions import Floor, activations, check_nothing_is_lost, go_on, start

Raw = dict[str, Any]


@pytest.fixture(scope="module")
def started(tmp_path_factory: pytest.TempPathFactory) -> Floor:
    floor = Floor(tmp_path_factory.mktemp("started") / "ledger")
    start(floor)
    floor.node("n1")
    return floor


@pytest.fixture
def floor(started: Floor, tmp_path: Path) -> Floor:
    """The job runs on node n1 of the spot flavor, since ten minutes."""
    floor = Floor(Path(shutil.copytree(started.directory, tmp_path / "ledger")))
    floor.cluster.objects = copy.deepcopy(started.cluster.objects)
    floor.cluster.version, floor.now, floor.pods = started.cluster.version, started.now, started.pods
    return floor


def wish(floor: Floor, to: str = "on-demand", seconds: float = 600, name: str = "move-1") -> None:
    text = wish_to_json(MoveWish(name, to, floor.now, floor.now + seconds))
    floor.change(lambda raw: raw["metadata"].setdefault("annotations", {}).update({MOVE_ANNOTATION: text}))


def wished(floor: Floor) -> bool:
    return MOVE_ANNOTATION in floor.workload()["metadata"].get("annotations", {})


def check_it_was_moved(floor: Floor) -> None:
    marker = floor.marker()
    assert marker is not None
    assert (marker.phase, marker.kind, marker.attempts, marker.planned) == (Phase.DONE, NoticeKind.MOVE, 1, 1)
    assert (floor.job().stage, floor.job().flavor, floor.queue()) == (Stage.RUNNING_CLOUD, ON_DEMAND, OTHER_TWIN)
    assert not wished(floor)
    books = floor.books()
    [loss] = books.losses.values()
    assert (loss.kind, loss.flavor, loss.answered, loss.step, loss.nodes) == ("move", SPOT, True, 1_200, ())
    assert loss.lost_gpu_seconds <= 10
    assert sorted(opening.flavor for opening in books.openings.values()) == sorted([SPOT, ON_DEMAND])
    assert len(books.closings) == 1


# Moves


def test_a_job_is_asked_stopped_and_goes_on_where_it_is_wanted(floor: Floor) -> None:
    wish(floor)
    floor.live(12, lambda: go_on(floor))
    check_it_was_moved(floor)
    assert activations(floor) == 1


def test_a_move_goes_on_over_restarts_of_the_agent_at_every_step(floor: Floor) -> None:
    wish(floor)
    requests = set()
    for _ in range(16):
        floor.live(2)
        requests.add(floor.asked())
        go_on(floor)
        if floor.over():
            break
    check_it_was_moved(floor)
    assert activations(floor) == 1
    assert len(requests - {""}) == 1, "it was asked to save once"


def dies_at(floor: Floor, write: int) -> list[str]:
    """The agent dies when it is about to make its so-many-th write; returns the writes as they are made."""
    written: list[str] = []

    def rule(method: str, path: str, body: Any) -> None:
        if method in ("PATCH", "POST", "PUT"):
            written.append(path)
            if len(written) == write:
                raise Killed

    floor.cluster.rule = rule
    return written


@pytest.mark.parametrize("write", range(1, 12))
def test_a_move_is_done_once_whichever_write_the_agent_dies_before(floor: Floor, write: int) -> None:
    wish(floor)
    written = dies_at(floor, write)
    for _ in range(20):
        with suppress(Killed):
            floor.live(2)
        go_on(floor)
        if floor.over():
            break
    assert len(written) >= write
    check_it_was_moved(floor)


def test_a_job_runs_on_until_what_it_is_to_have_is_free(floor: Floor) -> None:
    floor.config = a_config(budget={"daily": "2.50 USD"})
    wish(floor, seconds=60)
    floor.live(3, lambda: go_on(floor))
    assert (floor.code(), floor.asked(), floor.marker()) == ("move-waits", "", None)
    assert wished(floor)
    floor.config = a_config()
    floor.live(12, lambda: go_on(floor))
    check_it_was_moved(floor)


def test_a_wish_whose_time_is_over_is_taken_away_and_the_job_runs_on(floor: Floor) -> None:
    floor.config = a_config(budget={"daily": "2.50 USD"})
    wish(floor, seconds=12)
    floor.live(6, lambda: go_on(floor))
    assert (floor.code(), wished(floor), floor.marker()) == ("move-refused", False, None)
    assert (floor.job().stage, floor.pod_name()) == (Stage.RUNNING_CLOUD, "job-1-1")
    assert "NotMoved" in [event["reason"] for event in floor.events()]


def test_a_wish_that_is_taken_back_before_the_stop_calls_everything_off(floor: Floor) -> None:
    wish(floor)
    floor.live(2)
    assert floor.asked().startswith("move-")
    floor.change(lambda raw: raw["metadata"]["annotations"].pop(MOVE_ANNOTATION))
    floor.live(3)
    assert (floor.marker(), floor.job().stage, floor.pod_name()) == (None, Stage.RUNNING_CLOUD, "job-1-1")

    assert floor.code() == "move-refused"


def test_a_wish_that_changes_is_judged_anew_before_anything_more_happens(floor: Floor) -> None:
    wish(floor)

    def rewrite() -> None:
        if floor.asked() and '"move-1"' in str(floor.workload()["metadata"]["annotations"]):
            floor.save()
            floor.change(lambda raw: raw["metadata"]["annotations"].update({MOVE_ANNOTATION: "{}"}))

    floor.live(4, rewrite)
    assert floor.asked().startswith("move-")
    assert (floor.marker(), floor.job().stage, floor.pod_name()) == (None, Stage.RUNNING_CLOUD, "job-1-1")
    assert (floor.code(), wished(floor)) == ("move-refused", False)


def test_a_move_that_is_called_off_and_allowed_again_is_made_also_after_a_former_loss(floor: Floor) -> None:
    drain(floor)
    floor.live(10, lambda: go_on(floor))
    check_nothing_is_lost(floor)
    floor.over = lambda: False  # type: ignore[method-assign]
    wish(floor, seconds=3_600)
    floor.live(2)
    assert floor.asked().startswith("move-")
    floor.config = a_config(budget={"daily": "2.50 USD"})
    floor.live(3)
    marker = floor.marker()
    assert marker is not None
    assert (marker.phase, marker.kind, marker.attempts, floor.code()) == (Phase.DONE, NoticeKind.MOVE, 1, "move-waits")
    floor.config = a_config()
    floor.live(12, lambda: go_on(floor, 30))
    assert (floor.job().flavor, wished(floor)) == (ON_DEMAND, False)


def test_a_new_agent_evicts_no_pod_of_a_job_that_is_being_moved(floor: Floor) -> None:
    """Its pod does not name the Workload, as where topology-aware scheduling is off."""
    floor.cluster.change(PODS, "job-1-1", "vision", lambda raw: raw["metadata"]["annotations"].clear())
    wish(floor)
    floor.live(2)
    assert floor.asked().startswith("move-")
    drain(floor)
    floor.live()
    assert not [path for method, path, _ in floor.cluster.requests if path.endswith("/eviction")]
    floor.live(12, lambda: go_on(floor))
    assert floor.job().flavor == ON_DEMAND


def test_a_job_that_does_not_answer_is_moved_all_the_same(floor: Floor) -> None:
    wish(floor)

    def silence() -> None:
        floor.save = lambda: None  # type: ignore[method-assign]
        go_on(floor, 30)

    floor.live(12, silence)
    assert floor.job().flavor == ON_DEMAND
    [loss] = floor.books().losses.values()
    assert (loss.answered, loss.kind) == (False, "move")


def test_a_wish_that_nobody_can_read_is_taken_away(floor: Floor) -> None:
    floor.change(lambda raw: raw["metadata"].setdefault("annotations", {}).update({MOVE_ANNOTATION: "on-demand"}))
    floor.live(2)
    assert (floor.code(), wished(floor), floor.marker()) == ("move-refused", False, None)


def test_a_second_wish_moves_it_again(floor: Floor) -> None:
    wish(floor)
    floor.live(12, lambda: go_on(floor))
    check_it_was_moved(floor)
    wish(floor, to="spot", name="move-2")
    floor.over = lambda: False  # type: ignore[method-assign]
    floor.live(12, lambda: go_on(floor))
    assert (floor.job().flavor, wished(floor)) == (SPOT, False)
    assert [loss.number for loss in floor.books().losses.values()] == [1, 2]


# Drains


def drain(floor: Floor, node: str = "n1", seconds: float | None = 300, kind: NoticeKind = NoticeKind.UPGRADE) -> None:
    until = None if seconds is None else floor.now + seconds
    asyncio.run(drains.ask(floor.cluster.kube(), node, Drain(kind, floor.now, until)))


def test_a_drained_node_is_left_and_its_jobs_lose_nothing(floor: Floor) -> None:
    drain(floor)
    assert asyncio.run(drains.holders(floor.cluster.kube(), "n1")) == ["vision/job-1-1"]
    floor.live(10, lambda: go_on(floor))
    check_nothing_is_lost(floor)
    [loss] = floor.books().losses.values()
    assert (loss.kind, loss.nodes) == ("driver-upgrade", ("n1",))
    assert asyncio.run(drains.holders(floor.cluster.kube(), "n1")) == []


def test_a_drain_far_ahead_only_keeps_new_jobs_away(floor: Floor) -> None:
    drain(floor, seconds=1_800)
    floor.live(3, lambda: go_on(floor, 60))
    assert (floor.marker(), floor.pod_name()) == (None, "job-1-1")
    floor.now += 1_050
    floor.live(12, lambda: go_on(floor))
    assert floor.pod_name() == "job-1-2"


def test_a_drain_that_is_taken_back_in_time_leaves_nothing(floor: Floor) -> None:
    drain(floor)
    floor.live()
    assert floor.asked() != ""
    assert asyncio.run(drains.take_back(floor.cluster.kube(), "n1"))
    floor.live(3)
    assert (floor.marker(), floor.job().stage, floor.pod_name()) == (None, Stage.RUNNING_CLOUD, "job-1-1")
    assert AGENT_DRAIN_TAINT not in str(floor.cluster.get(NODES, "n1"))


# Preemption


def preempt(floor: Floor, *, gone: bool = False, began: bool = True) -> None:
    """Kueue takes the quota: it says so first, and gives it away once the pods are told to end."""

    def edit(raw: Raw) -> None:
        at = floor.now
        if gone:
            unreserve(raw, at=at)
            condition(raw, "PodsReady", False, at=at)
            condition(raw, "Admitted", False, at=at)
            admitted = 600 if began else 0
            raw["status"]["accumulatedPastExecutionTimeSeconds"] = admitted
            raw["status"]["schedulingStats"] = {"evictions": [{"reason": "Preempted", "count": 1 if began else 2}]}
        condition(raw, "Evicted", at=at, reason="Preempted")
        raw["status"]["admissionChecks"] = [{**check, "state": "Pending"} for check in raw["status"]["admissionChecks"]]

    floor.change(edit)


def quota_goes(floor: Floor) -> None:
    def edit(raw: Raw) -> None:
        evicted = next(one for one in raw["status"]["conditions"] if one["type"] == "Evicted")
        unreserve(raw, at=floor.now)
        condition(raw, "Admitted", False, at=floor.now)
        condition(raw, "PodsReady", False, at=floor.now)
        raw["status"]["conditions"] = [
            evicted if one["type"] == "Evicted" else one for one in raw["status"]["conditions"]
        ]

    floor.change(edit)
    floor.cluster.remove(PODS, floor.pod_name(), "vision")


def test_a_preemption_costs_the_work_since_the_job_began_and_is_recorded_once(floor: Floor) -> None:
    floor.live(2)
    preempt(floor)
    floor.live(2)
    marker = floor.marker()
    assert marker is not None
    assert (marker.kind, marker.phase, marker.attempts, marker.accounted) == (
        NoticeKind.PREEMPTION, Phase.DONE, 1, False,
    )  # fmt: skip
    floor.now += 20
    quota_goes(floor)
    for _ in range(4):
        floor.live(2)
        floor.now += 5
    [loss] = floor.books().losses.values()
    assert (loss.kind, loss.number, loss.flavor, loss.answered) == ("preemption", 1, SPOT, False)
    assert 590 <= loss.lost_gpu_seconds <= 610
    assert activations(floor) == 0, "Kueue queues it again by itself"


@pytest.mark.parametrize("write", [1, 2])
def test_a_preemption_is_one_loss_whichever_write_the_agent_dies_before(floor: Floor, write: int) -> None:
    floor.live(2)
    preempt(floor)
    written = dies_at(floor, write)
    with suppress(Killed):
        floor.live(2)
    floor.now += 5
    quota_goes(floor)
    for _ in range(4):
        with suppress(Killed):
            floor.live(2)
        floor.now += 5
    assert len(written) >= write
    marker = floor.marker()
    assert marker is not None
    assert (marker.attempts, marker.accounted) == (1, True)
    assert [(loss.number, loss.kind) for loss in floor.books().losses.values()] == [(1, "preemption")]


def test_a_preemption_while_the_agent_was_away_is_recorded_from_what_the_workload_says(floor: Floor) -> None:
    preempt(floor, gone=True)
    floor.cluster.remove(PODS, floor.pod_name(), "vision")
    for _ in range(4):
        floor.live(2)
    [loss] = floor.books().losses.values()
    assert loss.lost_gpu_seconds == pytest.approx(600, abs=2)


def test_what_nobody_knows_any_more_is_no_loss_and_the_preemption_counts(floor: Floor) -> None:
    preempt(floor, gone=True, began=False)
    floor.cluster.remove(PODS, floor.pod_name(), "vision")
    floor.live(4)
    [loss] = floor.books().losses.values()
    assert (loss.number, loss.lost_gpu_seconds) == (1, 0.0)


def test_a_job_that_runs_again_at_once_is_accounted_all_the_same_and_each_time_anew(floor: Floor) -> None:
    floor.live(2)
    for number in (1, 2):
        preempt(floor)
        floor.live(1)
        floor.now += 2
        quota_goes(floor)
        floor.change(lambda raw: condition(raw, "Evicted", False, at=floor.now))
        for _ in range(4):
            floor.now += 1
            floor.live(2)
            go_on(floor, 1)
        assert floor.job().stage is Stage.RUNNING_CLOUD
        assert len(floor.books().losses) == number
    marker = floor.marker()
    assert marker is not None
    assert (marker.attempts, marker.planned, marker.accounted) == (2, 2, True)


def test_a_stop_of_ours_that_kueue_calls_a_preemption_is_one_loss(floor: Floor) -> None:
    wish(floor)
    floor.live(3, lambda: go_on(floor))
    assert floor.job().stage is Stage.EVICTED
    floor.change(lambda raw: condition(raw, "Evicted", at=floor.now - 1, reason="Preempted"))
    floor.live(12, lambda: go_on(floor))
    assert len(floor.books().losses) == 1


def test_a_job_that_is_preempted_at_the_gate_has_lost_nothing(floor: Floor) -> None:
    def edit(raw: Raw) -> None:
        condition(raw, "Admitted", False, at=floor.now - 900)
        condition(raw, "Evicted", at=floor.now, reason="Preempted")

    floor.change(edit)
    floor.live(3)
    assert (floor.marker(), floor.books().losses) == (None, {})
    assert floor.queue() == TWIN
