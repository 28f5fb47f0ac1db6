from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from infra.planning.costs import costs_of
from infra.planning.facts import inline
from stacks.load import load_text
from tests.unit.commands.conftest import Ended
from tests.unit.commands.fleets import changed, rented, without_team, write

Run = Callable[..., Ended]
ROOT = Path(__file__).parents[3]

NO_BUDGETS = (
    (", budget: {monthly: 1000 USD, kind: hard}", ""),
    (", budget: {monthly: 400 USD}", ""),
    (", budget: {monthly: 900 USD, kind: soft}", ""),
)


def lines_with(ended: Ended, word: str) -> list[list[str]]:
    return [line.split() for line in ended.out.splitlines() if word in line.split()]


def planned(gpufleet: Run, home: Path, text: str) -> dict[str, Any]:
    ended = gpufleet("plan", write(home, text), "--json")
    assert (ended.code, ended.err) == (0, "")
    plan = json.loads(ended.out)
    assert isinstance(plan, dict)
    return plan


def test_a_plan_counts_the_objects_of_each_kind(gpufleet: Run, home: Path) -> None:
    ended = gpufleet("plan", write(home, changed()))

    assert ended.code == 0
    assert lines_with(ended, "ResourceFlavor") == [["ResourceFlavor", "2"]]
    assert lines_with(ended, "ClusterQueue") == [["ClusterQueue", "4"]]


def test_a_plan_names_each_object_when_asked(gpufleet: Run, home: Path) -> None:
    ended = gpufleet("plan", write(home, changed(("nodes: 2", "nodes: 2, node_names: [n-0, n-1]"))), "--objects")

    assert ["LocalQueue", "vision", "vision-burst-h100-aws-spot"] in lines_with(ended, "LocalQueue")
    assert ["Node", "(labels)", "-", "n-1"] in lines_with(ended, "n-1")


def test_a_plan_shows_the_marks_of_nodes_and_what_pods_can_ask_for(gpufleet: Run, home: Path) -> None:
    lines = gpufleet("plan", write(home, changed())).out.splitlines()

    at = lines.index("    gpufleet.dev/flavor=h100-aws-spot")
    assert lines[at - 1].split() == ["h100-aws-spot", "8", "$2.00", "spot"]
    assert lines[at + 1 : at + 5] == [
        "    gpufleet.dev/gpu=h100",
        "    gpufleet.dev/pool=spot",
        "    gpufleet.dev/burst=true:NoSchedule",
        "    nvidia.com/gpu: 8",
    ]


def test_a_plan_says_what_was_filled_in_and_from_where(gpufleet: Run, home: Path) -> None:
    ended = gpufleet("plan", write(home, changed(("organization", "preset: performance\n    organization"))))

    assert lines_with(ended, "capacity.headroom") == [["capacity.headroom", "10%", "preset", "performance"]]
    policy = "{kind: compute-wait, wait_per_gpu_hour: 90s, bounds: [1m, 30m]}"
    assert any(policy in line for line in ended.out.splitlines())


def test_a_plan_of_a_file_that_leaves_nothing_out_fills_nothing_in(gpufleet: Run, home: Path) -> None:
    text = changed(("burst: {", "burst: {policy: {kind: constant, wait: 1h}, "))

    assert planned(gpufleet, home, text)["filled_in"] == []


def test_the_last_line_of_the_costs_is_a_range_and_what_is_not_in_it(gpufleet: Run, home: Path) -> None:
    words = " ".join(gpufleet("plan", write(home, changed())).out.split())

    assert "owned GPUs: $11,680.00 a month, used or not" in words
    assert "cloud GPUs: $0.00 to $1,000.00 a month" in words
    assert words.rindex("egress") > words.index("cloud GPUs")
    for left_out in ("storage", "control planes", "licences", "GPUs of a node that no job uses"):
        assert left_out in words


