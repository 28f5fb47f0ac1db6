"""The closing summary: right sums, nothing hidden, and readable both ways."""

from __future__ import annotations

import json
from collections.abc import Mapping
from decimal import Decimal
from pathlib import Path

from infra.replay.books import LedgerReader, highest_exposure
from infra.replay.delays import FirstEta
from infra.replay.histories import Histories
from infra.replay.report import lines, to_dict
from infra.replay.summary import Evidence, Moves, Summary
from infra.replay.tally import summary_of
from runtime.clock import Clock
from runtime.cost.entries import closing_to_dict, opening_to_dict
from runtime.cost.ledger import Attempt, Books, Closing, Opening
from tests.unit.replay.scenario import LOCAL, ON_DEMAND, SPOT, START, Job, Log, local_fleet

FLEET = local_fleet()


def opening(uid: str, usd: str, *, team: str = "vision", at: float = 0.0) -> Opening:
    attempt = Attempt(uid, int(START))
    price = Decimal("3.50")
    return Opening(
        attempt, team, uid, uid, team, "p1", SPOT, 4, price, 3600, 1800, True, Decimal(usd), START + at, "d1"
    )  # fmt: skip


def closing(entry: Opening, usd: str, at: float) -> Closing:
    return Closing(entry.attempt, entry.opened_at, START + at, Decimal(usd), "finished")


def summary(log: Log, books: Path | None = None, told: Mapping[tuple[str, str], FirstEta] | None = None) -> Summary:
    return summary_of(
        run_id="r1",
        fleet=FLEET,
        clock=Clock(START, 60),
        started_at=START,
        ended_at=START + 80,
        histories=log.histories() if log.lines else Histories(),
        ledger=LedgerReader(books or Path("nowhere")).read(),
        cloud_nodes={"spot-0": SPOT},
        evidence=Evidence("audit.log", len(log.lines), 0, str(books), ()),
        notes=["20 jobs submitted"],
        told=told,
    )


def busy_log() -> Log:
    log = Log()
    Job(log, "a-r1").submitted(0).local(1).finished(11)
    Job(log, "b-r1").submitted(0).said(2, "budget", scope="team vision").burst(10).finished(40)
    Job(log, "c-r1", team="nlp").submitted(0).said(2, "budget").local(30).finished(50, "JobFailed")
    Job(log, "d-r1", job_class="p2").submitted(5)
    Job(log, "e-r1").submitted(5).local(6)
    Job(log, "other-r0").submitted(0).local(1).finished(2)
    return log


def test_jobs_are_counted_by_where_they_ran_and_how_they_ended() -> None:
    placed = summary(busy_log()).placed
    assert (placed.total, placed.local, placed.cloud) == (5, 3, 1)
    assert dict(placed.by_flavor) == {LOCAL: 3, SPOT: 1}
    assert (placed.succeeded, placed.failed, placed.pending, placed.running) == (2, 1, 1, 1)
    assert not summary(busy_log()).complete


def test_waits_are_in_fleet_time_by_class() -> None:
    (waits,) = summary(busy_log()).waits
    assert (waits.job_class, waits.jobs) == ("P1", 4)
    assert round(waits.p95_seconds) == 30.05 * 60


def test_spend_is_added_up_again_from_the_conditions() -> None:
    fleet = summary(busy_log()).spend[-1]
    assert fleet.team is None
    assert fleet.recomputed_usd == Decimal("7.000000")  # 30 s × 60 × 4 GPUs × 3.50 USD
    assert fleet.difference_usd == -fleet.recomputed_usd


