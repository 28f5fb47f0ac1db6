from __future__ import annotations

import json
import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from infra.planning.folder import RECORD, RenderError, write_folder
from infra.planning.manifests import files_of, yaml_of
from infra.planning.objects import objects_of
from stacks.load import load_text
from tests.unit.commands.conftest import Ended
from tests.unit.commands.fleets import changed, rented, without_team, write

Run = Callable[..., Ended]

NAMED_NODES = changed(("nodes: 2", "nodes: 2, node_names: [n-0, n-1]"))


def rendered(gpufleet: Run, home: Path, text: str) -> dict[str, Any]:
    ended = gpufleet("render", write(home, text), "--to", str(home / "out"), "--json")
    assert ended.code == 0
    summary = json.loads(ended.out)
    assert isinstance(summary, dict)
    return summary


def names(folder: Path) -> set[str]:
    return {entry.name for entry in folder.iterdir()}


def test_the_stream_has_every_object_and_nothing_of_pulumi(gpufleet: Run, home: Path) -> None:
    ended = gpufleet("render", write(home, changed()))

    documents = list(yaml.safe_load_all(ended.out))
    assert len(documents) == len(objects_of(load_text(changed(), "fleet.yaml")))
    assert "pulumi.com/" not in ended.out
    assert all("annotations" not in document["metadata"] for document in documents)


def test_the_stream_as_json_is_a_list_that_kubectl_takes(gpufleet: Run, home: Path) -> None:
    file = write(home, changed())

    listed = json.loads(gpufleet("render", file, "--json").out)

    assert (listed["apiVersion"], listed["kind"]) == ("v1", "List")
    assert listed["items"] == list(yaml.safe_load_all(gpufleet("render", file).out))


def test_a_folder_has_one_file_per_object_listed_in_the_order_of_creation(gpufleet: Run, home: Path) -> None:
    file = write(home, changed())
    gpufleet("render", file, "--to", str(home / "out"))

    kustomization = yaml.safe_load((home / "out" / "kustomization.yaml").read_text())
    in_order = [yaml.safe_load((home / "out" / name).read_text()) for name in kustomization["resources"]]
    assert in_order == list(yaml.safe_load_all(gpufleet("render", file).out))
    assert kustomization["sortOptions"] == {"order": "fifo"}
    assert names(home / "out") == {*kustomization["resources"], "kustomization.yaml", RECORD}
    assert {"localqueue-vision-vision-burst-h100-aws-spot.yaml", "resourceflavor-h100-aws-spot.yaml"} <= names(
        home / "out"
    )


def test_a_file_says_where_it_comes_from_and_names_no_machine(gpufleet: Run, home: Path) -> None:
    rendered(gpufleet, home, changed())

    for path in (home / "out").iterdir():
        text = path.read_text()
        assert "Pulumi.small.yaml" in text
        assert str(home) not in text


def test_rendering_again_touches_nothing(gpufleet: Run, home: Path) -> None:
    rendered(gpufleet, home, changed())
    before = {path: path.stat() for path in (home / "out").iterdir()}

    summary = rendered(gpufleet, home, changed())

    assert (summary["written"], summary["removed"]) == ([], [])
    assert len(summary["unchanged"]) == len(before) - 1  # all but the record
    assert {path: (path.stat().st_mtime_ns, path.stat().st_ino) for path in before} == {
        path: (status.st_mtime_ns, status.st_ino) for path, status in before.items()
    }


def test_a_change_of_the_fleet_is_a_change_of_few_files(gpufleet: Run, home: Path) -> None:
    rendered(gpufleet, home, changed())

    summary = rendered(gpufleet, home, changed(("h100-onprem: 4", "h100-onprem: 3")))

    assert sorted(summary["written"]) == ["cohort-acme-nlp.yaml", "configmap-gpufleet-system-gpufleet-router.yaml"]


def test_files_of_what_is_gone_are_removed(gpufleet: Run, home: Path) -> None:
    rendered(gpufleet, home, changed())

    summary = rendered(gpufleet, home, without_team("nlp"))

    assert "namespace-nlp.yaml" in summary["removed"]
    assert not any("nlp" in name for name in names(home / "out"))


def test_files_that_render_did_not_write_are_never_removed(gpufleet: Run, home: Path) -> None:
    (home / "out").mkdir()
    (home / "out" / "notes.yaml").write_text("mine")
    rendered(gpufleet, home, changed())
    (home / "out" / "namespace-guests.yaml").write_text("mine, too")

    rendered(gpufleet, home, without_team("nlp"))

    assert {"notes.yaml", "namespace-guests.yaml"} <= names(home / "out")


def test_a_foreign_file_of_the_same_name_stops_it_before_anything_is_written(gpufleet: Run, home: Path) -> None:
    (home / "out").mkdir()
    (home / "out" / "namespace-nlp.yaml").write_text("mine")

    ended = gpufleet("render", write(home, changed()), "--to", str(home / "out"))

    assert (ended.code, ended.out) == (1, "")
    assert "did not write: namespace-nlp.yaml; name another folder, or remove them" in ended.err
    assert names(home / "out") == {"namespace-nlp.yaml"}