def test_owned_gpus_are_never_added_to_the_bill(gpufleet: Run, home: Path) -> None:
    cost = planned(gpufleet, home, changed(*NO_BUDGETS))["cost"]

    assert cost["owned_usd"] == "11680.00"
    assert cost["cloud"]["highest_usd"] == cost["cloud"]["without_budgets_usd"] == "11680.00"  # 8 GPUs at $2, 730 hours
    assert cost["cloud"]["bound_by"] == "the sizes of the pools"


def test_a_soft_budget_lowers_nothing(gpufleet: Run, home: Path) -> None:
    text = changed(*NO_BUDGETS[1:], ("kind: hard", "kind: soft"))

    assert planned(gpufleet, home, text)["cost"]["cloud"]["highest_usd"] == "11680.00"


def test_hard_budgets_of_all_teams_bound_the_fleet(gpufleet: Run, home: Path) -> None:
    cloud = planned(gpufleet, home, changed(("900 USD, kind: soft", "100 USD")))["cost"]["cloud"]

    assert (cloud["highest_usd"], cloud["bound_by"]) == ("500.00", "the teams' hard budgets")


def test_a_daily_budget_bounds_the_longest_month(gpufleet: Run, home: Path) -> None:
    text = changed(("monthly: 1000 USD, kind", "daily: 10 USD, kind"))

    assert planned(gpufleet, home, text)["cost"]["cloud"]["highest_usd"] == "310.00"


def test_a_weekly_budget_bounds_the_six_weeks_that_a_month_can_touch(gpufleet: Run, home: Path) -> None:
    text = changed(("monthly: 1000 USD, kind", "weekly: 10 USD, kind"))

    assert planned(gpufleet, home, text)["cost"]["cloud"]["highest_usd"] == "60.00"


def test_a_team_that_stays_local_needs_no_budget_to_bound_the_fleet(gpufleet: Run, home: Path) -> None:
    local = ("budget: {monthly: 900 USD, kind: soft}", "policy: {kind: never}")
    cloud = planned(gpufleet, home, changed(local))["cost"]["cloud"]

    assert (cloud["highest_usd"], cloud["bound_by"]) == ("400.00", "the teams' hard budgets")
    cloud = planned(gpufleet, home, changed(("{order: [spot]", "{policy: {kind: never}, order: [spot]")))["cost"][
        "cloud"
    ]
    assert (cloud["highest_usd"], cloud["bound_by"]) == ("0.00", "policies that keep every job local")


def test_idle_nodes_and_pools_without_a_queue_are_beyond_every_budget(gpufleet: Run, home: Path) -> None:
    text = rented(in_order=False)
    ended = gpufleet("plan", write(home, text))
    cloud = planned(gpufleet, home, text)["cost"]["cloud"]

    assert cloud["lowest_usd"] == "1460.00"  # a node of 4 GPUs at $0.50, idle for 730 hours
    assert cloud["highest_usd"] == "5380.00"  # the budget, and three nodes that it does not hold
    assert cloud["pools_without_budget"] == ["extra"]
    assert "no queue leads to extra, so no budget holds what is started there" in ended.out


def test_idle_nodes_of_a_pool_in_the_order_come_on_top_of_the_budget(gpufleet: Run, home: Path) -> None:
    cost = planned(gpufleet, home, rented(in_order=True))["cost"]

    assert cost["cloud"]["highest_usd"] == "2460.00"


def test_a_price_that_is_not_the_files_own_says_its_age(gpufleet: Run, home: Path) -> None:
    text = changed(("market: spot", "market: on-demand, region: us-east-1"), (", usd_per_gpu_hour: 2}", "}"))

    assert "spot: at list prices, the oldest of which is of 20" in gpufleet("plan", write(home, text)).out
    assert "at list prices" not in gpufleet("plan", write(home, changed())).out


def test_parts_that_are_planned_only_are_named_and_not_invented(gpufleet: Run, home: Path) -> None:
    ended = gpufleet("plan", write(home, rented(in_order=True)))

    assert "    pools.extra: provisioner node-group" in ended.out.splitlines()
    assert "not deployed by this version" in ended.out
    assert "NodePool" not in ended.out


