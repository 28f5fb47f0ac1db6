from __future__ import annotations

import json
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from runtime.cost import topups
from runtime.cost.periods import day_of, month_of
from runtime.errors import Forbidden, NotFound, Unreachable
from tests.builders import HOUR, NOON, a_config
from tests.unit.commands.conftest import Ended
from tests.unit.commands.ledgers import FakeCluster, a_ledger

Run = Callable[..., Ended]
STACK = Path(__file__).parents[3] / "stacks"


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> FakeCluster:
    fake = FakeCluster()

    async def read(_: Any) -> Any:
        return fake.seen()

    for module in ("ledgers", "topping"):
        monkeypatch.setattr(f"infra.commands.{module}.connect", lambda _: fake)
        monkeypatch.setattr(f"infra.commands.{module}.read_cluster", read)
    return fake


@pytest.fixture
def ledger(tmp_path: Path) -> str:
    return a_ledger(tmp_path / "ledger")


def test_show_has_every_scope_and_period_with_what_is_left(gpufleet: Run, cluster: FakeCluster, ledger: str) -> None:
    ended = gpufleet("budget", "show", "--ledger", ledger)
    assert (ended.code, ended.err) == (0, "")
    assert " ".join(ended.out.splitlines()[0].split()) == "SCOPE KIND PERIOD ZONE LIMIT TOPPED-UP SPENT COMMITTED LEFT"
    rows = {(row[0], row[2]): row for row in (line.split() for line in ended.out.splitlines()[1:])}
    assert rows["fleet", "day"][3:] == ["UTC", "$100.00", "-", "$2.00", "$2.00", "$96.00"]
    assert rows["team/vision", "month"][1:] == [
        "hard",
        "month",
        "Europe/Berlin",
        "$3.00",
        "$5.00",
        "$4.00",
        "$2.00",
        "$2.00",
    ]
    assert rows["team/nlp", "week"][1:] == ["-", "week", "UTC", "-", "-", "$0.00", "$0.00", "-"]
    assert rows["project/llm", "week"][1] == "soft"


def test_show_says_what_is_overdrawn_and_tells_programs_everything(
    gpufleet: Run, cluster: FakeCluster, ledger: str
) -> None:
    cluster.config = a_config(budget={"daily": "1 USD"})
    ended = gpufleet("budget", "show", "--ledger", ledger)
    assert ended.err == "fleet, day: 3.00 USD beyond the limit are spent or committed\n"
    rows = json.loads(gpufleet("budget", "show", "--ledger", ledger, "--json").out)["budgets"]
    assert rows[0] == {
        "scope": "fleet",
        "kind": "hard",
        "time_zone": "UTC",
        "period": "day",
        "starts": "2026-11-21T00:00:00Z",
        "ends": "2026-11-22T00:00:00Z",
        "limit_usd": "1.00",
        "topped_up_usd": "0.00",
        "spent_usd": "2.00",
        "committed_usd": "2.00",
        "left_usd": "0.00",
        "overshoot_usd": "3.00",
        "overdrawn": True,
    }


def test_show_of_a_damaged_ledger_says_where_to_look(
    gpufleet: Run, cluster: FakeCluster, ledger: str, tmp_path: Path
) -> None:
    [path] = (tmp_path / "ledger").glob("v1/*/runs.1.open.json")
    path.write_text("{")
    ended = gpufleet("budget", "show", "--ledger", ledger)
    assert ended.code == 1
    assert "gpufleet ledger verify" in ended.err


def test_a_ledger_that_is_not_there_is_not_created_by_reading(
    gpufleet: Run, cluster: FakeCluster, tmp_path: Path
) -> None:
    ended = gpufleet("budget", "show", "--ledger", (tmp_path / "none").as_uri())
    assert ended.code == 1
    assert "there is no ledger at file://" in ended.err
    assert not (tmp_path / "none").exists()


