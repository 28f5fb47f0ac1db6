"""What a person says about the fleet, by flags or when asked, with defaults that spend nothing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Final, Literal

from pydantic import TypeAdapter, ValidationError

from stacks.catalogue import InstanceType, catalogue
from stacks.clusters import AwsRegion, GcpRegion
from stacks.pools import Market
from stacks.presets import PresetName

Cloud = Literal["aws", "gcp"]
"""Where the catalogue has instance types to rent."""

DEFAULT_REGIONS: Final = {"aws": "us-east-1", "gcp": "us-central1"}
"""Where the catalogue has the most prices."""

_REGIONS: Final[Mapping[str, TypeAdapter[str]]] = {"aws": TypeAdapter(AwsRegion), "gcp": TypeAdapter(GcpRegion)}
_FALLBACK_TYPE: Final = "p5.48xlarge"  # for a fleet whose GPU no cloud of the catalogue sells


@dataclass(frozen=True, slots=True)
class Answers:
    """Everything that may be said; None or empty leaves it to what was found, or to a default."""

    organization: str | None = None
    cluster: str = "main"
    context: str | None = None
    """The kubeconfig context to write into the file."""
    preset: PresetName = "balanced"
    teams: tuple[str, ...] = ()
    gpu: str | None = None
    nodes: int = 0
    gpus_per_node: int = 8
    usd_per_gpu_hour: Decimal | None = None
    """Of owned GPUs."""
    cloud: Cloud | None = None
    instance_type: str | None = None
    region: str | None = None
    market: Market = "on-demand"
    max_gpus: int | None = None
    """None is one node where there is a budget to pay it from, else nothing."""
    cloud_usd_per_gpu_hour: Decimal | None = None
    """Ceiling where no list price is known."""
    monthly_budget: Decimal | None = None


def is_region(cloud: str, text: str) -> bool:
    """Whether the text has the form of the cloud's regions; which regions there are changes too often to know."""
    try:
        _REGIONS[cloud].validate_python(text)
    except ValidationError:
        return False
    return True


def wanted_type(answers: Answers, gpu: str | None) -> InstanceType | None:
    """The instance type that was asked for; else one with the fleet's GPU model and a known price.

    None where one was asked for that the catalogue does not have, or no type is sold so.
    """
    known = catalogue().instance_types
    if answers.instance_type is not None:
        return known.get(answers.instance_type)
    likely = [cloud for cloud in DEFAULT_REGIONS if answers.region is None or is_region(cloud, answers.region)]
    clouds: list[str] = [answers.cloud] if answers.cloud else likely or list(DEFAULT_REGIONS)
    sold = [
        one for cloud in clouds for one in known.values() if one.provider == cloud and answers.market in one.markets
    ]
    priced = [one for one in sold if (answers.region or DEFAULT_REGIONS[one.provider]) in one.usd_per_hour]
    candidates = priced or sold
    same = [one for one in candidates if one.gpu == gpu and one.gpus <= max(answers.gpus_per_node, 1)]
    if same:
        return max(same, key=lambda one: (one.gpus, -clouds.index(one.provider), -one.cpus, one.id))
    fallback = known[_FALLBACK_TYPE]
    return fallback if fallback in candidates else next(iter(candidates), None)
