from __future__ import annotations

import random
import time
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runtime.routing.history import FEWEST, KEPT, NO_HISTORY, Ran, history_of, stem
from tests.builders import NOON


def ran(number: int, seconds: float = 600.0, **changes: Any) -> Ran:
    run = Ran(f"uid-{number}", "vision", f"train-{number}", "p1", seconds, NOON + number)
    return replace(run, **changes)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("train-17", "train"),
        ("train-2026-11-21", "train"),
        ("eval-x7k2p", "eval"),
        ("resnet50-3f2a9c1b", "resnet50"),
        ("sweep-3-of-7", "sweep-3-of"),
        ("run-12ab34-7", "run"),
        ("run-123456789012-7", "run"),
        ("bert", "bert"),
        ("bert-large", "bert-large"),
        ("17", "17"),
        ("-17", "-17"),
        ("", ""),
    ],
)
def test_a_stem_is_the_name_without_what_counts_its_runs(name: str, expected: str) -> None:
    assert stem(name) == expected


def test_a_name_of_many_numbers_is_read_as_fast_as_any() -> None:
    names = [f"t{number}" + "-11111111" * 6 + "-x" for number in range(500)]
    start = time.process_time()
    assert [stem(name) for name in names] == names
    assert time.process_time() - start < 0.1


def test_a_job_is_expected_to_take_what_its_namesakes_took() -> None:
    history = history_of([ran(number, seconds) for number, seconds in enumerate([100.0, 300.0, 200.0])])
    estimate = history.estimate("vision", "train-99", "p1")
    assert estimate is not None
    assert (estimate.seconds, estimate.source) == (200.0, "the median of 3 runs of train")


def test_without_namesakes_a_quantile_of_its_team_and_class_is_expected() -> None:
    history = history_of([ran(number, 100.0 * number, name=f"job{number}x") for number in range(1, 9)])
    estimate = history.estimate("vision", "unheard-of", "p1")
    assert estimate is not None
    assert (estimate.seconds, estimate.source) == (700.0, "75% of 8 runs of its team and class")


@pytest.mark.parametrize("other", [{"team": "nlp"}, {"job_class": "p0", "name": "else"}])
def test_other_teams_and_classes_say_nothing(other: dict[str, Any]) -> None:
    history = history_of([ran(number, **other) for number in range(5)])
    assert history.estimate("vision", "train-99", "p1") is None


def test_too_few_runs_are_chance() -> None:
    assert history_of([ran(number) for number in range(FEWEST - 1)]) == NO_HISTORY


def test_old_runs_are_forgotten_once_there_are_many_new_ones() -> None:
    runs = [ran(number, 9_000.0) for number in range(KEPT)] + [ran(KEPT + number, 60.0) for number in range(KEPT)]
    estimate = history_of(runs).estimate("vision", "train-1", "p1")
    assert estimate is not None
    assert estimate.seconds == 60.0


@given(st.lists(st.tuples(st.floats(1, 1e6), st.sampled_from(["a-1", "a-2", "b-1"])), max_size=30), st.randoms())
def test_a_history_does_not_depend_on_the_order_of_its_runs(
    runs: list[tuple[float, str]], chance: random.Random
) -> None:
    found = [ran(number, seconds, name=name) for number, (seconds, name) in enumerate(runs)]
    shuffled = list(found)
    chance.shuffle(shuffled)
    assert history_of(found) == history_of(shuffled)


@given(st.text(max_size=300))
def test_any_text_has_a_stem(name: str) -> None:
    assert len(stem(name)) <= 63
    assert bool(stem(name)) == bool(name)
