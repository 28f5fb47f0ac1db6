"""MIG geometry: which layouts a GPU model can have, where their instances stand, what they leave unused.

It knows no nodes, no configuration files and no demand; `infra.gpus` plans. It is exact for the placement table of the
catalogue, and as right as that table: its rows say how certain they are.

Invariants: pure; equal questions have equal answers.
"""

from __future__ import annotations

from stacks.mig.driver import Reach, creation_order, driver_placement, reach
from stacks.mig.exposure import Exposure, exposure, room_beside
from stacks.mig.layouts import Layout, counts_of, maximal_layouts, multisets, placed_layouts, set_maximal
from stacks.mig.placing import Placement, place, require_profiles

__all__ = [
    "Exposure",
    "Layout",
    "Placement",
    "Reach",
    "counts_of",
    "creation_order",
    "driver_placement",
    "exposure",
    "maximal_layouts",
    "multisets",
    "place",
    "placed_layouts",
    "reach",
    "require_profiles",
    "room_beside",
    "set_maximal",
]
