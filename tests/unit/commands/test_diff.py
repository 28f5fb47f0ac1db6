from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from infra.planning.compare import Difference, differences
from tests.unit.commands.conftest import Ended
from tests.unit.commands.fleets import changed, rented, without_team, write

Run = Callable[..., Ended]

MORE_MONEY = changed(("monthly: 1000 USD", "monthly: 2500 USD"))
DISPOSABLE = changed(("organization", "on_destroy: remove-everything\n    organization"))
IN_TEAMS_FILE = "teams:\n  vision: {quota: {h100-onprem: 16}}\n"


def compared(gpufleet: Run, home: Path, old: str, new: str, *options: str) -> Ended:
    return gpufleet("diff", write(home / "old", old), write(home / "new", new), *options)


def document(gpufleet: Run, home: Path, old: str, new: str) -> dict[str, Any]:
    found = json.loads(compared(gpufleet, home, old, new, "--json").out)
    assert isinstance(found, dict)
    return found


def with_teams_in_a_file(text: str = "") -> str:
    lines = (text or changed()).splitlines(keepends=True)
    kept = [line for line in lines if not line.startswith(("    teams:", "      vision:", "      nlp:"))]
    return "".join(kept) + "    teams_file: teams.yaml\n"


@pytest.fixture
def repository(home: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A Git repository in which the working directory is, with the small fleet committed and its teams in a file."""
    root = home / "repository"
    write(root / "stacks", with_teams_in_a_file())
    (root / "stacks" / "teams.yaml").write_text(IN_TEAMS_FILE)
    for variable in ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE"):
        monkeypatch.delenv(variable, raising=False)
    git(root, "init", "--quiet")
    git(root, "add", ".")
    git(root, "-c", "user.name=t", "-c", "user.email=t@example.com", "commit", "--quiet", "--message", "first")
    monkeypatch.chdir(root)
    return root


def git(folder: Path, *arguments: str) -> None:
    subprocess.run(["git", *arguments], cwd=folder, check=True, stdin=subprocess.DEVNULL)


def test_equal_files_have_no_difference(gpufleet: Run, home: Path) -> None:
    ended = compared(gpufleet, home, changed(), "# a comment\n" + changed(), "--exit-code")

    assert (ended.code, ended.out) == (0, "no difference\n")


def test_differences_are_no_failure_unless_that_is_asked_for(gpufleet: Run, home: Path) -> None:
    assert compared(gpufleet, home, changed(), MORE_MONEY).code == 0
    assert compared(gpufleet, home, changed(), MORE_MONEY, "--exit-code").code == 1
    assert compared(gpufleet, home, changed(), MORE_MONEY, "--exit-code", "--json").code == 1


def test_objects_are_added_and_removed_by_name(gpufleet: Run, home: Path) -> None:
    ended = compared(gpufleet, home, DISPOSABLE, changed(("nlp", "speech"), text=DISPOSABLE))

    lines = ended.out.splitlines()
    assert "- Namespace nlp" in lines
    assert "+ LocalQueue speech/speech-burst-h100-aws-spot" in lines
    added, removed = ([line for line in lines if line.startswith(f"{sign} ")] for sign in "+-")
    assert len(added) == len(removed) >= 6
    assert f"objects: {len(added)} added, {len(removed)} removed, 1 changed" in lines


def test_what_stays_in_the_cluster_is_not_said_to_be_removed(gpufleet: Run, home: Path) -> None:
    new = changed(
        ("    burst:", '    agent: {ledger: {kind: object-store, url: "s3://b/l"}}\n    burst:'),
        text=without_team("nlp"),
    )

    lines = compared(gpufleet, home, changed(), new).out.splitlines()
    objects = document(gpufleet, home, changed(), new)["objects"]

    assert [line for line in lines if line.startswith("= ")] == [
        "= PersistentVolumeClaim gpufleet-system/gpufleet-router stays (on_destroy: keep-data)",
        "= Namespace nlp stays (on_destroy: keep-data)",
    ]
    removed = sum(line.startswith("- ") for line in lines)
    assert f"objects: 0 added, {removed} removed, 2 kept, 2 changed" in lines
    assert sorted(one["kind"] for one in objects["kept"]) == ["Namespace", "PersistentVolumeClaim"]
    assert not {one["kind"] for one in objects["removed"]} & {"Namespace", "PersistentVolumeClaim"}


def test_nothing_stays_in_a_cluster_that_goes(gpufleet: Run, home: Path) -> None:
    old = rented(in_order=True)
    new = without_team("nlp", changed(("us-east-1", "us-west-2"), text=old))

    found = document(gpufleet, home, old, new)

    assert found["objects"]["kept"] == []
    assert "namespace nlp of team nlp is deleted, with every job and volume in it" in found["dangers"]


def test_a_changed_object_shows_its_fields(gpufleet: Run, home: Path) -> None:
    lines = compared(gpufleet, home, changed(), MORE_MONEY).out.splitlines()

    at = lines.index("~ ConfigMap gpufleet-system/gpufleet-router")
    assert lines[at + 1] == "    data[config.yaml].budget.monthly: 1000 USD -> 2500 USD"


def test_many_fields_are_cut_and_counted_unless_all_are_asked_for(gpufleet: Run, home: Path) -> None:
    more = changed(("nlp", "speech"), ("P1", "P7"), ("400 USD", "4 USD"), ("1000 USD", "5 USD"))

    short = compared(gpufleet, home, changed(), more).out
    full = compared(gpufleet, home, changed(), more, "--full").out

    assert "more; --full shows them" in short
    assert "--full" not in full
    assert len(full.splitlines()) > len(short.splitlines())


def test_budgets_and_the_months_cost_are_compared(gpufleet: Run, home: Path) -> None:
    lines = compared(gpufleet, home, changed(), MORE_MONEY).out.splitlines()

    assert "burst.budget.monthly: 1000 USD -> 2500 USD" in lines
    assert lines[-1] == (
        "cloud GPUs: $0.00 to $1,000.00 -> $0.00 to $2,500.00 a month, bound by the fleet's hard budget"
    )


def test_the_cost_of_a_pool_is_shown_where_it_differs(gpufleet: Run, home: Path) -> None:
    new = changed(("nodes: 2", "nodes: 3"), ("spot: {", "twin: {"), ("[spot]", "[twin]"))

    ended = compared(gpufleet, home, changed(), new)

    words = [line.split() for line in ended.out.splitlines()]
    assert [
        "rack",
        "changed",
        "16",
        "->",
        "24",
        "$11,680.00",
        "->",
        "$17,520.00",
        "$11,680.00",
        "->",
        "$17,520.00",
    ] in words
    assert ["spot", "removed", "8", "$0.00", "$11,680.00"] in words
    assert ["twin", "added", "8", "$0.00", "$11,680.00"] in words
    assert "owned GPUs: $11,680.00 -> $17,520.00 a month" in ended.out


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        (
            DISPOSABLE,
            without_team("nlp", DISPOSABLE),
            "namespace nlp of team nlp is deleted, with every job and volume in it",
        ),
        (changed(), DISPOSABLE, "on_destroy becomes remove-everything"),
        (
            changed(),
            changed(("P1:", "P7:")),
            "class P1 is removed: new jobs that name it are not queued, as Kueue finds no WorkloadPriorityClass p1; "
            "those there are keep its priority and count as class P7",
        ),
        (
            changed(("max_gpus: 8", "max_gpus: 16")),
            changed(),
            "pool spot has at most 8 instead of 16 GPUs: what runs beyond that runs on, and none starts there until",
        ),
        (changed(), changed(("max_gpus: 8", "max_gpus: 0")), "and none starts there any more"),
        (
            rented(in_order=True),
            changed(("max: 3", "max: 2"), text=rented(in_order=True)),
            "pool extra has at most 8 instead of 12 GPUs: nodes beyond that can be taken from under their jobs",
        ),
        (
            changed(),
            changed(("kind: hard", "kind: soft")),
            "burst.budget becomes soft, so it reports an overshoot and stops nothing: the cloud can cost up to $11,680.00",
        ),
        (
            changed(),
            MORE_MONEY,
            "burst.budget is raised from $1,000.00 to $2,500.00 a month: the cloud can cost up to $2,500.00 a month",
        ),
        (
            changed(("monthly: 1000 USD", "monthly: 1000 USD, daily: 50 USD")),
            changed(),
            "burst.budget is raised from $50.00 to no limit a day: the cloud can cost up to $1,000.00 a month",
        ),
        (
            changed(),
            changed((", budget: {monthly: 1000 USD, kind: hard}", "")),
            "burst.budget is removed, so it stops and reports nothing any more: the cloud can cost up to $11,680.00",
        ),
        (changed(), changed((", budget: {monthly: 400 USD}", "")), "teams.vision.budget is removed"),
        (
            changed(("monthly: 400 USD", "monthly: 400 USD, weekly: 90 USD")),
            changed(("monthly: 400 USD", "monthly: 400 USD, weekly: 95 USD")),
            "teams.vision.budget is raised from $90.00 to $95.00 a week: the cloud can cost up to $1,000.00 a month",
        ),
        (
            changed(("    burst:", "    projects: {grant: {budget: {weekly: 20 USD}}}\n    burst:")),
            changed(),
            "project grant is removed: jobs that name it are sent to the cloud no more",
        ),
        (
            changed(("    burst:", "    projects: {grant: {budget: {weekly: 20 USD}}}\n    burst:")),
            changed(("    burst:", "    projects: {grant: {budget: {weekly: 30 USD}}}\n    burst:")),
            "projects.grant.budget is raised from $20.00 to $30.00 a week",
        ),
        (changed(), without_team("nlp"), "namespace nlp of team nlp stays, with jobs that no queue starts any more"),
        (changed(), without_team("nlp"), "team nlp loses its queues"),
        (
            changed(),
            changed(("gpu: h100-sxm-80gb", "gpu: h200-sxm-141gb"), ("h100-onprem", "h200-onprem")),
            "pool rack is renamed from flavor h100-onprem to h200-onprem",
        ),
        (
            changed(),
            changed(("spot: {", "twin: {"), ("market: spot", "market: on-demand"), ("[spot]", "[twin]")),
            "flavor h100-aws-spot goes with pool spot",
        ),
        (changed(), changed(("acme", "apex")), "organization acme becomes apex"),
        (changed(), changed(("lab", "den")), "cluster lab becomes den"),
        (
            changed(),
            changed(("kind: existing}", "kind: existing, kubeconfig: {context: other}}")),
            "cluster lab has another kubeconfig",
        ),
        (
            changed(),
            changed(("    burst:", '    agent: {ledger: {kind: object-store, url: "s3://b/l"}}\n    burst:')),
            "every budget begins anew",
        ),
        (
            changed(),
            changed(("    burst:", "    agent: {ledger: {kind: volume, storage_class: fast}}\n    burst:")),
            "the ledger's volume is replaced by an empty one",
        ),
        (
            changed(),
            changed(("    burst:", "    agent: {ledger: {kind: volume, size: 2Gi}}\n    burst:")),
            "the ledger's volume is resized from 1Gi to 2Gi",
        ),
        (
            rented(in_order=True),
            changed(("us-east-1", "us-west-2"), text=rented(in_order=True)),
            "cluster lab is replaced, with everything in it: region us-east-1 becomes us-west-2",
        ),
        (rented(in_order=True), changed(), "cluster lab is removed, with everything in it"),
        (
            changed(),
            changed(("h100-onprem: 12", "h100-onprem: 2")),
            "team vision has 2 instead of 12 GPUs of h100-onprem",
        ),
    ],
)
def test_a_dangerous_change_is_marked_first(gpufleet: Run, home: Path, old: str, new: str, said: str) -> None:
    ended = compared(gpufleet, home, old, new)

    assert any(line.startswith("! ") and said in line for line in ended.out.splitlines()), ended
    assert ended.out.startswith("! ")


def test_a_harmless_change_is_not_marked(gpufleet: Run, home: Path) -> None:
    more = changed(("nodes: 2", "nodes: 4"), ("h100-onprem: 4", "h100-onprem: 20"), ("max_gpus: 8", "max_gpus: 9"))

    assert document(gpufleet, home, changed(), more)["dangers"] == []
    assert document(gpufleet, home, MORE_MONEY, changed())["dangers"] == []
    assert document(gpufleet, home, changed(("kind: hard", "kind: soft")), MORE_MONEY)["dangers"] == []


def test_a_team_that_moves_into_another_teams_namespace_removes_none_that_is_still_used(
    gpufleet: Run, home: Path
) -> None:
    old = changed(("nlp: {", "nlp: {namespace: words, "))

    dangers = document(gpufleet, home, old, changed(("nlp: {", "text: {namespace: words, ")))["dangers"]

    assert not any("namespace" in danger for danger in dangers)


def test_parts_without_objects_are_compared_by_their_settings(gpufleet: Run, home: Path) -> None:
    old = rented(in_order=True)

    ended = compared(gpufleet, home, old, changed(("version: '1.35'", "version: '1.36'"), text=old))

    lines = ended.out.splitlines()
    assert "clusters.lab.version: 1.35 -> 1.36" in lines
    assert "not deployed by this version: clusters.lab: kind eks" in lines
    assert not any(line.startswith("not deployed by this version: pools") for line in lines)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ("targets: {utilization: 50%}", "targets.utilization: "),
        ("spot: {checkpoint: {grace: 30s}}", "spot.checkpoint.grace: 1m30s -> 30s"),
        ("capacity: {headroom: 20%}", "capacity.headroom: "),
        ("strict: true", "strict: false -> true"),
        ("links: {office: {kind: existing, cluster: lab, bandwidth: 1 Gbit/s}}", "links.office: added "),
    ],
)
def test_settings_that_no_object_shows_are_compared_too(gpufleet: Run, home: Path, settings: str, said: str) -> None:
    new = changed(("    burst:", f"    {settings}\n    burst:"))

    ended = compared(gpufleet, home, changed(), new, "--exit-code")

    assert ended.code == 1
    assert any(line.startswith(said) for line in ended.out.splitlines()), ended


def test_many_settings_are_cut_and_counted_unless_all_are_asked_for(gpufleet: Run, home: Path) -> None:
    teams = "".join(f"      team-{number}: {{quota: {{}}}}\n" for number in range(30))
    new = changed(("      vision:", f"{teams}      vision:"))

    assert "\nand 10 more; --full shows them\n" in compared(gpufleet, home, changed(), new).out
    assert "\nteams.team-29: added " in compared(gpufleet, home, changed(), new, "--full").out
    assert len(document(gpufleet, home, changed(), new)["settings"]) == 30


def test_one_changed_number_deep_in_an_object_is_said_by_its_path(gpufleet: Run, home: Path) -> None:
    lines = compared(gpufleet, home, changed(), changed(("max_gpus: 8", "max_gpus: 16")), "--full").out.splitlines()

    assert (
        "    spec.resourceGroups[0].flavors[h100-aws-spot].resources[nvidia.com/gpu].nominalQuota: 8 -> 16"
    ) in lines


def test_long_values_are_whole_for_programs_and_with_full(gpufleet: Run, home: Path) -> None:
    names = [f"node-with-quite-a-long-name-{number}" for number in range(2)]
    old = changed(("nodes: 2", f"nodes: 2, node_names: [{', '.join(names)}]"))

    assert document(gpufleet, home, changed(), old)["settings"][0]["new"] == json.dumps(names)
    assert json.dumps(names) in compared(gpufleet, home, changed(), old, "--full").out
    assert json.dumps(names) not in compared(gpufleet, home, changed(), old).out


def test_differences_as_json_have_a_form_that_programs_can_rely_on(gpufleet: Run, home: Path) -> None:
    found = document(gpufleet, home, changed(), MORE_MONEY)

    assert list(found) == ["differs", "dangers", "settings", "not_deployed", "objects", "cost"]
    assert list(found["objects"]) == ["added", "removed", "kept", "changed"]
    assert found["objects"]["changed"][0] == {
        "group": "",
        "kind": "ConfigMap",
        "namespace": "gpufleet-system",
        "name": "gpufleet-router",
        "fields": [{"path": "data[config.yaml].budget.monthly", "old": "1000 USD", "new": "2500 USD"}],
    }
    assert found["settings"] == [{"path": "burst.budget.monthly", "old": "1000 USD", "new": "2500 USD"}]
    assert list(found["cost"]) == ["pools", "old", "new"]
    assert found["cost"]["new"]["cloud"]["highest_usd"] == "2500.00"


def test_equal_files_as_json_do_not_differ(gpufleet: Run, home: Path) -> None:
    found = document(gpufleet, home, changed(), changed())

    assert found["differs"] is False
    assert found["objects"] == {"added": [], "removed": [], "kept": [], "changed": []}
    assert found["settings"] == []


def test_problems_of_both_files_are_said_at_once(gpufleet: Run, home: Path) -> None:
    ended = compared(gpufleet, home, changed(("[spot]", "[spto]")), "")

    assert (ended.code, ended.out) == (1, "")
    assert f"{home}/old/Pulumi.small.yaml:13:" in ended.err
    assert f"{home}/new/Pulumi.small.yaml:1:1" in ended.err


def test_problems_of_both_files_are_json_where_that_is_asked_for(gpufleet: Run, home: Path) -> None:
    ended = compared(gpufleet, home, changed(("[spot]", "[spto]")), "", "--json")

    assert (ended.code, ended.err) == (1, "")
    found = json.loads(ended.out)
    assert (found["ok"], found["files"]) == (False, 2)
    assert {one["file"] for one in found["problems"]} == {f"{home}/{side}/Pulumi.small.yaml" for side in ("old", "new")}


def test_a_revision_is_read_with_the_teams_that_it_had(gpufleet: Run, repository: Path) -> None:
    file = "stacks/Pulumi.small.yaml"
    (repository / "stacks" / "teams.yaml").write_text(IN_TEAMS_FILE.replace("vision", "sight"))

    ended = gpufleet("diff", f"HEAD:{file}", file)

    assert ended.code == 0
    assert "= Namespace vision" in ended.out
    assert "+ Namespace sight" in ended.out


def test_a_plan_of_a_revision_is_that_of_its_file(gpufleet: Run, repository: Path) -> None:
    file = "stacks/Pulumi.small.yaml"

    of_file, of_revision = (json.loads(gpufleet("plan", name, "--json").out) for name in (file, f"HEAD:{file}"))

    assert of_file == of_revision


def test_problems_of_a_revision_are_named_as_git_names_it(gpufleet: Run, repository: Path) -> None:
    file = "stacks/Pulumi.small.yaml"
    (repository / "stacks" / "teams.yaml").write_text("teams: {vision: {quota: {h100-onprim: 1}}}")
    git(repository, "rm", "--quiet", "--cached", "stacks/teams.yaml")

    of_file = gpufleet("plan", file)
    of_index = gpufleet("plan", f":{file}")

    assert "stacks/teams.yaml:1:" in of_file.err
    assert ":stacks/teams.yaml" in of_index.err  # it is in the working tree, but no longer in the index
    assert "cannot be read" in of_index.err


def test_a_file_whose_name_has_a_colon_is_a_file_first(gpufleet: Run, repository: Path) -> None:
    write(repository, MORE_MONEY, "HEAD:Pulumi.yaml")

    assert "$2,500.00" in gpufleet("plan", "HEAD:Pulumi.yaml").out


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("HEAD:stacks/none.yaml", "path 'stacks/none.yaml' does not exist in 'HEAD'"),
        ("nowhere:stacks/Pulumi.small.yaml", "invalid object name 'nowhere'"),
        ("HEAD:stacks", "bad file"),
        ("--batch-check:x", "invalid object name '--batch-check'"),
    ],
)
def test_what_git_does_not_have_is_said_in_its_words(gpufleet: Run, repository: Path, name: str, said: str) -> None:
    ended = gpufleet("diff", "--", name, "stacks/Pulumi.small.yaml")

    assert (ended.code, ended.out) == (1, "")
    assert f"{name}: is no file, and no file of a Git revision: " in ended.err
    assert said in ended.err


@pytest.mark.parametrize("teams_file", ["../../outside.yaml", "/etc/hosts", "x/../../outside.yaml", "a" * 300])
def test_a_revision_cannot_reach_files_outside_of_it(gpufleet: Run, repository: Path, teams_file: str) -> None:
    (repository.parent / "outside.yaml").write_text(IN_TEAMS_FILE)
    write(repository / "stacks", changed(("teams.yaml", teams_file), text=with_teams_in_a_file()))
    git(repository, "add", ".")

    ended = gpufleet("plan", ":stacks/Pulumi.small.yaml")

    assert (ended.code, ended.out) == (1, "")


def test_without_git_a_revision_is_refused_in_one_message(
    gpufleet: Run, repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(repository))

    ended = gpufleet("plan", "HEAD:stacks/Pulumi.small.yaml")

    assert ended.code == 1
    assert "git does not start: No such file or directory" in ended.err


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ({"a": 1}, {"a": 2}, ["a: 1 -> 2"]),
        ({"a": {"b": "x"}}, {"a": {}}, ["a.b: removed x"]),
        ({}, {"gpufleet.dev/x": True}, ["[gpufleet.dev/x]: added true"]),
        ([{"name": "x", "n": 1}], [{"name": "y"}, {"name": "x", "n": 1}], ['[y]: added {"name": "y"}']),
        ([{"name": "x"}, {"name": "y"}], [{"name": "y"}, {"name": "x"}], ['(order): ["x", "y"] -> ["y", "x"]']),
        ({"a": [1, 2]}, {"a": [2]}, ["a: [1, 2] -> [2]"]),
        ({"a": "k: 1\nl: 2\n"}, {"a": "k: 1\nl: 3\n"}, ["a.l: 2 -> 3"]),
        ({"a": "k: 1\n# x\n"}, {"a": "k: 1\n# y\n"}, ['a: "k: 1\\n# x\\n" -> "k: 1\\n# y\\n"']),
        ({"a": "x" * 99}, {"a": 0}, [f"a: {'x' * 99} -> 0"]),
        ({"a": [1, 2]}, {"a": [1, 3]}, ["a[1]: 2 -> 3"]),
        ({"a": [1, 2]}, {"a": [2, 1]}, ["a: [1, 2] -> [2, 1]"]),
        ({"a": [{"b": [{"name": "x", "n": 1}]}]}, {"a": [{"b": [{"name": "x", "n": 2}]}]}, ["a[0].b[x].n: 1 -> 2"]),
        ({"a": "- x\n- y\n"}, {"a": "- x\n- z\n"}, ["a[1]: y -> z"]),
        ({"a": "8"}, {"a": 8}, ["a: '8' -> 8"]),
        ({"a": "x: 2026-99-99\n"}, {"a": "x"}, ['a: "x: 2026-99-99\\n" -> x']),
        ({"a": ""}, {"a": " "}, ['a: "" -> " "']),
        ({"a": "\x1b[2J"}, {"a": None}, ["a: \\x1b[2J -> null"]),
    ],
)
def test_a_difference_is_said_as_people_would(old: Any, new: Any, said: list[str]) -> None:
    assert [str(one) for one in differences(old, new)] == said


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("x" * 99, "y", f"a: {'x' * 57}... -> y"),
        ("x" * 99, "x" * 100, f"a: ...{'x' * 20} -> ...{'x' * 21}"),
        (
            "x" * 80 + "1" + "x" * 80,
            "x" * 80 + "2" + "x" * 80,
            f"a: ...{'x' * 20}1{'x' * 33}... -> ...{'x' * 20}2{'x' * 33}...",
        ),
    ],
)
def test_a_long_value_is_cut_around_what_differs(old: str, new: str, said: str) -> None:
    assert str(Difference("a", old, new).shortened()) == said


PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers(0, 3) | st.text("ab\n: -#", max_size=6),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from("ab"), inner)
        | st.lists(st.builds(lambda name, value: {"name": name, "v": value}, st.sampled_from("abc"), inner), max_size=3)
    ),
    max_leaves=6,
)


@settings(max_examples=150, deadline=None)
@given(PLAIN, PLAIN)
def test_a_difference_is_found_exactly_where_values_are_not_equal(old: Any, new: Any) -> None:
    found = list(differences(old, new))

    assert bool(found) == (old != new)
    assert list(differences(old, old)) == []
    assert all(str(one).isprintable() for one in found)
    assert all(one.old != one.new and one.shortened().old != one.shortened().new for one in found)


LONG = st.lists(st.sampled_from(["x" * 40, "y", "."]), max_size=8).map("".join)


@settings(max_examples=100, deadline=None)
@given(LONG, LONG)
def test_two_values_never_read_alike_however_they_are_cut(old: str, new: str) -> None:
    short = Difference("a", old, new).shortened()

    assert (short.old == short.new) == (old == new)
    assert max(len(short.old or ""), len(short.new or "")) <= 60
