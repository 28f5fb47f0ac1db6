"""Presets: three sets of defaults for people who have an aim and no figures yet.

A preset fills settings that the file leaves out, never one that it has; `gpufleet plan` prints what was filled in. The
figures are starting points to be replayed against one's own jobs (`gpufleet replay`), not results.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Literal, NamedTuple

from stacks.capacity import Capacity
from stacks.model import Path
from stacks.spot import Spot
from stacks.targets import Targets

PresetName = Literal["cost", "balanced", "performance"]

Settings = Mapping[Path, Any]

PRESETS: Final[Mapping[str, Settings]] = {
    # Waits long before it spends, takes spot almost at any price below on-demand, keeps nothing free.
    "cost": {
        ("burst", "policy"): {"kind": "compute-wait", "wait_per_gpu_hour": "9m", "bounds": ["10m", "8h"]},
        ("spot", "fallback", "price_ratio"): 0.9,
        ("targets", "utilization"): "85%",
        ("targets", "wait"): "4h",
    },
    # The policy of the Starburst paper with half its wait, bounded to what people bear in a working day.
    "balanced": {
        ("burst", "policy"): {"kind": "compute-wait", "wait_per_gpu_hour": "4m30s", "bounds": ["2m", "2h"]},
    },
    # Leaves early, avoids spot that is nearly as dear as on-demand, keeps a tenth of the GPUs free.
    "performance": {
        ("burst", "policy"): {"kind": "compute-wait", "wait_per_gpu_hour": "90s", "bounds": ["1m", "30m"]},
        ("spot", "fallback", "price_ratio"): 0.6,
        ("capacity", "headroom"): "10%",
        ("targets", "utilization"): "60%",
        ("targets", "wait"): "15m",
    },
}


class Filled(NamedTuple):
    """A setting that the file leaves out, what stands in for it, and why."""

    path: Path
    value: Any
    source: str


def fillings(fleet: Mapping[str, Any]) -> list[Filled]:
    """What is filled into the object of a file before it is read: the preset's settings, and regions of clusters."""
    preset = fleet.get("preset", "balanced")
    known = preset if isinstance(preset, str) and preset in PRESETS else "balanced"  # a wrong one is said once
    settings = PRESETS[known]
    filled = [Filled(path, value, f"preset {preset}") for path, value in settings.items() if _is_open(fleet, path)]
    return filled + _regions(fleet)


def fill(fleet: Mapping[str, Any]) -> dict[str, Any]:
    """A copy of the object with its fillings in place."""
    result = dict(fleet)
    for path, value, _ in fillings(fleet):
        target = result
        for part in path[:-1]:
            target[str(part)] = dict(target.get(str(part)) or {})
            target = target[str(part)]
        target[str(path[-1])] = value
    return result


class Sections(NamedTuple):
    """The sections that a file may leave out."""

    spot: Spot
    capacity: Capacity
    targets: Targets


def sections(preset: PresetName) -> Sections:
    """What the sections are in a file that has none of them."""
    filled = fill({"preset": preset})
    return Sections(
        Spot.model_validate(filled.get("spot", {})),
        Capacity.model_validate(filled.get("capacity", {})),
        Targets.model_validate(filled.get("targets", {})),
    )


def _regions(fleet: Mapping[str, Any]) -> list[Filled]:
    """A pool on a cluster of ours is in the cluster's region."""
    clusters, pools = fleet.get("clusters"), fleet.get("pools")
    if not isinstance(clusters, dict) or not isinstance(pools, dict):
        return []
    found = []
    for name, pool in pools.items():
        if not isinstance(pool, dict) or "region" in pool or pool.get("location") not in ("aws", "gcp"):
            continue
        cluster = clusters.get(pool["cluster"]) if isinstance(pool.get("cluster"), str) else None
        if isinstance(cluster, dict) and isinstance(cluster.get("region"), str):
            source = f"region of cluster {pool['cluster']}"
            found.append(Filled(("pools", name, "region"), cluster["region"], source))
    return found


def _is_open(fleet: Mapping[str, Any], path: Path) -> bool:
    """Whether the setting is absent and its place is not taken by anything but a mapping."""
    here: Any = fleet
    for depth, part in enumerate(path):
        if not isinstance(here, dict):
            return False
        if part not in here:
            return depth > 0 or part != "burst"  # burst itself must be in the file: it names the pools
        here = here[part]
    return False
