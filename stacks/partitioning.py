"""How GPUs are shared: MIG layouts in hardware, time-slicing and MPS in software.

It only says what is asked for; `stacks.mig` knows which layouts a GPU model can have.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, Field, model_validator

from stacks.catalogue import GpuModel
from stacks.mig import place
from stacks.model import Model
from stacks.quantities import MigItem, MigProfiles, parse_mig_profile_name
from stacks.suggest import did_you_mean

_INDEXES = re.compile(r"([0-9]+)(?:-([0-9]+))?")

MigStrategy = Literal["single", "mixed"]

Indexes = Annotated[
    str, Field(pattern=r"^[0-9]{1,2}(-[0-9]{1,2})?(,[0-9]{1,2}(-[0-9]{1,2})?)*$", examples=["0-5", "6,7", "0"])
]
"""GPU indexes of a node: one, a range, or several with commas."""

Layout = Annotated[dict[Indexes, Annotated[tuple[MigItem, ...], Field(min_length=1)]], Field(min_length=1)]
"""Profiles on each GPU of a node, by GPU index."""


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

    layout: Layout
    """Profiles on each GPU of a node, by GPU index, e.g. `{"0-5": [3g.20gb, 2g.10gb, 2x1g.5gb], "6-7": [7x1g.5gb]}`.
    A GPU that is not named stays whole."""

    former: Layout | None = None
    """The layout that nodes have until they are changed: set it to the old one when you change `layout`. The MIG
    manager then still knows it, and a node on which the new one fails goes back to it. Remove it when all are
    changed."""

    @model_validator(mode="after")
    def _layouts_are_plain(self) -> Self:
        for name, layout in self.layouts.items():
            twice = [index for index, times in Counter(_named(layout)).items() if times > 1]
            if twice:
                raise ValueError(f"{name}: names GPU {twice[0]} more than once; each GPU once")
            profiles = sorted(set(slices_of(layout)))
            if self.strategy == "single" and len(profiles) > 1:
                shown = ", ".join(profiles)
                raise ValueError(f"strategy: single needs one profile on the whole node, not {shown}; use mixed")
        return self

    @property
    def layouts(self) -> Mapping[str, Mapping[str, tuple[MigProfiles, ...]]]:
        """The layouts by the setting that says them: the wanted one, and the former one where there is one."""
        return {"layout": self.layout} | ({} if self.former is None else {"former": self.former})

    def profiles(self, key: str) -> list[str]:
        """The profiles that one key of the layout puts on each of its GPUs."""
        return profiles_of(self.layout[key])

    @property
    def slices(self) -> Counter[str]:
        """How many slices of each profile a node has."""
        return slices_of(self.layout)

    @property
    def gpus(self) -> int:
        """How many GPUs of a node are cut."""
        return len(set(_named(self.layout)))

    def check_on(self, gpu: GpuModel, gpus_per_node: int) -> None:
        """Raise ValueError unless nodes with so many GPUs of this model can have the layouts."""
        for name, layout in self.layouts.items():
            for key, items in layout.items():
                last = max(indexes_of(key))
                if last >= gpus_per_node:
                    raise ValueError(f"mig.{name}.{key}: there is no GPU {last}; a node has 0 to {gpus_per_node - 1}")
                try:
                    place(gpu, profiles_of(items))
                except ValueError as error:
                    raise ValueError(f"mig.{name}.{key}: {error}") from None
            whole = gpus_per_node - len(set(_named(layout)))
            if self.strategy == "single" and whole:
                raise ValueError(
                    f"mig.{name}: leaves {whole} GPUs whole; strategy single needs slices on all, or use mixed"
                )


def profiles_of(items: tuple[MigProfiles, ...]) -> list[str]:
    """The profiles of one GPU, one by one."""
    return [item.profile for item in items for _ in range(item.count)]


def slices_of(layout: Mapping[str, tuple[MigProfiles, ...]]) -> Counter[str]:
    """How many slices of each profile a layout makes of a node."""
    counts: Counter[str] = Counter()
    for key, items in layout.items():
        for profile in profiles_of(items):
            counts[profile] += len(indexes_of(key))
    return counts


def _named(layout: Mapping[str, object]) -> list[int]:
    return [index for key in layout for index in indexes_of(key)]


Replicas = Annotated[int, Field(strict=True, ge=2, le=100)]
"""Pods that take turns; the device plugin takes no fewer than two."""

ProfileName = Annotated[str, Field(examples=["1g.5gb"]), AfterValidator(parse_mig_profile_name)]
"""A MIG profile."""


class TimeSlicing(Model):
    """Several pods take turns on a GPU. No memory is kept apart: one greedy pod takes the others down.

    What is shared has another name than what is not: pods ask for `nvidia.com/gpu.shared` or, of MIG slices,
    `nvidia.com/mig-1g.5gb.shared`, and for one of it at most.
    """

    replicas: Replicas | None = None
    """Pods on each GPU and on each slice."""

    by_profile: Annotated[dict[ProfileName, Replicas], Field(max_length=20)] = Field(default_factory=dict)
    """Instead of `replicas`, pods on each slice by MIG profile, e.g. `{1g.5gb: 4}`; the others are not shared."""

    @model_validator(mode="after")
    def _replicas_are_said_once(self) -> Self:
        if (self.replicas is None) == (not self.by_profile):
            raise ValueError("replicas: set it or by_profile, and not both: replicas: 4, or by_profile: {1g.5gb: 4}")
        return self


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
        """Pods on each GPU, or on each slice that is shared; the most of them where they differ."""
        if self.mps is not None:
            return self.mps.replicas
        assert self.time_slicing is not None  # _exactly_one
        return self.time_slicing.replicas or max(self.time_slicing.by_profile.values())

    def replicas_of(self, profile: str | None) -> int:
        """Pods on a slice of a profile, or on a whole GPU (None); 1 where it is not shared."""
        if self.time_slicing is not None and self.time_slicing.by_profile:
            return self.time_slicing.by_profile.get(profile, 1) if profile else 1
        return self.replicas

    def check_on(self, gpu: GpuModel, mig: Mig | None) -> None:
        """Raise ValueError unless GPUs of this model, cut like this, can be shared as asked."""
        if self.mps is not None and mig is not None:
            raise ValueError("sharing.mps: does not go with mig; share slices with time_slicing, or leave one out")
        if self.mps is not None and self.mps.replicas > gpu.mps_clients:
            raise ValueError(f"sharing.mps.replicas: MPS takes at most {gpu.mps_clients} clients on a {gpu.id}")
        named = self.time_slicing.by_profile if self.time_slicing else {}
        if named and mig is None:
            raise ValueError("sharing.time_slicing.by_profile: the pool has no mig, so no slices; set replicas instead")
        if named and mig is not None and mig.strategy == "single":
            raise ValueError("sharing.time_slicing.by_profile: strategy single has one profile; set replicas instead")
        for profile in named:
            if mig is not None and profile not in mig.slices:
                hint = did_you_mean(profile, mig.slices)
                raise ValueError(f"sharing.time_slicing.by_profile.{profile}: no slice of the layout has it{hint}")
