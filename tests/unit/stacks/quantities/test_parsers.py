"""Durations, money, memory and names as the rest of the code uses them."""

from __future__ import annotations

from datetime import timedelta
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stacks.quantities import (
    format_duration,
    format_memory,
    format_usd,
    parse_duration,
    parse_kube_name,
    parse_memory,
    parse_usd,
)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("90s", 90), ("4m30s", 270), ("1h 30m", 5400), ("2d", 172_800), ("0s", 0), ("1.5h", 5400), ("500ms", 0.5), ("2H", 7200)],
)  # fmt: skip
def test_a_duration_is_read_with_its_units(text: str, seconds: float) -> None:
    assert parse_duration(text) == timedelta(seconds=seconds)


@pytest.mark.parametrize(
    "value", [90, 1.5, True, None, "", "90", "h", "1x", "-5m", "1h-5m", "5 minutes", "9" * 400 + "d", "20y"]
)
def test_a_duration_without_a_proper_unit_is_refused_with_an_example(value: object) -> None:
    with pytest.raises(ValueError, match="for example 90s"):
        parse_duration(value)


@given(st.integers(min_value=0, max_value=10**9))
def test_the_canonical_duration_reads_back_as_itself(milliseconds: int) -> None:
    duration = timedelta(milliseconds=milliseconds)
    assert parse_duration(format_duration(duration)) == duration


@pytest.mark.parametrize(
    ("value", "amount"),
    [("20000 USD", "20000"), ("$1,250.50", "1250.50"), ("USD 3", "3"), (1.1, "1.1"), (7, "7"), ("1_000", "1000")],
)
def test_money_is_read_exactly(value: object, amount: str) -> None:
    assert parse_usd(value) == Decimal(amount)


@pytest.mark.parametrize("value", ["100 EUR", "€5", "-1 USD", "", "abc", True, None, [], "1.2.3", "nan", "inf"])
def test_what_is_not_an_amount_of_dollars_is_refused(value: object) -> None:
    with pytest.raises(ValueError, match=r"USD|US dollars|negative"):
        parse_usd(value)


def test_money_is_written_for_people() -> None:
    assert format_usd(Decimal("1250.505")) == "$1,250.51"


@pytest.mark.parametrize(
    ("text", "size"), [("1Ti", 2**40), ("512 GiB", 512 * 2**30), ("1G", 10**9), ("1.5Gi", 3 * 2**29)]
)
def test_memory_is_read_with_its_unit(text: str, size: int) -> None:
    assert parse_memory(text) == size


@given(st.integers(min_value=1, max_value=2**60))
def test_the_canonical_memory_keeps_the_exact_amount(size: int) -> None:
    text = format_memory(size)
    assert (int(text) if text.isdigit() else parse_memory(text)) == size


@pytest.mark.parametrize("name", ["Acme", "a_b", "-a", "a-", "", "a" * 64, "a.b", 7])
def test_names_that_kubernetes_refuses_are_refused(name: object) -> None:
    with pytest.raises(ValueError, match=r"Kubernetes name|quote it"):
        parse_kube_name(name)
