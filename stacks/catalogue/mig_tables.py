"""Reads `catalog/mig.toml`, and what `gpufleet gpu capture` wrote in the same spirit, into `MigGeometry`.

The shipped table groups models into families and derives the names; a captured file lists each profile of one model as
the card names it, because names depend on the memory that the card reports.

Invariants: both give the same values; a captured geometry stands for the shipped one of its model as a whole.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from stacks.catalogue.geometry import ENGINE_KINDS, Engines, MigGeometry, MigProfile, profile_name


def geometries(document: dict[str, Any], gpus: dict[str, Any]) -> dict[str, MigGeometry]:
    """Geometries of the shipped table, by GPU model; `gpus` is the table of models."""
    found = {}
    for gpu, row in document["types"].items():
        family = document["families"][row["family"]]
        engines = document["engines"][row["engines"]]
        unknown = [None] * len(family["profiles"])
        columns = zip(
            family["profiles"],
            zip(*(engines[kind] for kind in ENGINE_KINDS), strict=True),
            row.get("sms", unknown),
            row.get("memory_mib", unknown),
            strict=True,
        )
        profiles = [
            MigProfile(
                name=profile_name(
                    profile["slices"],
                    profile["size"],
                    family["units"],
                    gpus["types"][gpu]["memory_gib"],
                    profile.get("suffix", ""),
                ),
                slices=profile["slices"],
                starts=tuple(profile["starts"]),
                size=profile["size"],
                max_count=profile["max_count"],
                suffix=profile.get("suffix", ""),
                sms=sms,
                memory_mib=memory,
                engines=Engines(*counts),
                profile_id=profile.get("id"),
                number=profile["number"],
                driver_starts=tuple(profile.get("driver", profile["starts"])),
            )
            for profile, counts, sms, memory in columns
        ]
        found[gpu] = _geometry(family["units"], profiles, gpu, row, document, gpus)
    return found


def captured_geometries(
    document: dict[str, Any], gpus: dict[str, Any], shipped: Mapping[str, MigGeometry]
) -> dict[str, MigGeometry]:
    """Geometries of a captured file, by GPU model.

    Raises:
        KeyError, TypeError, ValueError: the file has another form, or names a model that is not in the catalogue.
    """
    found = {}
    for gpu, row in document["types"].items():
        if gpu not in gpus["types"]:
            raise ValueError(f"{gpu} is not a GPU model of the catalogue; add it to gpus.toml first")
        wanted = {profile.number: profile.driver_starts for profile in _profiles_of(shipped.get(gpu))}
        profiles = [_captured_profile(profile, wanted) for profile in row["profiles"]]
        _require_line(gpu, row["units"], profiles)
        found[gpu] = _geometry(row["units"], profiles, gpu, row, document, gpus)
    return found


def _require_line(gpu: str, units: object, profiles: list[MigProfile]) -> None:
    """Refuse what is no line of memory units with profiles on it: a file edited by hand would mislead every check."""
    if not isinstance(units, int) or units < 1:
        raise ValueError(f"{gpu}: units is {units!r}, and must be a whole number of at least 1")
    if not profiles:
        raise ValueError(f"{gpu}: has no profiles")
    for one in profiles:
        if not all(isinstance(number, int) for number in (one.slices, one.size, one.max_count, *one.starts)):
            raise ValueError(f"{gpu}: {one.name}: slices, size, max_count and starts are whole numbers")
        if min(one.size, one.slices, one.max_count) < 1 or not one.starts:
            raise ValueError(f"{gpu}: {one.name}: needs a start, and at least 1 slice, size and max_count")
        if min(one.starts) < 0 or max(one.starts) + one.size > units:
            raise ValueError(f"{gpu}: {one.name}: does not stand within the {units} memory units")


def _captured_profile(row: dict[str, Any], wanted: Mapping[int, tuple[int, ...]]) -> MigProfile:
    starts = tuple(row["starts"])
    name = str(row["name"])
    order = wanted.get(row["number"], starts)
    return MigProfile(
        name=name,
        slices=row["slices"],
        starts=starts,
        size=row["size"],
        max_count=row["max_count"],
        suffix=name.partition("gb")[2],
        sms=row["sms"],
        memory_mib=row["memory_mib"],
        engines=Engines(*(row["engines"][kind] for kind in ENGINE_KINDS)),
        profile_id=row["id"],
        number=row["number"],
        driver_starts=order if sorted(order) == sorted(starts) else starts,
    )


def _profiles_of(geometry: MigGeometry | None) -> list[MigProfile]:
    return [] if geometry is None else list(geometry.profiles.values())


def _geometry(
    units: int,
    profiles: list[MigProfile],
    gpu: str,
    row: dict[str, Any],
    document: dict[str, Any],
    gpus: dict[str, Any],
) -> MigGeometry:
    architecture = gpus["architectures"][gpus["types"][gpu]["architecture"]]
    return MigGeometry(
        units=units,
        profiles={profile.name: profile for profile in profiles},
        mode_change=architecture["mode_change"],
        certainty=row["certainty"],
        source=row.get("source", document["source"]),
        as_of=row.get("as_of", document["as_of"]),
    )
