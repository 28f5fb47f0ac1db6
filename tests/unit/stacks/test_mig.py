"""MIG placement, checked against an enumeration that knows nothing of the search."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import replace
from itertools import combinations, product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stacks.catalogue import GpuModel, catalogue
from stacks.mig import Placement, place
from stacks.quantities import parse_mig_item

A100 = catalogue().gpus["a100-sxm-40gb"]
H100 = catalogue().gpus["h100-sxm-80gb"]
A30 = catalogue().gpus["a30-24gb"]
RTX = catalogue().gpus["rtx-pro-6000-96gb"]
L4 = catalogue().gpus["l4-24gb"]
WITH_MIG = [gpu for gpu in catalogue().gpus.values() if gpu.mig]

Layout = frozenset[tuple[str, int]]


def profiles_of(items: list[str]) -> list[str]:
    """What the items of a layout stand for."""
    read = [parse_mig_item(item) for item in items]
    return [item.profile for item in read for _ in range(item.count)]


def every_layout(gpu: GpuModel, without: tuple[str, ...]) -> set[Layout]:
    """All sets of (profile, start) that obey the rules, by adding one at a time."""
    assert gpu.mig is not None
    mig = gpu.mig
    kept = [profile for profile in mig.profiles.values() if not profile.name.endswith(without)]
    choices = [(profile.name, start) for profile in kept for start in profile.starts]

    def legal(layout: Layout) -> bool:
        profiles = [mig.profiles[name] for name, _ in layout]
        counts = Counter(name for name, _ in layout)
        units = [unit for name, start in layout for unit in range(start, start + mig.profiles[name].size)]
        return (
            len(set(units)) == len(units)
            and all(count <= mig.profiles[name].max_count for name, count in counts.items())
            and all(
                sum(profile.engines.counts[kind] for profile in profiles) <= most
                for kind, most in enumerate(mig.engines.counts)
            )
            and (gpu.sms is None or sum(profile.sms or 0 for profile in profiles) <= gpu.sms)
        )

    found: set[Layout] = {frozenset()}
    newest = set(found)
    while newest:
        newest = {layout | {choice} for layout in newest for choice in choices if choice not in layout}
        newest = {layout for layout in newest if legal(layout)}
        found |= newest
    return found


def maximal(layouts: set[Layout]) -> int:
    covered = {layout - {choice} for layout in layouts for choice in layout}
    return len(layouts - covered)


@pytest.mark.parametrize(
    ("gpu", "without", "placed", "ends"),
    [
        pytest.param(A100, ("1g.10gb", "+me"), 297, 19, id="A100 as in NVIDIA's figure"),
        pytest.param(A100, ("+me",), 722, 78, id="A100 with 1g of two units"),
        pytest.param(A30, ("+me",), 25, 5, id="A30"),
    ],
)
def test_the_table_has_as_many_layouts_as_the_literature(
    gpu: GpuModel, without: tuple[str, ...], placed: int, ends: int
) -> None:
    layouts = every_layout(gpu, without)
    assert (len(layouts - {frozenset()}), maximal(layouts)) == (placed, ends)


@pytest.mark.parametrize(
    ("gpu", "without"),
    [
        pytest.param(A100, (".x",), id="A100"),
        pytest.param(A30, (".x",), id="A30"),
        pytest.param(RTX, ("+gfx", "+me"), id="RTX PRO 6000"),
    ],
)
def test_profiles_are_placed_exactly_where_some_layout_has_them(gpu: GpuModel, without: tuple[str, ...]) -> None:
    assert gpu.mig is not None
    possible = {tuple(sorted(name for name, _ in layout)) for layout in every_layout(gpu, without)}
    kept = [profile for profile in gpu.mig.profiles.values() if not profile.name.endswith(without)]
    for counts in product(*(range(profile.max_count + 1) for profile in kept)):
        names = sorted(profile.name for profile, count in zip(kept, counts, strict=True) for _ in range(count))
        if sum(gpu.mig.profiles[name].size for name in names) > gpu.mig.units:
            continue
        try:
            found = place(gpu, names)
        except ValueError:
            assert tuple(names) not in possible
        else:
            assert sorted(placement.profile for placement in found) == names
            assert tuple(names) in possible


@given(data=st.data())
@settings(max_examples=60)
def test_whatever_is_asked_the_answer_is_legal_or_a_reason(data: st.DataObject) -> None:
    gpu = data.draw(st.sampled_from(WITH_MIG))
    assert gpu.mig is not None
    names = data.draw(st.lists(st.sampled_from(sorted(gpu.mig.profiles)), max_size=9))
    try:
        placed = place(gpu, names)
    except ValueError as error:
        if gpu.id not in str(error):
            raise
        return
    assert place(gpu, names[::-1]) == placed
    assert sorted(placement.profile for placement in placed) == sorted(names)
    for one, other in combinations(placed, 2):
        assert one.end <= other.start
    for placement in placed:
        assert placement.start in gpu.mig.profiles[placement.profile].starts
        assert placement.end <= gpu.mig.units


@pytest.mark.parametrize("gpu", WITH_MIG, ids=lambda gpu: gpu.id)
def test_every_profile_fits_alone_and_as_often_as_the_table_says(gpu: GpuModel) -> None:
    assert gpu.mig is not None
    for profile in gpu.mig.profiles.values():
        assert len(place(gpu, [profile.name] * profile.max_count)) == profile.max_count


def test_a_larger_profile_is_not_blocked_by_smaller_ones_that_are_named_first() -> None:
    assert place(A100, ["1g.5gb", "1g.5gb", "2g.10gb", "3g.20gb"]) == (
        Placement("2g.10gb", 0, 2),
        Placement("1g.5gb", 2, 1),
        Placement("1g.5gb", 3, 1),
        Placement("3g.20gb", 4, 4),
    )


def test_no_profile_is_no_placement() -> None:
    assert place(A100, []) == ()


@pytest.mark.parametrize(
    ("gpu", "items", "reason"),
    [
        pytest.param(L4, ["1g.5gb"], "l4-24gb has no MIG", id="no MIG"),
        pytest.param(H100, ["3g.20gb"], "not a MIG profile of h100-sxm-80gb; did you mean 3g.40gb?", id="other model"),
        pytest.param(H100, ["1g.5gb+me"], "did you mean 1g.10gb+me?", id="other model, media"),
        pytest.param(A30, ["3g.20gb"], "not a MIG profile of a30-24gb; did you mean", id="A30 has no 3g"),
        pytest.param(A100, ["8x1g.5gb"], "8 x 1g.5gb on one a100-sxm-40gb; it takes at most 7", id="too many"),
        pytest.param(
            A100,
            ["3g.20gb", "4g.20gb", "1g.5gb"],
            "1g.5gb does not fit on one a100-sxm-40gb beside 3g.20gb, 4g.20gb: together they need 9 memory units, "
            "and it has 8; beside those there is room for no other profile",
            id="the line is full",
        ),
        pytest.param(
            H100,
            ["3x2g.20gb", "2x1g.10gb"],
            "beside 3 x 2g.20gb, 1g.10gb: wherever those stand, none of its starts (0, 1, 2, 3, 4, 5, 6) has room",
            id="the last unit is no start",
        ),
        pytest.param(
            RTX,
            ["1g.24gb+me.all", "1g.24gb"],
            "together they need 5 decoders, and it has 4; beside those there is room for 1g.24gb-me or 2g.48gb-me",
            id="media engines",
        ),
    ],
)
def test_the_reason_names_what_is_short(gpu: GpuModel, items: list[str], reason: str) -> None:
    with pytest.raises(ValueError, match=re.escape(reason)):
        place(gpu, profiles_of(items))


def test_an_instance_that_stands_already_is_planned_around() -> None:
    standing = Placement("1g.10gb", 5, 1)
    assert place(H100, ["4g.40gb", "1g.10gb"], beside=[standing]) == (
        Placement("4g.40gb", 0, 4),
        Placement("1g.10gb", 4, 1),
        standing,
    )
    with pytest.raises(ValueError, match=r"3g\.40gb does not fit .* beside 1g\.10gb@5, 4g\.40gb"):
        place(H100, ["4g.40gb", "3g.40gb"], beside=[standing])


@pytest.mark.parametrize(
    ("standing", "reason"),
    [
        pytest.param([Placement("1g.10gb", 7, 1)], "1g.10gb@7 cannot be on a h100-sxm-80gb", id="no such start"),
        pytest.param([Placement("3g.40gb", 0, 3)], "3g.40gb@0 cannot be on a h100-sxm-80gb", id="no such size"),
        pytest.param(
            [Placement("4g.40gb", 0, 4), Placement("1g.10gb", 3, 1)], "share memory units", id="one on the other"
        ),
    ],
)
def test_instances_cannot_stand_where_no_card_has_them(standing: list[Placement], reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        place(H100, [], beside=standing)


def test_sms_bound_a_layout_where_they_are_known() -> None:
    small = replace(A100, sms=90)
    with pytest.raises(ValueError, match="together they need 98 SMs, and it has 90"):
        place(small, ["3g.20gb", "4g.20gb"])
    assert place(replace(A100, sms=None), ["3g.20gb", "4g.20gb"])
