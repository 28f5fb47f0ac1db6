"""Converting foreign traces into ours."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from infra.replay.convert import convert, from_philly
from infra.replay.errors import TraceError
from infra.replay.trace import TraceOptions, read_trace
from tests.unit.replay.scenario import ROOT, local_fleet

PHILLY = ROOT.parent / "shared" / "data" / "philly-2017-09_10" / "philly_jobs.csv.gz"
HEADER = "timestamp,duration,num_gpus,gpu_time,cluster\n"


def test_a_philly_row_becomes_one_of_ours(tmp_path: Path) -> None:
    source = tmp_path / "philly.csv"
    source.write_text(HEADER + "2017-09-04 10:30:41,2240194,8,17921552,7f04ca\n")
    assert list(from_philly(source)) == [
        {"submit": "2017-09-04T10:30:41", "team": "7f04ca", "class": "", "gpus": "8", "run": "2240194"}
    ]


def test_what_was_converted_can_be_read(tmp_path: Path) -> None:
    source, target = tmp_path / "in.csv", tmp_path / "out.csv.gz"
    source.write_text(HEADER + "2017-09-04 10:30:41,60,8,480,a\nbroken,60,8,480,a\n2017-09-04 10:31:41,60,1,60,b\n")
    report = convert(source, target, "philly")
    assert (report.kept, report.dropped) == (2, 1)
    assert target.read_bytes()[:2] == b"\x1f\x8b"
    jobs = read_trace(target, local_fleet(), TraceOptions(auto_teams=True))
    assert [(job.team, job.submit_seconds) for job in jobs] == [("vision", 0), ("nlp", 60)]


@pytest.mark.parametrize(
    ("content", "form", "message"),
    [
        (HEADER + "x,1,1,1,a\n", "philly", "holds no usable row"),
        ("a,b\n", "philly", "the format philly has the columns"),
        (HEADER, "helios", "no such format"),
    ],
)
def test_a_failed_conversion_leaves_the_old_file_alone(tmp_path: Path, content: str, form: str, message: str) -> None:
    source, target = tmp_path / "in.csv", tmp_path / "out.csv"
    source.write_text(content)
    target.write_text("old")
    with pytest.raises(TraceError, match=message):
        convert(source, target, form)
    assert target.read_text() == "old"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in.csv", "out.csv"]


def test_a_destination_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    source = tmp_path / "in.csv"
    source.write_text(HEADER)
    with pytest.raises(TraceError, match="cannot be written"):
        convert(source, tmp_path / "no" / "out.csv", "philly")


@pytest.mark.skipif(not PHILLY.exists(), reason="the Philly trace is not beside this checkout")
def test_a_day_of_the_real_philly_trace_can_be_replayed(tmp_path: Path) -> None:
    source, target = tmp_path / "day.csv", tmp_path / "out.csv"
    with gzip.open(PHILLY, "rt") as rows:
        source.write_text("".join(row for row, _ in zip(rows, range(2_001), strict=False)))
    assert convert(source, target, "philly").kept == 2_000
    jobs = read_trace(target, local_fleet(), TraceOptions(auto_teams=True, window=("2017-09-20", "2017-09-21")))
    assert jobs
    assert all(0 <= job.submit_seconds < 86_400 for job in jobs)
