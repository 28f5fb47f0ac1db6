from __future__ import annotations

import json
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.unit.commands.conftest import Ended
from tests.unit.stacks.test_migrations import OLD, migrated

Run = Callable[..., Ended]


@pytest.fixture
def old(tmp_path: Path) -> Path:
    file = tmp_path / "Pulumi.old.yaml"
    file.write_text(OLD)
    return file


def test_migrate_shows_a_diff_and_changes_nothing(gpufleet: Run, old: Path) -> None:
    ended = gpufleet("migrate", str(old))

    assert (ended.code, ended.err) == (0, "")
    assert f"--- {old} (now)\n+++ {old} (migrated)\n" in ended.out
    assert "-    node_pools: # old name\n" in ended.out
    assert "+    pools: # old name\n" in ended.out
    assert f"{old}: not written; --write does it\n" in ended.out
    assert old.read_text() == OLD


def test_migrate_writes_when_told_to(gpufleet: Run, old: Path) -> None:
    ended = gpufleet("migrate", "--write", str(old))

    assert ended.code == 0
    assert ended.out.endswith(f"{old}: written\n")
    assert old.read_text() == migrated(OLD)
    assert gpufleet("check", str(old)).code == 0


def test_line_ends_byte_order_mark_and_permissions_stay_and_links_are_followed(gpufleet: Run, old: Path) -> None:
    old.write_bytes(OLD.replace("\n", "\r\n").encode("utf-8-sig"))
    old.chmod(0o640)
    link = old.with_name("link.yaml")
    link.symlink_to(old.name)

    assert gpufleet("migrate", "--write", str(link)).code == 0

    assert link.is_symlink()
    assert old.read_bytes() == migrated(OLD).replace("\n", "\r\n").encode("utf-8-sig")
    assert stat.S_IMODE(old.stat().st_mode) == 0o640
    assert sorted(path.name for path in old.parent.glob("*.yaml*")) == ["Pulumi.old.yaml", "link.yaml"]


def test_a_current_file_is_left_alone(gpufleet: Run, old: Path) -> None:
    gpufleet("migrate", "--write", str(old))
    before = old.stat()

    ended = gpufleet("migrate", "--write", str(old))

    assert (ended.code, ended.out) == (0, f"{old}: nothing to do, schema version 1 already\n")
    assert old.stat().st_ino == before.st_ino


def test_a_file_that_is_wrong_otherwise_is_migrated_and_its_problems_are_shown(gpufleet: Run, old: Path) -> None:
    old.write_text(OLD.replace("gpu: h100-sxm-80gb", "gpu: h100-sxm-80g"))

    ended = gpufleet("migrate", "--write", str(old))

    assert ended.code == 1
    assert f"{old}: written\n" in ended.out
    assert "what is still wrong" in ended.err
    assert "h100-sxm-80gb" in ended.err
    assert "schema_version: 1" in old.read_text()


def test_one_bad_file_does_not_keep_the_others_from_it(gpufleet: Run, old: Path) -> None:
    newer = old.with_name("newer.yaml")
    newer.write_text("config:\n  gpufleet:fleet:\n    schema_version: 7\n")
    binary = old.with_name("binary.yaml")
    binary.write_bytes(b"\xff\xfe")
    huge = old.with_name("huge.yaml")
    huge.write_bytes(b"#" * (4 * 2**20 + 1))

    ended = gpufleet("migrate", "--write", str(newer), str(old), str(binary), str(huge), str(old.parent), "none.yaml")

    assert ended.code == 1
    assert old.read_text() == migrated(OLD)
    assert ended.err.splitlines() == [
        f"{newer}:3:5: schema_version: the file is written in schema version 7, and this gpufleet reads 1; upgrade gpufleet",
        f"{binary}: is UTF-16 text, not UTF-8; save it as UTF-8",
        f"{huge}: is larger than 4,194,304 bytes, the most that is read",
        f"{old.parent}: is a directory; name a file",
        "none.yaml: cannot be read: No such file or directory",
    ]


def test_a_write_that_fails_leaves_the_file_whole(gpufleet: Run, old: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_space(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", no_space)

    ended = gpufleet("migrate", "--write", str(old))

    assert (ended.code, ended.err) == (1, f"{old}: cannot be written: No space left on device\n")
    assert old.read_text() == OLD
    assert list(old.parent.glob(".Pulumi*")) == []


def test_json_says_the_same_for_a_program(gpufleet: Run, old: Path) -> None:
    rows = json.loads(gpufleet("migrate", "--json", str(old), "none.yaml").out)["files"]

    assert [(row["file"], row["from"], row["to"], row["changed"]) for row in rows] == [
        (str(old), 0, 1, True),
        ("none.yaml", None, None, False),
    ]
    assert len(rows[0]["steps"]) == 1
    assert rows[1]["problems"][0]["message"] == "cannot be read: No such file or directory"
    assert old.read_text() == OLD


def test_a_diff_says_where_the_last_line_has_no_end(gpufleet: Run, old: Path) -> None:
    old.write_text("config:\n  gpufleet:fleet: {node_pools: {}}")

    assert gpufleet("migrate", str(old)).out.count("\\ No newline at end of file\n") == 2
