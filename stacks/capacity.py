"""Capacity that is started before anybody waits for it."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated, Self

from pydantic import Field, model_validator

from stacks.model import Model
from stacks.quantities import Days, KubeName, Percentage, PositiveDuration, TimeOfDay, TimeZone

_A_DAY = timedelta(days=1)


class Prewarm(Model):
    """Cloud nodes that are started at a time of day, for people who come to work."""

    pool: KubeName
    """The cloud pool."""

    gpus: Annotated[int, Field(strict=True, ge=1, le=1_000_000)]
    """GPUs to have ready."""

    at: TimeOfDay
    """When they should be ready, e.g. `"08:00"`."""

    days: Days = Field(default="daily", validate_default=True)
    """On which days, e.g. `Mon-Fri`."""

    time_zone: TimeZone = "UTC"
    """Time zone of `at`, e.g. `Europe/Berlin`."""

    for_: Annotated[PositiveDuration, Field(alias="for")]
    """How long they are kept while idle, e.g. `10h`; a day at most."""

    @model_validator(mode="after")
    def _within_a_day(self) -> Self:
        if self.for_ > _A_DAY:
            raise ValueError("for: a schedule repeats daily; keep nodes for 24h at most")
        return self


class Capacity(Model):
    """Room kept free, and room made ahead of time. What it costs counts against the fleet's budget."""

    headroom: Percentage = 0.0
    """Share of the on-prem GPUs in use that is kept free, by sending jobs to the cloud a little earlier.
    Default: none."""

    schedule: dict[KubeName, Prewarm] = Field(default_factory=dict)
    """Nodes to start at certain times, by name."""
