from __future__ import annotations

import json
import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runtime.eviction.marker import (
    LONGEST_ANSWER_BYTES,
    LONGEST_MARKER_BYTES,
    MOST_NODES,
    answer_from_json,
    answer_to_json,
    asked_in,
    marker_from_json,
    marker_to_json,
    request_to_json,
)
from runtime.eviction.notice import NoticeKind
from runtime.eviction.steps import CheckpointRequest
from runtime.eviction.transitions import same
from runtime.eviction.view import Answer, Marker, Phase
from runtime.training.messages import parse_request

FULL = Marker(
    notice="spot-1",
    kind=NoticeKind.SPOT,
    nodes=("a", "b"),
    phase=Phase.STOPPED,
    request="spot-interruption-1790000000000",
    deadline=1_790_000_120.0,
    asked_at=1_790_000_001.5,
    stopped_at=1_790_000_009.25,
    gone_at=1_790_000_012.0,
    answer_at=1_790_000_009.0,
    step=1_200,
    url="s3://bucket/run/1200",
    flavor="h100-aws-spot",
    attempts=2,
    lost_gpu_seconds=4.0,
    owed_gpu_seconds=2.5,
    certain=False,
    noticed_at=1_790_000_000.0,
    requeued_at=1_790_000_013.0,
    works_since=1_789_999_000.0,
    accounted=True,
)

times = st.none() | st.floats(allow_nan=True, allow_infinity=True)
markers = st.builds(
    Marker,
    notice=st.text(max_size=400),
    kind=st.sampled_from(NoticeKind),
    nodes=st.lists(st.text(max_size=300), max_size=80).map(tuple),
    phase=st.sampled_from(Phase),
    request=st.text(max_size=300),
    deadline=times,
    stopped_at=times,
    gone_at=times,
    works_since=times,
    step=st.none() | st.integers(-5, 10**20),
    url=st.text(max_size=3_000),
    flavor=st.text(max_size=300),
    attempts=st.integers(0, 10**6),
    lost_gpu_seconds=st.floats(),
    owed_gpu_seconds=st.floats(),
    certain=st.booleans(),
    accounted=st.booleans(),
)


def test_a_marker_reads_back_as_it_was_written() -> None:
    assert marker_from_json(marker_to_json(FULL)) == FULL


@given(markers)
def test_whatever_is_in_a_marker_can_be_written_and_read_and_keeps_its_phase_and_count(marker: Marker) -> None:
    text = marker_to_json(marker)
    read = marker_from_json(text)
    assert len(text.encode()) <= LONGEST_MARKER_BYTES
    assert (read.phase, read.kind, read.attempts) == (marker.phase, marker.kind, marker.attempts)
    assert marker_from_json(marker_to_json(read)) == read
    assert same(marker, read)


def test_the_marker_of_a_gang_on_a_thousand_nodes_with_long_names_still_fits() -> None:
    nodes = tuple(f"{'n' * 240}-{number:04}" for number in range(1_000))
    read = marker_from_json(marker_to_json(replace(FULL, nodes=nodes)))
    assert 0 < len(read.nodes) <= MOST_NODES
    assert replace(read, nodes=FULL.nodes) == FULL


def test_a_marker_of_an_older_version_lacks_keys_and_reads_all_the_same() -> None:
    read = marker_from_json('{"phase":"stopped","kind":"spot-interruption"}')
    assert read == Marker("", NoticeKind.SPOT, (), Phase.STOPPED)


def test_keys_that_a_newer_version_added_are_ignored() -> None:
    text = json.dumps({**json.loads(marker_to_json(FULL)), "mood": {"deep": [1, 2]}})
    assert marker_from_json(text) == FULL


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "is not JSON"),
        ("[]", "must be a JSON object"),
        ("[" * 5_000, "is not JSON"),
        ("{" + " " * LONGEST_MARKER_BYTES + "}", "more than 8192 bytes"),
        ("{}", "the phase of an eviction marker is None, not one of asked, stopped, done"),
        ('{"phase":"gone","kind":"move"}', "the phase of an eviction marker is 'gone'"),
        ('{"phase":[],"kind":"move"}', "the phase"),
        ('{"phase":"done","kind":"flood"}', "the kind of an eviction marker is 'flood'"),
        ('{"version":2,"phase":"done","kind":"move"}', "upgrade it"),
        ('{"version":true,"phase":"done","kind":"move"}', "a whole number from 1"),
        ('{"phase":"done","kind":"move","nodes":"a"}', "a list of at most 64 names"),
        ('{"phase":"done","kind":"move","nodes":[1]}', "'nodes' must be a text"),
        ('{"phase":"done","kind":"move","gone_at":NaN}', "'gone_at' must be a number"),
        ('{"phase":"done","kind":"move","gone_at":1e999}', "'gone_at' must be a number"),
        ('{"phase":"done","kind":"move","gone_at":true}', "'gone_at' must be a number"),
        ('{"phase":"done","kind":"move","attempts":1.5}', "'attempts' must be a whole number"),
        ('{"phase":"done","kind":"move","certain":"yes"}', "'certain' must be true or false"),
        ('{"phase":"done","kind":"move","url":' + json.dumps("x" * 2_000) + "}", "at most 1024 characters"),
    ],
)
def test_what_is_no_marker_is_refused_with_a_sentence(text: str, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        marker_from_json(text)


def test_the_helper_for_training_code_reads_the_request_that_the_agent_writes() -> None:
    request = CheckpointRequest("spot-interruption-1", NoticeKind.SPOT, True, 1_790_000_085.0)
    text = request_to_json(request)
    read = parse_request(text.encode())
    assert (read.id, read.deadline, read.reason) == ("spot-interruption-1", 1_790_000_085.0, "spot-interruption")
    assert asked_in(text) == "spot-interruption-1"


@pytest.mark.parametrize("text", ["", "null", "{", '{"request":7}', "x" * 10_000])
def test_a_foreign_request_on_a_pod_counts_as_none(text: str) -> None:
    assert asked_in(text) == ""


def test_an_answer_reads_back_as_it_was_written() -> None:
    answer = Answer("spot-interruption-1", 1_200, "file:///checkpoints/1200", 1_790_000_009.5)
    assert answer_from_json(answer_to_json(answer)) == answer


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("OOMKilled", "is not JSON"),
        ('{"request":"a","step":1,"url":""}', "must say when it saved"),
        ('{"request":"a","step":-1,"url":"","at":1}', "'step' must be a number from 0"),
        ('{"request":"a","step":1,"url":"","at":"now"}', "'at' must be a number"),
        ('{"request":{},"at":1}', "'request' must be a text"),
        ('{"at":1,"url":"' + "x" * LONGEST_ANSWER_BYTES + '"}', "more than 4096 bytes"),
    ],
)
def test_what_is_no_answer_is_refused_with_a_sentence(text: str, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        answer_from_json(text)


@given(st.text(max_size=200) | st.recursive(st.none() | st.floats() | st.text(), st.lists).map(json.dumps))
def test_anything_else_ends_in_a_value_error_and_nothing_worse(text: str) -> None:
    for read in (marker_from_json, answer_from_json):
        with pytest.raises(ValueError, match=r"\w"):
            read(text)
    assert asked_in(text) == ""


def test_times_that_are_no_numbers_are_left_out() -> None:
    read = marker_from_json(marker_to_json(replace(FULL, deadline=math.nan, lost_gpu_seconds=math.inf)))
    assert (read.deadline, read.lost_gpu_seconds) == (None, 0.0)
