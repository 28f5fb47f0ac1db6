"""Local room missed, older jobs passed over, delays: by hand-made histories."""

from __future__ import annotations

import pytest

from infra.replay.order import inversions, missed_local, unfair_share
from tests.unit.replay.scenario import LOCAL, SPOT, START, Job, Log, local_fleet

FLEET = local_fleet()


def full(log: Log) -> list[Job]:
    """All 16 local GPUs taken by vision's own and borrowed jobs."""
    return [Job(log, f"big{number}-r1", gpus=8).submitted().local(0.5) for number in (1, 2)]


def test_a_burst_while_local_is_full_missed_nothing() -> None:
    log = Log()
    full(log)
    Job(log).submitted(1).burst(5)
    assert missed_local(log.histories(), FLEET) == []


def test_a_burst_while_local_has_room_is_counted_with_how_long_it_had() -> None:
    log = Log()
    first, _ = full(log)
    job = Job(log).submitted(1)
    first.finished(3)
    job.burst(5)
    (missed,) = missed_local(log.histories(), FLEET)
    assert missed.job == "train-r1"
    assert missed.lasted_seconds == pytest.approx(2.1)


def test_room_that_opens_after_the_reservation_is_no_miss() -> None:
    log = Log()
    first, _ = full(log)
    Job(log).submitted(1).burst(5)
    first.finished(5.2)
    assert missed_local(log.histories(), FLEET) == []


def test_room_counts_only_since_the_job_exists() -> None:
    log = Log()
    Job(log).submitted(10).burst(11)
    (missed,) = missed_local(log.histories(), FLEET)
    assert missed.lasted_seconds == pytest.approx(1.1)


def test_a_younger_job_served_before_an_older_one_of_its_size_is_an_inversion() -> None:
    log = Log()
    older = Job(log, "older-r1").submitted(1)
    Job(log, "younger-r1").submitted(3).local(4)
    older.local(9)
    (found,) = inversions(log.histories(), FLEET)
    assert (found.job, found.other) == ("younger-r1", "older-r1")
    assert found.lasted_seconds == pytest.approx(5)


def test_only_jobs_of_one_class_and_size_count_for_the_share() -> None:
    log = Log()
    Job(log, "smaller-r1", gpus=2).submitted(1)
    alike = Job(log, "alike-r1").submitted(1)
    Job(log, "younger-r1").submitted(3).local(4)
    alike.local(9)
    histories = log.histories()
    found = inversions(histories, FLEET)
    assert sorted(one.other or "" for one in found) == ["alike-r1", "smaller-r1"]
    assert [one.other for one in found if one.alike] == ["alike-r1"]
    assert unfair_share(found, histories) == 1 / 2


def test_two_reservations_of_the_same_moment_and_a_job_that_has_only_come_to_its_queue_are_no_unfairness() -> None:
    log = Log()
    at_once = Job(log, "at-once-r1").submitted(1)
    Job(log, "younger-r1").submitted(3).local(5)
    at_once.local(5.1)
    new = Job(log, "new-r1").submitted(6.9)
    Job(log, "next-r1").submitted(7.1).local(7.2)
    new.local(9)
    histories = log.histories()
    found = inversions(histories, FLEET)
    assert [(one.other, one.alike, one.unfair) for one in found] == [
        ("at-once-r1", True, False),
        ("new-r1", True, False),
    ]
    assert unfair_share(found, histories) == 0


@pytest.mark.parametrize(
    ("older", "why"),
    [
        ({"gpus": 8}, "it is larger"),
        ({"priority": 10}, "its priority is lower"),
        ({"team": "nlp"}, "it is another team's"),
    ],
)
def test_passing_over_an_older_job_is_right_when(older: dict[str, object], why: str) -> None:
    log = Log()
    Job(log, "older-r1", **older).submitted(1)  # type: ignore[arg-type]
    Job(log, "younger-r1").submitted(3).local(4)
    assert inversions(log.histories(), FLEET) == [], why


def test_jobs_created_in_the_same_second_have_no_order() -> None:
    log = Log()
    Job(log, "older-r1").submitted(1.1)
    Job(log, "younger-r1").submitted(1.9).local(4)
    assert inversions(log.histories(), FLEET) == []


def test_an_older_job_that_was_not_released_is_not_passed_over_by_a_burst() -> None:
    log = Log()
    Job(log, "older-r1").submitted(1)
    Job(log, "younger-r1").submitted(3).burst(4)
    assert inversions(log.histories(), FLEET) == []


def test_an_older_released_job_is_passed_over_by_a_burst() -> None:
    log = Log()
    Job(log, "older-r1").submitted(1).released(2)
    Job(log, "younger-r1").submitted(3).burst(4)
    assert len(inversions(log.histories(), FLEET)) == 1


def test_a_job_that_was_deleted_waits_no_more() -> None:
    log = Log()
    Job(log, "older-r1").submitted(1).deleted(2)
    Job(log, "younger-r1").submitted(3).local(4)
    assert inversions(log.histories(), FLEET) == []


def test_a_deleted_job_gives_its_quota_back() -> None:
    log = Log()
    first, _ = full(log)
    first.deleted(2)
    Job(log).submitted(3).burst(5)
    assert len(missed_local(log.histories(), FLEET)) == 1


def test_an_empty_log_has_no_faults() -> None:
    histories = Log().histories()
    assert not missed_local(histories, FLEET)
    assert not inversions(histories, FLEET)
    assert unfair_share([], histories) == 0


def test_earlier_runs_count_for_usage_but_not_as_faults() -> None:
    log = Log()
    Job(log, "old-r0", gpus=8).submitted(0).local(1)
    Job(log, "old2-r0", gpus=8).submitted(0).local(1)
    Job(log, "older-r0").submitted(1)
    Job(log, "younger-r0").submitted(3).reserved(4, LOCAL)
    Job(log, "new-r1").submitted(11).burst(15, SPOT)
    assert missed_local(log.histories(), FLEET, START + 10) == []
    assert inversions(log.histories(), FLEET, START + 10) == []


def test_kueue_gives_the_quota_of_an_inactive_job_away_at_once() -> None:
    log = Log()
    first, _ = full(log)
    first.stopped(2)
    Job(log).submitted(3).burst(5)
    first.evicted(9)
    assert len(missed_local(log.histories(), FLEET)) == 1
