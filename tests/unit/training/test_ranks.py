"""Ranks that save together: all at the same step, all or none."""

from __future__ import annotations

import time
from functools import partial
from pathlib import Path

import pytest

from runtime import training
from runtime.training import Options, Ranks, SaveFailed, Saving, Session, Stopped
from runtime.training.store import Checkpoints
from runtime.training.together import save_together
from tests.unit.training.worlds import leftovers, names, together, visible


def a_session(root: Path, ranks: Ranks, **options: int | float | None) -> Session:
    return Session(Checkpoints(root), Options(**({"every_seconds": None} | options)), ranks)  # type: ignore[arg-type]


def save(saving: Saving) -> None:
    saving.pickle((saving.ranks.rank, saving.step))
    (saving.shared / f"__{saving.ranks.rank}_0.distcp").write_bytes(bytes([saving.ranks.rank]))
    if saving.ranks.first:
        (saving.shared / ".metadata").write_bytes(b"metadata")


def test_every_rank_has_its_own_files_and_all_are_in_one_manifest(tmp_path: Path) -> None:
    def work(ranks: Ranks) -> object:
        with a_session(tmp_path, ranks) as session:
            session.save(5, save)
        with a_session(tmp_path, ranks) as session:
            return session.resume(None, lambda checkpoint: checkpoint.unpickle(f"rank-{ranks.rank:05d}/state.pickle"))

    assert together(3, work) == [(0, 5), (1, 5), (2, 5)]
    manifest = Checkpoints(tmp_path).open(5).manifest
    expected = {f"rank-{rank:05d}/state.pickle" for rank in range(3)}
    assert {entry.name for entry in manifest.files} == expected | {
        *(f"shared/__{rank}_0.distcp" for rank in range(3)),
        "shared/.metadata",
    }
    assert leftovers(tmp_path) == []


def test_a_signal_to_one_rank_makes_all_save_and_stop_at_the_same_step(tmp_path: Path) -> None:
    def work(ranks: Ranks) -> None:
        with a_session(tmp_path, ranks) as session:
            for done in range(1, 100):
                if ranks.rank == 2 and done == 7:
                    session._signals.stop = True
                time.sleep(0.001 * ranks.rank)
                session.step(done, save)

    results = together(3, work)

    assert all(isinstance(result, Stopped) for result in results)
    assert visible(tmp_path) == [*names(7), "latest"]


def test_ranks_that_agree_seldom_stop_at_a_step_that_they_agree_at(tmp_path: Path) -> None:
    def work(ranks: Ranks) -> None:
        with a_session(tmp_path, ranks, agree_every=10) as session:
            for done in range(1, 100):
                session._signals.stop = session._signals.stop or (ranks.rank == 1 and done == 7)
                session.step(done, save)

    together(2, work)

    assert visible(tmp_path) == [*names(10), "latest"]


def test_only_the_clock_of_rank_0_counts(tmp_path: Path) -> None:
    def work(ranks: Ranks) -> None:
        with a_session(tmp_path, ranks, every_seconds=None if ranks.first else 1e-9) as session:
            for done in range(1, 5):
                session.step(done, save)

    together(2, work)

    assert visible(tmp_path) == []


@pytest.mark.parametrize("failing", [0, 1])
def test_when_one_rank_cannot_save_none_has_saved_and_none_waits(tmp_path: Path, failing: int) -> None:
    def save_or_fail(rank: int, saving: Saving) -> None:
        save(saving)
        if rank == failing:
            raise OSError(28, "No space left on device")

    def work(ranks: Ranks) -> int:
        with a_session(tmp_path, ranks, every_steps=1) as session:
            session.step(1, partial(save_or_fail, ranks.rank))
            session.step(2, save)
            return session.progress.save_failures_total

    assert together(2, work) == [1, 1]
    assert visible(tmp_path) == [*names(2), "latest"]
    assert leftovers(tmp_path) == []


def test_when_one_rank_has_a_mistake_the_others_hear_of_it(tmp_path: Path) -> None:
    def wrong(saving: Saving) -> None:
        raise KeyError("optimizer")

    def work(ranks: Ranks) -> None:
        checkpoints = Checkpoints(tmp_path)
        save_together(checkpoints, 1, wrong if ranks.rank == 1 else save, ranks)

    results = together(2, work)

    assert isinstance(results[0], SaveFailed)
    assert isinstance(results[1], KeyError)
    assert visible(tmp_path) == []


def test_a_directory_that_cannot_be_used_is_said_on_every_rank(tmp_path: Path) -> None:
    (tmp_path / "file").touch()

    def work(ranks: Ranks) -> None:
        with a_session(tmp_path / "file", ranks):
            pass

    results = together(2, work)

    assert [type(result) for result in results] == [training.StoreUnusable, SaveFailed]


@pytest.mark.parametrize(("rank", "world"), [(1, 1), (-1, 2), (0, 0), (0, 2)])
def test_ranks_that_make_no_sense_are_refused(rank: int, world: int) -> None:
    with pytest.raises(ValueError, match="rank"):
        Ranks(rank, world)
