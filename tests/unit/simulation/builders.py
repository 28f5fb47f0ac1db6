"""Jobs of a run forward, as plain as those of the other tests."""

from __future__ import annotations

from typing import Any

from runtime.routing.snapshot import Job, Stage
from runtime.simulation.told import Forecast
from tests.builders import HOUR, LOCAL, NOON, a_job


def a_running_job(uid: str, ends_in: float, **changes: Any) -> Job:
    """A job on local GPUs that was started half an hour ago and is expected to end after so many seconds."""
    started = NOON - HOUR / 2
    values: dict[str, Any] = {
        "stage": Stage.RUNNING_LOCAL,
        "flavor": LOCAL,
        "reserved_at": started,
        "ready_at": started,
        "expected_seconds": HOUR / 2 + ends_in,
        "max_seconds": None,
        "ever_admitted": True,
    }
    return a_job(uid, **(values | changes))


def a_waiting_job(uid: str, gpus: int, **changes: Any) -> Job:
    """A job that was submitted a minute ago."""
    return a_job(uid, **({"gpus": gpus, "created_at": NOON - 60, "queue": "vision"} | changes))


def starts_in(forecast: Forecast) -> float | None:
    """Seconds from now to the start."""
    return None if forecast.start_at is None else forecast.start_at - NOON
