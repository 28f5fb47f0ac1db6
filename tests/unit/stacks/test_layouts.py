"""Names of layouts: the same for the same slices, and another one for any other."""

from __future__ import annotations

from typing import Any

import pytest

from stacks.fleet import Fleet
from stacks.layouts import layout_name, mig_entries, plugin_config, served_pools
from tests.unit.stacks.rules.cases import RACK, changed

WRITTEN: dict[str, list[str]] = {"0-5": ["3g.40gb", "2g.20gb", "2x1g.10gb"], "6": ["7x1g.10gb"]}
ELSE: dict[str, list[str]] = {
    "6": ["3x1g.10gb", "4x1g.10gb"],
    "1,3,5": ["1g.10gb", "2g.20gb", "1g.10gb", "3g.40gb"],
    "0,2,4": ["2g.20gb", "3g.40gb", "2x1g.10gb"],
}


def laid_out(layout: dict[str, list[str]]) -> tuple[str, list[dict[str, Any]]]:
    fleet = Fleet.model_validate(changed({"pools.slices": {**RACK, "mig": {"layout": layout}}}))
    pool = served_pools(fleet)["slices"]
    assert pool.mig is not None
    return layout_name("slices", pool, pool.mig.layout), mig_entries(pool.mig.layout, pool.gpus_per_node)


def test_a_layout_written_in_another_way_keeps_its_name_so_that_no_node_is_emptied_for_it() -> None:
    assert laid_out(WRITTEN) == laid_out(ELSE)


@pytest.mark.parametrize(
    "other", [{"0-5": WRITTEN["0-5"]}, WRITTEN | {"7": ["7g.80gb"]}, {"0-4": WRITTEN["0-5"], "5-6": WRITTEN["6"]}]
)
def test_another_layout_has_another_name(other: dict[str, list[str]]) -> None:
    assert laid_out(other)[0] != laid_out(WRITTEN)[0]


def test_equal_gpus_stand_together_and_whole_ones_last() -> None:
    assert laid_out(ELSE)[1] == [
        {"devices": [0, 1, 2, 3, 4, 5], "mig-enabled": True, "mig-devices": {"3g.40gb": 1, "2g.20gb": 1, "1g.10gb": 2}},
        {"devices": [6], "mig-enabled": True, "mig-devices": {"1g.10gb": 7}},
        {"devices": [7], "mig-enabled": False},
    ]


def test_what_nodes_with_the_former_layout_share_is_shared_until_they_have_the_new() -> None:
    mig = {"layout": {"0-7": ["2x3g.40gb"]}, "former": {"0-6": ["7x1g.10gb"]}}
    for sharing, names in (
        ({"replicas": 2}, ["nvidia.com/gpu", "nvidia.com/mig-1g.10gb", "nvidia.com/mig-3g.40gb"]),
        ({"by_profile": {"1g.10gb": 2}}, ["nvidia.com/mig-1g.10gb"]),
    ):
        pool = {**RACK, "mig": mig, "sharing": {"time_slicing": sharing}}
        served = served_pools(Fleet.model_validate(changed({"pools.slices": pool})))["slices"]
        assert plugin_config(served)["sharing"]["timeSlicing"]["resources"] == [
            {"name": name, "replicas": 2} for name in names
        ]
