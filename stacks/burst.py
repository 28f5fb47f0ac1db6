"""When a waiting job may go to the cloud, where it goes, and what that may cost."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated

from pydantic import Field

from stacks.model import Model
from stacks.policies import WaitPolicy
from stacks.quantities import KubeName, PositiveDuration, Price
from stacks.teams import FleetBudget


class BurstData(Model):
    """The data that a burst job needs where it runs."""

    link: str
    """The link it crosses, by name."""

    max_staging: PositiveDuration
    """Longest copy that is worth waiting for; a job whose data takes longer stays local."""

    usd_per_gb: Price | None = None
    """What each gigabyte costs that crosses, e.g. another cloud's egress. Counted with every job that says how much
    data it needs (`gpufleet.dev/data-size`). Default: nothing, as on the way from a rack into a cloud."""


class Burst(Model):
    """The burst rule of the fleet: local first; cloud when the wait is over and the budget allows; otherwise queue."""

    policy: WaitPolicy
    """How long a job waits for local GPUs, where neither its class nor its team has a policy of its own. A class's
    `max_wait` bounds it from above. Default: the preset's."""

    order: Annotated[tuple[KubeName, ...], Field(min_length=1)]
    """Cloud pools in the order they are tried, cheapest first as a rule."""

    budget: FleetBudget | None = None
    """What the whole fleet may spend on cloud GPUs. Default: no limit, which `gpufleet check` warns about."""

    expected_runtime: PositiveDuration = timedelta(hours=1)
    """What to assume of a job that neither says nor has a class that says how long it runs."""

    data: BurstData | None = None
    """How burst jobs reach their data. Default: it is there already, e.g. in an object store."""
