from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from runtime.routing.history import Ran, history_of
from runtime.routing.policy import WaitLimit, WaitRule, expected_runtime
from runtime.routing.snapshot import Job
from stacks.agent_config import AgentConfig
from tests.builders import HOUR, NOON, a_config, a_job

COMPUTE = {"kind": "compute-wait", "wait_per_gpu_hour": "5m", "bounds": ["2m", "2h"]}
PER_GPU = {"kind": "per-gpu", "wait_per_gpu": "10m", "bounds": ["5m", "1h"]}


def limit_of(job: Job, config: AgentConfig) -> WaitLimit:
    return WaitRule(config).limit(job)


def test_under_a_constant_wait_every_job_waits_alike() -> None:
    assert limit_of(a_job(gpus=8), a_config()) == WaitLimit(1_800, "constant")


@pytest.mark.parametrize(
    ("gpus", "seconds", "source"),
    [
        (3, 1_800, "per-gpu: 3 GPUs"),
        (1, 600, "per-gpu: 1 GPU"),
        (64, 3_600, "per-gpu: 64 GPUs; at most 1h"),
        (0, 300, "per-gpu: 0 GPUs; at least 5m"),
    ],
)
def test_under_per_gpu_a_job_waits_by_its_gpus_within_bounds(gpus: int, seconds: float, source: str) -> None:
    assert limit_of(a_job(gpus=gpus), a_config(policy=PER_GPU)) == WaitLimit(seconds, source)


@pytest.mark.parametrize(
    ("changes", "seconds", "source"),
    [
        (
            {"gpus": 4, "expected_seconds": 2 * HOUR, "max_seconds": 9 * HOUR},
            2_400,
            "compute-wait: 4 GPUs x 2h expected from its annotation",
        ),
        (
            {"gpus": 4, "expected_seconds": 9 * HOUR, "max_seconds": 1_800},
            600,
            "compute-wait: 4 GPUs x 30m expected from its run time limit",
        ),
        ({"gpus": 2, "max_seconds": 1_800}, 300, "compute-wait: 2 GPUs x 30m expected from its run time limit"),
        ({"gpus": 2, "max_seconds": 5 * HOUR}, 600, "compute-wait: 2 GPUs x 1h expected from its class"),
        ({"gpus": 2, "max_seconds": None}, 600, "compute-wait: 2 GPUs x 1h expected from its class"),
        ({"gpus": 64, "max_seconds": None}, 7_200, "compute-wait: 64 GPUs x 1h expected from its class; at most 2h"),
        (
            {"gpus": 1, "expected_seconds": 60.0},
            120,
            "compute-wait: 1 GPU x 1m expected from its annotation; at least 2m",
        ),
    ],
)
def test_under_compute_wait_a_job_waits_by_what_it_would_cost(
    changes: dict[str, Any], seconds: float, source: str
) -> None:
    assert limit_of(a_job(**changes), a_config(policy=COMPUTE)) == WaitLimit(seconds, source)


def test_a_class_bounds_the_wait_of_its_jobs_from_above() -> None:
    limit = limit_of(a_job(job_class="p0"), a_config())
    assert limit == WaitLimit(300, "constant; at most 5m for its class")


def test_a_class_bounds_even_below_the_policys_shortest_wait() -> None:
    config = a_config(policy={"kind": "per-gpu", "wait_per_gpu": "1m", "bounds": ["20m", "1h"]})
    assert limit_of(a_job(job_class="p0"), config).seconds == 300


def test_an_unknown_class_counts_as_the_default_one() -> None:
    assert limit_of(a_job(job_class="gone"), a_config(default_class="p0")).seconds == 300


@pytest.mark.parametrize("nonsense", [0.0, -60.0, float("nan")])
def test_a_run_time_that_cannot_be_is_ignored(nonsense: float) -> None:
    job = a_job(expected_seconds=nonsense, max_seconds=nonsense)
    assert expected_runtime(job, a_config()).source == "its class"


@settings(max_examples=40)
@given(st.integers(0, 10_000), st.floats(0.001, 1e9) | st.none(), st.floats(0.001, 1e9) | st.none())
def test_a_wait_stays_within_its_bounds(gpus: int, expected: float | None, longest: float | None) -> None:
    job = a_job(gpus=gpus, expected_seconds=expected, max_seconds=longest)
    assert 120 <= limit_of(job, a_config(policy=COMPUTE)).seconds <= 7_200


@settings(max_examples=40)
@given(st.floats(0.001, 1e9) | st.none(), st.floats(0.001, 1e9))
def test_no_job_is_expected_to_outrun_its_limit(expected: float | None, longest: float) -> None:
    assert expected_runtime(a_job(expected_seconds=expected, max_seconds=longest), a_config()).seconds <= longest


def test_the_wait_that_is_kept_is_the_wait_that_is_told_where_only_namesakes_of_other_classes_are_known() -> None:
    runs = [Ran(f"u-{number}", "vision", f"train-{number}", f"p{number}", 6 * HOUR, NOON) for number in range(3)]
    rule = WaitRule(a_config(policy=COMPUTE), history_of(runs))
    job = a_job("train-9", gpus=2, max_seconds=9 * HOUR)
    assert rule.seconds(job) == rule.limit(job).seconds == 3_600
