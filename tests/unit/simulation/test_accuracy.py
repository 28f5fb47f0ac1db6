from __future__ import annotations

from runtime.simulation.accuracy import Accuracy, FirstForecast, errors


def test_errors_are_those_of_the_first_forecast_of_each_job_that_started() -> None:
    told = {
        "exact": FirstForecast(0, 1_000),
        "early": FirstForecast(0, 1_000),
        "late": FirstForecast(0, 4_000),
        "waits": FirstForecast(0, 50),
        "unforeseen": FirstForecast(0, None),
    }

    found = errors(told, {"exact": 1_000, "early": 1_200, "late": 1_000, "unforeseen": 9, "unknown": 9})

    assert found == Accuracy(jobs=3, median_seconds=200, p90_seconds=3_000, close_share=2 / 3, unforeseen=1)


def test_a_minute_is_close_however_short_the_wait() -> None:
    found = errors({"one": FirstForecast(0, 0)}, {"one": 60})

    assert found is not None
    assert found.close_share == 1


def test_nothing_that_can_be_compared_has_no_accuracy() -> None:
    assert errors({}, {}) is None
    assert errors({"one": FirstForecast(0, None)}, {"one": 5}) is None
