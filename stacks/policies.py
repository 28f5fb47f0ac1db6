"""How long a job waits for local GPUs before it may go to the cloud."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from stacks.model import Model
from stacks.quantities import Duration, PositiveDuration


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


class NeverBurst(Model):
    """Jobs stay on local GPUs, however long they wait."""

    kind: Literal["never"]
    """`never`."""


class AlwaysBurst(Model):
    """Jobs do not wait: whatever has no local GPU at once may go to the cloud, as far as the budget allows."""

    kind: Literal["always"]
    """`always`."""


WaitPolicy = Annotated[ConstantWait | PerGpuWait | ComputeWait | NeverBurst | AlwaysBurst, Field(discriminator="kind")]
"""How long a job waits before it may go to the cloud, told apart by `kind`."""
