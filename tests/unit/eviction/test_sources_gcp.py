"""GCP's metadata server, played by a server on loopback that holds requests until a value changes."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from runtime.eviction.notice import Certainty, NoticeKind, worst
from runtime.eviction.sources import SourceDown
from runtime.eviction.sources.gcp import GcpSource, gcp_sources
from tests.fakes.metadata import FakeMetadata

NOW = 1_790_000_000.0


@pytest.fixture
def fake() -> Iterator[FakeMetadata]:
    with FakeMetadata() as server:
        yield server


def sources(fake: FakeMetadata, notice_seconds: float = 30.0, wait_seconds: int = 5) -> tuple[GcpSource, GcpSource]:
    found = gcp_sources(fake.url, notice_seconds=notice_seconds, wait_seconds=wait_seconds, now=lambda: NOW)
    return found[0], found[1]


def test_a_preemption_ends_the_wait_at_once(fake: FakeMetadata) -> None:
    preemption, _ = sources(fake)
    assert preemption.read() == (), "the first reading does not wait"
    threading.Timer(0.05, fake.set_gcp, ("preempted", "TRUE")).start()
    (notice,) = preemption.read()
    assert (notice.kind, notice.certainty, notice.deadline) == (NoticeKind.SPOT, Certainty.CERTAIN, NOW + 30)
    assert "wait_for_change=true&last_etag=" in fake.requests[-1]
    assert preemption.rest() < 0.1


@pytest.mark.parametrize("seconds", [0, 30, 120])
def test_the_window_of_a_preemption_is_a_setting(fake: FakeMetadata, seconds: float) -> None:
    fake.set_gcp("preempted", "TRUE")
    assert sources(fake, seconds)[0].read()[0].deadline == NOW + seconds


def test_preemption_and_maintenance_at_once_are_two_notices_and_the_sooner_is_the_worse(fake: FakeMetadata) -> None:
    fake.set_gcp("preempted", "TRUE")
    fake.set_gcp("maintenance-event", "TERMINATE_ON_HOST_MAINTENANCE")
    found = [notice for source in sources(fake) for notice in source.read()]
    assert [notice.kind for notice in found] == [NoticeKind.SPOT, NoticeKind.MAINTENANCE]
    assert worst(found).kind is NoticeKind.SPOT


def test_a_live_migration_is_only_likely_and_a_cancelled_one_is_gone(fake: FakeMetadata) -> None:
    _, maintenance = sources(fake)
    fake.set_gcp("maintenance-event", "MIGRATE_ON_HOST_MAINTENANCE")
    assert [notice.certainty for notice in maintenance.read()] == [Certainty.LIKELY]
    fake.set_gcp("maintenance-event", "NONE")
    assert maintenance.read() == ()


def test_an_unchanged_value_is_held_and_not_asked_for_in_a_loop(fake: FakeMetadata) -> None:
    preemption, _ = sources(fake, wait_seconds=0)
    preemption.read()
    preemption.read()
    assert preemption.rest() >= 1.0


@pytest.mark.parametrize("value", ["", "true", "MAYBE", "<html>", "{}"])
def test_a_value_that_is_not_documented_is_garbage_and_takes_nothing_back(fake: FakeMetadata, value: str) -> None:
    preemption, _ = sources(fake)
    fake.set_gcp("preempted", "TRUE")
    before = preemption.read()
    fake.set_gcp("preempted", value)
    with pytest.raises(SourceDown, match="must be TRUE or FALSE"):
        preemption.read()
    fake.set_gcp("preempted", "TRUE")
    assert preemption.read() == before, "after a failure it asks at once"
    assert "wait_for_change" not in fake.requests[-1]


def test_what_is_not_the_metadata_server_is_not_believed(fake: FakeMetadata) -> None:
    fake.set_gcp("preempted", "TRUE")
    fake.gcp_flavor = ""
    with pytest.raises(SourceDown, match="not the metadata server"):
        sources(fake)[0].read()


def test_a_key_that_is_not_there_is_down(fake: FakeMetadata) -> None:
    fake.gcp.clear()
    with pytest.raises(SourceDown, match="404"):
        sources(fake)[0].read()
