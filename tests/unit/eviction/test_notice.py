"""Notices: written and read back, and refused where they are not notices."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from runtime.eviction.notice import (
    LONGEST_JSON_BYTES,
    MOST_MACHINES,
    Certainty,
    Notice,
    NoticeKind,
    capped,
    notices_from_json,
    notices_to_json,
    worst,
)

NOW = 1_790_000_000.0


def notice(id_: str = "aws-spot-1", **changes: object) -> Notice:
    fields: dict[str, object] = {
        "id": id_,
        "kind": NoticeKind.SPOT,
        "source": "aws-spot",
        "certainty": Certainty.CERTAIN,
        "noticed_at": NOW,
        "deadline": NOW + 120,
    }
    return Notice(**(fields | changes))  # type: ignore[arg-type]


def test_what_is_written_can_be_read() -> None:
    notices = (
        notice("a", detail="AWS will terminate", machines=3),
        notice("b", deadline=None, kind=NoticeKind.REBALANCE),
    )
    assert notices_from_json(notices_to_json(notices[::-1])) == notices


@settings(max_examples=60, deadline=None)
@given(
    detail=st.text(max_size=300),
    times=st.tuples(st.floats(0, 2e9), st.none() | st.floats(0, 2e9)),
    kind=st.sampled_from(NoticeKind),
    count=st.integers(0, 24),
)
def test_any_detail_and_any_time_fits_and_comes_back(
    detail: str, times: tuple[float, float | None], kind: NoticeKind, count: int
) -> None:
    at, deadline = round(times[0], 3), None if times[1] is None else round(times[1], 3)
    notices = tuple(
        notice(f"{n:0128}", kind=kind, noticed_at=at, deadline=deadline, detail=detail, machines=MOST_MACHINES)
        for n in range(count)
    )
    text = notices_to_json(notices)
    assert len(text.encode()) <= LONGEST_JSON_BYTES
    assert notices_from_json(text) == notices


def test_too_many_notices_are_refused_with_the_limit() -> None:
    with pytest.raises(ValueError, match="keep the worst ones"):
        notices_to_json([notice(f"{n:0128}", detail="x" * 200) for n in range(60)])


def test_a_key_that_is_not_known_is_left_out() -> None:
    entry = json.loads(notices_to_json([notice()]))[0] | {"from a later version": 1}
    assert notices_from_json(json.dumps([entry])) == (notice(),)


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"kind": "flood"}, "kind 'flood': must be one of spot-interruption"),
        ({"certainty": "perhaps"}, "certainty 'perhaps'"),
        ({"id": ""}, "id ''"),
        ({"id": "a b"}, "id 'a b'"),
        ({"id": "x" * 129}, "id"),
        ({"id": 7}, "id: must be text, and is int '7'"),
        ({"source": "A"}, "source 'A'"),
        ({"noticed_at": "soon"}, "noticed_at: must be seconds"),
        ({"noticed_at": None}, "noticed_at: must be seconds since 1970, like 1790000000.0, and is missing"),
        ({"noticed_at": True}, "noticed_at"),
        ({"deadline": float("nan")}, "deadline nan"),
        ({"deadline": float("inf")}, "deadline inf"),
        ({"deadline": -1}, "deadline -1"),
        ({"deadline": 10**400}, "far larger"),
        ({"detail": []}, "detail: must be text, and is a list"),
        ({"machines": 0}, "machines 0: must be from 1 to 100000"),
        ({"machines": 10**400}, "machines 1000"),
        ({"machines": 1.5}, "machines: must be a whole number, and is float '1.5'"),
        ({"machines": True}, "machines: must be a whole number"),
    ],
)
def test_a_notice_with_a_wrong_value_is_refused_by_its_key(change: dict[str, object], named: str) -> None:
    entry = json.loads(notices_to_json([notice()]))[0] | change
    with pytest.raises(ValueError, match=r".") as caught:
        notices_from_json(json.dumps([entry]))
    assert named in str(caught.value)
    assert len(str(caught.value)) < 400


@pytest.mark.parametrize(
    "text", ["", "{}", "nonsense", "[1]", "[[]]", "null", "[" * 9_000, "x" * 20_000, '"a"', "[{}]", "\x00"]
)
def test_what_is_not_a_list_of_notices_is_refused_in_a_short_sentence(text: str) -> None:
    with pytest.raises(ValueError, match=r".") as caught:
        notices_from_json(text)
    assert len(str(caught.value)) < 300


def test_the_worst_notice_is_certain_then_soonest() -> None:
    likely = notice("a", certainty=Certainty.LIKELY, deadline=NOW)
    late, soon = notice("b", deadline=NOW + 200), notice("c", deadline=NOW + 100)
    open_ended = notice("0", deadline=None)
    assert worst([likely, late, soon, open_ended]) == soon
    assert worst([likely, open_ended]) == open_ended
    with pytest.raises(ValueError, match="empty"):
        worst([])


def test_a_deadline_is_never_further_ahead_than_the_window_of_its_kind() -> None:
    assert capped(NOW + 110, NOW, 120) == NOW + 110
    assert capped(NOW + 700, NOW, 120) == NOW + 120, "our clock is behind the provider's"
    assert capped(NOW - 30, NOW, 120) == NOW - 30
    assert capped(None, NOW, 30) == NOW + 30


def test_a_detail_is_made_plain() -> None:
    assert notice(detail='  <b>"a"\n\x1b[31m\\ü</b> ').detail == "<b> a [31m </b>"
    assert len(notice(detail="y" * 10_000).detail) == 200
