from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from prometheus_client import REGISTRY

from runtime.measures import Measures
from runtime.routing.decide import decide
from runtime.routing.decision import Decision, Release
from runtime.routing.snapshot import Job, Snapshot, Stage
from runtime.routing.verdict import Code, Verdict
from runtime.simulation.told import Forecast
from tests.builders import (
    HOUR,
    LOCAL,
    NOON,
    ON_DEMAND,
    SPOT,
    a_config,
    a_job,
    a_job_at_the_gate,
    a_snapshot,
)

CONFIG = a_config()


def count(name: str, **labels: str) -> float:
    return REGISTRY.get_sample_value(f"gpufleet_{name}", labels) or 0.0


def running(uid: str = "job-1", stage: Stage = Stage.RUNNING_CLOUD, **changes: Any) -> Job:
    flavor = LOCAL if stage is Stage.RUNNING_LOCAL else SPOT
    values = {"flavor": flavor, "reserved_at": NOON - 10, "ready_at": NOON - 9, "attempt": int(NOON) - 10}
    return a_job(uid, **({"stage": stage, **values} | changes))


def released(uid: str = "job-1", target: str = SPOT, **changes: Any) -> Job:
    return a_job(uid, **({"stage": Stage.RELEASED, "target": target} | changes))


def seen(*snapshots: list[Job], config: Any = CONFIG) -> Measures:
    measures = Measures()
    for jobs in snapshots:
        measures.observe(jobs, config)
    return measures


def misroutes() -> float:
    return count("misroutes_total", team="vision", flavor=SPOT)


def test_a_job_on_another_flavor_than_sent_to_is_a_misroute_once() -> None:
    before = misroutes()
    there = running(target=SPOT, flavor=ON_DEMAND)
    seen([released()], [there], [there])
    assert misroutes() == before + 1


def test_a_job_where_it_was_sent_to_or_on_local_gpus_is_none() -> None:
    before = misroutes()
    seen([released()], [running(target=SPOT)])
    seen([released()], [running(stage=Stage.RUNNING_LOCAL, target=SPOT)])
    seen([], [running(target=SPOT, flavor=ON_DEMAND)])
    assert misroutes() == before, "what ran before we looked was counted by whoever looked then"


def inversions(place: str = "cloud") -> float:
    return count("fifo_inversions_total", team="vision", place=place)


OLD: dict[str, Any] = {"created_at": NOON - 2 * HOUR}


@pytest.mark.parametrize(
    ("older", "place", "inverted"),
    [
        pytest.param(released("old", **OLD), "cloud", True, id="an older equal waits in the same twin"),
        pytest.param(released("old", target=ON_DEMAND, **OLD), "cloud", False, id="it was sent elsewhere"),
        pytest.param(a_job("old", **OLD), "cloud", False, id="it may not leave yet"),
        pytest.param(a_job("old", **OLD), "local", True, id="but local GPUs it could have had"),
        pytest.param(released("old", target=ON_DEMAND, **OLD), "local", True, id="wherever it was sent"),
        pytest.param(a_job("old", gpus=2, **OLD), "local", False, id="another size"),
        pytest.param(a_job("old", job_class="p0", **OLD), "local", False, id="another class"),
        pytest.param(a_job("old", team="nlp", **OLD), "local", False, id="another team"),
        pytest.param(a_job("old", gpu="a100", **OLD), "local", False, id="another model"),
        pytest.param(a_job("old", priority=-1, **OLD), "local", False, id="a lower priority"),
        pytest.param(a_job("old", created_at=NOON - HOUR - 1), "local", False, id="it came in the same moment"),
        pytest.param(a_job("old", created_at=NOON), "local", False, id="it is younger"),
        pytest.param(a_job("old", waiting_since=NOON - 9, **OLD), "local", False, id="it ran until just now"),
        pytest.param(a_job_at_the_gate("old", **OLD), "cloud", False, id="it has quota already"),
    ],
)
def test_an_inversion_is_a_start_before_an_older_equal_that_could_have(older: Job, place: str, inverted: bool) -> None:
    before = inversions(place)
    stage = Stage.RUNNING_LOCAL if place == "local" else Stage.RUNNING_CLOUD
    seen([older, released()], [older, running(stage=stage, target=SPOT)])
    assert inversions(place) - before == inverted


def delays() -> tuple[float, float]:
    name = "eligible_to_running_seconds"
    return count(f"{name}_count", team="vision"), count(f"{name}_sum", team="vision")


