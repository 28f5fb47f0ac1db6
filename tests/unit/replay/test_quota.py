"""Kueue's rule for local room, over the tree of team cohorts."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from infra.replay.quota import LocalQuota
from stacks.fleet import Fleet
from tests.unit.replay.scenario import LOCAL, local_fleet


def fleet(**teams: dict[str, object]) -> Fleet:
    return Fleet.model_validate({**local_fleet().model_dump(mode="json"), "teams": teams})


def room(quota: LocalQuota, team: str, **used: int) -> int:
    return quota.available(team, LOCAL, {(name, LOCAL): gpus for name, gpus in used.items()})


def test_a_team_may_use_its_own_and_what_others_leave_idle() -> None:
    quota = LocalQuota(local_fleet())
    assert room(quota, "speech") == 16
    assert room(quota, "speech", vision=8, nlp=2) == 6
    assert room(quota, "speech", vision=8, nlp=6) == 2


def test_a_lender_finds_its_quota_taken_until_it_is_given_back() -> None:
    assert room(LocalQuota(local_fleet()), "vision", speech=16) == 0


def test_a_borrowing_limit_bounds_what_is_borrowed() -> None:
    quota = LocalQuota(fleet(a={"quota": {LOCAL: 8}, "borrow": {LOCAL: 2}}, b={"quota": {LOCAL: 8}}))
    assert room(quota, "a") == 10
    assert room(quota, "a", a=9) == 1
    assert room(quota, "b") == 16


def test_a_lending_limit_keeps_the_rest_for_its_owner() -> None:
    quota = LocalQuota(fleet(a={"quota": {LOCAL: 8}, "lend": {LOCAL: 3}}, b={"quota": {LOCAL: 8}}))
    assert room(quota, "b") == 11
    assert room(quota, "a", b=11) == 5


def test_gpus_that_no_team_owns_are_for_nobody() -> None:
    quota = LocalQuota(fleet(a={"quota": {LOCAL: 4}}, b={"quota": {}}))
    assert room(quota, "b") == 4
    assert room(quota, "b", a=3) == 1


@given(
    st.lists(st.tuples(st.integers(0, 8), st.integers(0, 8), st.none() | st.integers(0, 16)), min_size=1, max_size=2),
    st.lists(st.tuples(st.integers(0, 1), st.integers(1, 8)), max_size=12),
)
@settings(max_examples=30)  # each example validates a fleet
def test_jobs_let_in_by_the_rule_never_exceed_the_gpus(
    shares: list[tuple[int, int, int | None]], jobs: list[tuple[int, int]]
) -> None:
    teams: dict[str, dict[str, object]] = {}
    for index, (nominal, lend, borrow) in enumerate(shares):
        limits = {} if borrow is None else {"borrow": {LOCAL: borrow}}
        teams[f"t{index}"] = {"quota": {LOCAL: nominal}, "lend": {LOCAL: min(lend, nominal)}, **limits}
    quota, usage = LocalQuota(fleet(**teams)), dict.fromkeys(((name, LOCAL) for name in teams), 0)
    for index, gpus in jobs:
        team = f"t{index % len(teams)}"
        if quota.fits(team, gpus, usage):
            usage[team, LOCAL] += gpus
    assert sum(usage.values()) <= 16
    for team, (nominal, _, borrow) in zip(teams, shares, strict=True):
        assert borrow is None or usage[team, LOCAL] <= nominal + borrow
