from __future__ import annotations

import json
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner, Result

from infra.commands import init as module
from infra.commands.init import init
from infra.commands.init_file import InitError, schema_beside, usual_file
from infra.commands.places import checkout
from infra.discovery.reader import ClusterError
from infra.local.errors import LocalError
from stacks.load import load_file, load_text

Run = Callable[..., Result]


@pytest.fixture
def run(home: Path) -> Run:
    """Runs the command with no cluster of the developer's in reach."""
    app = typer.Typer()
    app.command()(init)

    def invoke(*arguments: str, answers: str = "") -> Result:
        return CliRunner().invoke(app, list(arguments), input=answers, env={"COLUMNS": "200"})

    return invoke


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "Pulumi.lab.yaml"


def test_flags_make_a_file_that_is_right(run: Run, file: Path) -> None:
    options = ["--organization", "acme", "--gpu", "a100-sxm-40gb", "--nodes", "4", "--team", "vision", "--team", "nlp"]
    ended = run(
        "lab", "--to", str(file), *options, "--monthly-budget", "5k USD", "--preset", "cost", "--max-gpus", "16"
    )

    assert ended.exit_code == 0
    fleet = load_file(file)
    assert (fleet.organization, fleet.preset) == ("acme", "cost")
    assert {name: team.quota for name, team in fleet.teams.items()} == {
        "vision": {"a100-40gb-onprem": 16},
        "nlp": {"a100-40gb-onprem": 16},
    }
    assert fleet.cloud_pools["burst"].gpus == 16
    assert fleet.burst.budget is not None
    assert fleet.burst.budget.monthly == 5_000


def test_the_next_commands_are_named(run: Run, file: Path) -> None:
    said = run("lab", "--to", str(file), "--yes").stdout
    assert f"gpufleet check {file}" in said
    assert f"gpufleet plan {file}" in said
    assert f"pulumi preview --stack lab --config-file {file}" in said
    assert "4 comments marked REVIEW" in said


def test_an_editor_finds_the_schema_in_the_first_line_wherever_the_file_is(run: Run, file: Path) -> None:
    assert run("--to", str(file)).exit_code == 0
    first, _, _ = file.read_text().partition("\n")
    path = first.removeprefix("# yaml-language-server: $schema=")
    assert not Path(path).is_absolute()
    assert (file.parent / path).resolve() == checkout() / "stacks" / "fleet.schema.json"
    assert schema_beside(usual_file("lab")) == "fleet.schema.json"


def test_where_the_file_will_be_is_not_known_no_schema_is_named(run: Run) -> None:
    text = run("--to", "-").stdout
    assert "$schema" not in text
    assert load_text(text, "new").onprem_pools == {}


def test_without_a_terminal_nothing_is_asked(run: Run) -> None:
    ended = run("--to", "-", answers="this is not read\n")
    assert ended.exit_code == 0
    assert "?" not in ended.stdout


def test_a_file_that_is_there_is_only_overwritten_when_told(run: Run, file: Path) -> None:
    file.write_text("mine")
    refused = run("--to", str(file))
    assert isinstance(refused.exception, InitError)
    assert str(refused.exception) == f"{file} exists already; --force overwrites it, --to writes another file"
    assert file.read_text() == "mine"
    assert run("--to", str(file), "--force").exit_code == 0
    assert load_file(file).organization == "my-org"


