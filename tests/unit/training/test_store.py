"""Checkpoints in a directory: complete or not there, never overwritten, verified before anybody resumes from one."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import threading
from pathlib import Path

import pytest

from runtime.training import Checkpoints, Retention, Saving, StoreUnusable, TornCheckpoint
from runtime.training import files as durable
from runtime.training.errors import SaveFailed
from runtime.training.together import save_together
from tests.unit.training.worlds import a_store, leftovers, names, saved, visible

STEP = "step-000000000007"


def test_a_checkpoint_holds_what_was_saved(tmp_path: Path) -> None:
    store = a_store(tmp_path)

    def save(saving: Saving) -> None:
        saving.write("deep/er/weights.bin", memoryview(bytearray(b"abc")))
        saving.pickle({"rng": (1, 2)})
        (saving.path / "by-a-library.bin").write_bytes(b"xyz")
        (saving.shared / "all-ranks.bin").write_bytes(b"all")

    save_together(store, 7, save)

    found = store.newest()
    assert found is not None
    assert found.step == 7
    assert found.unpickle() == {"rng": (1, 2)}
    assert (found.path / "deep/er/weights.bin").read_bytes() == b"abc"
    assert {entry.name for entry in found.manifest.files} == {
        *("deep/er/weights.bin", "state.pickle", "by-a-library.bin", "shared/all-ranks.bin")
    }
    assert visible(tmp_path) == [STEP]
    assert leftovers(tmp_path) == []


def test_what_has_not_changed_is_not_written_again(tmp_path: Path) -> None:
    store = a_store(tmp_path)
    frozen = os.urandom(100_000)

    def save(saving: Saving) -> None:
        saving.write("embedding", frozen)
        (saving.path / "by-a-library").write_bytes(frozen[:50_000])
        saving.write("weights", str(saving.step).encode())

    first, second = save_together(store, 1, save), save_together(store, 2, save)

    assert (first.linked_bytes, second.linked_bytes) == (0, 150_000)
    for name in ("embedding", "by-a-library"):
        one, other = ((saved.checkpoint.path / name).stat().st_ino for saved in (first, second))
        assert one == other
    second.checkpoint.verify()


def test_a_file_that_rotted_before_this_process_began_is_not_carried_on(tmp_path: Path) -> None:
    saved(a_store(tmp_path), 1, embedding=b"good")
    (tmp_path / names(1)[0] / "embedding").write_bytes(b"evil")

    again = saved(Checkpoints(tmp_path), 2, embedding=b"good")

    again.checkpoint.verify()


def test_without_hard_links_everything_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = a_store(tmp_path, 1)

    def no_links(*args: object, **options: object) -> None:
        raise OSError(errno.EPERM, "no links here")

    monkeypatch.setattr(os, "link", no_links)
    again = saved(store, 2, state=b"state 1")

    assert again.linked_bytes == 0
    again.checkpoint.verify()


def spoil_content(path: Path) -> None:
    (path / "state").write_bytes(b"stale 9")


def spoil_size(path: Path) -> None:
    (path / "state").write_bytes(b"sta")


def spoil_file(path: Path) -> None:
    (path / "state").unlink()


def spoil_manifest(path: Path) -> None:
    manifest = path / "manifest.json"
    manifest.write_bytes(manifest.read_bytes()[:-9])


def spoil_by_link(path: Path) -> None:
    (path / "copy").write_bytes((path / "state").read_bytes())
    (path / "state").unlink()
    (path / "state").symlink_to(path / "copy")


def spoil_by_pipe(path: Path) -> None:
    (path / "manifest.json").unlink()
    os.mkfifo(path / "manifest.json")


@pytest.mark.parametrize("spoil", [spoil_content, spoil_size, spoil_file, spoil_manifest, spoil_by_link, spoil_by_pipe])
def test_a_torn_checkpoint_is_set_aside_and_the_one_before_is_taken(tmp_path: Path, spoil: object) -> None:
    store = a_store(tmp_path, 6, 7)
    assert callable(spoil)
    spoil(tmp_path / STEP)

    found = store.newest()

    assert found is not None
    assert found.step == 6
    assert visible(tmp_path) == names(6)
    [kept] = leftovers(tmp_path)
    assert kept.startswith(".torn-000000000007-")
    saved(store, 7, state=b"once more").checkpoint.verify()


def test_a_checkpoint_that_cannot_be_read_just_now_is_left_where_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = a_store(tmp_path, 6, 7)
    real = os.open

    def broken(path: object, *arguments: int, **options: int) -> int:
        if STEP in str(path):
            raise OSError(errno.EIO, "Input/output error")
        return real(path, *arguments, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(os, "open", broken)
    found = store.newest()
    monkeypatch.undo()

    assert found is not None
    assert found.step == 6
    assert visible(tmp_path) == names(6, 7)


def test_where_all_are_torn_there_is_none(tmp_path: Path) -> None:
    store = a_store(tmp_path, 5, 6, 7)
    for name in names(5, 6, 7):
        spoil_content(tmp_path / name)

    assert store.newest() is None
    assert len(leftovers(tmp_path)) == 1, "only the last torn one is kept"


def test_a_save_that_fails_leaves_nothing_and_harms_nothing(tmp_path: Path) -> None:
    store = a_store(tmp_path, 1)

    def save(saving: Saving) -> None:
        saving.write("half", b"half")
        raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.raises(OSError, match="No space left"):
        save_together(store, 2, save)

    assert visible(tmp_path) == names(1)
    assert leftovers(tmp_path) == []


@pytest.mark.parametrize("call", ["fsync", "rename", "link"])
def test_a_disk_that_is_full_at_any_call_harms_no_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    store = a_store(tmp_path, 1)
    real = getattr(os, call)
    left = 0

    def full(*args: object, **options: object) -> object:
        nonlocal left
        if left == 0:
            raise OSError(errno.ENOSPC, "No space left on device")
        left -= 1
        return real(*args, **options)

    monkeypatch.setattr(os, call, full)
    for calls in range(12):
        left = calls
        try:
            done = saved(store, 2, state=b"state 1", other=b"new")
        except OSError:
            assert Checkpoints(tmp_path).steps() in ([1], [2, 1])
            continue
        done.checkpoint.verify()
        break
    monkeypatch.undo()
    found = Checkpoints(tmp_path).newest()
    assert found is not None


def test_a_directory_that_is_read_only_is_said_at_the_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def read_only(*args: object, **options: object) -> None:
        raise OSError(errno.EROFS, "Read-only file system")

    monkeypatch.setattr(Path, "mkdir", read_only)

    with pytest.raises(StoreUnusable, match=r"Read-only file system.*GPUFLEET_CHECKPOINT_DIR"):
        Checkpoints(tmp_path / "here").prepare()


def test_a_file_in_the_place_of_the_directory_is_said_at_the_start(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")

    with pytest.raises(StoreUnusable, match=r"exists|Not a directory"):
        Checkpoints(tmp_path / "file").prepare()


def test_a_checkpoint_in_a_read_only_directory_can_still_be_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = a_store(tmp_path, 6, 7)
    spoil_content(tmp_path / STEP)

    def read_only(*args: object, **options: object) -> None:
        raise OSError(errno.EROFS, "Read-only file system")

    monkeypatch.setattr(Path, "rename", read_only)
    found = store.newest()

    assert found is not None
    assert found.step == 6


def test_the_first_of_two_attempts_that_save_one_step_stands(tmp_path: Path) -> None:
    one, other = a_store(tmp_path), Checkpoints(tmp_path)
    saved(one, 7, state=b"one")

    again = saved(other, 7, state=b"other")

    assert (again.checkpoint.path / "state").read_bytes() == b"one"
    assert leftovers(tmp_path) == []


def test_two_attempts_that_save_at_once_make_whole_checkpoints_only(tmp_path: Path) -> None:
    stores = [a_store(tmp_path, last=2), a_store(tmp_path, last=2)]
    errors: list[BaseException] = []

    def attempt(store: Checkpoints, mark: bytes) -> None:
        try:
            for step in range(1, 15):
                done = saved(store, step, mark=mark, same=b"same" * 100)
                store.advance(done.checkpoint)
                store.prune()
        except (TornCheckpoint, FileNotFoundError):
            pass  # the other was quicker, and has pruned the step already
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=attempt, args=(store, bytes([65 + n]))) for n, store in enumerate(stores)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert errors == []
    reader = Checkpoints(tmp_path)
    for step in reader.steps():
        reader.open(step).verify()
    assert reader.latest() == reader.steps()[0]


def test_latest_never_goes_back(tmp_path: Path) -> None:
    store = a_store(tmp_path, 5, 7)

    assert store.advance(store.open(7))
    assert not Checkpoints(tmp_path).advance(store.open(5))
    assert store.latest() == 7


def test_latest_goes_back_from_a_checkpoint_that_is_gone(tmp_path: Path) -> None:
    store = a_store(tmp_path, 5, 7)
    store.advance(store.open(7))
    store.set_aside(7)

    assert store.latest() is None
    assert store.advance(store.open(5))
    assert store.latest() == 5


@pytest.mark.parametrize(
    "content",
    [
        *(b"", b"\xff\xfe", b"{", b"[1]", b'{"step": "7"}', b'{"step": true}', b'{"step": -1}', b'{"step": 1e999}'),
        *(b"[" * 100_000, b'{"step": ' + b"9" * 5_000 + b"}", b"7" * 100_000),
    ],
)
def test_a_latest_that_makes_no_sense_is_replaced(tmp_path: Path, content: bytes) -> None:
    store = a_store(tmp_path, 7)
    (tmp_path / "latest").write_bytes(content)

    assert store.latest() is None
    assert store.advance(store.open(7))
    assert json.loads((tmp_path / "latest").read_text())["path"] == STEP


def test_latest_waits_for_nobody_for_long(tmp_path: Path) -> None:
    lock = tmp_path / "lock"

    with durable.locked(lock), pytest.raises(TimeoutError, match="held by another"), durable.locked(lock, 0.05):
        pass


def test_where_there_are_no_locks_latest_is_still_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_locks(*args: object) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", no_locks)
    store = a_store(tmp_path, 7)

    assert store.advance(store.open(7))
    assert store.latest() == 7


def test_what_a_killed_attempt_left_is_cleared_away(tmp_path: Path) -> None:
    a_store(tmp_path, 1)
    for name in (".saving-000000000009-aa", ".deleting-000000000009-aa"):
        (tmp_path / name).mkdir()
        (tmp_path / name / ".owner").write_bytes(b"")
        (tmp_path / name / "half").write_bytes(b"half")

    Checkpoints(tmp_path).prepare()

    assert leftovers(tmp_path) == []


def test_what_another_attempt_is_writing_is_left_alone(tmp_path: Path) -> None:
    store = a_store(tmp_path)

    def save(saving: Saving) -> None:
        saving.write("state", b"state")
        Checkpoints(tmp_path).prepare()

    save_together(store, 7, save).checkpoint.verify()


def test_old_checkpoints_go_and_milestones_stay(tmp_path: Path) -> None:
    store = a_store(tmp_path, *range(10, 90, 10), last=2, every=30)

    assert store.prune() == [10, 20, 40, 50]
    assert visible(tmp_path) == names(30, 60, 70, 80)
    assert leftovers(tmp_path) == []


@pytest.mark.parametrize(("last", "every"), [(1, None), (0, None), (3, 0)])
def test_a_retention_that_could_leave_nothing_is_refused(last: int, every: int | None) -> None:
    with pytest.raises(ValueError, match=r"keep_(last|every) is"):
        Retention(last, every)


@pytest.mark.parametrize(
    "name", ["../escape", "/etc/passwd", "a/../../b", ".hidden", "manifest.json", "", "a\nb", "x" * 256]
)
def test_a_file_outside_the_checkpoint_is_refused(tmp_path: Path, name: str) -> None:
    store = a_store(tmp_path)

    with pytest.raises((SaveFailed, OSError)):
        save_together(store, 7, lambda saving: saving.write(name, b"data"))

    assert visible(tmp_path) == []


def test_a_link_in_a_checkpoint_is_refused(tmp_path: Path) -> None:
    store = a_store(tmp_path)

    with pytest.raises(SaveFailed, match="neither a file nor a directory"):
        save_together(store, 7, lambda saving: (saving.path / "link").symlink_to("/etc"))


def test_a_save_function_that_saves_nothing_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SaveFailed, match="wrote no file"):
        save_together(a_store(tmp_path), 7, lambda saving: None)


def test_the_order_is_by_step_whatever_the_clock_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = a_store(tmp_path, 6)
    monkeypatch.setattr("time.time", lambda: 0.0)
    store.advance(saved(store, 7, state=b"later, and earlier by the clock").checkpoint)

    found = store.newest()

    assert found is not None
    assert found.step == 7
    assert store.latest() == 7
