from __future__ import annotations

import random
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from runtime.cost.ledger import close
from runtime.routing.snapshot import WAITING_STAGES, Job, Snapshot, Stage
from runtime.simulation.forecast import forecast, positions
from runtime.simulation.told import BEYOND_HORIZON, FAR_BACK
from tests.builders import (
    HOUR,
    LOCAL,
    NOON,
    ON_DEMAND,
    SPOT,
    a_config,
    a_flavor,
    a_job,
    a_job_at_the_gate,
    a_snapshot,
    a_snapshot_without_ledger,
    a_team,
    an_opening,
    some_books,
)
from tests.unit.simulation.builders import a_running_job, a_waiting_job, starts_in

DAY = 24 * HOUR


def test_a_job_starts_when_the_one_before_it_ends() -> None:
    found = forecast(a_snapshot(a_running_job("now", 600, gpus=16), a_waiting_job("next", 4)), a_config(), NOON)

    assert found.keys() == {"next"}
    assert (starts_in(found["next"]), found["next"].flavor, found["next"].position) == (600, LOCAL, 1)


def test_a_job_for_which_there_is_room_starts_at_once_and_nothing_keeps_it() -> None:
    [found] = forecast(a_snapshot(a_waiting_job("one", 4)), a_config(), NOON).values()

    assert (starts_in(found), found.flavor, found.reason) == (0, LOCAL, "")


def test_a_job_that_no_local_gpu_takes_starts_in_the_cloud_when_its_wait_is_over() -> None:
    snapshot = a_snapshot(a_running_job("long", 9 * HOUR, gpus=16), a_waiting_job("one", 4, created_at=NOON - 600))

    found = forecast(snapshot, a_config(), NOON)["one"]

    assert (starts_in(found), found.flavor, found.reason) == (1_200, SPOT, "waiting")


def test_the_second_job_starts_when_the_first_has_run_for_as_long_as_it_is_expected_to() -> None:
    config = a_config(classes={"p2": {"burst": "never", "expected_runtime": "1h"}}, default_class="p2")
    waiting = [a_waiting_job(uid, 16, job_class="p2", created_at=NOON - age) for uid, age in (("a", 90), ("b", 60))]

    found = forecast(a_snapshot(a_running_job("now", 600, gpus=16), *waiting), config, NOON)

    assert [starts_in(found[uid]) for uid in "ab"] == [600, 600 + HOUR]
    assert [found[uid].position for uid in "ab"] == [1, 2]


def test_priority_goes_before_age() -> None:
    config = a_config(classes={"p2": {"burst": "never", "expected_runtime": "1h"}}, default_class="p2")
    old = a_waiting_job("old", 16, job_class="p2", created_at=NOON - DAY)
    important = a_waiting_job("important", 16, job_class="p2", priority=100)

    found = forecast(a_snapshot(a_running_job("now", 600, gpus=16), old, important), config, NOON)

    assert starts_in(found["important"]) == 600
    assert starts_in(found["old"]) == 600 + HOUR


def test_a_small_job_passes_a_large_one_that_does_not_fit() -> None:
    config = a_config(classes={"p2": {"burst": "never", "expected_runtime": "1h"}}, default_class="p2")
    large = a_waiting_job("large", 16, job_class="p2", created_at=NOON - HOUR)
    small = a_waiting_job("small", 4, job_class="p2", expected_seconds=300)

    found = forecast(a_snapshot(a_running_job("now", 600, gpus=12), large, small), config, NOON)

    assert starts_in(found["small"]) == 0
    assert starts_in(found["large"]) == 600


def test_a_job_that_ran_for_longer_than_expected_is_taken_to_run_as_long_again() -> None:
    overdue = a_running_job("overdue", 0, gpus=16, expected_seconds=60)
    found = forecast(a_snapshot(overdue, a_waiting_job("next", 16, job_class="p2")), a_config(), NOON)

    assert starts_in(found["next"]) == HOUR / 2