@pytest.mark.parametrize(
    ("budget", "said"),
    [
        (", budget: {monthly: 200 USD, kind: soft}", ["$200.00", "soft"]),
        (", budget: {monthly: 300 USD, daily: 40 USD}", ["$300.00,", "$40.00", "a", "day"]),
        (", budget: {daily: 40 USD, kind: soft}", ["$40.00", "a", "day", "soft"]),
        (", budget: {weekly: 90 USD, daily: 40 USD}", ["$90.00", "a", "week,", "$40.00", "a", "day"]),
        ("", ["the", "fleet's"]),
    ],
)
def test_a_teams_budget_is_said_with_its_days_and_its_kind(
    gpufleet: Run, home: Path, budget: str, said: list[str]
) -> None:
    ended = gpufleet("plan", write(home, changed((", budget: {monthly: 400 USD}", budget))))

    assert ["vision", "vision/vision", "h100-onprem=12", *said] in lines_with(ended, "vision/vision")


def test_a_team_without_any_budget_is_not_said_to_have_the_fleets(gpufleet: Run, home: Path) -> None:
    ended = gpufleet("plan", write(home, changed(*NO_BUDGETS)))

    assert ["vision", "vision/vision", "h100-onprem=12", "-"] in lines_with(ended, "vision/vision")


def test_warnings_of_the_file_stand_at_the_end_with_their_lines(gpufleet: Run, home: Path) -> None:
    file = write(home, changed(("h100-onprem: 4", "h100-onprem: 3")))

    last = gpufleet("plan", file).out.splitlines()[-1]

    assert last.startswith(f"{file}:7:7: warning: pools.rack: 1 of the 16 GPUs")


def test_a_plan_as_json_has_a_form_that_programs_can_rely_on(gpufleet: Run, home: Path) -> None:
    plan = planned(gpufleet, home, changed())

    assert list(plan) == [
        "objects", "helm_releases", "flavors", "pools", "teams", "projects", "filled_in", "cost", "not_deployed", "warnings"
    ]  # fmt: skip
    assert list(plan["objects"]) == ["count", "by_kind", "labelled_nodes", "all"]
    assert len(plan["objects"]["all"]) == plan["objects"]["count"] == sum(plan["objects"]["by_kind"].values())
    assert plan["flavors"][0] == {
        "name": "h100-onprem",
        "gpus": 16,
        "usd_per_gpu_hour": "1",
        "pools": ["rack"],
        "node_labels": {"gpufleet.dev/flavor": "h100-onprem", "gpufleet.dev/gpu": "h100"},
        "node_taints": [],
        "devices": {"nvidia.com/gpu": 16},
    }
    assert plan["teams"][1] == {
        "name": "nlp",
        "queue": "nlp/nlp",
        "burst_queues": {"h100-aws-spot": "nlp/nlp-burst-h100-aws-spot"},
        "window_queues": {},
        "quota": {"h100-onprem": 4},
        "borrow": {},
        "lend": {},
        "weight": 1.0,
        "max_burst_gpus": None,
        "policy": None,
        "monthly_budget_usd": "900",
        "weekly_budget_usd": None,
        "daily_budget_usd": None,
        "budget_kind": "soft",
        "budget_time_zone": "UTC",
    }
    assert plan["cost"]["budgets"][0] == {
        "team": None,
        "project": None,
        "hard": True,
        "monthly_usd": "1000.00",
        "weekly_usd": None,
        "daily_usd": None,
    }


def test_a_plan_names_the_queues_that_jobs_are_moved_to_and_those_that_open_in_a_window(
    gpufleet: Run, home: Path
) -> None:
    window = ("{P1: {", "{Night: {priority: 1, window: 22:00-06:00 UTC}, P1: {")
    lines = gpufleet("plan", write(home, changed(window))).out.splitlines()

    at = next(index for index, line in enumerate(lines) if line.startswith("vision "))
    assert lines[at + 1 : at + 3] == [
        "    vision-burst-h100-aws-spot bursts to h100-aws-spot",
        "    vision-window-night opens 22:00-06:00 UTC",
    ]


