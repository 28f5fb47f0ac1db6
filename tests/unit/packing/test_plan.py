"""The planner against exhaustive search, against first fit, and around instances that are in use."""

from __future__ import annotations

from collections import Counter
from functools import cache
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from infra.gpus import exact
from infra.gpus.errors import DemandError
from infra.gpus.heuristic import first_fit, gpus_of, heuristic, lower_bound
from infra.gpus.model import StandingGpu, model_of, reachable
from infra.gpus.nodes import nodes_of
from infra.gpus.plan import Plan, plan
from infra.gpus.pool import plan_pool
from stacks.catalogue import GpuModel, catalogue
from stacks.mig import Placement, Reach, exposure, place, placed_layouts, reach, set_maximal

GPUS = catalogue().gpus
A100, H100, A30, RTX, L4 = (
    GPUS[name] for name in ("a100-sxm-40gb", "h100-sxm-80gb", "a30-24gb", "rtx-pro-6000-96gb", "l4-24gb")
)
SIX_PROFILES = {"1g.10gb": 100, "1g.20gb": 40, "2g.20gb": 40, "3g.40gb": 30, "4g.40gb": 16, "7g.80gb": 10}


def demands(gpu: GpuModel, most: int) -> st.SearchStrategy[dict[str, int]]:
    assert gpu.mig is not None
    return st.dictionaries(st.sampled_from(sorted(gpu.mig.profiles)), st.integers(1, most), min_size=1, max_size=5)


def require_sound(found: Plan) -> None:
    """Raise AssertionError unless every layout can stand, and the demand is met."""
    for group in found.groups:
        assert place(found.gpu, [], beside=group.layout) == group.layout
        assert sorted(one.profile for one in group.layout) == sorted(group.profiles)
        assert set(group.live) <= set(group.layout)
        assert not group.gpus or len(group.gpus) == group.count
    assert all(found.offered.get(name, 0) >= count for name, count in found.demand.items())
    assert found.lower_bound <= found.gpus


@cache
def columns(gpu: GpuModel) -> list[Counter[str]]:
    """Every multiset of the model, by adding up what can be placed; nothing of the planner's."""
    return [Counter(one.profile for one in layout) for layout in placed_layouts(gpu)]


def fewest(gpu: GpuModel, demand: Counter[str]) -> int:
    """GPUs that a demand needs at least, by trying everything; the first profile that is left goes somewhere."""

    @cache
    def search(left: tuple[tuple[str, int], ...]) -> int:
        if not left:
            return 0
        rest = Counter(dict(left))
        useful = {tuple(sorted((column & rest).items())) for column in columns(gpu) if column[left[0][0]]}
        kept = [
            one
            for one in useful
            if not any(one != other and Counter(dict(one)) <= Counter(dict(other)) for other in useful)
        ]
        return 1 + min(search(tuple(sorted((rest - Counter(dict(one))).items()))) for one in kept)

    return search(tuple(sorted(demand.items())))


def test_236_instances_of_six_profiles_are_planned_and_proven() -> None:
    found = plan(H100, SIX_PROFILES)
    require_sound(found)
    assert sum(SIX_PROFILES.values()) == 236
    assert (found.gpus, found.lower_bound, found.optimal) == (66, 66, True)
    assert found.sm_share == pytest.approx(0.93, abs=0.005)


@given(demand=demands(A30, 5))
@settings(max_examples=25, deadline=None)
def test_on_four_units_no_plan_has_fewer_gpus_than_exhaustive_search(demand: dict[str, int]) -> None:
    found = plan(A30, demand)
    require_sound(found)
    assert found.optimal
    assert found.gpus == fewest(A30, Counter(demand))


@given(demand=demands(A100, 3))
@settings(max_examples=12, deadline=None)
def test_on_eight_units_no_plan_has_fewer_gpus_than_exhaustive_search(demand: dict[str, int]) -> None:
    found = plan(A100, demand, any_placement=True)
    require_sound(found)
    assert found.optimal
    assert found.gpus == fewest(A100, Counter(demand))