def test_an_overdue_job_is_taken_to_end_at_its_limit_where_that_comes_first() -> None:
    overdue = a_running_job("overdue", 0, gpus=16, expected_seconds=60, max_seconds=HOUR / 2 + 120)
    found = forecast(a_snapshot(overdue, a_waiting_job("next", 16, job_class="p2")), a_config(), NOON)

    assert starts_in(found["next"]) == 120


def test_a_team_borrows_what_others_lend_and_no_more_than_it_may() -> None:
    teams = {"vision": a_team("vision", borrow={LOCAL: 4}), "nlp": a_team("nlp", lend={LOCAL: 2})}
    jobs = [a_waiting_job(f"{gpus}", gpus, job_class="p2", max_seconds=None) for gpus in (10, 11)]

    for job, start in zip(jobs, (0, None), strict=True):
        found = forecast(a_snapshot(job), a_config(teams=teams), NOON)[job.uid]
        assert starts_in(found) == start, job.gpus


def test_what_fits_into_a_teams_own_quota_goes_before_what_is_borrowed() -> None:
    borrower = a_waiting_job("borrower", 12, job_class="p2", created_at=NOON - DAY)
    owner = a_waiting_job("owner", 8, job_class="p2", team="nlp", namespace="nlp", queue="nlp")

    found = forecast(a_snapshot(a_running_job("now", 600, gpus=16), borrower, owner), a_config(), NOON)

    assert starts_in(found["owner"]) == 600
    assert starts_in(found["borrower"]) == 600 + HOUR


def test_nodes_that_are_away_take_no_jobs() -> None:
    snapshot = replace(a_snapshot(a_waiting_job("one", 8, job_class="p2")), capacity={LOCAL: 4})

    found = forecast(snapshot, a_config(), NOON)["one"]

    assert (found.start_at, found.reason) == (None, "never-fits")


def test_a_job_waits_for_the_turn_of_the_month_where_the_budget_is_used_up() -> None:
    config = a_config(budget={"monthly": "30 USD", "kind": "hard"})
    spent = an_opening("old", max_seconds=15 * HOUR, gpus=1, opened_at=NOON - 20 * HOUR)
    books = some_books(spent, closings=(close(spent, spent.opened_at, spent.opened_at + 15 * HOUR, "finished"),))
    waiting = a_job("one", gpus=8, queue="vision")
    snapshot = a_snapshot(a_running_job("long", 40 * DAY, gpus=16), waiting, books=books)

    found = forecast(snapshot, config, NOON)["one"]

    assert found.start_at == datetime(2026, 12, 1, tzinfo=UTC).timestamp()
    assert (found.flavor, found.reason, found.scope) == (SPOT, "budget", "fleet")


def test_the_month_turns_in_the_time_zone_of_the_budget() -> None:
    config = a_config(budget={"daily": "16 USD", "time_zone": "Asia/Tokyo", "kind": "hard"})
    running = a_running_job("long", 40 * DAY, gpus=16)
    jobs = [a_job(uid, gpus=8, queue="vision", created_at=NOON - HOUR - age) for age, uid in enumerate("ba")]

    found = forecast(a_snapshot(running, *jobs), config, NOON)

    assert found["a"].start_at == NOON
    assert found["b"].start_at == datetime(2026, 11, 21, 15, tzinfo=UTC).timestamp()


def test_a_job_of_a_class_with_a_window_starts_when_it_opens() -> None:
    window = {"burst": "never", "expected_runtime": "1h", "window": "22:00-06:00 Europe/Berlin"}
    teams = {"vision": a_team("vision", window_queues={"night": "vision-window-night"})}
    config = a_config(classes={"night": window}, default_class="night", teams=teams)
    job = a_waiting_job("one", 4, job_class="night", queue="vision-window-night")

    held = replace(a_snapshot(job), held_queues=frozenset({"vision-window-night"}))

    found = forecast(held, config, NOON)["one"]

    assert found.start_at == datetime(2026, 11, 21, 21, tzinfo=UTC).timestamp()
    assert found.flavor == LOCAL