def test_projects_are_planned_with_their_teams_and_bound_no_month(gpufleet: Run, home: Path) -> None:
    two = "grant: {teams: [nlp], budget: {weekly: 20 USD}}, paper: {budget: {monthly: 30 USD, kind: soft}}"
    text = changed(("    burst:", f"    projects: {{{two}}}\n    burst:"))
    ended = gpufleet("plan", write(home, text))
    plan = planned(gpufleet, home, text)

    assert ["grant", "nlp", "$20.00", "a", "week"] in lines_with(ended, "grant")
    assert ["paper", "vision,nlp", "$30.00", "soft"] in lines_with(ended, "paper")
    assert ["project", "grant", "-", "$20.00", "-", "hard:", "stops"] in lines_with(ended, "project")
    assert [one["name"] for one in plan["projects"]] == ["grant", "paper"]
    assert plan["cost"]["cloud"]["highest_usd"] == "1000.00"


@pytest.mark.parametrize("stack", ["local", "dev", "prod", "hybrid", "gcp"])
def test_every_environment_can_be_planned(gpufleet: Run, stack: str) -> None:
    ended = gpufleet("plan", str(ROOT / "stacks" / f"Pulumi.{stack}.yaml"))

    assert (ended.code, ended.err) == (0, "")
    assert "cloud GPUs: $" in ended.out


@pytest.mark.parametrize("name", ["", "none.yaml", "a" * 300, "HEAD:", ":", "-:x", "x:\0", "/", "no\nsuch:file"])
def test_what_is_no_stack_file_is_said_and_fails(gpufleet: Run, home: Path, name: str) -> None:
    ended = gpufleet("plan", "--", name)

    assert (ended.code, ended.out) == (1, "")
    assert ended.err.startswith("gpufleet: the stack file cannot be used\n")
    assert "Traceback" not in ended.err


def test_a_wrong_file_is_not_half_planned(gpufleet: Run, home: Path) -> None:
    ended = gpufleet("plan", write(home, changed(("order: [spot]", "order: [spto]"))))

    assert (ended.code, ended.out) == (1, "")
    assert "did you mean spot?" in ended.err


@pytest.mark.parametrize("command", ["plan", "render"])
def test_a_wrong_file_is_json_where_that_is_asked_for(gpufleet: Run, home: Path, command: str) -> None:
    file = write(home, changed(("order: [spot]", "order: [spto]")))

    ended = gpufleet(command, file, "--json")

    assert (ended.code, ended.err) == (1, "")
    assert json.loads(ended.out) == json.loads(gpufleet("check", file, "--json").out)


def test_the_modules_of_plan_do_not_bring_the_pulumi_sdk_along() -> None:
    """It would make every command that shares them start later, `check` in an editor among them."""
    code = "import sys, infra.commands.planning, infra.commands.rendering; sys.exit('pulumi' in sys.modules)"

    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=False).returncode == 0


@settings(max_examples=15, deadline=None)
@given(
    budget=st.integers(1, 50_000),
    kind=st.sampled_from(["hard", "soft"]),
    fewest=st.integers(0, 3),
    in_order=st.booleans(),
)
def test_a_budget_only_ever_lowers_the_most(budget: int, kind: str, fewest: int, in_order: bool) -> None:
    text = changed(
        ("1000 USD, kind: hard", f"{budget} USD, kind: {kind}"),
        ("{min: 1, max: 3}", f"{{min: {fewest}, max: 3}}"),
        text=without_team("nlp", rented(in_order=in_order)),
    )
    costs = costs_of(load_text(text, "fleet.yaml"))

    assert Decimal(0) <= costs.lowest <= costs.highest <= costs.unlimited
    assert costs.lowest == sum(cost.lowest for cost in costs.rented)
    assert all(cost.lowest <= cost.highest for cost in costs.rented)


def test_a_value_is_shown_in_one_line_as_it_could_stand_in_the_file() -> None:
    assert inline({"kind": "constant", "wait": "1h"}) == "{kind: constant, wait: 1h}"
    assert inline(["2m", 0.5, True, None]) == "[2m, 0.5, true, null]"
