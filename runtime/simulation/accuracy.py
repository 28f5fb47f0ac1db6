"""How far forecasts were from what came: the first forecast of each job against when it really started.

The first one counts, since that is the one a person plans by; later ones only get easier. A job that has not started
yet, or for which no start was in sight, has no error; how many those were is told beside it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from statistics import median
from typing import Final

CLOSE_SHARE: Final = 0.25
"""A forecast is close that is off by no more than this share of the wait."""

CLOSE_SECONDS: Final = 60.0
"""Or by no more than this: nobody minds a minute, and a share of a wait of seconds says nothing."""

_HIGH: Final = 0.9


@dataclass(frozen=True, slots=True)
class FirstForecast:
    """What a job was told first: at `given_at`, that it starts at `start_at`; None where no start was in sight."""

    given_at: float
    start_at: float | None


@dataclass(frozen=True, slots=True)
class Accuracy:
    """Errors of `jobs` forecasts, in seconds of fleet time and as the share that was close.

    `unforeseen` jobs started without a start in sight.
    """

    jobs: int
    median_seconds: float
    p90_seconds: float
    close_share: float
    unforeseen: int


def errors(forecasts: Mapping[str, FirstForecast], starts: Mapping[str, float]) -> Accuracy | None:
    """Compare first forecasts with actual starts, both by the job's UID; None where there is nothing to compare.

    Args:
        forecasts: what each job was told first.
        starts: when each job started in fleet time; it may lack some.
    """
    both = [(told, starts[uid]) for uid, told in sorted(forecasts.items()) if uid in starts]
    pairs = [(told.given_at, told.start_at, start) for told, start in both if told.start_at is not None]
    if not pairs:
        return None
    found = sorted(abs(forecast - start) for _, forecast, start in pairs)
    close = sum(
        abs(forecast - start) <= max(CLOSE_SECONDS, CLOSE_SHARE * (start - given)) for given, forecast, start in pairs
    )
    high = found[math.ceil(_HIGH * len(found)) - 1]
    return Accuracy(len(found), median(found), high, close / len(found), len(both) - len(pairs))