def test_a_job_that_can_run_nowhere_says_why_and_no_start() -> None:
    found = forecast(a_snapshot(a_waiting_job("one", 999)), a_config(), NOON)["one"]

    assert (found.start_at, found.reason) == (None, "never-fits")


def test_a_job_whose_turn_comes_too_late_is_beyond_the_horizon() -> None:
    config = a_config(budget={"monthly": "1 USD", "kind": "hard"})
    snapshot = a_snapshot(a_running_job("long", 90 * DAY, gpus=16), a_waiting_job("one", 4, job_class="p2"))

    assert forecast(snapshot, config, NOON)["one"].start_at is None
    assert forecast(snapshot, config, NOON, most_steps=0)["one"].reason in ("class-stays-local", BEYOND_HORIZON)


def test_a_job_at_the_gate_starts_now_and_has_no_place_in_the_queue() -> None:
    at_gate = a_job_at_the_gate("one", target=SPOT, queue="vision-burst-h100-spot")

    found = forecast(a_snapshot(a_running_job("r", HOUR, gpus=16), at_gate), a_config(), NOON)["one"]

    assert (found.position, starts_in(found), found.flavor) == (None, 0, SPOT)


def test_without_a_ledger_nothing_is_forecast_into_the_cloud() -> None:
    snapshot = a_snapshot_without_ledger(a_running_job("r", HOUR, gpus=16), a_job("one", gpus=4, queue="vision"))

    found = forecast(snapshot, a_config(), NOON)["one"]

    assert (starts_in(found), found.flavor, found.reason) == (HOUR, LOCAL, "ledger-down")


def test_jobs_far_back_are_told_their_place_alone() -> None:
    jobs = [a_waiting_job(f"{n}", 1, created_at=NOON - n) for n in range(1, 6)]

    found = forecast(a_snapshot(*jobs), a_config(), NOON, most_jobs=2)

    assert [found[f"{n}"].position for n in (5, 4, 3, 2, 1)] == [1, 2, 3, 4, 5]
    assert [found[f"{n}"].reason for n in (5, 4, 3, 2, 1)] == ["", "", FAR_BACK, FAR_BACK, FAR_BACK]


def test_a_team_with_many_jobs_does_not_keep_another_from_its_forecast() -> None:
    many = [a_waiting_job(f"v{n}", 1, priority=1_000) for n in range(20)]
    other = a_waiting_job("other", 1, team="nlp", namespace="nlp", queue="nlp")

    found = forecast(a_snapshot(*many, other), a_config(), NOON, most_jobs=4)

    assert starts_in(found["other"]) == 0


def test_places_count_a_teams_own_queue_and_its_twins_together() -> None:
    jobs = [
        a_waiting_job("released", 1, stage=Stage.RELEASED, target=SPOT, created_at=NOON - 90),
        a_waiting_job("queued", 1),
        a_waiting_job("first", 1, priority=9),
        a_job_at_the_gate("gate"),
        a_running_job("runs", 60),
    ]

    assert positions(jobs) == {"first": 1, "released": 2, "queued": 3}


def test_nobody_and_a_team_that_is_not_in_the_file_are_no_trouble() -> None:
    assert forecast(a_snapshot(), a_config(), NOON) == {}
    stranger = a_waiting_job("one", 1, team="gone")
    assert forecast(a_snapshot(stranger), a_config(), NOON)["one"].start_at is None


def test_open_attempts_keep_their_money_until_their_jobs_end() -> None:
    config = a_config(budget={"monthly": "30 USD", "kind": "hard"})
    cloud = a_job(
        "cloud",
        gpus=8,
        stage=Stage.RUNNING_CLOUD,
        flavor=SPOT,
        target=SPOT,
        attempt=int(NOON) - 10,
        ready_at=NOON - 10,
        ever_admitted=True,
    )
    books = some_books(an_opening("cloud", gpus=8))
    waiting = a_job("one", gpus=8, queue="vision", max_seconds=HOUR, expected_seconds=60)
    snapshot = a_snapshot(a_running_job("long", 40 * DAY, gpus=16), cloud, waiting, books=books)

    found = forecast(snapshot, config, NOON)["one"]

    assert found.reason == "budget"
    assert found.start_at == datetime(2026, 12, 1, tzinfo=UTC).timestamp()


