from __future__ import annotations

import json
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner, Result

from infra.commands import init as module
from infra.commands.init import InitError, init
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


def test_an_editor_finds_the_schema_in_the_first_line(run: Run) -> None:
    text = run("--to", "-").stdout
    assert text.startswith("# yaml-language-server: $schema=fleet.schema.json\n")
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
        (["--market", "sopt"], "did you mean spot?"),
        (["--preset", "cheap"], "cost, balanced, performance"),
        (["--cloud", "azure"], "aws, gcp"),
        (["--gpu", "a100"], "can be any of"),
        (["--team", "Vision"], "try vision"),
        (["--organization", "ACME Inc."], "try acme-inc"),
        (["--nodes", "3"], "need a model"),
        (["--monthly-budget", "lots"], "not an amount"),
        (["--instance-type", "p99.huge"], "is not in the catalogue"),
        (["--instance-type", "p5.48xlarge", "--cloud", "gcp"], "is an instance type of aws"),
        (["--instance-type", "p5.48xlarge", "--market", "spot", "--region", "mars-1"], "must look like us-east-1"),
        (["--context", "a", "--stack", "local"], "name two clusters"),
    ],
)
def test_a_wrong_option_is_wrong_usage_and_says_what_is_right(run: Run, options: list[str], said: str) -> None:
    ended = run("--to", "-", *options)
    assert ended.exit_code == 2
    assert said in " ".join(ended.output.replace("│", " ").split())


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


def test_on_a_terminal_what_no_flag_says_is_asked_until_it_can_be_read(
    run: Run, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_on_a_terminal", lambda: True)
    answers = ["n", "Acme", "acme", "-1", "2", "h100", "h100-sxm-80gb", "4", "red blue", "1000 EUR", "1000 USD", "cost"]
    ended = run("lab", "--to", str(file), answers="\n".join([*answers, ""]))
    assert ended.exit_code == 0, ended.output
    fleet = load_file(file)
    assert (fleet.organization, fleet.preset, set(fleet.teams)) == ("acme", "cost", {"red", "blue"})
    assert fleet.onprem_pools["rack"].gpus == 8


def test_a_program_gets_the_findings_and_the_text(run: Run) -> None:
    row = json.loads(run("--to", "-", "--json").stdout)
    assert (row["file"], row["findings"]["pools"]) == (None, [])
    assert load_text(row["text"], "new").teams.keys() == {"team-a"}
