from __future__ import annotations

import json
from decimal import Decimal
from typing import Any

import pytest

from runtime.simulation.text import (
    KEY,
    LONGEST_TEXT_BYTES,
    MOST_JOBS_TOLD,
    TeamForecast,
    from_data,
    team_forecast,
    to_data,
)
from runtime.simulation.told import Forecast
from tests.builders import NOON, SPOT, a_job


def a_forecast(**changes: Any) -> TeamForecast:
    jobs = {
        "job-a": Forecast(1, NOON + 60, SPOT, "budget", "team vision"),
        "job-b": Forecast(None, NOON, SPOT),
        "job-c": Forecast(3, reason="far-back"),
    }
    left = {"team vision": {"day": Decimal("12.5"), "month": Decimal("900")}}
    values: dict[str, Any] = {"team": "vision", "at": NOON, "real_at": NOON, "jobs": jobs, "left_usd": left}
    return TeamForecast(**(values | changes))


def test_what_is_written_reads_back_the_same() -> None:
    assert from_data(to_data(a_forecast())) == a_forecast()


def test_a_team_is_told_of_its_own_jobs_alone_by_the_name_of_the_workload() -> None:
    jobs = [a_job("a"), a_job("b", team="nlp"), a_job("c")]

    said = team_forecast("vision", jobs, {"a": Forecast(2), "b": Forecast(1)}, at=NOON, real_at=NOON)

    assert said.jobs == {"job-a": Forecast(2)}


def test_no_more_jobs_are_told_than_there_is_room_for() -> None:
    jobs = [a_job(f"{n}", name="n" * 250 + str(n)) for n in range(MOST_JOBS_TOLD + 5)]
    forecasts = {f"{n}": Forecast(n + 1, NOON, SPOT, "budget", "team " + "v" * 60) for n in range(MOST_JOBS_TOLD + 5)}

    said = team_forecast("vision", jobs, forecasts, at=NOON, real_at=NOON)
    [text] = to_data(said).values()
    read = from_data({KEY: text})

    assert len(said.jobs) == MOST_JOBS_TOLD
    assert len(text) <= LONGEST_TEXT_BYTES
    assert read is not None
    assert min(one.position or 0 for one in read.jobs.values()) == 1


@pytest.mark.parametrize(
    "data",
    [
        None,
        {},
        [],
        "text",
        {KEY: None},
        {KEY: 7},
        {KEY: ""},
        {KEY: "{"},
        {KEY: "[]"},
        {KEY: "[" * 100_000},
        {KEY: "1" * 5_000},
        {KEY: json.dumps({"version": 2, "team": "vision", "at": 1, "real_at": 1, "speed": 1})},
        {KEY: json.dumps({"version": 1, "team": "vision", "at": "1", "real_at": 1, "speed": 1})},
        {KEY: json.dumps({"version": 1, "team": "vision", "at": True, "real_at": 1, "speed": 1})},
        {KEY: '{"version": 1, "team": "vision", "at": NaN, "real_at": 1, "speed": 1}'},
        {KEY: json.dumps({"version": 1, "team": "vision", "at": 1, "real_at": 1, "speed": 0})},
        {KEY: json.dumps({"version": 1, "at": 1, "real_at": 1, "speed": 1})},
        {KEY: " " * 2_000_000},
    ],
)
def test_what_is_no_forecast_is_none(data: object) -> None:
    assert from_data(data) is None


def test_what_a_terminal_should_not_be_shown_is_left_out() -> None:
    jobs = {"job-\x1b[2J": [1], "job": [10**12, 1e300, "\x1b[31m", "x" * 300, "team\nroot"]}
    text = json.dumps({"version": 1, "team": "vision", "at": 1, "real_at": 1, "speed": 1, "jobs": jobs})

    read = from_data({KEY: text})

    assert read is not None
    assert read.jobs == {"job": Forecast(None)}


def test_what_is_odd_in_a_forecast_is_left_out_and_the_rest_is_read() -> None:
    jobs = {
        "ok": [1, NOON, SPOT],
        "a": "text",
        "b": [None],
        "c": [-3, "soon", 7, {}, []],
        "d": [1, 10**400],
        "e": [True],
    }
    entry = {"version": 1, "team": "vision", "at": 1, "real_at": 1, "speed": 1, "jobs": jobs, "more": {}}
    entry["left_usd"] = {"fleet": {"day": "1.5", "week": "soon", "month": 3, "year": "NaN", "age": "1E+99"}, "odd": 7}

    read = from_data({KEY: json.dumps(entry)})

    assert read is not None
    assert read.jobs == {"ok": Forecast(1, NOON, SPOT), **dict.fromkeys("bce", Forecast(None)), "d": Forecast(1)}
    assert read.left_usd == {"fleet": {"day": Decimal("1.5")}, "odd": {}}
