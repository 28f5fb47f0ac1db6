from __future__ import annotations

import json
from dataclasses import replace
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from runtime.cost.entries import EntryError, top_up_from_dict, top_up_to_dict
from runtime.cost.ledger import TopUp
from runtime.cost.topups import check, from_text, parse, to_text
from tests.builders import HOUR, NOON

TOP_UP = TopUp("20261121-1", "team vision", Decimal("12.50"), "Frühling: “deadline”", "ada", NOON, NOON + HOUR)
ENTRY = json.loads(to_text(TOP_UP))


def test_a_top_up_reads_back_as_it_was_written() -> None:
    assert parse({TOP_UP.id: to_text(TOP_UP)}) == ((TOP_UP,), ())
    assert top_up_from_dict(json.loads(json.dumps(top_up_to_dict(TOP_UP)))) == TOP_UP


def test_a_person_can_read_what_stands_in_the_config_map() -> None:
    assert to_text(TOP_UP) == (
        '{"v": 1, "scope": "team vision", "usd": "12.50", "reason": "Frühling: “deadline”", "author": "ada", '
        '"granted_at": "2026-11-21T12:00:00Z", "expires_at": "2026-11-21T13:00:00Z"}'
    )


def test_one_bad_entry_never_hides_a_good_one() -> None:
    found, problems = parse({"b": "{", TOP_UP.id: to_text(TOP_UP), "A": "x"})
    assert found == (TOP_UP,)
    assert problems == (
        "top-up 'A': is not JSON (got 'x'); use `gpufleet budget top-up`",
        "top-up 'b': is not JSON (got '{'); use `gpufleet budget top-up`",
    )


def test_a_config_map_without_data_has_no_top_ups() -> None:
    assert parse({}) == ((), ())


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"v": 2}, "version 2 is not 1"),
        ({"v": None}, "version None is not 1"),
        ({"colour": "red"}, "missing or unknown fields 'colour'"),
        ({"scope": "vision"}, "scope must be `fleet`, `team NAME` or `project NAME`"),
        ({"scope": "team a b"}, "scope must be"),
        ({"scope": 7}, "scope must be text"),
        ({"usd": 5}, "usd must be text"),
        ({"usd": "0"}, "usd must be above 0"),
        ({"usd": "-5"}, "usd must be an amount as text"),
        ({"usd": "1e9"}, "usd must be an amount as text"),
        ({"usd": "NaN"}, "usd must be an amount as text"),
        ({"usd": "9999999999999"}, "usd must be above 0 and at most"),
        ({"usd": "0.0000001"}, "usd must be an amount as text"),
        ({"reason": ""}, "reason must be 1 to 500 characters on one line"),
        ({"reason": " \u00a0"}, "reason must be"),
        ({"reason": "a\nb"}, "reason must be"),
        ({"reason": "\u202egnp"}, "reason must be"),
        ({"reason": "\ud800"}, "reason must be"),
        ({"reason": "x" * 501}, "reason must be"),
        ({"author": ""}, "author must be"),
        ({"author": ["ada"]}, "author must be text"),
        ({"expires_at": "2026-11-21T12:00:00Z"}, "expires_at must be later than granted_at"),
        ({"expires_at": "2026-11-22"}, "expires_at must be a time with its offset"),
        ({"granted_at": "yesterday"}, "granted_at must be a time"),
        ({"granted_at": "0001-01-01T00:00:00+23:59"}, "granted_at must be|later than"),
        ({"granted_at": "1960-01-01T00:00:00Z"}, "later than"),
    ],
)
def test_an_impossible_top_up_is_refused_by_the_name_of_its_field(change: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        from_text(TOP_UP.id, json.dumps(ENTRY | change))


@pytest.mark.parametrize("field", list(ENTRY))
def test_no_field_may_be_missing(field: str) -> None:
    with pytest.raises(ValueError, match=field if field != "v" else "version None"):
        from_text(TOP_UP.id, json.dumps({name: value for name, value in ENTRY.items() if name != field}))


@pytest.mark.parametrize("text", ["", "null", "[]", "7", "[" * 4_000, "[" * 9_000, '{"v":1}', "\x00"])
def test_what_is_no_top_up_at_all_is_a_sentence(text: str) -> None:
    found, [problem] = parse({"t-1": text})
    assert found == ()
    assert problem.startswith("top-up 't-1': ")
    assert len(problem) < 300


@pytest.mark.parametrize("name", ["", "A", "../owner", "a.b", "-a", "a-", "a" * 64, "a/b", "a\n"])
def test_a_top_up_cannot_leave_its_folder_by_its_name(name: str) -> None:
    with pytest.raises(ValueError, match="name of the entry"):
        check(replace(TOP_UP, id=name))
    with pytest.raises(EntryError, match="name of the entry"):
        top_up_from_dict(top_up_to_dict(TOP_UP) | {"id": name})


@settings(max_examples=60)
@given(st.dictionaries(st.text(max_size=5), st.text(max_size=30) | st.just(to_text(TOP_UP)), max_size=4))
def test_no_data_makes_reading_fail(data: dict[str, str]) -> None:
    found, problems = parse(data)
    assert len(found) + len(problems) == len(data)
