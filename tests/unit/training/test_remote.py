"""Checkpoints in an object store: incremental, conditional, verified, and fetched by an attempt on a new node."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from runtime import training
from runtime.training import Checkpoints, Retention, SaveFailed, Saving
from runtime.training.errors import Conflict
from runtime.training.remote import Remote
from tests.unit.training.worlds import MemoryBucket, a_store, names, saved, visible


def test_only_what_is_new_is_sent(tmp_path: Path) -> None:
    bucket, store = MemoryBucket(), a_store(tmp_path)
    frozen = os.urandom(10_000)
    remote = Remote(bucket)
    for step in (1, 2, 3):
        remote.push(saved(store, step, embedding=frozen, weights=str(step).encode()).checkpoint)

    assert len(bucket.uploads) == 4
    assert remote.sent_bytes == 10_003
    assert remote.latest() == 3


def test_an_attempt_on_a_new_node_fetches_the_newest(tmp_path: Path) -> None:
    bucket = MemoryBucket()

    def save(saving: Saving) -> None:
        saving.pickle({"step": saving.step}, "deep/state.pickle")
        saving.write("copy", b"same")
        saving.write("copy2", b"same")

    with training.session(tmp_path / "old", every_steps=1, remote=Remote(bucket)) as session:
        for done in (1, 2):
            session.step(done, save)

    with training.session(tmp_path / "new", remote=Remote(bucket)) as session:
        state = session.resume(None, lambda checkpoint: checkpoint.unpickle("deep/state.pickle"))

    assert state == {"step": 2}
    assert visible(tmp_path / "new") == names(2)


def test_what_is_newer_here_is_not_fetched(tmp_path: Path) -> None:
    bucket = MemoryBucket()
    Remote(bucket).push(a_store(tmp_path / "a", 5).open(5))

    found = Remote(bucket).pull(a_store(tmp_path / "b", 6))

    assert found is not None
    assert found.step == 6


@pytest.mark.parametrize("spoil", ["missing", "changed", "manifest", "path"])
def test_a_torn_checkpoint_in_the_bucket_is_passed_over(tmp_path: Path, spoil: str) -> None:
    bucket, store = MemoryBucket(), a_store(tmp_path / "a", 5, 6)
    Remote(bucket).push(store.open(5))
    Remote(bucket).push(store.open(6))
    key = f"objects/{store.open(6).manifest.files[0].sha256}"
    manifest = "steps/000000000006.json"
    if spoil == "missing":
        del bucket.objects[key]
    elif spoil == "changed":
        bucket.objects[key] = b"evil"
    elif spoil == "manifest":
        bucket.objects[manifest] = bucket.objects[manifest][:-5]
    else:
        bucket.objects[manifest] = bucket.objects[manifest].replace(b'"state"', b'"../../../state"')
    fresh = a_store(tmp_path / "b")

    found = Remote(bucket).pull(fresh)

    assert found is not None
    assert found.step == 5
    assert visible(tmp_path / "b") == names(5)


def test_latest_does_not_go_back_behind_another_attempt(tmp_path: Path) -> None:
    bucket, store = MemoryBucket(), a_store(tmp_path, 5, 6, 7)
    Remote(bucket).push(store.open(6))
    Remote(bucket).push(store.open(5))

    assert Remote(bucket).latest() == 6


def test_a_lost_race_for_latest_is_run_again(tmp_path: Path) -> None:
    bucket, store = MemoryBucket(), a_store(tmp_path, 5, 9)
    other = Remote(bucket)

    def quicker(key: str) -> None:
        if key == "latest.json":
            bucket.before_put = lambda key: None
            other.push(store.open(9))

    bucket.before_put = quicker
    Remote(bucket).push(store.open(5))

    assert other.latest() == 9


def test_writers_without_end_are_not_waited_for(tmp_path: Path) -> None:
    bucket, store = MemoryBucket(), a_store(tmp_path, 5)

    def always_lost(key: str) -> None:
        if key == "latest.json":
            raise Conflict("somebody was quicker")

    bucket.before_put = always_lost
    Remote(bucket).push(store.open(5))

    assert Remote(bucket).latest() is None


@pytest.mark.parametrize("content", [b"", b"[]", b'{"step": "x"}', b'{"step": -5}', b"[" * 100_000])
def test_a_latest_that_makes_no_sense_is_replaced(tmp_path: Path, content: bytes) -> None:
    bucket = MemoryBucket()
    bucket.objects["latest.json"] = content
    Remote(bucket).push(a_store(tmp_path, 5).open(5))

    assert Remote(bucket).latest() == 5


def test_objects_go_when_no_checkpoint_holds_them(tmp_path: Path) -> None:
    bucket, store = MemoryBucket(), a_store(tmp_path)
    remote = Remote(bucket, Retention(last=2))
    for step in range(1, 6):
        remote.push(saved(store, step, embedding=b"frozen", weights=str(step).encode()).checkpoint)

    assert sorted(remote.steps()) == [4, 5]
    assert len([key for key in bucket.objects if key.startswith("objects/")]) == 3


def test_nothing_is_deleted_while_a_manifest_cannot_be_read(tmp_path: Path) -> None:
    bucket, store = MemoryBucket(), a_store(tmp_path)
    remote = Remote(bucket, Retention(last=2))
    remote.push(saved(store, 1, weights=b"1").checkpoint)
    bucket.objects["steps/000000000009.json"] = b"{"
    for step in (2, 3):
        remote.push(saved(store, step, weights=str(step).encode()).checkpoint)

    assert len([key for key in bucket.objects if key.startswith("objects/")]) == 3


def test_a_bucket_that_is_full_makes_the_save_fail_and_the_next_one_sends_the_rest(tmp_path: Path) -> None:
    class Full(MemoryBucket):
        room = 0

        def upload(self, key: str, path: Path) -> None:
            if self.room == 0:
                raise OSError(122, "Disk quota exceeded")
            super().upload(key, path)

    bucket = Full()
    with training.session(tmp_path / "c", every_steps=1, remote=Remote(bucket)) as session:
        session.step(1, lambda saving: saving.pickle(1))
        assert session.progress.save_failures_total == 1
        assert Remote(bucket).steps() == []
        bucket.room = 1
        session.step(2, lambda saving: saving.pickle(2))

    assert Remote(bucket).steps() == [2]
    assert Checkpoints(tmp_path / "c").steps() == [2, 1]


def test_conflicts_are_failures_of_a_save() -> None:
    assert issubclass(Conflict, training.TrainingError)
    assert not issubclass(Conflict, SaveFailed)