def release(job: Job, earliest: object = NOON - 60, at: float = NOON - 55) -> Decision:
    facts = {} if earliest is None else {"earliest_at": earliest}
    return Decision("d", at, releases=(Release(job, Verdict(Code.RELEASED, facts), SPOT),))  # type: ignore[arg-type]


def measured(decision: Decision, *later: Job) -> tuple[float, float]:
    before = delays()
    measures = seen([decision.releases[0].job])
    measures.decided(decision)
    for job in later:
        measures.observe([job], CONFIG)
    after = delays()
    return after[0] - before[0], after[1] - before[1]


def test_the_delay_runs_from_the_end_of_the_wait_until_pods_are_ready_and_counts_once() -> None:
    there, ready = running(), running(pods_ready_at=NOON - 2)
    assert measured(release(a_job(verdict_code="waiting")), released(), there, there, ready, ready) == (1, 58)


def test_money_or_room_that_came_late_is_no_delay_of_ours() -> None:
    held = a_job(verdict_code="budget")
    assert measured(release(held), released(), running(pods_ready_at=NOON - 2)) == (1, 53)


def test_where_nobody_watches_pods_the_admission_counts_when_the_job_ends() -> None:
    ended = running(stage=Stage.FINISHED, ready_at=NOON - 9)
    assert measured(release(a_job()), released(), running(), ended) == (1, 51)


@pytest.mark.parametrize(
    ("earliest", "later"),
    [
        pytest.param(NOON - 60, [released(), running(stage=Stage.RUNNING_LOCAL)], id="local GPUs were faster"),
        pytest.param(NOON - 60, [released(), running(), released()], id="it lost its node before it ran"),
        pytest.param(NOON - 60, [], id="it is gone"),
    ],
)
def test_what_never_ran_in_the_cloud_has_no_delay(earliest: float, later: list[Job]) -> None:
    assert measured(release(a_job(), earliest), *later) == (0, 0)


@pytest.mark.parametrize("earliest", [None, "soon", NOON + 9 * HOUR])
def test_a_clock_that_was_set_back_gives_no_negative_delay(earliest: object) -> None:
    counted, seconds = measured(release(a_job(), earliest), running(pods_ready_at=NOON - HOUR))
    assert (counted, seconds) == (1, 0)


def test_a_forecast_is_judged_by_the_first_that_was_told() -> None:
    def errors() -> tuple[float, float]:
        return count("forecast_error_seconds_count"), count("forecast_error_seconds_sum")

    before = errors()
    measures = seen([a_job()])
    measures.forecast({"job-1": Forecast(1), "gone": Forecast(1, NOON)})
    measures.forecast({"job-1": Forecast(1, NOON - 109)})
    measures.forecast({"job-1": Forecast(1, NOON - 9)})
    measures.observe([running()], CONFIG)
    after = errors()
    assert (after[0] - before[0], after[1] - before[1]) == (1, 100)
    assert measures._foreseen == {}


NO_LOCAL_NODES = replace(a_snapshot(a_job_at_the_gate()), capacity={LOCAL: 0})


@pytest.mark.parametrize(
    ("snapshot", "counted"),
    [
        pytest.param(a_snapshot(a_job_at_the_gate()), 1, id="a local GPU is free"),
        pytest.param(a_snapshot(a_job_at_the_gate(), running("b", Stage.RUNNING_LOCAL, gpus=16)), 0, id="none is free"),
        pytest.param(NO_LOCAL_NODES, 0, id="none is ready"),
        pytest.param(a_snapshot(a_job()), 0, id="nothing is cleared"),
    ],
)
def test_a_clear_with_room_on_local_gpus_is_counted(snapshot: Snapshot, counted: int) -> None:
    before = count("cloud_starts_with_local_room_total", team="vision")
    decision = decide(snapshot, CONFIG, NOON, "d")
    assert len(decision.clears) == sum(job.stage is Stage.AT_GATE for job in snapshot.jobs)
    Measures().decided(decision)
    assert count("cloud_starts_with_local_room_total", team="vision") - before == counted


def test_nothing_is_remembered_of_jobs_that_are_gone() -> None:
    measures = seen([a_job()])
    measures.decided(release(a_job()))
    measures.observe([], CONFIG)
    assert (measures._eligible_at, measures._starting, measures._waiting) == ({}, set(), {})
