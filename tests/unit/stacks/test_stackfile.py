"""Where the fleet object stands: in the stack file, in a file of its own for the teams, in what Pulumi resolved."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from stacks.load import KEY, ConfigError, Problem, load_file, load_text, read_object, read_stack
from stacks.reading.resolved import object_of
from stacks.reading.stackfile import find

GOOD = (Path(__file__).parents[3] / "stacks" / "Pulumi.local.yaml").read_text()
TEAMS = "teams:\n  vision: {quota: {h100-onprem: 8}}\n  nlp: {quota: {h100-onprem: 8}}\n"


def problems(text: str) -> list[Problem]:
    with pytest.raises(ConfigError) as caught:
        load_text(text, "f.yaml")
    return caught.value.problems


def without_teams(line: str = "teams_file: teams.x.yaml") -> str:
    kept = [
        text
        for text in GOOD.splitlines()
        if not text.startswith(("    teams:", "      vision:", "      nlp:", "      speech:"))
    ]
    return "\n".join(kept).replace("    organization:", f"    {line}\n    organization:", 1)


def stack(folder: Path, teams: str | None, line: str = "teams_file: teams.x.yaml") -> Path:
    (folder / "Pulumi.x.yaml").write_text(without_teams(line))
    if teams is not None:
        (folder / "teams.x.yaml").write_text(teams)
    return folder / "Pulumi.x.yaml"


def wrong(path: Path) -> list[Problem]:
    with pytest.raises(ConfigError) as caught:
        load_file(path, display="stacks/Pulumi.x.yaml")
    return caught.value.problems


@pytest.mark.parametrize(
    ("config", "path", "reason"),
    [
        ("gpufleet:flet: {}", "gpufleet:flet", "did you mean gpufleet:fleet?"),
        ("gpufleet:token: hunter2", "gpufleet:token", "if it is a secret, set it with pulumi config set --secret"),
        ("gpufleet:budget: {}", "gpufleet:budget", "only gpufleet:fleet and secrets belong here; if it is a secret"),
        ("gpufleet: {}", "gpufleet", "write gpufleet:fleet"),
        ("flet: {}", "flet", "did you mean fleet?"),
        ("fleet: {}", "fleet", "write gpufleet:fleet"),
    ],
)
def test_keys_of_our_namespace_that_nobody_reads_are_refused(config: str, path: str, reason: str) -> None:
    [found] = problems(GOOD.replace("config:", f"config:\n  {config}", 1))
    assert (found.path, found.line, found.code) == (path, 5, "unknown-setting")
    assert reason in found.message
    assert "hunter2" not in str(found)


def test_other_namespaces_and_secrets_are_left_alone() -> None:
    others = (
        "  aws:region: 2026-01-01\n  gpufleet:kubeconfig: {secure: AAAB}\n  token: {secure: AAAB}\n  x:y: {5: !z [~]}\n"
    )
    assert load_text(GOOD.replace("config:\n", f"config:\n{others}", 1), "f.yaml").organization == "acme"


@pytest.mark.parametrize(
    ("text", "line", "reason"),
    [
        ("", 1, "is empty"),
        ("# nothing\n", 1, "is empty"),
        ("- a\n", 1, "must be a mapping with config:"),
        ("a: 1\nconfg: {}\n", 2, "confg: did you mean config? (the file has no config.gpufleet:fleet)"),
        ("a: 1\ngpufleet:fleet: {}\n", 2, "gpufleet:fleet: stands at the top; put it below config:"),
        ("a: 1\nconfig: [1]\n", 2, "config: must be a mapping"),
        ("config:\n  aws:region: x\n", 1, "has no gpufleet:fleet"),
        ("config:\n  gpufleet:fleet:\n", 2, "must be a mapping of settings"),
        ("config:\n  gpufleet:fleet: '{}'\n", 2, "`pulumi config set` stores text: use it with --path"),
        ("config:\n  gpufleet:fleet: [1]\n", 2, "gpufleet:fleet: must be a mapping of settings"),
        ("config:\n  gpufleet:fleet: {secure: AAAB}\n", 2, "gpufleet:fleet: the whole object is encrypted"),
    ],
)
def test_a_file_without_the_object_says_what_it_lacks(text: str, line: int, reason: str) -> None:
    [found] = problems(text)
    assert found.line == line
    assert reason in str(found)


def test_teams_may_stand_in_a_file_of_their_own(tmp_path: Path) -> None:
    path = stack(tmp_path, TEAMS)
    fleet = load_file(path)
    assert list(fleet.teams) == ["vision", "nlp"]
    assert fleet.teams_file == "teams.x.yaml"
    resolved = find(path.read_text(), "x").value
    assert read_stack(path, resolved).fleet == read_stack(tmp_path / "Pulumi.other.yaml", resolved).fleet == fleet


def test_a_mistake_in_the_teams_file_has_that_files_name_and_line(tmp_path: Path) -> None:
    found = wrong(stack(tmp_path, TEAMS.replace("quota: {h100-onprem: 8}}\n  nlp", "quta: {}}\n  nlp")))
    assert [str(one) for one in found] == [
        "stacks/teams.x.yaml:2:12: teams.vision.quta: is not a known setting; did you mean quota?"
    ]


def test_a_broken_rule_about_a_team_points_into_its_file(tmp_path: Path) -> None:
    [found] = wrong(stack(tmp_path, TEAMS.replace("h100-onprem: 8}}\n  nlp", "h100-onprm: 8}}\n  nlp")))
    assert (found.file, found.line, found.path) == ("stacks/teams.x.yaml", 2, "teams.vision.quota.h100-onprm")


@pytest.mark.parametrize(
    ("teams", "place", "reason"),
    [
        (None, "stacks/Pulumi.x.yaml:7:5: teams_file: ", "stacks/teams.x.yaml cannot be read: No such file"),
        ("", "stacks/teams.x.yaml:1:1: teams: ", "must hold teams:"),
        ("vision: {}\n", "stacks/teams.x.yaml:1:1: teams: ", "must hold teams:"),
        ("teams: [", "stacks/teams.x.yaml:1:9: teams: ", "not YAML"),
        ("teams:\n  a: {quota: {secure: AAAB}}\n", "stacks/teams.x.yaml:2:7: teams.a.quota: ", "an encrypted value"),
        ("teams:\n", "stacks/teams.x.yaml:1:7: teams: ", "has no value"),
        ("a: 1\n" + TEAMS, "stacks/teams.x.yaml:1:1: a: ", "only teams belongs in this file"),
        (TEAMS + "  nlp: {quota: {}}\n", "stacks/teams.x.yaml:4:3: teams.nlp: ", "is written twice"),
        (TEAMS + "  5: {quota: {}}\n", "stacks/teams.x.yaml:4:3: teams.5: ", "is a key that is not text"),
    ],
)
def test_a_teams_file_that_is_none_gives_one_error(tmp_path: Path, teams: str | None, place: str, reason: str) -> None:
    [found] = map(str, wrong(stack(tmp_path, teams)))
    assert found.startswith(place)
    assert reason in found


@pytest.mark.parametrize("name", ["/etc/passwd", "../teams.yaml", "a/../../b.yaml", "..", "a\\\\b"])
def test_a_teams_file_elsewhere_is_refused(tmp_path: Path, name: str) -> None:
    [found] = wrong(stack(tmp_path, None, f'teams_file: "{name}"'))
    assert found.path == "teams_file"
    assert "must be a path below the stack file's folder" in found.message


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ('""', "must be the path of a file, for example teams.prod.yaml (got '')"),
        ("7", "must be the path of a file, for example teams.prod.yaml (got 7)"),
        ("[a]", "must be the path of a file, for example teams.prod.yaml (got a list)"),
        ("", "has no value; write one, or leave the setting out"),
        (".", "stacks is a directory; name a file"),
        (r'"\e[2J\nx.yaml"', r"stacks/\x1b[2J\nx.yaml cannot be read"),
    ],
)
def test_a_teams_file_that_names_none_is_one_problem_at_the_setting(tmp_path: Path, value: str, reason: str) -> None:
    [found] = wrong(stack(tmp_path, None, f"teams_file: {value}"))
    assert (found.file, found.line, found.path) == ("stacks/Pulumi.x.yaml", 7, "teams_file")
    assert reason in found.message
    assert str(found).isprintable()


def test_a_link_to_a_teams_file_may_not_lead_out_of_the_folder(tmp_path: Path) -> None:
    folder = tmp_path / "stacks"
    folder.mkdir()
    (tmp_path / "elsewhere.yaml").write_text(TEAMS)
    path = stack(folder, None)
    (folder / "teams.x.yaml").symlink_to(tmp_path / "elsewhere.yaml")
    [found] = wrong(path)
    assert "is a link that leads out of the stack file's folder" in found.message
    (folder / "real.yaml").write_text(TEAMS)
    (folder / "teams.x.yaml").unlink()
    (folder / "teams.x.yaml").symlink_to("real.yaml")
    assert list(load_file(path).teams) == ["vision", "nlp"]


def test_teams_are_given_in_one_place(tmp_path: Path) -> None:
    path = stack(tmp_path, TEAMS)
    path.write_text(GOOD.replace("    organization:", "    teams_file: teams.x.yaml\n    organization:", 1))
    [found] = wrong(path)
    assert (found.path, found.line) == ("teams_file", 7)
    assert "keep either teams or teams_file" in found.message


def config_json(**more: Any) -> str:
    return json.dumps({KEY: {"objectValue": find(GOOD, "f").value, "value": "{}", "secret": False}, **more})


@pytest.mark.parametrize(
    "text",
    [
        json.dumps(find(GOOD, "f").value),
        json.dumps({KEY: find(GOOD, "f").value}),
        json.dumps({KEY: json.dumps(find(GOOD, "f").value), "gpufleet:kubeconfig": "decrypted", "aws:region": "x"}),
        json.dumps({KEY: {"value": json.dumps(find(GOOD, "f").value), "secret": False}}),
        config_json(**{"gpufleet:kubeconfig": {"secret": True}, "aws:region": {"value": "x", "secret": False}}),
    ],
)
def test_the_resolved_object_is_read_in_every_form_that_pulumi_gives(text: str) -> None:
    assert read_object(object_of(text, "stdin"), "stdin").fleet.organization == "acme"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "stdin:1:1: not JSON"),
        ("{", "not JSON"),
        ("[" * 200_000, "is nested too deeply"),
        ('{"a": NaN}', "NaN is no number"),
        ('{"a": ' + "9" * 5_000 + "}", "not JSON"),
        ('{"aws:region": "x"}', "has no gpufleet:fleet"),
        ('{"gpufleet:fleet": {"secret": true}}', "holds an encrypted value"),
        ('{"gpufleet:fleet": "x"}', "stdin: gpufleet:fleet:1:1: not JSON"),
        (config_json(**{"gpufleet:flet": {"value": "x", "secret": False}}), "did you mean gpufleet:fleet?"),
        ('{"gpufleet:flet": {}}', "has no gpufleet:fleet; did you mean gpufleet:fleet by gpufleet:flet?"),
    ],
)
def test_a_resolved_object_that_is_none_is_said_in_one_line(text: str, reason: str) -> None:
    with pytest.raises(ConfigError) as caught:
        object_of(text, "stdin")
    [found] = map(str, caught.value.problems)
    assert reason in found


@pytest.mark.parametrize("value", [None, 5, "x", [], {}])
def test_a_resolved_value_of_another_kind_is_a_config_error(value: object) -> None:
    with pytest.raises(ConfigError):
        read_object(value, "stdin")


def test_an_object_nested_beyond_reason_is_refused() -> None:
    value: list[Any] = []
    for _ in range(50_000):
        value = [value]
    with pytest.raises(ConfigError, match="nested more than 100 levels"):
        read_object({"pools": value}, "stdin")
