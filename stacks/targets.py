"""What the fleet aims at: the thresholds of alerts, and the goals that reports compare with."""

from __future__ import annotations

from datetime import timedelta

from pydantic import Field

from stacks.model import Model
from stacks.quantities import Percentage, PositiveDuration


class Targets(Model):
    """Goals. They change no decision; alerts and reports use them."""

    utilization: Percentage = Field(default="75%", validate_default=True)
    """Share of the on-prem GPU-hours that jobs should hold, over a week."""

    wait: PositiveDuration = timedelta(hours=1)
    """Wait that 95 of 100 jobs should not exceed."""

    idle: PositiveDuration = timedelta(minutes=30)
    """How long a job may hold GPUs without using them before its owner is told."""
