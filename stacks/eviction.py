"""How the fleet learns that a node will be taken away, and when a job that keeps losing its nodes is spared that.

How long a job may take to save its work is not here: that is `spot.checkpoint`, and the notice that the provider gives.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated, Final

from pydantic import Field, StrictBool, field_validator

from stacks.model import Model
from stacks.quantities import Duration

# Without user, query or fragment: the address stands in a DaemonSet, which many may read.
_ADDRESS: Final = r"^https?://[^/?#@\s]+(/[^?#\s]*)?$"
_LONGEST_ADDRESS: Final = 2_048  # characters; what HTTP servers take at least (RFC 9110, 4.1, asks for 8,000)

# 30 s from the ACPI signal to the end, and none or 120 s before it (Compute Engine, preemptionNoticeDuration).
GCP_NOTICES: Final = (timedelta(0), timedelta(seconds=30), timedelta(seconds=120))
"""The times that Google Cloud gives spot machines, by how they were made."""

SPOT_NOTICES: Final = {"aws": timedelta(seconds=120), "azure": timedelta(seconds=30)}
"""How long before its end a spot machine is told, by location of its flavor; on Google Cloud it is `gcp_notice`."""

STOPPING: Final = timedelta(seconds=15)
"""The least that the agent keeps of a notice to stop a job in: 10 s for its pods, and 5 s for everybody between
(runtime.eviction.timing)."""

METADATA_PLACES: Final = frozenset({"aws", "gcp", "azure"})
"""Locations of flavors whose nodes can ask a metadata service; Azure's are those of a broker of that name."""


class Eviction(Model):
    """Who notices that a node goes, and how often a job may be hit before it is offered on-demand."""

    node_agent: StrictBool = True
    """Whether an agent runs on GPU nodes that have somebody to ask: the metadata service on AWS, Google Cloud and
    Azure, `notices_url` elsewhere. It writes what it hears on its own node, and keeps new pods away. Without it only
    what others write on a node is heard: Karpenter, the cluster autoscaler, health monitors."""

    notices_url: (
        Annotated[
            str, Field(pattern=_ADDRESS, max_length=_LONGEST_ADDRESS, examples=["http://broker.acme.internal/notices"])
        ]
        | None
    ) = None
    """Where the agents on nodes of the racks and of brokers ask for notices, over http or https. No user, password or
    query: it is no secret. Default: nobody is asked there."""

    gcp_notice: Annotated[Duration, Field(examples=["30s", "120s"])] = timedelta(seconds=30)
    """How long before its end a spot machine of Google Cloud is told: `30s` as usual, `120s` where the nodes were made
    with a longer notice, `0s` to count on nothing. Longer than the truth costs work; what is left is not waited for."""

    on_demand_after: Annotated[int, Field(strict=True, ge=0, le=100)] = 3
    """After so many losses a job is offered on-demand nodes before spot; 0 means never."""

    @field_validator("gcp_notice")
    @classmethod
    def _as_google_gives_it(cls, value: timedelta) -> timedelta:
        if value not in GCP_NOTICES:
            raise ValueError("must be 0s, 30s or 120s, as Google Cloud gives no other notice")
        return value
