"""When a waiting job may go to the cloud, where it goes, and what that may cost."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from stacks.model import Model
from stacks.quantities import Duration, KubeName, PositiveDuration
from stacks.teams import FleetBudget


class ConstantWait(Model):
    """Every job waits equally long. Simple to explain, and the dearest of the three at equal wait."""

    kind: Literal["constant"]
    """`constant`."""

    wait: PositiveDuration
    """How long a job waits for local GPUs before it may go to the cloud."""


class _Bounded(Model):
    bounds: tuple[Duration, PositiveDuration]
    """Shortest and longest wait that the policy may ask of a job, e.g. `[2m, 2h]`."""

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.bounds[0] > self.bounds[1]:
            raise ValueError("bounds: the first must not be longer than the second, e.g. [2m, 2h]")
        return self


class PerGpuWait(_Bounded):
    """A job waits in proportion to its GPUs: small jobs leave early, large ones wait for local room."""

    kind: Literal["per-gpu"]
    """`per-gpu`."""

    wait_per_gpu: PositiveDuration
    """Wait for each GPU the job asks for."""


class ComputeWait(_Bounded):
    """A job waits in proportion to GPUs × expected run time, that is to what the cloud would cost.

    Source: Starburst (ATC 2024), compute-wait; three to five times less cloud spend than a constant wait at equal
    mean wait on the Philly trace.
    """

    kind: Literal["compute-wait"]
    """`compute-wait`."""

    wait_per_gpu_hour: PositiveDuration
    """Wait for each GPU-hour the job is expected to need."""


WaitPolicy = Annotated[ConstantWait | PerGpuWait | ComputeWait, Field(discriminator="kind")]
"""How long a job waits before it may go to the cloud, told apart by `kind`."""


class BurstData(Model):
    """The data that a burst job needs where it runs."""

    link: str
    """The link it crosses, by name."""

    max_staging: PositiveDuration
    """Longest copy that is worth waiting for; a job whose data takes longer stays local."""


class Burst(Model):
    """The burst rule of the fleet: local first; cloud when the wait is over and the budget allows; otherwise queue."""

    policy: WaitPolicy
    """How long a job waits for local GPUs. A class's `max_wait` bounds it from above. Default: the preset's."""

    order: Annotated[tuple[KubeName, ...], Field(min_length=1)]
    """Cloud pools in the order they are tried, cheapest first as a rule."""

    budget: FleetBudget | None = None
    """What the whole fleet may spend on cloud GPUs. Default: no limit, which `gpufleet check` warns about."""

    expected_runtime: PositiveDuration = timedelta(hours=1)
    """What to assume of a job that neither says nor has a class that says how long it runs."""

    data: BurstData | None = None
    """How burst jobs reach their data. Default: it is there already, e.g. in an object store."""
