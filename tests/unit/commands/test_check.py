"""`gpufleet check` as people, programs and code hosts see it."""

from __future__ import annotations

import io
import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from infra.commands.annotations import github_lines, sarif_text
from stacks.problems import Place
from tests.unit.commands.conftest import Ended

Run = Callable[..., Ended]
STACKS = Path(__file__).parents[3] / "stacks"
GOOD = (STACKS / "Pulumi.local.yaml").read_text()
WRONG = GOOD.replace("nodes: 2,", "nodez: 2,", 1)
DOUBTFUL = GOOD.replace("quota: {h100-onprem: 8}", "quota: {h100-onprem: 7}", 1)


@pytest.fixture
def files(home: Path) -> Path:
    for name, text in (("good", GOOD), ("wrong", WRONG), ("doubtful", DOUBTFUL)):
        (home / f"Pulumi.{name}.yaml").write_text(text)
    return home


def test_right_files_are_counted(gpufleet: Run, files: Path) -> None:
    ended = gpufleet("check", str(files / "Pulumi.good.yaml"))
    assert (ended.code, ended.out) == (0, "1 file right\n")


def test_every_file_of_a_folder_is_checked(gpufleet: Run, files: Path) -> None:
    ended = gpufleet("check", str(files))
    assert ended.code == 1
    assert (
        f"{files}/Pulumi.wrong.yaml:11:90: pools.rack.nodez: is not a known setting; did you mean nodes?" in ended.out
    )
    assert ended.out.endswith("1 of 3 files wrong: 1 error, 1 warning\n")


def test_a_warning_passes_unless_strict(gpufleet: Run, files: Path) -> None:
    doubtful = str(files / "Pulumi.doubtful.yaml")
    ended = gpufleet("check", doubtful)
    assert ended.code == 0
    assert f"{doubtful}:11:7: warning: pools.rack" in ended.out
    assert ended.out.endswith("1 file right: 1 warning\n")
    strict = gpufleet("check", "--strict", doubtful)
    assert strict.code == 1
    assert strict.out.endswith("1 of 1 file wrong: 1 error\n")


def test_json_has_all_that_text_has(gpufleet: Run, files: Path) -> None:
    for option in (["--json"], ["--format", "json"]):
        ended = gpufleet("check", str(files), *option)
        found = json.loads(ended.out)
        assert (ended.code, found["ok"], found["files"]) == (1, False, 3)
        assert {(row["severity"], row["code"], row["line"]) for row in found["problems"]} == {
            ("warning", "rule", 11),
            ("error", "unknown-setting", 11),
        }


def test_sarif_names_its_rules_and_regions(gpufleet: Run, files: Path) -> None:
    log = json.loads(gpufleet("check", str(files / "Pulumi.wrong.yaml"), "--format", "sarif").out)
    [run] = log["runs"]
    [result] = run["results"]
    assert log["version"] == "2.1.0"
    assert run["tool"]["driver"]["rules"][result["ruleIndex"]]["id"] == result["ruleId"] == "unknown-setting"
    assert result["level"] == "error"
    [location] = result["locations"]
    assert location["physicalLocation"]["region"] == {"startLine": 11, "startColumn": 90}


def test_sarif_of_nothing_wrong_is_an_empty_run(gpufleet: Run, files: Path) -> None:
    ended = gpufleet("check", str(files / "Pulumi.good.yaml"), "--format", "sarif")
    assert ended.code == 0
    assert json.loads(ended.out)["runs"][0]["results"] == []


def test_a_place_without_a_line_has_no_region() -> None:
    problem = Place("a b#.yaml").problem("unreadable", "x")
    location = json.loads(sarif_text([problem]))["runs"][0]["results"][0]["locations"][0]["physicalLocation"]
    assert location == {"artifactLocation": {"uri": "a%20b%23.yaml"}}


def test_github_commands_are_escaped() -> None:
    problem = Place("a,b:c%.yaml", 3, 5).problem("bad-value", "100% wrong", ("x", "y"))
    unplaced = Place("f").problem("unreadable", "x")
    assert list(github_lines([problem, unplaced])) == [
        "::error file=a%2Cb%3Ac%25.yaml,line=3,col=5,title=bad-value::x.y: 100%25 wrong",
        "::error file=f,title=unreadable::x",
    ]


