"""How GPUs are cut into MIG slices: layouts, by GPU index.

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
from stacks.quantities import MigItem, MigProfiles

_INDEXES = re.compile(r"([0-9]+)(?:-([0-9]+))?")

MigStrategy = Literal["single", "mixed"]


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
                raise ValueError(f"{part} runs backwards; write the smaller index first")
            found += range(first, last + 1)
    return found


def _names_gpus(text: str) -> str:
    indexes_of(text)
    return text


Indexes = Annotated[
    str,
    Field(pattern=r"^[0-9]{1,2}(-[0-9]{1,2})?(,[0-9]{1,2}(-[0-9]{1,2})?)*$", examples=["0-5", "6,7", "0"]),
    AfterValidator(_names_gpus),
]
"""GPU indexes of a node: one, a range, or several with commas."""

Layout = Annotated[dict[Indexes, Annotated[tuple[MigItem, ...], Field(min_length=1)]], Field(min_length=1)]
"""Profiles on each GPU of a node, by GPU index."""


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
        if self.former is not None and by_gpu(self.former) == by_gpu(self.layout):
            raise ValueError("former: is the same as layout; write the layout that the nodes had, or leave it out")
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
                    f"mig.{name}: leaves {whole} of {gpus_per_node} GPUs whole; strategy single needs slices on all of "
                    "them, or use mixed"
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


def by_gpu(layout: Mapping[str, tuple[MigProfiles, ...]]) -> dict[int, Counter[str]]:
    """How many slices of each profile each GPU has: equal for equal layouts, however they are written."""
    return {index: Counter(profiles_of(items)) for key, items in layout.items() for index in indexes_of(key)}


def _named(layout: Mapping[str, object]) -> list[int]:
    return [index for key in layout for index in indexes_of(key)]
