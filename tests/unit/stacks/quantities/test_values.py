"""The values that quantities read, and how they behave in a YAML file and on a machine without time zones."""

from __future__ import annotations

import zoneinfo
from datetime import time
from decimal import Decimal
from ipaddress import ip_network

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from stacks.quantities import (
    calendar,
    format_percentage,
    format_rate,
    is_private_asn,
    parse_cidr,
    parse_days,
    parse_kube_quantity,
    parse_mig_item,
    parse_percentage,
    parse_rate,
    parse_time_of_day,
    parse_time_zone,
)


def test_values_have_the_unit_their_name_says() -> None:
    assert parse_percentage("20%") == 0.2
    assert parse_rate("1.25 Gbps") == 1_250_000_000
    assert parse_cidr("10.0.0.0/16") == ip_network("10.0.0.0/16")
    assert parse_days("Mon,Sun") == {1, 7}
    assert parse_mig_item("7x1g.5gb").count == 7


@pytest.mark.parametrize(
    ("text", "read"), [("22:00", time(22)), ("08:00", time(8)), ("8:30", time(8, 30)), ("0:30", time(0, 30))]
)
def test_a_time_survives_that_yaml_reads_it_in_base_sixty(text: str, read: time) -> None:
    assert parse_time_of_day(yaml.safe_load(text)) == read


def test_quantities_of_one_amount_are_equal_however_they_are_written() -> None:
    assert parse_kube_quantity("1Gi") == parse_kube_quantity("1073741824")
    assert len({parse_kube_quantity("1000m"), parse_kube_quantity(1)}) == 1
    assert parse_kube_quantity("1Gi") != parse_kube_quantity("1G")


@settings(max_examples=50)
@given(st.integers(0, 2**33 - 1), st.sampled_from(["n", "u", "m", "", "k", "M", "Ki", "Mi", "Gi", "e-3", "E3"]))
def test_the_canonical_kubernetes_quantity_keeps_the_amount(number: int, suffix: str) -> None:
    quantity = parse_kube_quantity(f"{number}{suffix}")
    again = parse_kube_quantity(quantity.text)
    assert (again, again.text) == (quantity, quantity.text)


@settings(max_examples=50)
@given(st.integers(1, 10**16), st.decimals(0, 100, places=6))
def test_rates_and_percentages_read_back_exactly(bits: int, percent: Decimal) -> None:
    assert parse_rate(format_rate(bits)) == bits
    fraction = parse_percentage(f"{percent:f}%")
    assert parse_percentage(format_percentage(fraction)) == fraction


@pytest.mark.parametrize(
    ("number", "private"),
    [(64_511, False), (64_512, True), (65_534, True), (65_535, False), (4_200_000_000, True), (4_294_967_294, True), (4_294_967_295, False)],
)  # fmt: skip
def test_private_numbers_are_those_of_rfc_6996(number: int, private: bool) -> None:
    assert is_private_asn(number) is private


def test_a_machine_without_a_time_zone_database_is_told_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(calendar, "_loads", lambda _: False)
    monkeypatch.setattr(calendar, "available_timezones", lambda: set())
    calendar._known_zones.cache_clear()
    try:
        with pytest.raises(ValueError, match="install the Python package tzdata"):
            parse_time_zone("Europe/Berlin")
    finally:
        calendar._known_zones.cache_clear()


def test_every_zone_of_the_database_is_read_except_relics() -> None:
    refused = []
    for key in zoneinfo.available_timezones():
        try:
            assert parse_time_zone(key) == key
        except ValueError:
            refused.append(key)
    relics = calendar._ABBREVIATIONS | {"localtime", "Factory", "GMT+0", "GMT-0"}
    assert set(refused) <= relics
