"""How far the change of a node's layout has come: one annotation of the Node, in JSON, read strictly.

It is all that the agent remembers of a change, so that whoever leads next goes on with it. The layout itself stands in
the label `nvidia.com/mig.config`, and that the node is out of service in our taint. Nothing here judges anything.

Invariants: what was written reads back as it was; what cannot be read in full is not read at all.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Final, Literal

from pydantic import Field, ValidationError

from runtime.eviction.notice import LATEST_TIME
from stacks.model import Model

LONGEST_RECORD: Final = 8_192
"""Characters; of the 256 KiB that Kubernetes allows for all annotations of an object."""

LONGEST_REASON: Final = 300


class Phase(StrEnum):
    """Where a change stands. In all but the last two the node is out of service."""

    DRAINING = "draining"
    """It takes no new jobs, and those on it are asked to save and go."""

    APPLYING = "applying"
    """It is empty and labelled with the new layout; the MIG manager works."""

    RETURNING = "returning"
    """That failed; it is labelled with the former layout again."""

    STUCK = "stuck"
    """That failed as well, or there is no way back: it stays out of service until a person helps."""

    REFUSED = "refused"
    """It is in service with the former layout, and the new one is not tried again on it."""

    HELD = "held"
    """It is in service, because it could not be emptied; that is tried again after a while."""


OUT: Final = frozenset({Phase.DRAINING, Phase.APPLYING, Phase.RETURNING, Phase.STUCK})
"""Phases in which the node carries our taint."""

_Name = Annotated[str, Field(pattern=r"^([A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?)?$")]
"""The value of a label."""

_Devices = Annotated[
    dict[Annotated[str, Field(max_length=317)], Annotated[int, Field(ge=0, le=1_000_000)]], Field(max_length=64)
]
"""What a node offers, by resource (a prefix of 253 characters, a slash, a name of 63)."""

_Time = Annotated[float, Field(ge=0, le=LATEST_TIME)]


class Record(Model):
    """A change of one node's layout."""

    version: Literal[1] = 1
    """Of this form."""

    phase: Phase
    """Where it stands."""

    target: _Name
    """The layout that the node is to have."""

    devices: _Devices
    """What it then offers."""

    good: _Name = ""
    """The layout that it had before; empty where that was none to go back to."""

    good_devices: _Devices = Field(default_factory=dict)
    """What it offered with that; empty where nobody knows."""

    since: _Time
    """When this phase began, in real seconds since the epoch."""

    steady_since: _Time | None = None
    """Since when the node has been seen as it should be; None while it is not."""

    awaited: _Name = ""
    """The layout that a node which is stuck is to try next."""

    reason: Annotated[str, Field(max_length=LONGEST_REASON)] = ""
    """What went wrong, for people."""

    def to_json(self) -> str:
        """The text of the annotation."""
        return self.model_dump_json(exclude_defaults=True)


def record_from_json(text: str) -> Record:
    """Read an annotation.

    Raises:
        ValueError: when anything in it is not as it should be.
    """
    if len(text) > LONGEST_RECORD:
        raise ValueError(f"has {len(text)} characters, and at most {LONGEST_RECORD} are read")
    try:
        return Record.model_validate_json(text)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        raise ValueError(f"{where or 'record'}: {first['msg']}"[:LONGEST_REASON]) from None
