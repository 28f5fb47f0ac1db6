"""Evictions of recorded spot traces, on fake time: what is lost without us, with SIGTERM, and with the sequence."""

from __future__ import annotations

import gzip
import json
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from infra.evictions.nodes import NodeLife, SpotTrace, read_spot_trace
from infra.evictions.report import Outcome, available_gpu_hours, replay_evictions
from infra.evictions.terms import ReplayTerms
from infra.replay.errors import TraceError

ROOT = Path(__file__).parents[3]
DATA = ROOT.parent / "shared" / "data"
OOBLECK, SKYPILOT = DATA / "oobleck-spot-events", DATA / "skypilot-spot-traces"

HOUR = 3_600.0
SLOW_SAVE = ReplayTerms(nodes_per_job=2)
"""A checkpoint takes 60 s: longer than the 30 s of a SIGTERM, shorter than the 120 s of a notice."""

# One job on `a`, which goes after an hour; `b` comes before that. Training 100-1100, 1150-2150, 2200-3200, from 3250.
ONE_LOSS = SpotTrace("one", (NodeLife("a", 0, HOUR), NodeLife("b", 3_400, None)), 5_000)
ONE_JOB = ReplayTerms(checkpoint_every_seconds=1_000, save_seconds=50, restart_seconds=100)


def recorded(folder: Path, name: str, hours: float) -> SpotTrace:
    """The first hours of a recorded trace, so that the test is fast."""
    path = folder / name
    if not path.exists():
        pytest.skip(f"{folder.name}/{name} is not beside the checkout, in ../shared/data")
    return read_spot_trace(path).until(hours * HOUR)


def by_way(trace: SpotTrace, terms: ReplayTerms) -> dict[str, Outcome]:
    return {one.way: one for one in replay_evictions(trace, terms)}


def assert_every_gpu_hour_is_in_one_book(outcomes: dict[str, Outcome]) -> None:
    for one in outcomes.values():
        assert one.useful + one.lost + one.held + one.idle == pytest.approx(one.available), one.way
        assert min(one.useful, one.lost, one.held, one.idle) >= 0, one.way


RECORDED = [
    (OOBLECK, "p3-trace.csv", 1.5, 4),
    (OOBLECK, "g4dn-trace.csv", 4, 2),
    (SKYPILOT, "availability__16-node__aws-08-27-2023__us-west-2a_v100_1.json.gz", 6, 2),
    (SKYPILOT, "preemption__4-node__aws-08-03-2023__us-east-1f_v100_1.json.gz", 24, 1),
    (SKYPILOT, "preemption__1-node__aws-04-22-2023__us-west-2b_v100_1.json.gz", 24, 1),
]


@pytest.mark.parametrize(("folder", "name", "hours", "nodes_per_job"), RECORDED)
def test_on_a_recorded_trace_the_sequence_loses_far_less_than_a_sigterm_that_is_too_short(
    folder: Path, name: str, hours: float, nodes_per_job: int
) -> None:
    """Such a SIGTERM only ends jobs two minutes sooner: it may lose less than doing nothing, or more."""
    trace = recorded(folder, name, hours)
    assert trace.removals > 1
    outcomes = by_way(trace, replace(SLOW_SAVE, nodes_per_job=nodes_per_job))
    assert_every_gpu_hour_is_in_one_book(outcomes)
    worse = (outcomes["SIGTERM"], outcomes["nothing"])
    assert outcomes["sequence"].lost < 0.05 * min(one.lost for one in worse)
    assert outcomes["sequence"].useful > max(one.useful for one in worse)