def test_of_very_many_problems_people_are_told_the_first_and_programs_all(gpufleet: Run, home: Path) -> None:
    pools = "".join(f"      p{index}: {{location: onprm}}\n" for index in range(300))
    (home / "many.yaml").write_text(GOOD.replace("    pools:\n", f"    pools:\n{pools}"))
    many = f"{home}/many.yaml"
    lines = gpufleet("check", many).out.splitlines()
    assert (len(lines), lines[-2:]) == (202, [f"{many}: … and 100 more", "1 of 1 file wrong: 300 errors"])
    assert gpufleet("check", many, "--format", "github").out.splitlines()[-1] == f"::error file={many}::… and 100 more"
    assert len(json.loads(gpufleet("check", many, "--json").out)["problems"]) == 300
    assert len(json.loads(gpufleet("check", many, "--format", "sarif").out)["runs"][0]["results"]) == 300


def test_github_prints_nothing_where_all_is_right(gpufleet: Run, files: Path) -> None:
    assert gpufleet("check", str(files / "Pulumi.good.yaml"), "--format", "github").out == ""


def test_the_resolved_object_is_read_from_standard_input(gpufleet: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b'{"gpufleet:fleet": {"organization": "acme"}}')))
    ended = gpufleet("check", "--resolved")
    assert ended.code == 1
    assert "standard input: schema_version: is required; write 1" in ended.out


def test_a_stack_file_is_read_from_standard_input_with_its_lines(
    gpufleet: Run, files: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    good = (files / "Pulumi.good.yaml").read_bytes()
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(good.replace(b"organization: ", b"organisation: "))))
    ended = gpufleet("check", "-")
    assert ended.code == 1
    assert re.match(r"standard input:\d+:\d+: organisation: .*did you mean organization\?", ended.out)


@pytest.mark.parametrize("arguments", [("--json", "--format", "sarif"), ("--resolved", "--format", "text")])
def test_options_that_contradict_each_other_are_wrong_usage(
    gpufleet: Run, files: Path, arguments: tuple[str, ...]
) -> None:
    assert gpufleet("check", str(files / "Pulumi.good.yaml"), *arguments).code == 2


def test_notes_are_no_warnings_and_strict_lets_them_pass(gpufleet: Run, tmp_path: Path) -> None:
    text = (Path(__file__).parents[3] / "stacks" / "Pulumi.dev.yaml").read_text()
    link = "links: {metro: {kind: existing, cluster: dev, bandwidth: 1 Gbps}}"
    (tmp_path / "Pulumi.x.yaml").write_text(text.replace("\n    burst:", f"\n    {link}\n    burst:"))
    ended = gpufleet("check", "--strict", "--json", str(tmp_path / "Pulumi.x.yaml"))
    found = json.loads(ended.out)
    assert (ended.code, found["ok"]) == (0, True)
    assert {problem["severity"] for problem in found["problems"]} == {"note"}
    assert "links.metro" in {problem["path"] for problem in found["problems"]}


def test_a_terminal_shows_the_line_with_a_caret_but_no_secret(
    gpufleet: Run, files: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("infra.commands.checking._on_terminal", lambda: True)
    lines = gpufleet("check", str(files / "Pulumi.wrong.yaml")).out.splitlines()
    assert lines[1].startswith("    11 |       rack:")
    assert lines[2].index("^") == lines[1].index("nodez")
    (files / "Pulumi.secret.yaml").write_text(GOOD.replace("{kind: existing}", "{kind: existing, password: hunter2}"))
    assert "hunter2" not in gpufleet("check", str(files / "Pulumi.secret.yaml")).out
    url = "agent: {ledger: {kind: object-store, url: s3://me:hunter2@b/ c}}\n    organization:"
    (files / "Pulumi.secret.yaml").write_text(GOOD.replace("organization:", url, 1))
    assert "hunter2" not in gpufleet("check", str(files / "Pulumi.secret.yaml")).out


@pytest.mark.parametrize("arguments", [[], ["--format", "xml", "x"]])
def test_wrong_usage_has_its_own_exit_code(gpufleet: Run, arguments: list[str]) -> None:
    assert gpufleet("check", *arguments).code == 2


def test_a_folder_without_stack_files_is_wrong_usage(gpufleet: Run, home: Path) -> None:
    ended = gpufleet("check", str(home))
    assert ended.code == 2
    assert "has no Pulumi.*.yaml" in ended.said


def test_a_missing_file_is_one_line(gpufleet: Run, home: Path) -> None:
    ended = gpufleet("check", str(home / "none.yaml"))
    assert ended.code == 1
    assert ended.out == f"{home}/none.yaml: cannot be read: No such file or directory\n1 of 1 file wrong: 1 error\n"


def test_checking_needs_neither_pulumi_nor_a_cluster() -> None:
    code = (
        "import sys, infra.commands.checking;"
        "print(sorted({'pulumi', 'lightkube', 'cryptography', 'grpc', 'asyncio'} & set(sys.modules)))"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=STACKS.parent)
    assert ended.stdout == "[]\n"
