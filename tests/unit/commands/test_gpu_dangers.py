"""What `gpufleet diff` says of changes to MIG layouts, drivers and the operator."""

from __future__ import annotations

from infra.planning.dangers import dangers
from stacks.fleet import Fleet
from tests.mocks.gpu_fleets import LAYER, gpu_fleet

WANTED = '{layout: {"0-5": [3g.20gb, 2g.10gb, 2x1g.5gb], "6": [7x1g.5gb]}, former: {"0-7": [7x1g.5gb]}}'
RELAYOUT = "    gpu_layer: {relayout: {mode_change: reset}}\n"


def with_mig(fleet: Fleet, **layouts: object) -> Fleet:
    pool = fleet.onprem_pools["slices"]
    assert pool.mig
    mig = pool.mig.model_validate({**pool.mig.model_dump(), **layouts})
    sharing = None  # which names profiles of the one layout
    return fleet.model_copy(
        update={"pools": {**fleet.pools, "slices": pool.model_copy(update={"mig": mig, "sharing": sharing})}}
    )


def about(old: Fleet, new: Fleet, word: str) -> list[str]:
    return [one for one in dangers(old, new) if word in one]


def test_another_layout_is_announced_with_what_empties_its_nodes() -> None:
    old = gpu_fleet("")
    new = with_mig(old, layout={"0-7": ["2x3g.20gb"]}, former=old.onprem_pools["slices"].mig.layout)  # type: ignore[union-attr]
    assert about(old, new, "at once")
    assert not about(old, new, "forgets")
    relaid = new.model_copy(update={"gpu_layer": gpu_fleet(RELAYOUT).gpu_layer})
    assert not about(old, relaid, "another MIG layout")


def test_layouts_that_are_handed_over_to_the_agent_are_a_danger_once() -> None:
    old, new = gpu_fleet(""), gpu_fleet(RELAYOUT)
    assert [one.partition(" hands")[0] for one in about(old, new, "hands")] == ["pool slices"]
    assert not about(new, new, "hands")
    assert not about(new, old, "hands")


def test_a_layout_without_a_way_back_is_said() -> None:
    old = gpu_fleet(RELAYOUT)
    assert about(old, with_mig(old, layout={"0-7": ["2x3g.20gb"]}, former=None), "forgets")


def test_a_layout_that_stays_is_no_danger() -> None:
    assert not about(gpu_fleet(""), with_mig(gpu_fleet(""), former=None), "pool slices")


def test_a_driver_that_changes_is_said_for_the_pools_that_it_reaches() -> None:
    before, canary = gpu_fleet(""), gpu_fleet(LAYER)
    assert len(about(before, canary, "changes its driver")) == 1, "the rack goes down to the fleet's older one"
    validated = gpu_fleet(LAYER.replace("canary: slices", "canary: slices, validated: true"))
    assert about(canary, validated, "changes its driver") == [
        "pool rack changes its driver from 580.65.06 to 595.91.07: nodes 2 at a time, each once no job is left on it"
    ]


def test_nodes_without_a_name_need_the_label_of_another_sharing() -> None:
    old = gpu_fleet("")
    sharing = old.pools["auto"].sharing.model_validate({"time_slicing": {"replicas": 3}})  # type: ignore[union-attr]

    def shared(pool: str) -> Fleet:
        return old.model_copy(
            update={"pools": old.pools | {pool: old.pools[pool].model_copy(update={"sharing": sharing})}}
        )

    [said] = about(old, shared("auto"), "need the label nvidia.com/device-plugin.config=auto-")
    assert "which they have" in said
    assert not about(old, shared("slices"), "need the label"), "`up` labels them"


def test_an_operator_that_goes_takes_the_gpus_along() -> None:
    assert about(gpu_fleet(""), gpu_fleet("", "existing"), "uninstalled")