@pytest.mark.parametrize(("folder", "name", "hours", "nodes_per_job"), RECORDED)
def test_on_a_recorded_trace_a_quick_save_loses_nothing_with_either_signal(
    folder: Path, name: str, hours: float, nodes_per_job: int
) -> None:
    outcomes = by_way(recorded(folder, name, hours), ReplayTerms(nodes_per_job=nodes_per_job, save_seconds=20))
    assert_every_gpu_hour_is_in_one_book(outcomes)
    assert outcomes["sequence"].lost <= outcomes["SIGTERM"].lost <= outcomes["nothing"].lost
    assert outcomes["SIGTERM"].lost == 0 < outcomes["nothing"].lost


@pytest.mark.parametrize("save_seconds", [20, 60, 200])
def test_the_sequence_accounts_for_all_that_was_lost(save_seconds: float) -> None:
    """It may count more: a job that was still loading has no checkpoint of this run, so its start counts as lost."""
    trace, terms = recorded(OOBLECK, "p3-trace.csv", 1.5), ReplayTerms(nodes_per_job=4, save_seconds=save_seconds)
    one = by_way(trace, terms)["sequence"]
    assert one.accounted is not None
    not_training = one.interruptions * terms.nodes_per_job * (terms.restart_seconds + save_seconds) / HOUR
    after_the_stop = one.interruptions * terms.nodes_per_job * terms.stop_seconds / HOUR
    assert one.lost - after_the_stop <= one.accounted <= one.lost + not_training


def test_without_anybody_a_job_loses_what_it_trained_since_its_last_checkpoint() -> None:
    outcome = by_way(ONE_LOSS, ONE_JOB)["nothing"]
    assert outcome.lost * HOUR == pytest.approx(3_600 - 3_250)
    assert (outcome.interruptions, outcome.losses) == (1, 1)


def test_sigterm_saves_nothing_where_the_grace_period_is_too_short() -> None:
    assert by_way(ONE_LOSS, ONE_JOB)["SIGTERM"].lost * HOUR == pytest.approx(3_600 - 120 + 1 - 3_250)
    assert by_way(ONE_LOSS, replace(ONE_JOB, grace_seconds=50))["SIGTERM"].lost == 0


def test_with_the_sequence_a_job_loses_the_moment_between_its_answer_and_the_stop() -> None:
    outcome = by_way(ONE_LOSS, ONE_JOB)["sequence"]
    assert 0 < outcome.lost * HOUR <= 2.5
    assert outcome.interruptions == 1


def test_without_time_for_asking_the_sequence_is_as_good_as_sigterm() -> None:
    terms = replace(ONE_JOB, save_seconds=20, notice_seconds=30)
    assert by_way(ONE_LOSS, terms)["sequence"].lost == 0


@pytest.mark.parametrize("way", ["nothing", "SIGTERM", "sequence"])
def test_without_a_notice_every_way_loses_the_same_work(way: str) -> None:
    outcome = by_way(ONE_LOSS, replace(ONE_JOB, notice_seconds=0))[way]
    assert outcome.lost * HOUR == pytest.approx(3_600 - 3_250)


def test_the_sequence_finds_a_node_that_went_without_notice_sooner() -> None:
    trace = replace(ONE_LOSS, nodes=(NodeLife("c", 0, None), *ONE_LOSS.nodes))
    outcomes = by_way(trace, replace(ONE_JOB, notice_seconds=0, nodes_per_job=2))
    assert outcomes["sequence"].useful > outcomes["nothing"].useful


lives = st.builds(
    lambda added, lasts: (added * 10.0, added * 10.0 + lasts * 10.0),
    st.integers(0, 600),
    st.integers(1, 600),
)


@settings(max_examples=15)
@given(st.lists(lives, min_size=1, max_size=8), st.integers(1, 3), st.integers(0, 150), st.integers(0, 200))
def test_every_gpu_second_is_in_exactly_one_book(
    spans: list[tuple[float, float]], nodes_per_job: int, notice: int, save: int
) -> None:
    ends_at = 7_000.0
    nodes = sorted((NodeLife(f"n{at}", a, b if b < ends_at else None) for at, (a, b) in enumerate(spans)), key=_added)
    trace = SpotTrace("made", tuple(nodes), ends_at)
    terms = ReplayTerms(min(nodes_per_job, trace.most_nodes), 8, notice, 900, save)
    outcomes = by_way(trace, terms)
    assert_every_gpu_hour_is_in_one_book(outcomes)
    assert {one.available for one in outcomes.values()} == {available_gpu_hours(trace, terms)}


