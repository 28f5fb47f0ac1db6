from __future__ import annotations

import pytest

from infra.discovery.mig import layout_of
from stacks.catalogue import catalogue

A100 = catalogue().gpus["a100-sxm-40gb"]
H100 = catalogue().gpus["h100-sxm-80gb"]


def test_equal_gpus_get_one_line() -> None:
    assert layout_of(H100, {"1g.10gb": 56}, 8) == ({"0-7": ["7x1g.10gb"]}, 8)
    balanced = {"1g.5gb": 16, "2g.10gb": 8, "3g.20gb": 8}
    assert layout_of(A100, balanced, 8) == ({"0-7": ["2x1g.5gb", "2g.10gb", "3g.20gb"]}, 8)


def test_slices_that_are_not_equal_on_all_are_packed_into_a_layout_that_exists() -> None:
    assert layout_of(A100, {"3g.20gb": 3, "1g.5gb": 7}, 3) == (
        {"0": ["2x3g.20gb"], "1": ["3g.20gb", "4x1g.5gb"], "2": ["3x1g.5gb"]},
        3,
    )


def test_without_a_count_of_gpus_as_few_as_possible_are_taken() -> None:
    assert layout_of(A100, {"7g.40gb": 2}, None) == ({"0-1": ["7g.40gb"]}, 2)


@pytest.mark.parametrize(
    ("slices", "gpus"),
    [
        ({}, 8),
        ({"1g.5gb": 0}, 8),
        ({"1g.5gb": 8}, 1),
        ({"7g.80gb": 1}, 1),
        ({"1g.5gb": 10**9}, None),
        ({"1g.5gb": 7}, 10**9),
        ({"7g.40gb": 65}, None),
    ],
)
def test_what_no_node_can_have_gives_no_layout(slices: dict[str, int], gpus: int | None) -> None:
    assert layout_of(A100, slices, gpus) is None


def test_a_model_without_mig_has_no_layout() -> None:
    assert layout_of(catalogue().gpus["l4-24gb"], {"1g.5gb": 1}, 1) is None