def test_a_file_that_cannot_be_written_is_said(run: Run, tmp_path: Path) -> None:
    ended = run("--to", str(tmp_path / "none" / "x.yaml"))
    assert isinstance(ended.exception, InitError)
    assert "cannot be written: No such file or directory" in str(ended.exception)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--market", "sopt"], "'sopt' is not one of 'spot', 'on-demand'"),
        (["--preset", "cheap"], "'cheap' is not one of 'cost', 'balanced', 'performance'"),
        (["--cloud", "azure"], "'azure' is not one of 'aws', 'gcp'"),
        (["--gpu", "a100"], "can be any of"),
        (["--team", "Vision"], "try vision"),
        (["--organization", "ACME Inc."], "try acme-inc"),
        (["--nodes", "3"], "need a model"),
        (["--monthly-budget", "lots"], "not an amount"),
        (["--instance-type", "p99.huge"], "for --instance-type: p99.huge is not in the catalogue"),
        (["--instance-type", "p5.48xlarge", "--cloud", "gcp"], "for --cloud: p5.48xlarge is an instance type of aws"),
        (
            ["--instance-type", "p5.48xlarge", "--market", "spot", "--region", "x"],
            "for --region: must look like us-east-1",
        ),
        (["--instance-type", "g6.xlarge", "--market", "capacity-block"], "for --market: g6.xlarge is not sold as"),
        (["--cloud", "gcp", "--market", "capacity-block"], "for --market: the catalogue has no type of gcp"),
        (
            ["--instance-type", "p5e.48xlarge"],
            "for --cloud-usd-per-gpu-hour: no list price of p5e.48xlarge in us-east-1",
        ),
        (["--market", "reserved"], "for --cloud-usd-per-gpu-hour: market reserved is paid for apart"),
        (["--cloud-usd-per-gpu-hour", "0"], "for --cloud-usd-per-gpu-hour: must be more than 0"),
        (["--max-gpus", "3"], "for --max-gpus: is less than the 8 GPUs of one node"),
        (
            ["--team", "a" * 63],
            "for --team: its queue for flavor h100-aws-on-demand would have a name of 88 characters",
        ),
        (["--context", "a", "--stack", "local"], "name two clusters"),
    ],
)
def test_a_wrong_option_is_wrong_usage_and_says_what_is_right(run: Run, options: list[str], said: str) -> None:
    ended = run("--to", "-", *options)
    assert ended.exit_code == 2
    assert said in " ".join(ended.output.replace("│", " ").split())


@pytest.mark.parametrize("name", ["Pulumi.dev.yaml", "stacks/Pulumi.dev.yaml", "Pulumi.dev.yml"])
def test_the_name_of_a_file_is_answered_with_the_name_of_the_stack(run: Run, name: str) -> None:
    ended = run(name)
    assert ended.exit_code == 2
    assert "the stack is dev (`gpufleet init dev`)" in " ".join(ended.output.replace("│", " ").split())


@pytest.mark.parametrize("stack", ["../up", "a/b", "", "-", "a b"])
def test_a_stack_name_is_no_path(run: Run, stack: str) -> None:
    assert run("--", stack).exit_code == 2


def test_a_spot_pool_can_be_asked_for(run: Run) -> None:
    options = ["--cloud", "gcp", "--instance-type", "a3-highgpu-8g", "--market", "spot", "--region", "us-central1"]
    [pool] = load_text(run("--to", "-", *options, "--cloud-usd-per-gpu-hour", "4").stdout, "new").cloud_pools.values()
    assert (pool.flavor_location, pool.market, pool.price) == ("gcp", "spot", Decimal(4))


def test_a_cluster_that_is_not_there_is_said(run: Run) -> None:
    assert isinstance(run("--to", "-", "--from-cluster").exception, ClusterError)
    ended = run("--to", "-", "--stack", "local")
    assert isinstance(ended.exception, LocalError)
    assert "does not run here" in str(ended.exception)


def test_a_budget_without_a_limit_is_for_one_node(run: Run, file: Path) -> None:
    assert run("--to", str(file), "--monthly-budget", "1000").exit_code == 0
    assert [(pool.gpus, pool.gpus_per_node) for pool in load_file(file).cloud_pools.values()] == [(8, 8)]
    assert "one node, so that the budget can be spent" in file.read_text()


def test_a_budget_that_cannot_be_spent_is_said(run: Run, file: Path) -> None:
    ended = run("--to", str(file), "--monthly-budget", "1000", "--max-gpus", "0")
    assert ended.exit_code == 0
    assert "the budget cannot be spent: max_gpus of every rented pool is 0" in ended.stdout
    assert "none of the budget can be spent" in " ".join(file.read_text().replace("#", " ").split())


