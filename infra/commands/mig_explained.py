"""What `gpufleet mig explain` says of one layout: why it is illegal, or what it exposes, strands and needs."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from typing import Any, Final

from infra.commands.mig_text import HOW, names, picture
from infra.gpus.errors import DemandError
from infra.gpus.standing import parse_placement
from infra.replay.rows import shown
from stacks.catalogue import GpuModel
from stacks.mig import (
    Layout,
    Reach,
    creation_order,
    driver_placement,
    exposure,
    place,
    reach,
    require_profiles,
    room_beside,
    set_maximal,
)
from stacks.quantities import parse_mig_item

_MOST_BETTER: Final = 3


def explained(gpu: GpuModel, text: str) -> list[str]:
    """What there is to say of a layout.

    Raises:
        DemandError: it is illegal; the message says why.
    """
    profiles, fixed = _read(gpu, text)
    layout = _placed(gpu, profiles, fixed)
    return list(_lines(gpu, [instance.profile for instance in layout], fixed, layout))


def explained_document(gpu: GpuModel, text: str) -> dict[str, Any]:
    """The same for a program to read."""
    try:
        profiles, fixed = _read(gpu, text)
        layout = _placed(gpu, profiles, fixed)
    except DemandError as error:
        return {"gpu": gpu.id, "layout": text, "legal": False, "reason": str(error)}
    every = [instance.profile for instance in layout]
    exposed, how = exposure(gpu, every), _how(gpu, every, fixed)
    return {
        "gpu": gpu.id,
        "layout": text,
        "legal": True,
        "profiles": dict(Counter(every)),
        "placements": list(map(str, layout)),
        "sm_share": round(exposed.sm_share, 4),
        "stranded_sms": None if exposed.counts_slices else exposed.stranded_sms,
        "stranded_memory_units": exposed.stranded_units,
        "room_for": list(room_beside(gpu, profiles, placed=fixed)),
        "reach": how,
        "creation_order": None if fixed else creation_order(gpu, every),
        "certainty": gpu.mig.certainty if gpu.mig else None,
    }


def _lines(gpu: GpuModel, profiles: list[str], fixed: Layout, layout: Layout) -> Iterator[str]:
    exposed = exposure(gpu, profiles)
    yield f"{names(sorted(profiles))} on one {gpu.id}: legal"
    yield f"  {picture(gpu, layout)}"
    what = "compute slices (SMs of its profiles are not known)" if exposed.counts_slices else "SMs"
    yield f"  exposes {exposed.sms} of {exposed.all_sms} {what}, {exposed.sm_share:.0%}"
    units = f"{exposed.units} of {exposed.all_units} memory units"
    yield f"  exposes {units}" + (f", strands {exposed.stranded_units}" if exposed.stranded_units else "")
    room = room_beside(gpu, [name for name in profiles if not fixed], placed=fixed)
    yield f"  room for {' or '.join(room)}" if room else "  no further instance fits"
    yield f"  {HOW[_how(gpu, profiles, fixed)]}"
    order = None if fixed else creation_order(gpu, profiles)
    if order and len(set(order)) > 1:
        yield f"  created in the order {', '.join(order)}"
    yield from _better(gpu, profiles)
    geometry = require_profiles(gpu, ())
    yield f"  placements of {gpu.id}: {geometry.certainty} ({geometry.source}, {geometry.as_of})"


def _better(gpu: GpuModel, profiles: list[str]) -> Iterator[str]:
    """Layouts that hold the same and more, the most SMs first."""
    have = Counter(profiles)
    plain = [name for name, profile in require_profiles(gpu, ()).profiles.items() if not profile.suffix or name in have]
    more = [one for one in set_maximal(gpu, plain) if len(one) > len(profiles) and have <= Counter(one)]
    more.sort(key=lambda one: (-exposure(gpu, one).sms, exposure(gpu, one).stranded_units))
    for one in more[:_MOST_BETTER]:
        yield f"  holds the same and more: {names(one)} ({exposure(gpu, one).sm_share:.0%})"


def _how(gpu: GpuModel, profiles: list[str], fixed: Layout) -> Reach:
    """How it comes about; with given starts mig-parted reaches it only if the driver would choose them."""
    found = reach(gpu, profiles)
    if not fixed or found is Reach.EXPLICIT:
        return found
    order = creation_order(gpu, profiles)
    return Reach.LIKELY if order and driver_placement(gpu, order) == fixed else Reach.EXPLICIT


def _read(gpu: GpuModel, text: str) -> tuple[list[str], Layout]:
    """Profiles without a place, and instances with one; all of one kind."""
    parts = [part for part in re.split(r"[,+\s]+(?=[0-9])", text.strip().strip(",")) if part]
    try:
        if not parts:
            raise ValueError("names no profile; write it like 3g.40gb,4x1g.10gb")
        if all("@" in part for part in parts):
            return [], tuple(sorted((parse_placement(gpu, part) for part in parts), key=lambda one: one.start))
        if any("@" in part for part in parts):
            raise ValueError("gives some starts and not others; give each, as in 3g.40gb@4,1g.10gb@0, or none")
        items = [parse_mig_item(part) for part in parts]
        return [item.profile for item in items for _ in range(item.count)], ()
    except ValueError as error:
        raise DemandError(f"{shown(text)}: {error}") from None


def _placed(gpu: GpuModel, profiles: list[str], fixed: Layout) -> Layout:
    try:
        layout = place(gpu, profiles, beside=fixed)
    except ValueError as error:
        raise DemandError(f"illegal: {error}") from None
    order = None if fixed else creation_order(gpu, profiles)
    return (order and driver_placement(gpu, order)) or layout
