"""The wish that a job be moved, as it stands on a Workload."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from runtime.eviction.notice import Certainty, NoticeKind
from runtime.eviction.wish import LONGEST_JSON_BYTES, MoveWish, notice_of, wish_from_json, wish_to_json

AT = 1_790_000_000.0
WISH = MoveWish("move-1a2b", "on-demand", AT, AT + 600, "the spot market is poor")


def text(**changes: Any) -> str:
    return json.dumps({"version": 1, "id": "move-1", "to": "spot", "at": AT, "until": AT + 60} | changes)


def test_a_wish_reads_back_as_it_was_written() -> None:
    assert wish_from_json(wish_to_json(WISH)) == WISH


def test_a_wish_is_a_certain_notice_without_a_deadline() -> None:
    notice = notice_of(WISH, AT)
    assert (notice.id, notice.kind, notice.certainty) == ("move-1a2b", NoticeKind.MOVE, Certainty.CERTAIN)
    assert notice.deadline is None


@pytest.mark.parametrize(
    ("written", "problem"),
    [
        ("", "Expecting value"),
        ("on-demand", "Expecting value"),
        ("[]", "no JSON object"),
        (text(version=2), "version is 2"),
        (text(id=""), "must be 1 to"),
        (text(id="a b"), "must be 1 to"),
        (text(to=7), "to must be a text"),
        (text(to="x" * 300), "to must be a text"),
        (text(at=None), "at must be seconds"),
        (text(until="soon"), "until must be seconds"),
        (text(until=AT), "until must be after at"),
        (text(until=AT + 1e7), "by a week at most"),
        (text(at=-5.0, until=5.0), "seconds since 1970"),
        (text(reason="x" * 300), "reason must be a text"),
        ("x" * (LONGEST_JSON_BYTES + 1), "is the most"),
        ("[" * 1_000, ""),
        ('{"at": 1' + "0" * 900 + "}", ""),
    ],
)
def test_what_is_no_wish_comes_back_with_its_problem(written: str, problem: str) -> None:
    found = wish_from_json(written)
    assert found.problem
    assert problem in found.problem


@settings(max_examples=100)
@given(st.text(max_size=200) | st.dictionaries(st.text(max_size=8), st.integers() | st.text()).map(json.dumps))
def test_whatever_is_written_is_read_without_an_error(written: str) -> None:
    assert wish_from_json(written).problem
