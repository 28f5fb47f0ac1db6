"""Notices that brokers, operators and drills write, in a file or at a URL."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from runtime.eviction.notice import Certainty, NoticeKind
from runtime.eviction.sources import SourceDown
from runtime.eviction.sources.file import FileSource
from tests.fakes.metadata import BROKER, FakeMetadata

NOW = 1_790_000_000.0


@pytest.fixture
def fake() -> Iterator[FakeMetadata]:
    with FakeMetadata() as server:
        yield server


def entry(**changes: object) -> dict[str, object]:
    return {"id": "drill-1", "kind": "spot-interruption", "deadline": NOW + 90} | changes


def at(place: str) -> FileSource:
    return FileSource(place, "gpu-1", now=lambda: NOW)


def test_a_file_that_is_not_there_says_nothing(tmp_path: Path) -> None:
    assert at(str(tmp_path / "notices.json")).read() == ()


def test_a_notice_needs_an_id_and_a_kind_and_is_certain(tmp_path: Path) -> None:
    file = tmp_path / "notices.json"
    file.write_text(json.dumps([entry(noticed_at=5, source="a-broker", note="unknown keys are left out")]))
    (notice,) = at(str(file)).read()
    assert (notice.id, notice.kind, notice.certainty) == ("drill-1", NoticeKind.SPOT, Certainty.CERTAIN)
    assert (notice.source, notice.noticed_at, notice.deadline) == ("file", NOW, NOW + 90)


def test_a_notice_of_another_node_does_not_count(fake: FakeMetadata) -> None:
    fake.broker = json.dumps([entry(node="gpu-2"), entry(id="b", node="gpu-1"), entry(id="c")]).encode()
    assert [notice.id for notice in at(fake.url + BROKER).read()] == ["b", "c"]


def test_a_spot_notice_is_never_longer_than_two_minutes_and_others_are(tmp_path: Path) -> None:
    file = tmp_path / "n.json"
    far = NOW + 5_000
    file.write_text(json.dumps([entry(deadline=far), entry(id="m", kind="maintenance", deadline=far)]))
    assert [notice.deadline for notice in at(str(file)).read()] == [NOW + 120, far]


def test_an_empty_or_half_written_file_takes_nothing_back(tmp_path: Path) -> None:
    file = tmp_path / "n.json"
    file.write_text(json.dumps([entry()]))
    source = at(str(file))
    before = source.read()
    for text in ("", '[{"id": "dri'):
        file.write_text(text)
        with pytest.raises(SourceDown, match="notices of others"):
            source.read()
    file.write_text(json.dumps([entry()]))
    assert source.read() == before
    file.unlink()
    assert source.read() == ()


@pytest.mark.parametrize("content", [b"\xff\xfe", b"<html><body>502</body></html>", b"{}", b'[{"id": "a"}]', b"[[]]"])
def test_a_file_that_cannot_be_read_is_down(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "n.json"
    file.write_bytes(content)
    with pytest.raises(SourceDown) as caught:
        at(str(file)).read()
    assert len(str(caught.value)) < 300


def test_a_directory_is_down(tmp_path: Path) -> None:
    with pytest.raises(SourceDown, match="directory"):
        at(str(tmp_path)).read()


@pytest.mark.parametrize("body", [b"x" * 1_048_576, b"[" + b'{"id": "a"},' * 3_000 + b"]"])
def test_a_broker_that_sends_too_much_is_down(fake: FakeMetadata, body: bytes) -> None:
    fake.broker = body
    with pytest.raises(SourceDown, match=r"longer than|too many"):
        at(fake.url + BROKER).read()


def test_a_broker_that_sends_a_page_is_down_and_one_with_nothing_says_nothing(fake: FakeMetadata) -> None:
    fake.broker = b"<!doctype html><title>Sign in</title>"
    with pytest.raises(SourceDown, match="is not JSON"):
        at(fake.url + BROKER).read()
    fake.broker_status = 503
    with pytest.raises(SourceDown, match="503"):
        at(fake.url + BROKER).read()
    fake.broker = None
    assert at(fake.url + BROKER).read() == ()


@pytest.mark.parametrize("place", ["", "notices.json", "ftp://broker/notices", "http://user:secret@broker/notices"])
def test_a_place_that_cannot_be_used_is_refused(place: str) -> None:
    with pytest.raises(ValueError, match=r".") as caught:
        at(place)
    assert "secret" not in str(caught.value)
