"""What plain scalars mean; the expected values are what gopkg.in/yaml.v3 3.0.1 gave for the same text, as JSON."""

from __future__ import annotations

import math

import pytest

from stacks.reading.scalars import resolve


@pytest.mark.parametrize(
    "text",
    [
        *("yes", "no", "on", "off", "y", "Y", "tRue", "nULL", "22:00", "1:30", "12:30:45", "5m", "4m30s", "50%", "$5"),
        *("-", "+", ".", "0x", "0b", "0o8", "0b12", "1e", "1e400", "_1", "._5", ".5_", "1.2.3", "0x1p-2", "inf", "nan"),
        *("Infinity", "1,000", "<<", "=", "0 7", "2026-01-01T00:00:00", "26-01-01", "+-1", "1e+", "é", "٣"),
    ],
)
def test_what_yaml_1_1_would_change_stays_text(text: str) -> None:
    assert resolve(text) == ("str", text)


@pytest.mark.parametrize(
    ("text", "number"),
    [
        *(
            ("8", 8),
            ("+5", 5),
            ("-0", 0),
            ("010", 8),
            ("-010", -8),
            ("08", 8),
            ("0o17", 15),
            ("0O17", 15),
            ("0x1F", 31),
        ),
        *(("-0x1f", -31), ("0b11", 3), ("1_000", 1000), ("1__0", 10), ("1_", 1), ("0_7", 7), ("1.10", 1.1), ("1.", 1)),
        *((".5", 0.5), ("-.5", -0.5), (".5_0", 0.5), ("1e3", 1000), ("1.5e3", 1500), ("1e-7", 1e-7), ("09.5", 9.5)),
        *(("1.0", 1), ("-0.0", 0), ("1e20", 10**20), ("1e21", 1e21), ("18446744073709551615", 2**64 - 1)),
        ("18446744073709551616", 18446744073709552000),
        ("-9223372036854775809", -9223372036854776000),
        ("123456789012345678901234567890", 1.2345678901234568e29),
    ],
)
def test_numbers_are_those_that_pulumi_hands_on(text: str, number: float) -> None:
    _, value = resolve(text)
    assert value == number
    assert type(value) is type(number)


@pytest.mark.parametrize("text", ["", "~", "null", "Null", "NULL"])
def test_nothing_has_five_spellings(text: str) -> None:
    assert resolve(text) == ("null", None)


@pytest.mark.parametrize(("text", "value"), [("true", True), ("True", True), ("FALSE", False)])
def test_only_true_and_false_are_booleans(text: str, value: bool) -> None:
    assert resolve(text) == ("bool", value)


@pytest.mark.parametrize(
    "text", ["2026-01-01", "2026-1-1", "2026-01-01T00:00:00Z", "2026-01-01t1:2:3.5+02:00", "2026-01-01 10:00:00"]
)
def test_a_date_is_told_apart_from_text(text: str) -> None:
    assert resolve(text)[0] == "timestamp"


@pytest.mark.parametrize("text", [".inf", "-.Inf", "+.INF", ".nan"])
def test_what_json_cannot_carry_is_a_float(text: str) -> None:
    kind, value = resolve(text)
    assert kind == "float"
    assert isinstance(value, float)
    assert not math.isfinite(value)
