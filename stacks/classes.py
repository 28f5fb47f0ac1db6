"""Job classes: how long a job of the class may wait, and how it ranks against others."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, StrictBool, model_validator

from stacks.model import Model
from stacks.policies import NeverBurst, WaitPolicy
from stacks.quantities import PositiveDuration, Window

Place = Literal["onprem", "spot", "on-demand", "reserved", "capacity-block", "flex-start"]
"""Where a job may run: on GPUs of one's own, or by how a cloud's are bought (`stacks.pools.Market`)."""


class JobClass(Model):
    """One class; a job names it with the label `kueue.x-k8s.io/priority-class`, in lower case."""

    priority: Annotated[int, Field(strict=True, ge=-1_000_000_000, le=1_000_000_000)]
    """Kueue priority: a higher one is admitted first and may preempt a lower one on local nodes."""

    max_wait: PositiveDuration | None = None
    """Longest wait before a job of this class may go to the cloud. It bounds whatever the burst policy computes;
    without it the policy alone decides."""

    policy: WaitPolicy | None = None
    """How long jobs of this class wait. It goes before the team's policy, but for a team's `never`.
    Default: the team's policy, else the fleet's `burst.policy`."""

    window: Window | None = None
    """When jobs of this class may start, e.g. `22:00-06:00 Europe/Berlin` or `Sat-Sun 00:00-24:00 UTC`. Each team gets
    a queue for it, `<team>-window-<class>`, which is held outside the window; what runs is left alone.
    Default: always."""

    markets: tuple[Place, ...] | None = None
    """Where its jobs may run: `onprem` and how cloud nodes are bought. Leave `spot` out for jobs that cannot be
    interrupted. Default: everywhere."""

    burst: Literal["allowed", "never"] = "allowed"
    """`never` keeps the class on local GPUs however long it waits."""

    expected_runtime: PositiveDuration | None = None
    """What to assume of a job that says nothing about its run time. Default: the fleet's `burst.expected_runtime`."""

    interconnect: Literal["nvlink", "rdma"] | None = None
    """What its jobs need between GPUs: `nvlink` within a node, `rdma` between nodes. It is checked against the pools;
    no job is placed by it. Default: nothing."""

    default: StrictBool = False
    """Whether jobs without a priority-class label belong to this class. Exactly one class is the default."""

    @model_validator(mode="after")
    def _settings_agree(self) -> Self:
        if self.markets is not None and not self.markets:
            raise ValueError("markets: is empty, so the class could run nowhere; leave it out for everywhere")
        if self.markets is not None and len(set(self.markets)) < len(self.markets):
            raise ValueError("markets: names one twice; name each once")
        if self.burst == "never" and self.markets is not None and set(self.markets) != {"onprem"}:
            raise ValueError("markets: burst: never keeps the class on-prem; leave markets out, or change burst")
        if self.burst == "never" and self.max_wait is not None:
            raise ValueError("max_wait: has no effect with burst: never; leave it out")
        if self.burst == "never" and self.policy is not None:
            raise ValueError("policy: has no effect with burst: never; leave it out")
        if isinstance(self.policy, NeverBurst):
            raise ValueError("policy: never keeps the class on-prem; say burst: never instead")
        if self.markets == ("onprem",) and self.burst != "never":
            raise ValueError("markets: [onprem] keeps the class on-prem; say burst: never instead")
        return self