_JOBS = st.builds(
    lambda uid, **values: a_job(uid, queue=values["team"], namespace=values["team"], **values),
    st.integers(0, 10**6).map(str),
    team=st.sampled_from(["vision", "nlp", "gone"]),
    gpus=st.sampled_from([1, 2, 4, 8, 16, 64]),
    created_at=st.integers(0, 7_200).map(lambda age: NOON - age),
    job_class=st.sampled_from(["p0", "p1", "p2"]),
    priority=st.sampled_from([0, 10]),
    expected_seconds=st.sampled_from([None, 60.0, HOUR, 30 * DAY]),
    max_seconds=st.sampled_from([None, 120.0, DAY]),
    stage=st.sampled_from([Stage.QUEUED, Stage.QUEUED, Stage.RELEASED, Stage.RECALLING, Stage.STOPPED]),
    target=st.sampled_from([SPOT, ON_DEMAND]),
)


def _tidy(job: Job) -> Job:
    if job.stage is Stage.RELEASED and job.team != "gone":
        return replace(job, queue=f"{job.team}-burst-{job.target}")
    return replace(job, target=None, stage=Stage.QUEUED if job.stage is Stage.RELEASED else job.stage)


@settings(max_examples=25, deadline=None)
@given(st.lists(_JOBS.map(_tidy), max_size=12, unique_by=lambda job: job.uid), st.booleans(), st.integers(0, 99))
def test_every_job_that_waits_has_a_start_or_a_reason_whatever_order_they_come_in(
    jobs: list[Job], has_budget: bool, seed: int
) -> None:
    config = a_config(**({"budget": {"daily": "20 USD", "kind": "hard"}} if has_budget else {}))
    jobs = [*jobs, a_running_job("runs", 600, gpus=12)]
    shuffled = random.Random(seed).sample(jobs, len(jobs))

    found = forecast(a_snapshot(*jobs), config, NOON)

    assert found.keys() == {job.uid for job in jobs if job.stage in WAITING_STAGES}
    assert all(one.reason if one.start_at is None else one.flavor for one in found.values())
    assert forecast(a_snapshot(*shuffled), config, NOON) == found


def test_fifteen_thousand_jobs_take_bounded_work() -> None:
    team_count: int = 10
    flavors: dict[str, Any] = {LOCAL: a_flavor("onprem", 16, "0"), SPOT: a_flavor("spot", 16, "2")}
    teams = {f"t{n}": a_team(f"t{n}", burst_queues={SPOT: f"t{n}-burst-{SPOT}"}) for n in range(team_count)}
    config = a_config(teams=teams, flavors=flavors, burst_order=(SPOT,))
    template = a_job("x", gpus=4)
    jobs = tuple(
        replace(template, uid=str(n), team=f"t{n % team_count}", created_at=NOON - n % 997) for n in range(15_000)
    )

    found = forecast(Snapshot(jobs=jobs, books=some_books()), config, NOON, most_jobs=20, most_steps=20)

    assert len(found) == 15_000
    assert sum(one.reason == FAR_BACK for one in found.values()) == 14_980


def test_a_job_that_an_administrator_keeps_local_is_told_so_and_sent_away_when_that_is_over() -> None:
    kept = a_waiting_job("kept", 16, created_at=NOON - HOUR, verdict_code="kept-local", verdict_at=NOON - 600)
    busy = a_running_job("long", 9 * HOUR, gpus=16)
    found = forecast(a_snapshot(busy, kept), a_config(), NOON)["kept"]
    assert found.reason == "kept-local"
    assert found.start_at is not None
    assert found.start_at >= NOON + HOUR - 600
