from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from infra.cli import COMMANDS
from infra.commands.project import load_stack_file
from infra.local.state import State
from infra.local.toolchain import Toolchain
from tests.unit.commands.conftest import Ended

Run = Callable[..., Ended]
LOCAL_FILE = str(Path(__file__).parents[3] / "stacks" / "Pulumi.local.yaml")


@pytest.mark.parametrize("command", list(COMMANDS))
def test_every_command_explains_itself_and_its_exit_codes(gpufleet: Run, command: str) -> None:
    ended = gpufleet(command, "--help")

    assert ended.code == 0
    assert "Exit code" in ended.out or command in {
        "schema",
        "reference",
        "catalog",
        "trace",
    }  # two print one text; two are groups


def test_an_unknown_command_is_wrong_usage(gpufleet: Run) -> None:
    assert gpufleet("quue").code == 2


@pytest.mark.parametrize("command", [("queue",), ("explain", "job-1"), ("status",), ("env",), ("replay",)])
def test_a_stack_that_does_not_run_is_said_in_one_line(gpufleet: Run, home: Path, command: tuple[str, ...]) -> None:
    ended = gpufleet(*command)

    assert (ended.code, ended.out) == (1, "")
    assert ended.err == (
        f"gpufleet: stack local does not run here (no {home}/state/kubeconfig); start it with `make up`\n"
    )
    assert not (home / "state").exists()


@pytest.mark.parametrize("content", [None, "", "x", "a: [", "[]", "contexts: 3", "kind: Config\n"])
def test_a_kubeconfig_that_is_none_is_said_in_one_message(
    gpufleet: Run, home: Path, monkeypatch: pytest.MonkeyPatch, content: str | None
) -> None:
    file = home / "kubeconfig"
    if content is not None:
        file.write_text(content)
    monkeypatch.setenv("KUBECONFIG", str(file))

    ended = gpufleet("queue")

    assert (ended.code, ended.out) == (1, "")
    assert ended.err.startswith(f"gpufleet: KUBECONFIG={file}: ")


@pytest.mark.parametrize("command", ["up", "queue", "status", "env", "submit", "replay"])
def test_a_mistyped_stack_is_wrong_usage_and_the_nearest_is_named(gpufleet: Run, command: str) -> None:
    ended = gpufleet(command, "--stack", "locla", *(["--team", "vision"] if command == "submit" else []))

    assert ended.code == 2
    assert "did you mean local?" in ended.said


@pytest.mark.parametrize(
    ("option", "value", "said"),
    [
        ("--team", "visoin", "no team visoin; did you mean vision?"),
        ("--class", "P9", "no class P9; known: P0, P1, P2"),
        ("--run", "0s", "must be longer than 0s"),
        ("--run", "soon", "not a duration"),
        ("--gpus", "0", "greater than or equal to 1"),
    ],
)
def test_a_wrong_option_of_submit_is_named(gpufleet: Run, option: str, value: str, said: str) -> None:
    ended = gpufleet("submit", "--team", "vision", option, value)

    assert ended.code == 2
    assert said in ended.said


def test_options_that_choose_from_a_file_need_one(gpufleet: Run) -> None:
    ended = gpufleet("replay", "--limit", "3")

    assert ended.code == 2
    assert "--trace" in ended.err


def test_an_unreadable_trace_is_said_before_anything_is_started(gpufleet: Run, home: Path) -> None:
    ended = gpufleet("up", "--trace", str(home / "none.csv"))

    assert ended.code == 1
    assert ended.err == f"gpufleet: {home}/none.csv: cannot be read: No such file or directory\n"
    assert not (home / "state").exists()


def test_up_refuses_a_synthetic_replay_that_takes_hours(gpufleet: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    fleet = load_stack_file("local")
    slow = fleet.model_copy(update={"agent": fleet.agent.model_copy(update={"replay_speed": 1.0})})
    monkeypatch.setattr("infra.commands.local.load_stack_file", lambda stack: slow)

    ended = gpufleet("up")

    assert ended.code == 1
    assert "agent.replay_speed is 1" in ended.err
    assert "--no-replay" in ended.err


def test_down_of_what_is_not_there_is_done_at_once(gpufleet: Run, home: Path) -> None:
    ended = gpufleet("down")

    assert ended.code == 0
    assert not (home / "state").exists()


def test_down_removes_the_state_and_can_be_repeated(gpufleet: Run, home: Path) -> None:
    State.open(home, "local")
    (home / "state" / "etcd").mkdir()

    assert gpufleet("down").code == 0
    assert not (home / "state").exists()
    assert gpufleet("down").code == 0


def test_down_never_deletes_a_directory_that_is_not_its_own(gpufleet: Run, home: Path) -> None:
    (home / "state").mkdir()
    (home / "state" / "thesis.tex").touch()

    ended = gpufleet("down")

    assert ended.code == 1
    assert "holds thesis.tex and no state.json" in ended.err
    assert [entry.name for entry in (home / "state").iterdir()] == ["thesis.tex"]


def test_down_leaves_a_stack_alone_that_another_command_uses(gpufleet: Run, home: Path) -> None:
    with State.open(home, "local").lock("runs gpufleet up"):
        ended = gpufleet("down")

    assert ended.code == 1
    assert "which runs gpufleet up" in ended.err
    assert (home / "state" / "state.json").exists()


def test_an_interruption_is_said_and_has_its_own_exit_code(gpufleet: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("infra.local.toolchain.resolve", interrupted)

    ended = gpufleet("tools")

    assert (ended.code, ended.err) == (130, "gpufleet: interrupted\n")


def test_tools_lists_what_is_built_on_demand_beside_the_embedded_stack(
    gpufleet: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = Toolchain({"etcd": Path("/cache/etcd")}, Path(), {"etcd": "on PATH"})
    monkeypatch.setattr("infra.local.toolchain.resolve", lambda *_, **__: found)
    monkeypatch.setattr("infra.local.toolchain.on_demand", lambda: {"handler": None, "mock": Path("/cache/mock")})

    lines = [line.split() for line in gpufleet("tools").out.splitlines()]
    rows = json.loads(gpufleet("tools", "--json").out)

    assert lines[1:] == [
        ["etcd", "on-PATH", "/cache/etcd"],
        ["handler", "on-demand", "-"],
        ["mock", "on-demand", "/cache/mock"],
    ]
    assert rows["etcd"] == {"path": "/cache/etcd", "way": "on PATH"}
    assert rows["handler"] == {"path": None, "way": "on-demand"}


def test_plan_shows_each_flavor_and_team_within_80_columns(gpufleet: Run) -> None:
    ended = gpufleet("plan", LOCAL_FILE)

    lines = ended.out.splitlines()
    assert ended.code == 0
    assert any(line.split() == ["h100-aws-spot", "16", "$3.50", "burst-spot"] for line in lines)
    assert max(len(line) for line in lines if "gpufleet render" not in line) <= 80


def test_plan_as_json_carries_the_same(gpufleet: Run) -> None:
    plan = json.loads(gpufleet("plan", LOCAL_FILE, "--json").out)

    assert [team["name"] for team in plan["teams"]] == ["vision", "nlp", "speech"]
    assert plan["flavors"][0]["usd_per_gpu_hour"] == "1.1"


def test_check_names_the_line_and_fails(gpufleet: Run, home: Path) -> None:
    file = home / "Pulumi.bad.yaml"
    file.write_text("config:\n  gpufleet:fleet:\n    schema_version: one\n")

    ended = gpufleet("check", str(file))

    assert ended.code == 1
    assert f"{file}:3:" in ended.out
