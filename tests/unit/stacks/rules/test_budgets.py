"""Where budgets, policies and queue names meet: what one case for each rule does not show."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from stacks.fleet import Fleet
from stacks.rules import Rule, advice, budgets
from tests.unit.stacks.rules.cases import REMOVED, changed

NEVER = {"kind": "never"}
ALWAYS = {"kind": "always"}


def found(rule: Rule, changes: dict[str, Any]) -> list[str]:
    """Where the rule finds something in the changed file."""
    return [".".join(map(str, problem.path)) for problem in rule(Fleet.model_validate(changed(changes)))]


@pytest.mark.parametrize(
    ("limits", "wrong"),
    [
        ({"daily": 10, "weekly": 50, "monthly": 100}, []),
        ({"daily": 10, "weekly": 10, "monthly": 10}, []),
        ({"daily": 60, "weekly": 50}, ["daily"]),
        ({"daily": 60, "weekly": 70, "monthly": 50}, ["daily", "weekly"]),
        ({"weekly": 101, "monthly": 100}, ["weekly"]),
        ({"weekly": 100}, []),
    ],
)
@pytest.mark.parametrize("owner", ["burst", "teams.nlp", "projects.grant"])
def test_a_shorter_limit_is_compared_with_each_longer_one(owner: str, limits: dict[str, int], wrong: list[str]) -> None:
    changes = {f"{owner}.budget": {period: f"{usd} USD" for period, usd in limits.items()}}

    expected = [f"{owner}.budget.{period}" for period in wrong]
    assert found(budgets.limits_of_shorter_periods_can_be_reached, changes) == expected


def test_a_project_cannot_have_more_than_the_fleet() -> None:
    changes = {"projects.grant": {"budget": {"monthly": "300 USD", "weekly": "300 USD"}}}

    wrong = found(budgets.budgets_within_the_fleet_can_be_reached, changes)
    assert wrong == ["projects.grant.budget.monthly"]


def test_a_fleet_that_sends_nothing_to_the_cloud_needs_no_budget() -> None:
    no_budgets = {"burst.budget": REMOVED, "teams.nlp.budget": REMOVED, "teams.vision.budget": REMOVED}

    assert found(budgets.the_fleet_has_a_budget, no_budgets) == ["burst"]
    assert found(budgets.the_fleet_has_a_budget, no_budgets | {"burst.policy": NEVER}) == []
    own = no_budgets | {"burst.policy": NEVER, "classes.P1.policy": ALWAYS}
    assert found(budgets.the_fleet_has_a_budget, own) == ["burst"]


@pytest.mark.parametrize(
    ("changes", "is_wrong"),
    [
        ({"classes.P0.max_wait": "3h"}, True),
        ({"classes.P0.max_wait": "3h", "teams.nlp.policy": {"kind": "constant", "wait": "4h"}}, False),
        ({"classes.P0.policy": {"kind": "constant", "wait": "4m"}}, True),
        ({"classes.P0.policy": {"kind": "per-gpu", "wait_per_gpu": "1m", "bounds": ["0s", "8m"]}}, False),
        ({"classes.P0.policy": ALWAYS}, True),
        ({"burst.policy": ALWAYS}, True),
        ({"burst.policy": NEVER}, True),
        ({"burst.policy": NEVER, "teams.nlp.policy": {"kind": "constant", "wait": "1h"}}, False),
        ({"teams.nlp.policy": NEVER}, False),
    ],
)
def test_a_longest_wait_is_compared_with_every_policy_that_jobs_of_the_class_may_have(
    changes: dict[str, Any], is_wrong: bool
) -> None:
    wrong = found(advice.waits_are_within_the_bounds_of_the_policy, changes)
    assert wrong == (["classes.P0.max_wait"] if is_wrong else [])


def test_a_link_that_data_crosses_is_noted_only_where_it_would_have_to_be_made() -> None:
    data = {"link": "office", "max_staging": "1h"}
    existing = {"kind": "existing", "cluster": "use", "bandwidth": "1 Gbps", "cidrs": ["10.200.0.0/15"]}
    notes = advice.settings_have_an_effect

    assert found(notes, {"classes.P0.markets": ["onprem", "spot"], "classes.P0.window": "22:00-06:00 UTC"}) == [
        "links.office"
    ]
    assert found(notes, {"burst.data": data}) == ["links.office"]
    assert found(notes, {"links.office": existing}) == ["links.office"]
    assert found(notes, {"links.office": existing, "burst.data": data}) == []


def test_the_name_of_a_window_queue_must_fit_a_label() -> None:
    window = {"priority": 1, "window": "22:00-06:00 UTC"}
    Fleet.model_validate(changed({f"classes.{'n' * 49}": window}))

    with pytest.raises(ValidationError, match=r"64 characters.*take 1 off the name of the team or the class"):
        Fleet.model_validate(changed({f"classes.{'n' * 50}": window}))


def test_a_queue_whose_flavor_is_not_there_is_no_reason_to_fall_over() -> None:
    with pytest.raises(ValidationError, match="no such cloud pool"):
        Fleet.model_validate(changed({"burst.order": ["spot", "od", "nothing"]}))
