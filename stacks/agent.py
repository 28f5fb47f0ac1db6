"""How the agent is deployed and where it keeps its ledger."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated, Final, Literal

from pydantic import Field, StrictBool, field_validator

from stacks.model import Model
from stacks.quantities import KubeDnsName, KubeQuantity, PositiveDuration, Quantity

_IMAGE: Final = r"^[\w.-]+(:[0-9]+)?(/[\w.-]+)*(:[\w.-]+)?(@sha256:[0-9a-f]{64})?$"
"""Registry with port, repository, tag, digest; whether it is pinned is a rule."""


_SMALLEST_CLAIM: Final = 2**20  # bytes; about a thousand bursts


class VolumeLedger(Model):
    """The ledger on a PersistentVolumeClaim in the agent's namespace."""

    kind: Literal["volume"]
    """`volume`."""

    size: KubeQuantity = Field(default="1Gi", validate_default=True)
    """Size of the claim. An entry is about 1 KiB; 1Gi lasts for a million bursts."""

    storage_class: KubeDnsName | None = None
    """StorageClass of the claim. Default: the cluster's default class."""

    @field_validator("size")
    @classmethod
    def _size_holds_something(cls, value: Quantity) -> Quantity:
        if value.amount < _SMALLEST_CLAIM:
            raise ValueError(f"must be 1Mi or more, for example 1Gi (got {value})")
        return value


class ObjectStoreLedger(Model):
    """The ledger in a bucket; the store must support conditional writes, as S3, GCS and Azure Blob do."""

    kind: Literal["object-store"]
    """`object-store`."""

    url: Annotated[str, Field(pattern=r"^(s3|gs|az)://[^/?#@\s]+(/[^?#\s]*)?$", examples=["s3://acme-gpufleet/ledger"])]
    """Bucket and prefix, e.g. `s3://acme-gpufleet/ledger`. Credentials come from the agent's identity."""


Ledger = Annotated[VolumeLedger | ObjectStoreLedger, Field(discriminator="kind")]
"""Where the record of every dollar is kept."""


class Agent(Model):
    """The agent that releases jobs to the cloud and answers the gate."""

    image: Annotated[str, Field(pattern=_IMAGE, examples=["ghcr.io/gpufleet/agent:0.1.0"])] = (
        "ghcr.io/gpufleet/agent:0.1.0"
    )
    """Container image. Pin a tag or digest; `latest` is refused."""

    replicas: Annotated[int, Field(strict=True, ge=1, le=5)] = 1
    """How many run; one leads, the others stand by."""

    interval: PositiveDuration = timedelta(seconds=5)
    """How often the agent decides, 100ms to 5m. Shorter reacts faster and costs more API calls."""

    @field_validator("interval")
    @classmethod
    def _interval_is_sane(cls, value: timedelta) -> timedelta:
        if not timedelta(milliseconds=100) <= value <= timedelta(minutes=5):
            raise ValueError("must be between 100ms and 5m")
        return value

    ledger: Ledger = VolumeLedger(kind="volume")
    """Where the ledger is kept."""

    dry_run: StrictBool = False
    """Whether the agent only says what it would do, in its logs and metrics, and changes nothing. Nothing starts in the
    cloud meanwhile; local work goes on."""

    replay_speed: Annotated[float, Field(strict=True, ge=1, le=3_600)] = 1.0
    """How many seconds of fleet time pass in each real second. Only for replays on a cluster of fake nodes;
    must stay 1 wherever money is real, since waits and costs are multiplied by it."""
