"""AWS' metadata service, played by a server on loopback."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime

import pytest

from runtime.eviction.notice import Certainty, Notice, NoticeKind
from runtime.eviction.sources import SourceDown
from runtime.eviction.sources.aws import WITHDRAWN_SECONDS, AwsSource, aws_sources
from tests.fakes.metadata import LIFECYCLE, REBALANCE, SCHEDULED, SPOT, FakeMetadata

NOW = 1_790_000_000.0


class Times:
    """A clock of each sort, moved by hand."""

    def __init__(self) -> None:
        self.wall = NOW
        self.monotonic = 0.0


@pytest.fixture
def fake() -> Iterator[FakeMetadata]:
    with FakeMetadata() as server:
        yield server


@pytest.fixture
def times() -> Times:
    return Times()


def sources(fake: FakeMetadata, times: Times, known: tuple[Notice, ...] = ()) -> dict[str, AwsSource]:
    found = aws_sources(fake.url, known=known, now=lambda: times.wall, monotonic=lambda: times.monotonic)
    return {source.name: source for source in found}


def rfc3339(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def old_style(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%-d %b %Y %H:%M:%S GMT")


def spot(at: float, action: str = "terminate") -> str:
    return json.dumps({"action": action, "time": rfc3339(at)})


def event(**changes: object) -> dict[str, object]:
    return {
        "EventId": "instance-event-0d59937288b749b32",
        "Code": "system-reboot",
        "State": "active",
        "NotBefore": old_style(NOW + 600),
        "NotAfter": old_style(NOW + 4_200),
        "Description": "scheduled reboot",
    } | changes


def test_nothing_there_is_no_notice(fake: FakeMetadata, times: Times) -> None:
    assert [source.read() for source in sources(fake, times).values()] == [()] * 4
    assert fake.count("PUT /latest/api/token") == 1, "the sources share a token"


def test_a_spot_notice_has_its_deadline_and_stays_the_same_when_read_again(fake: FakeMetadata, times: Times) -> None:
    fake.aws[SPOT] = spot(NOW + 118)
    source = sources(fake, times)["aws-spot"]
    (first,) = source.read()
    times.wall += 30
    assert first == Notice(
        f"aws-spot-{NOW + 118:.0f}",
        NoticeKind.SPOT,
        "aws-spot",
        Certainty.CERTAIN,
        NOW,
        NOW + 118,
        "AWS will terminate this spot instance",
    )
    assert source.read() == (first,)
    assert fake.connections == 1, "one connection is kept"


def test_an_interruption_whose_time_moves_with_each_reading_stays_the_one_that_it_was(
    fake: FakeMetadata, times: Times
) -> None:
    fake.aws[SPOT] = spot(NOW + 118)
    source = sources(fake, times)["aws-spot"]
    (first,) = source.read()
    times.wall += 30
    fake.aws[SPOT] = spot(NOW + 148)
    assert source.read() == (first,)
    assert sources(fake, times, (first,))["aws-spot"].read() == (first,), "also after a restart"
    fake.aws[SPOT] = spot(NOW + 60)
    (sooner,) = source.read()
    assert (sooner.id, sooner.deadline) == (first.id, NOW + 60)


def test_an_interruption_that_does_something_else_is_another(fake: FakeMetadata, times: Times) -> None:
    fake.aws[SPOT] = spot(NOW + 118)
    source = sources(fake, times)["aws-spot"]
    (first,) = source.read()
    fake.aws[SPOT] = spot(NOW + 100, "stop")
    (second,) = source.read()
    assert second.id != first.id


def test_a_recommendation_that_is_dated_anew_stays_the_one_that_it_was(fake: FakeMetadata, times: Times) -> None:
    fake.aws[REBALANCE] = json.dumps({"noticeTime": rfc3339(NOW)})
    source = sources(fake, times)["aws-rebalance"]
    (first,) = source.read()
    times.wall += 5
    fake.aws[REBALANCE] = json.dumps({"noticeTime": rfc3339(NOW + 5)})
    assert source.read() == (first,)


def test_a_clock_that_is_behind_gives_no_more_than_two_minutes(fake: FakeMetadata, times: Times) -> None:
    fake.aws[SPOT] = spot(NOW + 720)
    assert sources(fake, times)["aws-spot"].read()[0].deadline == NOW + 120


def test_a_notice_whose_deadline_has_passed_keeps_it(fake: FakeMetadata, times: Times) -> None:
    fake.aws[SPOT] = spot(NOW - 40)
    assert sources(fake, times)["aws-spot"].read()[0].deadline == NOW - 40


def test_hibernation_begins_at_once(fake: FakeMetadata, times: Times) -> None:
    fake.aws[SPOT] = spot(NOW + 120, "hibernate")
    assert sources(fake, times)["aws-spot"].read()[0].deadline == NOW


def test_a_clock_that_is_set_back_dates_nothing_ahead(fake: FakeMetadata, times: Times) -> None:
    fake.aws[SPOT] = spot(NOW + 118)
    source = sources(fake, times)["aws-spot"]
    source.read()
    times.wall = NOW - 600
    (notice,) = source.read()
    assert (notice.noticed_at, notice.deadline) == (NOW - 600, NOW - 480)
    assert 0 < source.rest() < 1, "resting needs no clock"


def test_after_a_restart_a_notice_is_as_old_as_the_node_says(fake: FakeMetadata, times: Times) -> None:
    fake.aws[SPOT] = spot(NOW + 118)
    (before,) = sources(fake, times)["aws-spot"].read()
    times.wall += 60
    assert sources(fake, times, (before,))["aws-spot"].read() == (before,)


def test_a_notice_is_taken_back_by_two_answers_that_it_is_gone_some_time_apart(
    fake: FakeMetadata, times: Times
) -> None:
    fake.aws[SPOT] = spot(NOW + 118)
    source = sources(fake, times)["aws-spot"]
    before = source.read()
    del fake.aws[SPOT]
    assert source.read() == before
    times.monotonic += WITHDRAWN_SECONDS - 0.1
    assert source.read() == before
    times.monotonic += 0.1
    assert source.read() == ()
    assert source.read() == ()


@pytest.mark.parametrize("between", ["the notice", "an error"])
def test_only_answers_in_a_row_take_a_notice_back(fake: FakeMetadata, times: Times, between: str) -> None:
    fake.aws[SPOT] = spot(NOW + 118)
    source = sources(fake, times)["aws-spot"]
    before = source.read()
    for _ in range(3):
        text = fake.aws.pop(SPOT)
        assert source.read() == before, "gone once"
        times.monotonic += WITHDRAWN_SECONDS
        if between == "an error":
            fake.aws_status = 500
            with pytest.raises(SourceDown):
                source.read()
            fake.aws_status = 200
        fake.aws[SPOT] = text
        if between == "the notice":
            assert source.read() == before


def test_after_a_restart_one_answer_takes_back_no_notice_that_stands_on_the_node(
    fake: FakeMetadata, times: Times
) -> None:
    fake.aws[SPOT] = spot(NOW + 118)
    before = sources(fake, times)["aws-spot"].read()
    del fake.aws[SPOT]
    again = sources(fake, times, tuple(before))
    assert again["aws-spot"].read() == before
    assert again["aws-rebalance"].read() == ()
    times.monotonic += WITHDRAWN_SECONDS
    assert again["aws-spot"].read() == ()


def test_a_token_that_expires_in_the_middle_is_replaced(fake: FakeMetadata, times: Times) -> None:
    fake.aws[SPOT] = spot(NOW + 118)
    source = sources(fake, times)["aws-spot"]
    source.read()
    fake.expire_tokens()
    assert len(source.read()) == 1
    assert fake.count("PUT /latest/api/token") == 2


def test_a_token_is_replaced_ahead_of_its_end(fake: FakeMetadata, times: Times) -> None:
    fake.token_seconds = 300
    source = sources(fake, times)["aws-spot"]
    source.read()
    times.monotonic = 239
    source.read()
    assert fake.count("PUT /latest/api/token") == 1
    times.monotonic = 241
    source.read()
    assert fake.count("PUT /latest/api/token") == 2


def test_a_token_that_cannot_be_renewed_serves_to_its_end(fake: FakeMetadata, times: Times) -> None:
    fake.token_seconds, fake.aws[SPOT] = 300, spot(NOW + 118)
    source = sources(fake, times)["aws-spot"]
    source.read()
    fake.token_status = 503
    times.monotonic = 299
    assert len(source.read()) == 1
    times.monotonic = 301
    with pytest.raises(SourceDown, match="503"):
        source.read()


def test_a_token_that_is_refused_at_once_is_an_error_and_no_loop(fake: FakeMetadata, times: Times) -> None:
    fake.tokens_work = False
    with pytest.raises(SourceDown, match="refused at once"):
        sources(fake, times)["aws-spot"].read()
    assert len(fake.requests) == 4


@pytest.mark.parametrize(("status", "said"), [(404, "not IMDSv2"), (405, "not IMDSv2"), (403, "is off")])
def test_answers_without_a_token_are_not_believed(fake: FakeMetadata, times: Times, status: int, said: str) -> None:
    fake.token_status = status
    fake.aws[SPOT] = spot(NOW + 118)
    with pytest.raises(SourceDown, match=said):
        sources(fake, times)["aws-spot"].read()
    assert fake.count(f"GET {SPOT}") == 0


def test_a_hop_limit_is_named_with_its_remedy(
    fake: FakeMetadata, times: Times, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("runtime.eviction.sources.imds.TOKEN_TIMEOUT_SECONDS", 0.05)
    fake.hop_limited = True
    with pytest.raises(SourceDown, match="hostNetwork: true"):
        sources(fake, times)["aws-spot"].read()


@pytest.mark.parametrize(
    "text",
    [
        "",
        "null",
        "[]",
        "<html>",
        '{"action": "terminate"}',
        '{"action": "terminate", "time": "soon"}',
        '{"action": "terminate", "time": "2026-11-21T08:00:00"}',
        '{"action": "terminate", "time": 7}',
        '{"action": "explode", "time": "2026-11-21T08:00:00Z"}',
        '{"action": {}, "time": "9999-12-31T23:59:59-23:59"}',
        '{"time": "2026-11-21T08:00:00Z"}',
        "[" * 50_000,
        "\x00\xff",
    ],
)
def test_garbage_is_no_notice_and_takes_none_back(fake: FakeMetadata, times: Times, text: str) -> None:
    source = sources(fake, times)["aws-spot"]
    fake.aws[SPOT] = spot(NOW + 118)
    before = source.read()
    fake.aws[SPOT] = text
    times.wall += 5
    with pytest.raises(SourceDown) as caught:
        source.read()
    assert len(str(caught.value)) < 300
    fake.aws[SPOT] = spot(NOW + 118)
    assert source.read() == before


def test_an_answer_of_a_megabyte_is_refused_unread(fake: FakeMetadata, times: Times) -> None:
    fake.aws[SPOT] = "x" * 1_000_000
    with pytest.raises(SourceDown, match="longer than 65536 bytes"):
        sources(fake, times)["aws-spot"].read()


def test_failures_make_the_rests_longer_and_a_success_makes_them_short_again(fake: FakeMetadata, times: Times) -> None:
    source = sources(fake, times)["aws-spot"]
    fake.aws_status = 500
    rests = []
    for _ in range(8):
        with pytest.raises(SourceDown, match="500"):
            source.read()
        rests.append(source.rest())
    assert rests[0] < 1.3 < 3.9 < rests[-1] < 6.1
    fake.aws_status = 200
    source.read()
    assert source.rest() < 0.61


def test_a_rebalance_recommendation_is_only_likely(fake: FakeMetadata, times: Times) -> None:
    fake.aws[REBALANCE] = json.dumps({"noticeTime": rfc3339(NOW - 5)})
    (notice,) = sources(fake, times)["aws-rebalance"].read()
    assert (notice.kind, notice.certainty, notice.deadline) == (NoticeKind.REBALANCE, Certainty.LIKELY, None)


@pytest.mark.parametrize(("state", "leaves"), [("Terminated", True), ("Warmed:Stopped", True), ("InService", False)])
def test_the_lifecycle_state_that_the_group_wants(fake: FakeMetadata, times: Times, state: str, leaves: bool) -> None:
    fake.aws[LIFECYCLE] = state
    found = sources(fake, times)["aws-lifecycle"].read()
    assert [notice.kind for notice in found] == [NoticeKind.SCALE_IN] * leaves
    assert all(notice.deadline == NOW + 120 for notice in found)


def test_a_lifecycle_state_that_is_not_known_is_garbage(fake: FakeMetadata, times: Times) -> None:
    fake.aws[LIFECYCLE] = "Confused"
    with pytest.raises(SourceDown, match="'Confused': must be one of"):
        sources(fake, times)["aws-lifecycle"].read()


def test_a_scheduled_event_counts_from_an_hour_before_it(fake: FakeMetadata, times: Times) -> None:
    fake.aws[SCHEDULED] = json.dumps([event(NotBefore=old_style(NOW + 7_200), NotAfter=old_style(NOW + 9_000))])
    source = sources(fake, times)["aws-maintenance"]
    assert source.read() == ()
    times.wall = NOW + 3_601
    (notice,) = source.read()
    assert (notice.kind, notice.deadline, notice.noticed_at) == (NoticeKind.MAINTENANCE, NOW + 7_200, NOW + 3_601)


def test_a_cancelled_or_completed_event_is_not_in_force(fake: FakeMetadata, times: Times) -> None:
    source = sources(fake, times)["aws-maintenance"]
    fake.aws[SCHEDULED] = json.dumps([event()])
    assert len(source.read()) == 1
    for state in ("canceled", "completed"):
        fake.aws[SCHEDULED] = json.dumps([event(State=state)])
        assert source.read() == ()
    fake.aws[SCHEDULED] = "[]"
    assert source.read() == ()


def test_an_event_that_is_over_is_not_in_force_and_one_under_way_is(fake: FakeMetadata, times: Times) -> None:
    over = event(NotBefore=old_style(NOW - 9_000), NotAfter=old_style(NOW - 10))
    under_way = event(EventId="b", NotBefore=old_style(NOW - 30))
    fake.aws[SCHEDULED] = json.dumps([over, under_way])
    (notice,) = sources(fake, times)["aws-maintenance"].read()
    assert (notice.id, notice.deadline) == ("aws-b", NOW - 30)


def test_an_event_that_may_not_interrupt_is_only_likely(fake: FakeMetadata, times: Times) -> None:
    fake.aws[SCHEDULED] = json.dumps([event(Code="system-maintenance"), event(EventId="c", Code="something-new")])
    found = sources(fake, times)["aws-maintenance"].read()
    assert [notice.certainty for notice in found] == [Certainty.LIKELY] * 2


@pytest.mark.parametrize(
    "text", ["{}", "[1]", "[[]]", json.dumps([event(NotBefore="tomorrow")]), json.dumps([event(EventId="a b")])]
)
def test_scheduled_events_that_cannot_be_read_are_garbage(fake: FakeMetadata, times: Times, text: str) -> None:
    fake.aws[SCHEDULED] = text
    with pytest.raises(SourceDown):
        sources(fake, times)["aws-maintenance"].read()


def test_a_server_that_closed_the_connection_in_between_is_asked_once_more(times: Times) -> None:
    with FakeMetadata() as fake:
        source = sources(fake, times)["aws-spot"]
        source.read()
        source._connection._open.sock.shutdown(2)  # type: ignore[union-attr]
        assert source.read() == ()


def test_a_service_that_is_not_there_is_down(times: Times) -> None:
    with FakeMetadata() as fake:
        gone = sources(fake, times)["aws-spot"]
    with pytest.raises(SourceDown, match="refused"):
        gone.read()


@pytest.mark.parametrize("url", ["169.254.169.254", "ftp://a", "http://", "http://user:pass@host"])
def test_a_base_url_that_cannot_be_used_is_refused_without_showing_a_password(url: str) -> None:
    with pytest.raises(ValueError, match="URL") as caught:
        aws_sources(url)
    assert "pass@" not in str(caught.value)
