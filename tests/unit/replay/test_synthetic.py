"""The synthetic trace: deterministic, of the promised size, and hard enough to show the burst rule."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from infra.replay.errors import TraceError
from infra.replay.synthetic import DEFAULT_LENGTH_SECONDS, DEFAULT_SEED, synthetic
from tests.unit.replay.scenario import local_fleet

FLEET = local_fleet()


def test_one_seed_gives_one_trace_and_another_a_different_one() -> None:
    assert synthetic(FLEET) == synthetic(FLEET, seed=DEFAULT_SEED)
    assert synthetic(FLEET) != synthetic(FLEET, seed=DEFAULT_SEED + 1)


def test_the_default_trace_has_what_the_summary_has_to_show() -> None:
    jobs = synthetic(FLEET)
    assert 60 <= len(jobs) <= 80
    assert {job.team for job in jobs} == set(FLEET.teams)
    assert {job.job_class for job in jobs} == set(FLEET.classes)
    assert {job.gpus for job in jobs} == {1, 2, 4, 8}


def test_the_rush_asks_for_more_than_the_local_gpus_and_the_calm_for_less() -> None:
    begin, end = 0.18 * DEFAULT_LENGTH_SECONDS, 0.64 * DEFAULT_LENGTH_SECONDS
    jobs = [job for seed in range(30) for job in synthetic(FLEET, seed=seed)]
    rush = sum(job.gpus * job.run_seconds for job in jobs if begin <= job.submit_seconds < end) / (end - begin) / 30
    calm = sum(job.gpus * job.run_seconds for job in jobs if job.submit_seconds < begin) / begin / 30
    assert calm < 0.75 * 16 < 1.5 * 16 < rush


@settings(max_examples=30)
@given(seed=st.integers(), length=st.floats(60, 36_000))
def test_every_job_arrives_in_time_and_in_order_and_ends_before_its_limit(seed: int, length: float) -> None:
    jobs = synthetic(FLEET, seed=seed, length_seconds=length)
    assert all(first.submit_seconds <= second.submit_seconds for first, second in pairwise(jobs))
    assert all(job.submit_seconds <= length for job in jobs)
    assert all(180 <= job.run_seconds <= 840 for job in jobs)
    assert all(job.max_seconds >= job.run_seconds + 600 for job in jobs)
    assert len({job.name for job in jobs}) == len(jobs)


@pytest.mark.parametrize("length", [0, -1, float("inf"), float("nan")])
def test_a_length_that_is_none_is_refused(length: float) -> None:
    with pytest.raises(TraceError, match="length"):
        synthetic(FLEET, length_seconds=length)
