"""`gpufleet trace evictions`."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

import pytest

from infra.evictions.terms import ReplayTerms
from tests.unit.commands.conftest import Ended

Run = Callable[..., Ended]


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    path = tmp_path / "spot.csv"
    path.write_text("0,add,a\n3000000,add,b\n3600000,remove,a\n5000000,add,c\n")
    return path


def test_a_spot_trace_gives_a_table_with_a_row_for_each_way(gpufleet: Run, trace: Path) -> None:
    ended = gpufleet("trace", "evictions", str(trace))
    assert (ended.code, ended.err) == (0, "")
    headline, heading, *ways = ended.out.splitlines()
    assert headline == "spot.csv: 1.4 h, at most 2 nodes, 1 taken away, 1.6 GPU-hours"
    assert heading.split()[:5] == ["WAY", "LOST", "HELD", "IDLE", "USEFUL"]
    assert [line.split()[0] for line in ways] == ["nothing", "SIGTERM", "sequence"]


def test_the_defaults_are_those_of_the_terms(gpufleet: Run, trace: Path) -> None:
    ended = gpufleet("trace", "evictions", str(trace), "--json")
    content = json.loads(ended.out)
    assert content["terms"] == asdict(ReplayTerms())
    for way in content["ways"]:
        assert way["useful"] + way["lost"] + way["held"] + way["idle"] == pytest.approx(way["available"])


@pytest.mark.parametrize(
    ("options", "code", "words"),
    [
        (("--save", "5"), 2, "not a duration"),
        (("--nodes-per-job", "0"), 1, "nodes per job: must be at least 1"),
        (("--nodes-per-job", "3"), 1, "never has 3 nodes at once"),
    ],
)
def test_what_cannot_be_simulated_is_said(
    gpufleet: Run, trace: Path, options: tuple[str, ...], code: int, words: str
) -> None:
    ended = gpufleet("trace", "evictions", str(trace), *options)
    assert (ended.code, ended.out) == (code, "")
    assert words in ended.err
