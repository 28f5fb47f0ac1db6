"""Every layout of a model: counted as the literature counts them, and what each exposes."""

from __future__ import annotations

from collections import Counter

import pytest

from stacks.catalogue import GpuModel, catalogue
from stacks.mig import counts_of, exposure, maximal_layouts, multisets, place, placed_layouts, room_beside, set_maximal

GPUS = catalogue().gpus
A100, H100, B200 = GPUS["a100-sxm-40gb"], GPUS["h100-sxm-80gb"], GPUS["b200-sxm-180gb"]
A30, RTX = GPUS["a30-24gb"], GPUS["rtx-pro-6000-96gb"]
WITH_MIG = [gpu for gpu in GPUS.values() if gpu.mig]


def plain(gpu: GpuModel, *, double: bool = True) -> list[str]:
    """Profiles without suffix; without the 1g of two units where that is not wanted."""
    assert gpu.mig is not None
    kept = [profile for profile in gpu.mig.profiles.values() if not profile.suffix]
    return [
        one.name for one in kept if double or one.slices > 1 or one.size == gpu.mig.units // 8 or gpu.mig.units != 8
    ]


def short(gpu: GpuModel, multiset: tuple[str, ...]) -> str:
    """As NVIDIA's figure writes it: `3g+4x1g`; the 1g of two units is 1g2."""
    assert gpu.mig is not None
    sizes = {
        name: f"{one.slices}g{2 if (one.slices, one.size) == (1, 2) else ''}" for name, one in gpu.mig.profiles.items()
    }
    counted = reversed(counts_of([sizes[name] for name in multiset]))
    return "+".join(name if times == 1 else f"{times}x{name}" for name, times in counted)


@pytest.mark.parametrize(
    ("gpu", "double", "counts"),
    [
        pytest.param(A100, False, (297, 19, 14, 12), id="A100 as in NVIDIA's figure"),
        pytest.param(H100, False, (297, 19, 14, 12), id="H100 as in NVIDIA's figure"),
        pytest.param(A100, True, (722, 78, 38, 28), id="A100 with 1g of two units"),
        pytest.param(H100, True, (722, 78, 38, 28), id="H100 with 1g of two units"),
        pytest.param(A30, True, (25, 5, 4, 4), id="A30"),
        pytest.param(RTX, True, (25, 5, 4, 4), id="RTX PRO 6000 is two halves"),
    ],
)
def test_there_are_as_many_layouts_as_the_literature_says(
    gpu: GpuModel, double: bool, counts: tuple[int, int, int, int]
) -> None:
    among = plain(gpu, double=double)
    found = (placed_layouts(gpu, among), maximal_layouts(gpu, among), multisets(gpu, among), set_maximal(gpu, among))
    assert tuple(map(len, found)) == counts


def test_the_twelve_set_maximal_layouts_are_those_of_the_figure() -> None:
    named = "7g 4g+3g 4g+2g+1g 4g+3x1g 2x3g 3g+2x2g 3g+2g+2x1g 3g+4x1g 3x2g+1g 2x2g+3x1g 2g+5x1g 7x1g"
    assert {short(A100, one) for one in set_maximal(A100, plain(A100, double=False))} == set(named.split())


EXPOSED = {  # SMs in percent of A100, H100 and B200
    "7g": (91, 100, 100),
    "4g+3g": (91, 94, 96),
    "2x3g": (78, 91, 95),
    "3g+4x1g": (91, 94, 96),
    "3g+2g+2x1g": (91, 94, 96),
    "4g+2g+1g": (91, 85, 85),
    "3x2g+1g": (91, 85, 85),
    "7x1g": (91, 85, 85),
    "1g2+6x1g": (91, 92, 93),
    "4x1g2": (52, 79, 81),
}


@pytest.mark.parametrize("named", EXPOSED)
def test_layouts_expose_so_many_sms(named: str) -> None:
    for gpu, share in zip((A100, H100, B200), EXPOSED[named], strict=True):
        [layout] = [one for one in set_maximal(gpu, plain(gpu)) if short(gpu, one) == named]
        assert round(100 * exposure(gpu, layout).sm_share) == share, gpu.id


def test_seven_small_slices_strand_the_last_memory_unit_and_a_seventh_of_an_h100() -> None:
    exposed = exposure(H100, ["1g.10gb"] * 7)
    assert (exposed.stranded_units, exposed.stranded_sms, exposed.counts_slices) == (1, 20, False)


def test_where_sms_are_not_known_slices_are_counted_and_it_says_so() -> None:
    exposed = exposure(GPUS["gh200-144gb"], ["3g.72gb"])
    assert (exposed.sms, exposed.all_sms, exposed.counts_slices) == (3, 7, True)


@pytest.mark.parametrize("gpu", WITH_MIG, ids=lambda gpu: gpu.id)
def test_what_is_enumerated_is_what_can_be_placed(gpu: GpuModel) -> None:
    for layout in multisets(gpu):
        assert Counter(one.profile for one in place(gpu, layout)) == Counter(layout)
    for layout in set_maximal(gpu):
        assert not room_beside(gpu, layout), layout


def test_two_small_slices_in_the_wrong_places_block_every_large_one() -> None:
    small = ["1g.10gb", "1g.10gb"]
    assert {"3g.40gb", "4g.40gb"} <= set(room_beside(H100, small))
    apart = next(one for one in placed_layouts(H100, small) if [each.start for each in one] == [1, 5])
    assert room_beside(H100, [], placed=apart) == ("1g.10gb", "1g.10gb+me", "1g.20gb", "2g.20gb")


def test_an_unknown_profile_is_refused_with_the_nearest() -> None:
    with pytest.raises(ValueError, match=r"did you mean 3g\.40gb"):
        placed_layouts(H100, ["3g.20gb"])
