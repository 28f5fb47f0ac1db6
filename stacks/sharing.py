"""How GPUs and slices are shared in software: by time-slicing or MPS.

It only says what is asked for, and whether GPUs of a model, cut in some way, can have it.
"""

from __future__ import annotations

from collections import Counter
from typing import Annotated, Self

from pydantic import AfterValidator, Field, ValidatorFunctionWrapHandler, field_validator, model_validator

from stacks.catalogue import GpuModel
from stacks.model import Model
from stacks.partitioning import Mig, slices_of
from stacks.quantities import parse_mig_profile_name
from stacks.suggest import did_you_mean

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

    @field_validator("by_profile", mode="wrap")
    @classmethod
    def _each_profile_once(cls, value: object, read: ValidatorFunctionWrapHandler) -> dict[str, int]:
        """One profile has several spellings, of which the last would win without a word."""
        profiles: dict[str, int] = read(value)
        if isinstance(value, dict) and len(value) > len(profiles):
            twice = Counter(map(parse_mig_profile_name, value)).most_common(1)[0][0]
            raise ValueError(f"names {twice} more than once; each profile once")
        return profiles

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
        cut = {profile for layout in (mig.layouts.values() if mig else ()) for profile in slices_of(layout)}
        for profile in named:
            if mig is not None and profile not in cut:
                hint = did_you_mean(profile, sorted(cut))
                raise ValueError(f"sharing.time_slicing.by_profile.{profile}: no slice of the layout has it{hint}")
