from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runtime.clock import Clock, format_micro_time, format_time, parse_time
from tests.builders import NOON


def test_at_speed_one_fleet_time_is_real_time_exactly() -> None:
    clock = Clock(origin=12.3, speed=1.0, real_now=lambda: NOON + 0.1)
    assert clock.now() == NOON + 0.1
    assert clock.to_fleet(NOON) == NOON


def test_at_speed_sixty_a_real_second_is_a_fleet_minute_counted_from_the_origin() -> None:
    clock = Clock(origin=NOON, speed=60.0, real_now=lambda: NOON + 2)
    assert clock.now() == NOON + 120
    assert clock.duration_to_fleet(3) == 180


@given(st.integers(0, 4_000_000_000))
def test_times_of_kubernetes_are_read_back_as_written(second: int) -> None:
    assert parse_time(format_time(second)) == second
    assert parse_time(format_micro_time(second + 0.5)) == second + 0.5


def test_a_time_with_an_offset_is_understood() -> None:
    assert parse_time("2026-11-21T13:00:00+01:00") == NOON


@pytest.mark.parametrize("text", ["", "yesterday", "2026-11-21", "2026-11-21T12:00:00", "2026-13-01T00:00:00Z"])
def test_what_is_no_time_is_refused(text: str) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 the message is Python's own for some of them
        parse_time(text)
