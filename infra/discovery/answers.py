"""What a person says about the fleet, by flags or when asked, with defaults that spend nothing."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from typing import Final

from stacks.catalogue import InstanceType, catalogue

DEFAULT_REGIONS: Final = {"aws": "us-east-1", "gcp": "us-central1"}
"""Where the catalogue has the most prices."""

_FALLBACK_TYPE: Final = "p5.48xlarge"  # for a fleet whose GPU no cloud of the catalogue sells


@dataclass(frozen=True, slots=True)
class Answers:
    """Everything that may be said; None or empty leaves it to what was found, or to a default."""

    organization: str | None = None
    cluster: str = "main"
    context: str | None = None
    """The kubeconfig context to write into the file."""
    preset: str = "balanced"
    teams: tuple[str, ...] = ()
    gpu: str | None = None
    nodes: int = 0
    gpus_per_node: int = 8
    usd_per_gpu_hour: Decimal | None = None
    """Of owned GPUs."""
    cloud: str | None = None
    instance_type: str | None = None
    region: str | None = None
    market: str = "on-demand"
    max_gpus: int = 0
    cloud_usd_per_gpu_hour: Decimal | None = None
    """Ceiling where no list price is known."""
    monthly_budget: Decimal | None = None


def wanted_type(answers: Answers, gpu: str | None) -> InstanceType | None:
    """The instance type that was asked for; else one with the fleet's GPU model and a known price.

    None where one was asked for that the catalogue does not have.
    """
    known = catalogue().instance_types
    if answers.instance_type is not None:
        return known.get(answers.instance_type)
    clouds = [answers.cloud] if answers.cloud else list(DEFAULT_REGIONS)
    candidates = [
        one
        for cloud in clouds
        for one in known.values()
        if one.provider == cloud
        and answers.market in one.markets
        and (answers.region or DEFAULT_REGIONS[cloud]) in one.usd_per_hour
    ]
    same = [one for one in candidates if one.gpu == gpu and one.gpus <= max(answers.gpus_per_node, 1)]
    if same:
        return max(same, key=lambda one: (one.gpus, -clouds.index(one.provider), -one.cpus, one.id))
    fallback = known[_FALLBACK_TYPE]
    return fallback if fallback in candidates or not candidates else candidates[0]