def test_the_ledger_is_compared_for_the_jobs_of_the_replay_alone(tmp_path: Path) -> None:
    month = tmp_path / "v1" / "2026-11"
    month.mkdir(parents=True)
    for uid, usd in (("wl-b-r1", "7.10"), ("wl-other-r0", "90")):
        entry = opening(uid, "14", at=600)
        (month / f"{uid}.1.open.json").write_text(json.dumps(opening_to_dict(entry)))
        (month / f"{uid}.1.close.json").write_text(json.dumps(closing_to_dict(closing(entry, usd, 2400))))
    vision = summary(busy_log(), tmp_path).spend[0]
    assert vision.ledger_usd == Decimal("7.10")
    assert vision.difference_usd == Decimal("0.10")
    assert vision.highest_usd == Decimal("97.10")  # earlier runs included


def test_a_budget_that_held_jobs_is_named_with_what_became_of_them() -> None:
    held = {one.team: one for one in summary(busy_log()).held}
    assert (held["vision"].jobs, held["vision"].ran_in_cloud) == (1, 1)
    assert (held["nlp"].jobs, held["nlp"].ran_locally) == (1, 1)


def test_a_violation_shows_in_the_text_and_in_the_json() -> None:
    log = Log()
    Job(log, "bad-r1").submitted(0).released(1).reserved(2, SPOT).admitted(3).pod(4, SPOT)
    found = summary(log)
    assert not found.exact
    text = "\n".join(lines(found))
    assert "not passed by the gate: 1 (must be 0)" in text
    assert "vision/bad-r1: the agent had not set the gate to Ready" in text
    assert json.loads(json.dumps(to_dict(found)))["exact"] is False


def test_moves_between_queues_are_counted_by_who_made_them() -> None:
    log = Log()
    Job(log, "a-r1").submitted(0).released(1, target=ON_DEMAND).released(2).moved(3, "vision")
    Job(log, "b-r1").submitted(0).released(1).moved(2, "vision", user="argocd").released(3)
    assert summary(log).exactness.moves == Moves(releases=3, retargets=1, recalls=1, by_others=1)


def test_how_far_the_first_forecasts_were_off_is_told() -> None:
    told = {("vision", "job-a-r1"): FirstEta(START, START + 30)}
    text = "\n".join(lines(summary(busy_log(), told=told)))
    assert "first forecast against start, 1 jobs, fleet time: off by 33s (median)" in text
    assert "first forecast" not in "\n".join(lines(summary(busy_log())))


def test_every_claim_names_the_command_that_shows_it() -> None:
    text = "\n".join(lines(summary(busy_log())))
    assert text.count("kubectl get") >= 7
    assert r"flavors.nvidia\.com/gpu" in text
    assert "kubectl get jobs -A -l gpufleet.dev/replay=r1" in text


def test_a_replay_of_nothing_still_has_a_summary() -> None:
    found = summary(Log())
    assert found.placed.total == 0
    assert found.exact
    assert lines(found)


def test_half_a_file_of_the_ledger_is_a_hole_and_a_missing_ledger_is_empty(tmp_path: Path) -> None:
    assert not LedgerReader(tmp_path / "none").read().books.openings
    month = tmp_path / "v1" / "2026-11"
    month.mkdir(parents=True)
    (month / "x.1.open.json").write_text('{"v": 1, "workl')
    assert LedgerReader(tmp_path).read().unreadable == ("v1/2026-11/x.1.open.json",)


def test_the_highest_exposure_counts_commitments_until_they_are_closed() -> None:
    first, second, foreign = opening("a", "10"), opening("b", "8", at=100), opening("c", "50", team="nlp")
    books = Books({one.attempt: one for one in (first, second, foreign)}, {first.attempt: closing(first, "3", 50)})
    assert highest_exposure(books, "vision") == Decimal("11")
    assert highest_exposure(books, None) == Decimal("61")


def test_a_commitment_that_is_made_within_a_second_of_an_end_is_not_counted_beside_it() -> None:
    first, second = opening("a", "10"), opening("b", "10", at=100)
    books = Books({one.attempt: one for one in (first, second)}, {first.attempt: closing(first, "3", 103)})
    assert highest_exposure(books, None, 60) == Decimal("13")
    assert highest_exposure(books, None, 2) == Decimal("20")