@given(data=st.data())
@settings(max_examples=25, deadline=None)
def test_no_plan_is_worse_than_first_fit_and_none_beats_the_bound(data: st.DataObject) -> None:
    gpu = data.draw(st.sampled_from([H100, A30, RTX]))
    model = model_of(gpu, data.draw(demands(gpu, 40)))
    packed = exact.solve(model)
    assert packed is not None
    assert packed.optimal
    by_hand, improved = gpus_of(first_fit(model)), gpus_of(heuristic(model))
    assert lower_bound(model) <= packed.bound == gpus_of(packed.packing) <= improved <= by_hand


@given(data=st.data())
@settings(max_examples=15, deadline=None)
def test_live_instances_stay_where_they_stand(data: st.DataObject) -> None:
    layouts = st.sampled_from(placed_layouts(H100, ["1g.10gb", "2g.20gb", "3g.40gb", "1g.20gb"]))
    chosen = data.draw(st.lists(layouts, min_size=1, max_size=4))
    standing = [StandingGpu(f"node/{index}", live) for index, live in enumerate(chosen)]
    demand = data.draw(demands(H100, 6))
    for solver in ("exact", "heuristic"):
        found = plan(H100, demand, standing, solver=solver)
        require_sound(found)
        named = {name: group for group in found.groups for name in group.gpus}
        for one in standing:
            assert set(one.live) <= set(named[one.name].layout)


def test_among_equal_plans_the_one_with_more_sms_is_taken() -> None:
    found = plan(H100, {"1g.10gb": 2})
    assert found.gpus == 1
    best = max(
        exposure(H100, layout).sms
        for layout in set_maximal(H100, list(SIX_PROFILES))
        if layout.count("1g.10gb") >= 2 and reach(H100, layout) is not Reach.EXPLICIT
    )
    assert exposure(H100, found.groups[0].profiles).sms == best


def test_what_stands_well_already_is_left_alone() -> None:
    balanced = ["3g.40gb", "2g.20gb", "1g.10gb", "1g.10gb"]
    standing = [StandingGpu(str(index), idle=place(H100, balanced)) for index in range(4)]
    found = plan(H100, {"3g.40gb": 4, "2g.20gb": 4, "1g.10gb": 8}, standing)
    assert (found.gpus, found.reconfigurations, found.added) == (4, 0, 0)
    assert [group.changed for group in found.groups] == [False]


def test_gpus_that_are_there_are_used_before_others_are_added() -> None:
    found = plan(H100, {"7g.80gb": 3}, [StandingGpu("a"), StandingGpu("b")])
    assert (found.gpus, found.added, found.reconfigurations) == (3, 1, 2)
    assert [group.gpus for group in found.groups] == [("a", "b"), ()]


def test_live_gpus_can_be_left_as_they_are() -> None:
    standing = [StandingGpu("a", (Placement("1g.10gb", 0, 1),))]
    filled = plan(H100, {"1g.10gb": 4}, standing)
    left = plan(H100, {"1g.10gb": 4}, standing, leave_live=True)
    assert (filled.gpus, left.gpus) == (1, 2)
    assert filled.groups[0].reach is Reach.EXPLICIT
    assert left.groups[0].profiles == ("1g.10gb",)


def test_layouts_that_the_driver_would_not_find_are_planned_only_when_asked() -> None:
    demand = {"1g.10gb": 6, "1g.20gb": 1}
    assert plan(H100, demand).gpus == 2
    assert plan(H100, demand, any_placement=True).gpus == 1
    assert all(reach(H100, layout) is not Reach.EXPLICIT for layout in reachable(H100, demand))


