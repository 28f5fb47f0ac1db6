"""How GPUs are shared: MIG layouts in hardware, time-slicing and MPS in software.

It only says what is asked for; `stacks.mig` knows which layouts a GPU model can have.
"""

from __future__ import annotations

import re
from collections import Counter
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from stacks.catalogue import GpuModel
from stacks.mig import place
from stacks.model import Model
from stacks.quantities import MigItem

_INDEXES = re.compile(r"([0-9]+)(?:-([0-9]+))?")

MigStrategy = Literal["single", "mixed"]

Indexes = Annotated[
    str, Field(pattern=r"^[0-9]{1,2}(-[0-9]{1,2})?(,[0-9]{1,2}(-[0-9]{1,2})?)*$", examples=["0-5", "6,7", "0"])
]
"""GPU indexes of a node: one, a range, or several with commas."""


def indexes_of(text: str) -> list[int]:
    """The GPU indexes that a key such as `0-2,5` names, in order, repeated where it repeats itself.

    Raises:
        ValueError: a range that runs backwards.
    """
    found: list[int] = []
    for part in text.split(","):
        match = _INDEXES.fullmatch(part)
        if match:
            first, last = int(match[1]), int(match[2] or match[1])
            if last < first:
                raise ValueError(f"layout.{text}: {part} runs backwards; write the smaller index first")
            found += range(first, last + 1)
    return found


class Mig(Model):
    """GPUs cut into slices with memory and processors of their own."""

    strategy: MigStrategy = "mixed"
    """How slices are offered to pods: `mixed` by profile (`nvidia.com/mig-1g.10gb`); `single` as whole GPUs, which
    needs every slice of the node to have the same profile."""

    layout: Annotated[dict[Indexes, Annotated[tuple[MigItem, ...], Field(min_length=1)]], Field(min_length=1)]
    """Profiles on each GPU of a node, by GPU index, e.g. `{"0-5": [3g.20gb, 2g.10gb, 2x1g.5gb], "6-7": [7x1g.5gb]}`.
    A GPU that is not named stays whole."""

    @model_validator(mode="after")
    def _layout_is_plain(self) -> Self:
        named = [index for key in self.layout for index in indexes_of(key)]
        twice = [index for index, times in Counter(named).items() if times > 1]
        if twice:
            raise ValueError(f"layout: names GPU {twice[0]} more than once; each GPU once")
        if self.strategy == "single" and len(set(self.slices)) > 1:
            shown = ", ".join(sorted(set(self.slices)))
            raise ValueError(f"strategy: single needs one profile on the whole node, not {shown}; use mixed")
        return self

    def profiles(self, key: str) -> list[str]:
        """The profiles that one key of the layout puts on each of its GPUs."""
        return [item.profile for item in self.layout[key] for _ in range(item.count)]

    @property
    def slices(self) -> Counter[str]:
        """How many slices of each profile a node has."""
        counts: Counter[str] = Counter()
        for key in self.layout:
            for profile in self.profiles(key):
                counts[profile] += len(indexes_of(key))
        return counts

    @property
    def gpus(self) -> int:
        """How many GPUs of a node are cut."""
        return len({index for key in self.layout for index in indexes_of(key)})

    def check_on(self, gpu: GpuModel, gpus_per_node: int) -> None:
        """Raise ValueError unless nodes with so many GPUs of this model can have the layout."""
        for key in self.layout:
            last = max(indexes_of(key))
            if last >= gpus_per_node:
                raise ValueError(f"mig.layout.{key}: there is no GPU {last}; a node has 0 to {gpus_per_node - 1}")
            try:
                place(gpu, self.profiles(key))
            except ValueError as error:
                raise ValueError(f"mig.layout.{key}: {error}") from None
        whole = gpus_per_node - self.gpus
        if self.strategy == "single" and whole:
            raise ValueError(
                f"mig.layout: leaves {whole} GPUs whole; strategy single needs slices on all, or use mixed"
            )


class TimeSlicing(Model):
    """Several pods take turns on a GPU. No memory is kept apart: one greedy pod takes the others down."""

    replicas: Annotated[int, Field(strict=True, ge=2, le=100)]
    """Pods on each GPU (or slice)."""


class Mps(Model):
    """Several processes share a GPU at the same time through NVIDIA's Multi-Process Service, with equal shares."""

    replicas: Annotated[int, Field(strict=True, ge=2, le=48)]
    """Clients on each GPU. 48 is the most that MPS takes."""


class Sharing(Model):
    """Sharing in software: exactly one of the two."""

    time_slicing: TimeSlicing | None = None
    """Take turns."""

    mps: Mps | None = None
    """Run at the same time."""

    @model_validator(mode="after")
    def _exactly_one(self) -> Self:
        if (self.time_slicing is None) == (self.mps is None):
            raise ValueError("set exactly one of time_slicing and mps, e.g. time_slicing: {replicas: 4}")
        return self

    @property
    def replicas(self) -> int:
        """Pods on each GPU."""
        chosen = self.time_slicing or self.mps
        assert chosen is not None  # _exactly_one
        return chosen.replicas
