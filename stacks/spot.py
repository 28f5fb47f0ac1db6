"""How the fleet lives with spot capacity: when to leave it for on-demand, and how long a job has to save its work."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated, Self

from pydantic import Field, model_validator

from stacks.model import Model
from stacks.quantities import PositiveDuration

_NOTICE = timedelta(minutes=2)  # AWS gives two minutes; the longest notice that spot capacity has


class SpotFallback(Model):
    """When new burst jobs avoid spot for a while, and when they come back. Two thresholds keep it from swinging."""

    interruptions_per_node_day: Annotated[float, Field(strict=True, gt=0, le=100)] = 4.0
    """Leave spot at so many interruptions per node and day."""

    price_ratio: Annotated[float, Field(strict=True, gt=0, le=1)] = 0.8
    """Leave spot when it costs this share of the on-demand price: the rest does not pay for the risk."""

    return_below: Annotated[float, Field(strict=True, gt=0, le=1)] = 0.5
    """Come back when both figures are below this share of their thresholds."""

    min_dwell: PositiveDuration = timedelta(minutes=30)
    """Stay at least so long after a change."""


class Checkpoint(Model):
    """What a job may count on when its node is taken."""

    grace: PositiveDuration = timedelta(seconds=90)
    """Time to save its work, at most two minutes: AWS gives no more notice than that, others give less."""

    @model_validator(mode="after")
    def _within_the_notice(self) -> Self:
        if self.grace > _NOTICE:
            raise ValueError("grace: is longer than the two minutes of notice that AWS gives; use 90s")
        return self


class Spot(Model):
    """Spot capacity."""

    fallback: SpotFallback = SpotFallback()
    """When to avoid spot."""

    checkpoint: Checkpoint = Checkpoint()
    """How a job's work is saved."""
