"""Delays of releases and of the gate, and errors of forecasts: by hand-made histories."""

from __future__ import annotations

import pytest

from infra.replay.delays import FirstEta, eta_errors, gate_delays, release_delays
from runtime.clock import Clock
from tests.unit.replay.scenario import LOCAL, SPOT, START, Job, Log, local_fleet

FLEET = local_fleet()


def test_the_delay_counts_from_the_end_of_the_wait_to_the_first_pod_on_a_node() -> None:
    log = Log()
    Job(log, expected="30m").submitted(0).burst(10)  # 2 GPU-hours: 9 minutes, 9 seconds at speed 60
    (delay,) = release_delays(log.histories(), FLEET, 60)
    assert delay.seconds == pytest.approx(10.45 - 9)
    assert delay.quota_free


def test_the_wait_that_the_agent_names_counts_before_the_policys() -> None:
    log = Log()
    Job(log, expected="30m").submitted(0).said(1, "waiting", limit_s=240).burst(5)
    (delay,) = release_delays(log.histories(), FLEET, 60)
    assert delay.seconds == pytest.approx(5.45 - 4)


def test_the_delay_of_a_job_held_by_a_budget_counts_from_its_release() -> None:
    log = Log()
    Job(log, expected="30m").submitted(0).said(9.5, "budget").burst(20)
    (delay,) = release_delays(log.histories(), FLEET, 60)
    assert delay.seconds == pytest.approx(0.45)


def test_a_flavor_that_was_full_in_between_was_not_free() -> None:
    log = Log()
    first = Job(log, "big-r1", gpus=8, team="nlp").submitted(0).burst(1)
    second = Job(log, "big2-r1", gpus=8, team="nlp").submitted(0).burst(1)
    job = Job(log, expected="30m").submitted(0).released(9.5)
    first.finished(12)
    second.finished(12)
    job.reserved(13, SPOT).ready(13.1).admitted(13.2).pod(13.3, SPOT, "spot-0")
    (delay,) = [one for one in release_delays(log.histories(), FLEET, 60) if one.job == "train-r1"]
    assert delay.seconds == pytest.approx(4.35)
    assert not delay.quota_free


def test_a_job_that_never_ran_or_was_never_released_has_no_delay() -> None:
    log = Log()
    Job(log, "a-r1").submitted(0).released(5)
    Job(log, "b-r1").submitted(0).local(1)
    assert release_delays(log.histories(), FLEET, 60) == []


def test_the_gate_adds_what_passes_between_reservation_and_ready() -> None:
    log = Log()
    Job(log).submitted(0).burst(10)
    Job(log, "local-r1").submitted(0).local(1)
    (delay,) = gate_delays(log.histories(), FLEET)
    assert delay.seconds == pytest.approx(0.1, abs=1e-3)


def test_a_job_that_a_budget_held_at_the_gate_is_no_delay_of_the_gate() -> None:
    log = Log()
    job = Job(log).submitted(0).released(1).reserved(2, SPOT).said(2.5, "budget")
    job.ready(30).admitted(30.1)
    assert gate_delays(log.histories(), FLEET) == []


def test_a_forecast_is_off_by_the_time_between_it_and_the_start() -> None:
    log = Log()
    Job(log).submitted(0).reserved(10, LOCAL).admitted(10)
    Job(log, "untold-r1").submitted(0).reserved(10, LOCAL).admitted(10)
    told = {("vision", "job-train-r1"): FirstEta(START + 60, START + 480)}
    (error,) = eta_errors(log.histories(), told, Clock(START, 60))
    assert error.ahead_seconds == pytest.approx(420)
    assert error.error_seconds == pytest.approx(120)


def test_what_was_told_after_the_start_is_no_forecast() -> None:
    log = Log()
    Job(log).submitted(0).reserved(1, LOCAL).admitted(1)
    told = {("vision", "job-train-r1"): FirstEta(START + 600, START + 600)}
    assert eta_errors(log.histories(), told, Clock(START, 60)) == []