def test_without_a_solver_the_plan_states_its_gap(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> Any:
        raise ModuleNotFoundError(f"No module named {name!r}")

    monkeypatch.setattr("infra.gpus.exact.importlib.import_module", missing)
    found = plan(H100, SIX_PROFILES)
    require_sound(found)
    assert not found.optimal
    assert (found.lower_bound, found.gpus) == (66, 68)
    assert "install highspy" in found.note
    with pytest.raises(DemandError, match="HiGHS is not installed"):
        plan(H100, SIX_PROFILES, solver="exact")


def test_where_the_solver_s_time_is_up_first_fit_stands_in(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("infra.gpus.exact.solve", lambda model: None)
    found = plan(H100, SIX_PROFILES)
    require_sound(found)
    assert (found.optimal, found.note) == (False, "HiGHS found nothing in its time")


@pytest.mark.parametrize(
    ("gpu", "demand", "standing", "reason"),
    [
        pytest.param(L4, {"1g.5gb": 1}, [], "l4-24gb has no MIG", id="no MIG"),
        pytest.param(H100, {"3g.20gb": 1}, [], r"did you mean 3g\.40gb", id="another model's profile"),
        pytest.param(
            H100, {}, [StandingGpu("a", (Placement("3g.40gb", 2, 4),))], "3g.40gb@2 cannot be", id="no such start"
        ),
    ],
)
def test_what_cannot_be_is_refused(gpu: GpuModel, demand: dict[str, int], standing: Any, reason: str) -> None:
    with pytest.raises(DemandError, match=reason):
        plan(gpu, demand, standing)


def test_no_demand_is_no_gpu() -> None:
    found = plan(H100, {})
    assert (found.gpus, found.optimal, found.groups, found.sm_share) == (0, True, (), 0)


def test_a_large_demand_is_as_quick_as_a_small_one() -> None:
    found = plan(H100, {name: 1_000 * count for name, count in SIX_PROFILES.items()})
    assert found.optimal
    assert found.gpus <= 66_000


@pytest.mark.parametrize("per_node", [1, 4, 8])
def test_every_gpu_of_a_plan_is_on_one_node(per_node: int) -> None:
    found = plan(H100, SIX_PROFILES)
    nodes = nodes_of(found, per_node)
    assert sum(each.count * each.used for each in nodes) == found.gpus
    assert sum(each.count for each in nodes) == -(-found.gpus // per_node)


def test_nodes_of_a_pool_are_equal_and_the_price_of_that_is_told() -> None:
    made = plan_pool(H100, {"3g.40gb": 10, "1g.10gb": 30}, 4, [()] * 8)
    assert made.layout == {"0-2": ["3g.40gb", "4x1g.10gb"]}
    assert (made.nodes, made.node.gpus, made.unequal, made.changed) == (4, 3, 9, True)


def test_a_pool_that_has_the_layout_is_not_changed() -> None:
    layout = ("1g.10gb",) * 4 + ("3g.40gb",)
    made = plan_pool(H100, {"3g.40gb": 8, "1g.10gb": 30}, 4, [layout, layout, ()])
    assert (made.changed, made.node.reconfigurations) == (False, 0)


def test_a_pool_that_is_too_small_says_how_many_nodes_would_do() -> None:
    with pytest.raises(DemandError, match="4 equal nodes need 25 GPUs each and have 8; 13 nodes would do"):
        plan_pool(H100, {"7g.80gb": 100}, 4, [()] * 8)


def test_what_one_instance_takes_of_the_media_engines_wastes_no_sms() -> None:
    """Beside `+me.all` only profiles without media engines have room; on other GPUs plain ones are given."""
    gpu = catalogue().gpus["rtx-pro-6000-96gb"]
    one = plan(gpu, {"1g.24gb+me.all": 1})
    assert (one.gpus, one.stranded_units) == (1, 0)
    both = plan(gpu, {"2g.48gb+me.all": 3, "1g.24gb": 2})
    assert [(group.count, sorted(group.profiles)) for group in both.groups] == [
        (3, ["2g.48gb+me.all", "2g.48gb-me"]),
        (1, ["1g.24gb", "1g.24gb", "2g.48gb"]),
    ]
