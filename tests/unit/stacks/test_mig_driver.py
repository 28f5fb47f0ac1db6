"""Which layouts come about where the driver chooses the places: certain by exhaustion, likely by transcripts of cards."""

from __future__ import annotations

from collections import Counter
from itertools import permutations

import pytest

from stacks.catalogue import GpuModel, catalogue
from stacks.mig import Reach, creation_order, driver_placement, multisets, reach

GPUS = catalogue().gpus
A100, H100, A30, RTX = (GPUS[name] for name in ("a100-sxm-40gb", "h100-sxm-80gb", "a30-24gb", "rtx-pro-6000-96gb"))

# Orders of creation as printed by nvidia-smi, with the starts that the driver chose: the MIG user guide's examples for
# A100, and transcripts of A100 80GB, H100, A30 and RTX PRO 6000 cards.
SEEN = [
    pytest.param(A100, "1g.5gb@6 2g.10gb@4 4g.20gb@0", id="4-2-1 of the user guide"),
    pytest.param(A100, "3g.20gb@4 1g.5gb@0 2g.10gb@2 1g.5gb@1", id="3-2-1-1 of the user guide"),
    pytest.param(A100, "3g.20gb@4 3g.20gb@0", id="3-3 of the user guide"),
    pytest.param(A100, "2g.10gb@4 2g.10gb@0 2g.10gb@2 1g.5gb+me@6", id="2-2-2-1 with media engines"),
    pytest.param(
        H100, "1g.10gb@6 1g.10gb@4 1g.10gb@5 1g.10gb@0 1g.10gb@1 1g.10gb@2 1g.10gb@3", id="seven small ones of H100"
    ),
    pytest.param(H100, "1g.20gb@4", id="one of two units"),
    pytest.param(A30, "1g.6gb@0 1g.6gb@1 2g.12gb@2", id="A30"),
    pytest.param(RTX, "2g.48gb@0 1g.24gb@6 1g.24gb@9", id="RTX PRO 6000"),
]


@pytest.mark.parametrize(("gpu", "seen"), SEEN)
def test_the_driver_is_believed_to_choose_as_it_has_been_seen_to(gpu: GpuModel, seen: str) -> None:
    order = [one.partition("@")[0] for one in seen.split()]
    found = driver_placement(gpu, order)
    assert found is not None
    assert sorted(map(str, found)) == sorted(seen.split())


def test_small_ones_first_leave_no_room_for_a_large_one_as_the_user_guide_warns() -> None:
    assert driver_placement(A100, ["1g.5gb", "1g.5gb", "2g.10gb", "3g.20gb"]) is None
    assert reach(A100, ["1g.5gb", "1g.5gb", "2g.10gb", "3g.20gb"]) is Reach.LIKELY
    assert creation_order(A100, ["1g.5gb", "1g.5gb", "2g.10gb", "3g.20gb"]) == (
        "3g.20gb",
        "2g.10gb",
        "1g.5gb",
        "1g.5gb",
    )


@pytest.mark.parametrize(
    ("profiles", "expected"),
    [
        (["1g.10gb"] * 7, Reach.CERTAIN),
        (["4g.40gb", "3g.40gb"], Reach.CERTAIN),
        (["7g.80gb"], Reach.CERTAIN),
        (["3g.40gb", *["1g.10gb"] * 4], Reach.LIKELY),
        (["1g.20gb", *["1g.10gb"] * 6], Reach.EXPLICIT),
        ([], Reach.CERTAIN),
    ],
)
def test_how_layouts_come_about(profiles: list[str], expected: Reach) -> None:
    assert reach(H100, profiles) is expected
    assert (creation_order(H100, profiles) is None) is (expected is Reach.EXPLICIT)


def fails_somehow(gpu: GpuModel, order: tuple[str, ...], taken: frozenset[int] = frozenset()) -> bool:
    """Whether some choice of starts leaves one of the profiles without a place."""
    if not order:
        return False
    assert gpu.mig is not None
    profile = gpu.mig.profiles[order[0]]
    places = [frozenset(range(start, start + profile.size)) for start in profile.starts]
    free = [units for units in places if not units & taken]
    return not free or any(fails_somehow(gpu, order[1:], taken | units) for units in free)


@pytest.mark.parametrize("gpu", [H100, A30], ids=lambda gpu: gpu.id)
def test_certain_means_that_some_order_succeeds_whatever_the_driver_chooses(gpu: GpuModel) -> None:
    assert gpu.mig is not None
    plain = [name for name, profile in gpu.mig.profiles.items() if not profile.suffix]
    for layout in multisets(gpu, plain):
        if len(layout) > 5:  # a permutation of more would take the test seconds
            continue
        certain = any(not fails_somehow(gpu, order) for order in set(permutations(layout)))
        assert (reach(gpu, layout) is Reach.CERTAIN) is certain, Counter(layout)


def test_an_illegal_layout_is_never_reached() -> None:
    with pytest.raises(ValueError, match="does not fit"):
        reach(H100, ["4g.40gb", "3g.40gb", "1g.10gb"])