def test_a_volume_of_a_real_cluster_is_said_to_be_the_agents_alone(
    gpufleet: Run, cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KUBECONFIG", "/some/where")
    ended = gpufleet("budget", "show")
    assert ended.code == 1
    assert "which only the agent reaches" in ended.err
    assert "kubectl exec -n gpufleet-system deploy/gpufleet-router" in ended.err


def test_a_ledger_of_another_kind_is_refused(gpufleet: Run, cluster: FakeCluster) -> None:
    ended = gpufleet("budget", "show", "--ledger", "ftp://host/x")
    assert (ended.code, "must be a URL with one of the schemes" in ended.err) == (1, True)


def test_a_top_up_is_asked_for_with_its_author_reason_and_the_end_of_the_month(
    gpufleet: Run, cluster: FakeCluster
) -> None:
    ended = gpufleet("budget", "top-up", "team/vision", "500USD", "--reason", "deadline of NeurIPS")
    assert (ended.code, ended.err) == (0, "")
    [found], problems = topups.parse(cluster.written)
    assert problems == ()
    assert (found.scope, found.usd, found.reason) == ("team vision", Decimal(500), "deadline of NeurIPS")
    assert (found.author, found.granted_at) == ("ada@example.com", NOON)
    assert found.expires_at == month_of(NOON, "Europe/Berlin").end
    assert "$500.00 for team vision until 2026-11-30T23:00:00Z, by ada@example.com" in ended.out


@pytest.mark.parametrize(
    ("expires", "end"),
    [("3d", NOON + 72 * HOUR), ("90m", NOON + 1.5 * HOUR), ("2026-11-24", day_of(NOON + 72 * HOUR).end)],
)
def test_a_top_up_may_expire_after_a_while_or_with_a_day(
    gpufleet: Run, cluster: FakeCluster, expires: str, end: float
) -> None:
    ended = gpufleet("budget", "top-up", "fleet", "1.5", "--reason", "x", "--expires", expires, "--json")
    [found], _ = topups.parse(cluster.written)
    assert found.expires_at == end
    assert json.loads(ended.out)["usd"] == "1.5"


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (("team/visoin", "5", "--reason", "x"), 1, "team visoin does not exist; did you mean team vision?"),
        (("team/nlp", "5", "--reason", "x"), 1, "team nlp has no budget, so there is nothing to add to"),
        (("vision", "5", "--reason", "x"), 2, 'write fleet, "team NAME" or "project NAME"'),
        (("fleet", "0", "--reason", "x"), 2, "must be above 0"),
        (("fleet", "0.0000001USD", "--reason", "x"), 1, "there can be no such top-up: usd must be above 0"),
        (("fleet", "-5USD", "--reason", "x"), 2, "No such option"),
        (("fleet", "5 EUR", "--reason", "x"), 2, "EUR is not supported"),
        (("fleet", "900000000M", "--reason", "x"), 2, "at most"),
        (("fleet", "5"), 2, "Missing option '--reason'"),
        (("fleet", "5", "--reason", " "), 2, "say why in one line"),
        (("fleet", "5", "--reason", "a\nb"), 2, "say why in one line"),
        (("fleet", "5", "--reason", "x" * 501), 2, "at most 500 characters"),
        (("fleet", "5", "--reason", "x", "--expires", "2026-11-20"), 2, "is over already"),
        (("fleet", "5", "--reason", "x", "--expires", "2026-13-40"), 2, "write a day like 2026-11-30"),
        (("fleet", "5", "--reason", "x", "--expires", "0d"), 2, "longer than nothing"),
        (("fleet", "5", "--reason", "x", "--expires", "soon"), 2, "write a day like 2026-11-30"),
    ],
)
def test_a_top_up_that_cannot_be_is_refused_and_nothing_is_written(
    gpufleet: Run, cluster: FakeCluster, arguments: tuple[str, ...], code: int, said: str
) -> None:
    ended = gpufleet("budget", "top-up", *arguments)
    assert ended.code == code
    assert said in ended.said
    assert cluster.written == {}


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (Forbidden("denied"), "ask for the right to patch ConfigMap gpufleet-system/gpufleet-top-ups"),
        (NotFound("gone"), "deploy this version"),
        (Unreachable("no answer"), "the top-up was not written: no answer; ask again"),
        (Forbidden("who are you"), "the cluster does not say who you are"),
    ],
)
def test_a_cluster_that_refuses_a_top_up_is_told_with_what_to_do(
    gpufleet: Run, cluster: FakeCluster, error: Any, said: str
) -> None:
    cluster.refuses = error
    ended = gpufleet("budget", "top-up", "fleet", "5", "--reason", "x")
    assert ended.code == 1
    assert said in ended.err


def test_log_tells_commitments_costs_and_top_ups_in_order(gpufleet: Run, cluster: FakeCluster, ledger: str) -> None:
    events = json.loads(gpufleet("budget", "log", "--ledger", ledger, "--json").out)["events"]
    assert [(event["what"], event["subject"]) for event in events] == [
        ("committed", "vision/old"),
        ("spent", "vision/old"),
        ("committed", "vision/done"),
        ("committed", "vision/runs"),
        ("spent", "vision/done"),
        ("topped up", "t-1"),
    ]
    assert events[-1]["note"] == "deadline (ada, until 2026-11-22T08:00:00Z)"


def test_log_may_be_of_one_scope_and_since_a_moment(gpufleet: Run, cluster: FakeCluster, ledger: str) -> None:
    recent = gpufleet("budget", "log", "--ledger", ledger, "--since", "1h30m", "--scope", "project llm").out
    assert [line.split()[1] for line in recent.splitlines()[1:]] == ["committed", "spent"]
    day = gpufleet("budget", "log", "--ledger", ledger, "--since", "2026-11-21").out
    assert len(day.splitlines()) == 5
    assert gpufleet("budget", "log", "--ledger", ledger, "--scope", "team nlp").err.startswith("nothing was committed")


