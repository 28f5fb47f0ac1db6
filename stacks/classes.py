"""Job classes: how long a job of the class may wait, and how it ranks against others."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from stacks.model import Model
from stacks.quantities import PositiveDuration


class JobClass(Model):
    """One class; a job names it with the label `kueue.x-k8s.io/priority-class`, in lower case."""

    priority: Annotated[int, Field(ge=-1_000_000_000, le=1_000_000_000)]
    """Kueue priority: a higher one is admitted first and may preempt a lower one on local nodes."""

    max_wait: PositiveDuration | None = None
    """Longest wait before a job of this class may go to the cloud. It bounds whatever the burst policy computes;
    without it the policy alone decides."""

    burst: Literal["allowed", "never"] = "allowed"
    """`never` keeps the class on local GPUs however long it waits."""

    expected_runtime: PositiveDuration | None = None
    """What to assume of a job that says nothing about its run time. Default: the fleet's `burst.expected_runtime`."""

    default: bool = False
    """Whether jobs without a priority-class label belong to this class. Exactly one class is the default."""
