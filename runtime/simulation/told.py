"""What a forecast says of one job.

It has no opinion on how a forecast is made, so that those who only read one need not import the decision.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

BEYOND_HORIZON: Final = "beyond-horizon"
"""Reason of a job that nothing but its turn keeps, and whose turn does not come within the run."""

FAR_BACK: Final = "far-back"
"""Reason of a job that stands too far back in its team's queue to be run forward."""


@dataclass(frozen=True, slots=True)
class Forecast:
    """When one job is expected to start.

    `position` counts from 1 in the order in which Kueue tries the team's jobs, its own queue and its twins together;
    None at the gate, where it holds quota already. `start_at` is in fleet time, None where no start is in sight;
    `flavor` is where it starts then. `reason` is the code of the last verdict before the start
    (runtime.routing.verdict), or BEYOND_HORIZON or FAR_BACK; empty for a job that starts at once. `scope` is whose
    budget, where that is the reason.
    """

    position: int | None
    start_at: float | None = None
    flavor: str | None = None
    reason: str = ""
    scope: str = ""