@pytest.mark.parametrize(("region", "provider"), [("europe-west4", "gcp"), ("eu-central-1", "aws")])
def test_a_region_alone_says_which_cloud(run: Run, region: str, provider: str) -> None:
    text = run("--to", "-", "--region", region, "--cloud-usd-per-gpu-hour", "4").stdout
    assert [pool.flavor_location for pool in load_text(text, "new").cloud_pools.values()] == [provider]


@pytest.fixture
def ask(run: Run, file: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs the command on a terminal, with a line for each answer."""
    monkeypatch.setattr(module, "_on_a_terminal", lambda: True)

    def invoke(*arguments: str, answers: list[str]) -> Result:
        return run("lab", "--to", str(file), *arguments, answers="".join(f"{line}\n" for line in answers))

    return invoke


def test_on_a_terminal_what_no_flag_says_is_asked_until_it_can_be_read(ask: Run, file: Path) -> None:
    about_us = ["n", "Acme", "acme", "-1", "2", "h100", "h100-sxm-80gb", "0", "4", "a" * 64, "red blue"]
    rented = ["1000 EUR", "1000 USD", "azure", "aws", "p9", "a3-highgpu-8g", "g6.12xlarge", "mars", "", "3", "8"]
    ended = ask(answers=[*about_us, *rented, "cheap", "cost"])
    assert ended.exit_code == 0, ended.output
    fleet = load_file(file)
    assert (fleet.organization, fleet.preset, set(fleet.teams)) == ("acme", "cost", {"red", "blue"})
    assert fleet.onprem_pools["rack"].gpus == 8
    assert [(pool.gpu, pool.gpus) for pool in fleet.cloud_pools.values()] == [("l4-24gb", 8)]


def test_what_flags_say_is_not_asked(ask: Run, file: Path) -> None:
    flags = ["--organization", "acme", "--nodes", "0", "--team", "red", "--monthly-budget", "0", "--preset", "cost"]
    ended = ask(*flags, answers=[])
    assert (ended.exit_code, "?" in ended.output) == (0, False), ended.output
    assert load_file(file).preset == "cost"


def test_nodes_without_a_model_are_asked_for_it(ask: Run, file: Path) -> None:
    ended = ask("--nodes", "3", answers=["", "l4", "2", "", "", ""])
    assert ended.exit_code == 0, ended.output
    assert [(pool.gpu, pool.gpus) for pool in load_file(file).onprem_pools.values()] == [("l4-24gb", 6)]


def test_a_price_is_asked_where_the_catalogue_has_none(ask: Run, file: Path) -> None:
    flags = ["--nodes", "0", "--instance-type", "p5e.48xlarge", "--preset", "balanced"]
    ended = ask(*flags, answers=["", "", "5k", "", "", "0", "7.50"])
    assert ended.exit_code == 0, ended.output
    assert "'0': must be more than 0" in ended.output
    assert [(pool.price, pool.gpus) for pool in load_file(file).cloud_pools.values()] == [(Decimal("7.5"), 8)]


@pytest.mark.parametrize("flags", [["--instance-type", "p99.huge"], ["--region", "mars"], ["--cloud", "azure"]])
def test_a_wrong_flag_is_refused_before_anything_is_asked(ask: Run, flags: list[str]) -> None:
    ended = ask(*flags, answers=[])
    assert ended.exit_code == 2
    assert "cluster (with" not in ended.output


@pytest.mark.parametrize("answers", [[], ["n", "acme"]])
def test_the_end_of_input_at_a_question_is_an_interruption_that_writes_nothing(
    ask: Run, file: Path, answers: list[str]
) -> None:
    ended = ask(answers=answers)
    assert ended.exit_code == 130
    assert "Aborted" not in ended.output
    assert not file.exists()


def test_a_program_gets_the_findings_and_the_text(run: Run) -> None:
    row = json.loads(run("--to", "-", "--json").stdout)
    assert (row["file"], row["findings"]["pools"]) == (None, [])
    assert load_text(row["text"], "new").teams.keys() == {"team-a"}
