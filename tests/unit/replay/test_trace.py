"""Reading traces: what is kept, what is dropped and why, and that nothing hostile gets further."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from infra.replay import trace as trace_module
from infra.replay.errors import TraceError
from infra.replay.trace import TraceJob, TraceOptions, TraceReader
from tests.unit.replay.scenario import local_fleet

FLEET = local_fleet()
HEADER = "submit,team,class,gpus,run,expected,max,name\n"


def write(path: Path, *rows: str, header: str = HEADER) -> Path:
    path.write_text(header + "".join(row + "\n" for row in rows))
    return path


def read(path: Path, **options: object) -> tuple[list[TraceJob], TraceReader]:
    reader = TraceReader(path, FLEET, TraceOptions(**options))  # type: ignore[arg-type]
    return list(reader), reader


def test_a_row_becomes_a_job(tmp_path: Path) -> None:
    jobs, _ = read(write(tmp_path / "t.csv", "90,vision,P1,4,45m,1h,2h,Llama Fine-Tune"))
    assert jobs == [TraceJob("llama-fine-tune-2", "vision", "P1", 4, 90, 2700, 3600, 7200)]


def test_optional_columns_may_be_missing_and_the_class_empty(tmp_path: Path) -> None:
    (job,), _ = read(write(tmp_path / "t.csv", "0,nlp,,1,600", header="submit,team,class,gpus,run\n"))
    assert (job.job_class, job.expected_seconds, job.max_seconds) == ("P1", None, 1200)


def test_columns_may_come_in_any_order_and_case_and_others_are_reported(tmp_path: Path) -> None:
    (job,), reader = read(write(tmp_path / "t.csv", "1,x,p2,nlp,0,60", header="GPUS,colour,Class,team,submit,run\n"))
    assert (job.gpus, job.job_class) == (1, "P2")
    assert "columns not used: colour" in "\n".join(reader.report.lines())


def test_timestamps_count_from_the_first_row(tmp_path: Path) -> None:
    rows = ("2017-10-03T10:00:00Z,vision,P1,1,60,,,", "2017-10-03 12:00:30+02:00,vision,P1,1,60,,,")
    jobs, _ = read(write(tmp_path / "t.csv", *rows))
    assert [job.submit_seconds for job in jobs] == [0, 30]


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ("0,vision,P1,0,60,,,", "gpus must be a whole number"),
        ("0,vision,P1,-1,60,,,", "gpus must be a whole number"),
        ("0,vision,P1,1.5,60,,,", "gpus must be a whole number"),
        ("0,vision,P1,٣,60,,,", "gpus must be a whole number"),
        ("0,vision,P1,99999999999999999999,60,,,", "gpus must be a whole number"),
        ("0,vision,P1,1,0,,,", "run must be longer than 0s"),
        ("0,vision,P1,1,-5,,,", "run is neither a number of seconds nor a duration"),
        ("0,vision,P1,1,nan,,,", "run is neither"),
        ("0,vision,P1,1,1e9,,,", "run is neither"),
        ("0,vision,P1,1,999999999999,,,", "run is longer than ten years"),
        ("0,vision,P1,1,,,,", "run is empty"),
        ("0,vision,P1,1,60,soon,,", "expected is neither"),
        ("0,vision,P1,1,60,,soon,", "max is neither"),
        (",vision,P1,1,60,,,", "submit is empty"),
        ("2017-13-45,vision,P1,1,60,,,", "submit is no timestamp"),
        ("0,robotics,P1,1,60,,,", "team is not in the fleet"),
        ("0,,P1,1,60,,,", "team is not in the fleet"),
        ("0,vision,P9,1,60,,,", "class is not in the fleet"),
        ("0,vision,P1,1,60", "has another number of cells"),
        ('0,"vision,P1,1,60,,,', "not CSV"),
        ("x" * 70_000, "is longer than 65,536 bytes"),
        ("2020-01-01,vision,P1,1,60,,,", "submit must be of the same kind as the rows above"),
    ],
)
def test_a_bad_row_is_dropped_with_file_line_and_reason(tmp_path: Path, row: str, reason: str) -> None:
    jobs, reader = read(write(tmp_path / "t.csv", "0,vision,P1,1,60,,,", row, "5,nlp,P1,1,60,,,"))
    assert len(jobs) == 2
    assert (reader.report.read, reader.report.kept, reader.report.dropped) == (3, 2, 1)
    text = "\n".join(reader.report.lines())
    assert f"t.csv:3: {reason}" in text
    assert len(text) < 1_000


def test_a_row_that_is_not_utf8_is_dropped_alone(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_bytes(HEADER.encode() + b"0,vision,P1,1,60,,,caf\xe9\n0,vision,P1,1,60,,,caf\xc3\xa9\n")
    jobs, reader = read(path)
    assert [job.name for job in jobs] == ["caf-3"]
    assert "is not UTF-8 text" in reader.report.reasons


def test_a_byte_order_mark_comments_and_empty_lines_do_no_harm(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_bytes(b"\xef\xbb\xbf" + HEADER.encode() + b"\r\n# a remark\r\n0,vision,P1,1,60,,,\r\n")
    assert len(read(path)[0]) == 1


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is empty"),
        (b"\n\n", "is empty"),
        (HEADER.encode(), "holds no usable job"),
        (HEADER.encode() + b"0,x,P1,1,60,,,\n", "1 rows read, 0 used, 1 dropped"),
        (b"a,b,c\n1,2,3\n", "lacks the column submit, team, class, gpus, run"),
        (b"submit;team;class;gpus;run\n", "lacks the column"),
        (b"submit,team,class,gpus,run,run\n", "twice"),
        (b"\x1f\x8b\x08\x00garbage", "cannot be read"),
        (b"\x00\x01\x02" * 100_000, "is empty"),
        ("submit,team,class,gpus,run\n".encode("utf-16"), "lacks the column"),
    ],
)
def test_a_file_without_any_job_is_one_plain_error(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "t.csv"
    path.write_bytes(content)
    with pytest.raises(TraceError, match=message):
        read(path)


def test_a_missing_file_or_a_directory_is_a_plain_error(tmp_path: Path) -> None:
    for path in (tmp_path / "none.csv", tmp_path):
        with pytest.raises(TraceError, match="cannot be read"):
            read(path)


def test_a_truncated_gzip_is_a_plain_error(tmp_path: Path) -> None:
    path = tmp_path / "t.csv.gz"
    path.write_bytes(gzip.compress((HEADER + "0,vision,P1,1,60,,,\n" * 5_000).encode())[:-20])
    with pytest.raises(TraceError, match="cannot be read after row"):
        read(path)


def test_teams_and_classes_can_be_mapped_by_name_and_all_others_by_star(tmp_path: Path) -> None:
    path = write(tmp_path / "t.csv", "0,6214e9,gold,1,60,,,", "0,11cb48,lead,1,60,,,")
    jobs, _ = read(path, teams={"6214e9": "vision", "*": "nlp"}, classes={"gold": "P0", "*": "p2"})
    assert [(job.team, job.job_class) for job in jobs] == [("vision", "P0"), ("nlp", "P2")]


def test_automatic_mapping_deals_unknown_teams_out_by_size_and_leaves_known_ones_alone(tmp_path: Path) -> None:
    rows = (
        "0,small,P1,1,60,,,",
        "0,big,P1,8,6000,,,",
        "0,middle,P1,2,60,,,",
        "0,speech,P1,1,60,,,",
        "0,tiny,P1,1,1,,,",
    )
    jobs, _ = read(write(tmp_path / "t.csv", *rows), auto_teams=True)
    assert [job.team for job in jobs] == ["speech", "vision", "nlp", "speech", "vision"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"teams": {"a": "visoin"}}, "did you mean vision"),
        ({"classes": {"a": "P7"}}, "--map-class a=P7"),
        ({"limit": 0}, "--limit 0"),
        ({"window": ("5h", "2h")}, "must end after it starts"),
        ({"window": ("0", "2017-10-03")}, "both as times or both as timestamps"),
        ({"window": ("later", "2h")}, "--window"),
    ],
)
def test_a_wrong_option_is_named(tmp_path: Path, options: dict[str, object], message: str) -> None:
    with pytest.raises(TraceError, match=message):
        read(write(tmp_path / "t.csv", "0,vision,P1,1,60,,,"), **options)


def test_a_window_and_a_limit_cut_the_trace(tmp_path: Path) -> None:
    path = write(tmp_path / "t.csv", *(f"{hour}h,vision,P1,1,60,,," for hour in range(10)))
    jobs, reader = read(path, window=("2h", "8h"), limit=3)
    assert [job.submit_seconds for job in jobs] == [0, 3600, 7200]
    assert "7 lie outside the window or beyond the limit" in "\n".join(reader.report.lines())


def test_jobs_larger_than_the_fleet_are_kept_and_counted(tmp_path: Path) -> None:
    jobs, reader = read(write(tmp_path / "t.csv", "0,vision,P1,128,60,,,", "0,vision,P1,16,60,,,"))
    assert len(jobs) == 2
    assert reader.larger_than_fleet == 1


def test_an_unsorted_file_comes_out_sorted_and_equal_arrivals_keep_their_order(tmp_path: Path) -> None:
    path = write(tmp_path / "t.csv", "9,vision,P1,1,60,,,c", "3,vision,P1,1,60,,,a", "3,vision,P1,1,60,,,b")
    assert [job.name for job in read(path)[0]] == ["a-3", "b-4", "c-2"]


def test_a_row_out_of_order_beyond_the_sorting_window_is_dropped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trace_module, "_SORTED_WITHIN", 2)
    rows = [f"{second},vision,P1,1,60,,," for second in (10, 20, 30, 40, 5)]
    jobs, reader = read(write(tmp_path / "t.csv", *rows))
    assert [job.submit_seconds for job in jobs] == [10, 20, 30, 40]
    assert reader.report.dropped == 1


def test_a_large_file_is_not_read_further_than_the_sorting_window(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trace_module, "_SORTED_WITHIN", 100)
    reader = TraceReader(write(tmp_path / "t.csv", *(f"{second},vision,P1,1,60,,," for second in range(5_000))), FLEET)
    assert next(iter(reader)).submit_seconds == 0
    assert reader.report.read == 101
    assert sum(1 for _ in reader) == 5_000


@given(content=st.binary(max_size=300) | st.text('0123456789,.-:TZvisonP\n"', max_size=300).map(str.encode))
@settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_whatever_a_file_holds_the_reader_ends_in_jobs_or_in_one_plain_error(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "t.csv"
    path.write_bytes(HEADER.encode() + content)
    try:
        jobs, reader = read(path)
    except TraceError:
        return
    assert reader.report.kept == len(jobs) > 0
    assert all(job.gpus >= 1 and job.run_seconds > 0 and job.submit_seconds >= 0 for job in jobs)