@pytest.fixture
def prod(tmp_path: Path) -> Path:
    for name in ("Pulumi.prod.yaml", "teams.prod.yaml", "Pulumi.local.yaml"):
        (tmp_path / name).write_bytes((STACK / name).read_bytes())
    return tmp_path / "Pulumi.prod.yaml"


def changed_lines(before: str, after: str) -> list[tuple[str, str]]:
    pairs = zip(before.splitlines(), after.splitlines(), strict=True)
    return [(old.strip(), new.strip()) for old, new in pairs if old != new]


def test_set_changes_one_limit_and_no_other_character(gpufleet: Run, prod: Path) -> None:
    before = prod.read_text()
    ended = gpufleet("budget", "set", "fleet", str(prod), "--monthly", "65000USD")
    assert (ended.code, ended.err) == (0, "")
    [(old, new)] = changed_lines(before, prod.read_text())
    assert new == old.replace("60000 USD", "65000 USD")
    assert f"+++ {prod} (changed)" in ended.out
    assert ended.out.endswith(f"{prod}: written; run `pulumi up` for it to count\n")
    again = gpufleet("budget", "set", "fleet", str(prod), "--monthly", "65000USD")
    assert again.out == f"{prod}: says so already\n"


def test_set_of_a_team_changes_the_file_where_its_teams_stand(gpufleet: Run, prod: Path) -> None:
    teams = prod.with_name("teams.prod.yaml")
    before, stack = teams.read_text(), prod.read_bytes()
    ended = gpufleet("budget", "set", "team/vision", str(prod), "--monthly", "none", "--weekly", "5k", "--json")
    assert ended.code == 0, ended.err
    [(old, new)] = changed_lines(before, teams.read_text())
    assert "weekly: 5000 USD" in new
    assert "monthly" not in new
    assert "monthly" in old
    assert json.loads(ended.out)["file"] == str(teams)
    assert prod.read_bytes() == stack


def test_set_gives_a_team_without_a_budget_one(gpufleet: Run, prod: Path) -> None:
    local = prod.with_name("Pulumi.local.yaml")
    text = local.read_text().replace(", budget: {monthly: 14 USD, kind: hard}", "", 1)
    local.write_text(text)
    assert gpufleet("budget", "set", "team vision", str(local), "--daily", "2USD").code == 0
    assert "budget: {daily: 2 USD}" in local.read_text()


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (("team/visoin", "--monthly", "5"), 1, "there is no team visoin; did you mean vision?"),
        (("project/llm", "--monthly", "5"), 1, "has no projects"),
        (("fleet",), 2, "name a limit"),
        (("fleet", "--monthly", "5 EUR"), 2, "EUR is not supported"),
        (("everybody", "--monthly", "5"), 2, "write fleet"),
    ],
)
def test_set_refuses_what_cannot_be_and_writes_nothing(
    gpufleet: Run, prod: Path, arguments: tuple[str, ...], code: int, said: str
) -> None:
    before = {path: path.read_bytes() for path in prod.parent.glob("*.yaml")}
    scope, *rest = arguments
    ended = gpufleet("budget", "set", scope, str(prod), *rest)
    assert ended.code == code
    assert said in ended.said
    assert {path: path.read_bytes() for path in prod.parent.glob("*.yaml")} == before


def test_set_never_writes_a_file_that_would_be_wrong(gpufleet: Run, prod: Path) -> None:
    before = prod.read_bytes()
    ended = gpufleet("budget", "set", "fleet", str(prod), "--monthly", "none", "--daily", "none")
    assert ended.code == 1
    assert "a budget needs monthly, weekly or daily" in ended.err
    assert prod.read_bytes() == before


def test_set_refuses_a_budget_that_others_share(gpufleet: Run, prod: Path) -> None:
    teams = prod.with_name("teams.prod.yaml")
    text = teams.read_text().replace("budget: {monthly: 20000 USD", "budget: &money {monthly: 20000 USD")
    teams.write_text(text.replace("budget: {monthly: 35000 USD, kind: soft}", "budget: *money"))
    ended = gpufleet("budget", "set", "team nlp", str(prod), "--monthly", "1USD")
    assert ended.code == 1
    assert "is shared with other places" in ended.err


def test_set_of_an_unknown_stack_names_the_known_ones(gpufleet: Run) -> None:
    ended = gpufleet("budget", "set", "fleet", "produ", "--monthly", "1USD")
    assert ended.code == 2
    assert "Invalid value for FILE: there is no stacks/Pulumi.produ.yaml; did you mean prod?" in ended.said