def _added(node: NodeLife) -> float:
    return node.added_at


def written(folder: Path, text: str) -> Path:
    path = folder / "trace"
    path.write_text(text)
    return path


def test_a_name_that_comes_again_is_another_machine(tmp_path: Path) -> None:
    trace = read_spot_trace(written(tmp_path, "0,add,a\n60000,remove,a\n\n120000,add,a\n"))
    assert trace.nodes == (NodeLife("a", 0, 60), NodeLife("a.2", 120, None))
    assert (trace.ends_at, trace.removals, trace.most_nodes) == (120, 1, 1)


def test_numbers_of_nodes_are_read_as_machines_that_come_and_go(tmp_path: Path) -> None:
    path = tmp_path / "trace.json.gz"
    path.write_bytes(gzip.compress(json.dumps({"metadata": {"gap_seconds": 30}, "data": [0, 2, 1, 1]}).encode()))
    trace = read_spot_trace(path)
    assert trace.nodes == (NodeLife("node1", 30, 60), NodeLife("node2", 30, None))
    assert trace.ends_at == 120


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "no node was ever added"),
        ("0,remove,a\n", r":1: cannot remove 'a': it is not there"),
        ("0,add,a\n0,add,a\n", r":2: cannot add 'a': it was added before"),
        ("60000,add,a\n0,add,b\n", r":2: the time goes back"),
        ("time,event,node\n", r"is not MILLISECONDS,add\|remove,NODE"),
        ("-1,add,a\n", "is not MILLISECONDS"),
        ("9" * 30 + ",add,a\n", "is not MILLISECONDS"),
        ("0,add\n", "is not MILLISECONDS"),
        ("{", "begins like JSON, but is none"),
        ('{"data": [1]}', "gap_seconds must be a number of seconds above 0"),
        ('{"data": [1], "metadata": {"gap_seconds": 0}}', "gap_seconds must be"),
        ('{"data": 5, "metadata": {"gap_seconds": 5}}', "data must be a list"),
        ('{"data": [1, -1], "metadata": {"gap_seconds": 5}}', r"data\[1\] must be a whole number"),
        ('{"data": [1e9], "metadata": {"gap_seconds": 5}}', r"data\[0\] must be a whole number"),
        ('{"data": [0, 0], "metadata": {"gap_seconds": 5}}', "no node was ever added"),
    ],
)
def test_a_file_that_is_no_spot_trace_is_refused_with_its_place(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(TraceError, match=words):
        read_spot_trace(written(tmp_path, text))


def test_bytes_that_are_no_text_and_a_cut_archive_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "trace"
    for content, words in ((b"\xff\xfe", "not UTF-8"), (gzip.compress(b"0,add,a\n")[:-4], "cannot be read")):
        path.write_bytes(content)
        with pytest.raises(TraceError, match=words):
            read_spot_trace(path)


def test_a_job_that_needs_more_nodes_than_there_ever_are_is_refused() -> None:
    with pytest.raises(TraceError, match="never has 3 nodes at once"):
        replay_evictions(ONE_LOSS, ReplayTerms(nodes_per_job=3))


@pytest.mark.parametrize("term", ["nodes_per_job", "save_seconds", "checkpoint_every_seconds"])
@pytest.mark.parametrize("value", [-1, float("nan"), float("inf")])
def test_terms_that_cannot_be_simulated_are_refused(term: str, value: float) -> None:
    with pytest.raises(TraceError, match=term.removesuffix("_seconds").replace("_", " ")):
        ReplayTerms(**{term: value})  # type: ignore[arg-type]