def test_a_file_changed_by_hand_is_written_anew_with_a_notice(gpufleet: Run, home: Path) -> None:
    file = write(home, changed())
    gpufleet("render", file, "--to", str(home / "out"))
    (home / "out" / "namespace-nlp.yaml").write_text("changed")

    ended = gpufleet("render", file, "--to", str(home / "out"))

    assert "namespace-nlp.yaml (its changes by hand are overwritten)" in ended.out
    assert "kind: Namespace" in (home / "out" / "namespace-nlp.yaml").read_text()


def test_a_file_changed_by_hand_that_is_gone_from_the_fleet_is_left_until_its_owner_removes_it(
    gpufleet: Run, home: Path
) -> None:
    rendered(gpufleet, home, changed())
    (home / "out" / "namespace-nlp.yaml").write_text("changed")

    for _ in range(2):
        summary = rendered(gpufleet, home, without_team("nlp"))
        assert summary["left"] == ["namespace-nlp.yaml"]
        assert (home / "out" / "namespace-nlp.yaml").read_text() == "changed"
    (home / "out" / "namespace-nlp.yaml").unlink()

    assert rendered(gpufleet, home, without_team("nlp"))["left"] == []


def test_a_lost_record_is_made_anew_while_the_files_are_as_they_were(gpufleet: Run, home: Path) -> None:
    rendered(gpufleet, home, changed())
    (home / "out" / RECORD).unlink()

    assert rendered(gpufleet, home, changed())["written"] == []
    assert rendered(gpufleet, home, without_team("nlp"))["removed"]


def test_what_a_crash_left_half_done_is_finished_by_the_next_call(
    gpufleet: Run, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rendered(gpufleet, home, changed())
    replace, calls = Path.replace, 0

    def crashes(self: Path, target: Path) -> Path:
        nonlocal calls
        calls += 1
        if calls == 4:
            raise KeyboardInterrupt
        return replace(self, target)

    richer = changed(("nodes: 2", "nodes: 3"), ("vision:", "robots: {quota: {h100-onprem: 8}}\n      vision:"))
    with monkeypatch.context() as patched:
        patched.setattr(Path, "replace", crashes)
        assert gpufleet("render", write(home, richer), "--to", str(home / "out")).code == 130

    summary = rendered(gpufleet, home, richer)
    assert summary["written"]
    assert summary["overwritten"] == []
    assert not [name for name in names(home / "out") if name.endswith(".tmp")]
    assert rendered(gpufleet, home, richer)["written"] == []


def test_two_stacks_do_not_share_a_folder(gpufleet: Run, home: Path) -> None:
    rendered(gpufleet, home, changed())

    ended = gpufleet("render", write(home, changed(), "Pulumi.other.yaml"), "--to", str(home / "out"))

    assert ended.code == 1
    assert "holds what was rendered from Pulumi.small.yaml; Pulumi.other.yaml needs a folder of its own" in ended.err


def test_a_file_is_no_folder(gpufleet: Run, home: Path) -> None:
    file = write(home, changed())

    ended = gpufleet("render", file, "--to", file)

    assert (ended.code, ended.err) == (1, f"gpufleet: {file} is a file; name a folder\n")


def test_an_empty_name_is_no_folder(gpufleet: Run, home: Path) -> None:
    ended = gpufleet("render", write(home, changed()), "--to", "")

    assert ended.code == 2
    assert "an empty name is no folder" in ended.said


def test_a_folder_below_a_file_is_said_in_one_line(gpufleet: Run, home: Path) -> None:
    file = write(home, changed())

    ended = gpufleet("render", file, "--to", f"{file}/out")

    assert ended.code == 1
    assert ended.err == f"gpufleet: {file}/out: Not a directory; name a folder that can be written\n"


@pytest.mark.parametrize(
    "record",
    [
        "",
        "[]",
        "null",
        "{}",
        "\0",
        "[" * 100_000,
        '{"version": 2, "origin": "Pulumi.small.yaml", "files": {}}',
        '{"version": 1, "origin": "Pulumi.small.yaml", "files": []}',
        '{"version": 1, "origin": "Pulumi.small.yaml", "files": {"a.yaml": 1}}',
        '{"version": 1, "origin": "Pulumi.small.yaml", "files": {"../precious.yaml": "x"}}',
        '{"version": 1, "origin": "Pulumi.small.yaml", "files": {"/etc/hosts": "x"}}',
    ],
)
def test_a_record_that_is_none_stops_it(gpufleet: Run, home: Path, record: str) -> None:
    (home / "out").mkdir()
    (home / "out" / RECORD).write_text(record)

    ended = gpufleet("render", write(home, changed()), "--to", str(home / "out"))

    assert (ended.code, ended.out) == (1, "")
    assert "is not the record of this gpufleet" in ended.err
    assert names(home / "out") == {RECORD}


@pytest.mark.parametrize("name", ["namespace-nlp.yaml", RECORD])
def test_a_link_in_a_files_place_is_neither_followed_nor_replaced(gpufleet: Run, home: Path, name: str) -> None:
    (home / "out").mkdir()
    (home / "precious").write_text("mine")
    (home / "out" / name).symlink_to(home / "precious")

    ended = gpufleet("render", write(home, changed()), "--to", str(home / "out"))

    assert ended.code == 1
    assert "remove it or name another folder" in ended.err
    assert (home / "precious").read_text() == "mine"


def test_files_have_the_permissions_that_new_files_have(gpufleet: Run, home: Path) -> None:
    old = os.umask(0o027)
    try:
        rendered(gpufleet, home, changed())
    finally:
        os.umask(old)

    assert stat.S_IMODE((home / "out" / "kustomization.yaml").stat().st_mode) == 0o640


def test_what_the_files_do_not_bring_about_is_said_apart_from_them(gpufleet: Run, home: Path) -> None:
    ended = gpufleet("render", write(home, NAMED_NODES), "--to", str(home / "out"))

    assert "not rendered: the labels of 2 nodes" in ended.err
    assert "tell your GitOps tool not to prune namespaces" in ended.err
    assert not [name for name in names(home / "out") if name.startswith("node")]


def test_a_folder_that_would_lack_parts_is_not_written_unless_that_is_asked_for(gpufleet: Run, home: Path) -> None:
    arguments = ("render", write(home, rented(in_order=True)), "--to", str(home / "out"))

    refused = gpufleet(*arguments)

    assert (refused.code, refused.out) == (1, "")
    assert "    clusters.lab: kind eks\n    pools.extra: provisioner node-group\n" in refused.err
    assert not (home / "out").exists()

    partial = gpufleet(*arguments, "--partial")

    assert partial.code == 0
    assert "not rendered: pools.extra: provisioner node-group" in partial.err
    assert (home / "out" / "kustomization.yaml").exists()


def test_a_stream_that_lacks_parts_says_so_on_standard_error(gpufleet: Run, home: Path) -> None:
    ended = gpufleet("render", write(home, rented(in_order=True)))

    assert ended.code == 0
    assert "not rendered: clusters.lab: kind eks" in ended.err


def test_partial_is_for_folders(gpufleet: Run, home: Path) -> None:
    ended = gpufleet("render", write(home, changed()), "--partial")

    assert ended.code == 2
    assert "name one with --to" in ended.said


def test_the_summary_has_a_form_that_programs_can_rely_on(gpufleet: Run, home: Path) -> None:
    summary = rendered(gpufleet, home, NAMED_NODES)

    assert list(summary) == [
        "folder",
        "written",
        "unchanged",
        "removed",
        "overwritten",
        "left",
        "not_rendered",
        "node_labels_left_out",
    ]
    assert summary["node_labels_left_out"] == 2


def test_names_that_parsers_take_for_other_things_stay_names() -> None:
    labels = ["y", "N", "1e3", "0o7", "1_000", "12:30", "2026-01-01", "null", "true", "~", "", "+1", ".5", "a: b", "*x"]

    text = yaml_of([{"metadata": {"labels": {label: label for label in labels}}}])

    assert yaml.safe_load(text)["metadata"]["labels"] == {label: label for label in labels}
    for label in ("y", "N", "1e3", "0o7"):
        assert (
            f"'{label}': '{label}'" in text
        )  # PyYAML would write them bare; the parser of kubectl would not read text


def test_objects_whose_file_names_would_be_the_same_are_told_apart() -> None:
    def queue(namespace: str, name: str) -> dict[str, Any]:
        metadata = {"namespace": namespace, "name": name}
        return {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "LocalQueue", "metadata": metadata}

    both = list(files_of([queue("a", "b-c"), queue("a-b", "c")], "fleet.yaml"))

    assert len(set(both)) == 3
    assert all(name.startswith("localqueue-a-b-c-") for name in both[:2])
    assert list(files_of([queue("a-b", "c"), queue("a", "b-c")], "fleet.yaml"))[:2] == both[1::-1]


@pytest.mark.parametrize("name", ["../../etc/passwd", "system:node", "A" * 400, "..", "über", "a\nb", "kustomization"])
def test_a_file_name_is_safe_whatever_the_object_is_called(name: str) -> None:
    manifest = {"apiVersion": "v1", "kind": "Kustomization", "metadata": {"name": name}}

    first = next(iter(files_of([manifest], "fleet.yaml")))

    assert first == Path(first).name
    assert first.isascii()
    assert len(first) < 255
    assert first not in {"kustomization.yaml", RECORD}


def test_a_folder_where_a_file_belongs_is_said(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").mkdir()

    with pytest.raises(RenderError, match="stands where a rendered file belongs"):
        write_folder(tmp_path, {"a.yaml": ""}, "fleet.yaml")
