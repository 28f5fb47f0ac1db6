"""The forms for PyTorch, on the CPU. Skipped where torch is not installed: it is no dependency of this repository."""

from __future__ import annotations

import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from runtime import training
from runtime.training import Saving
from runtime.training.distributed import (
    load_sharded,
    load_torch,
    random_state,
    restore_random_state,
    save_sharded,
    save_torch,
    torch_ranks,
)
from runtime.training.ranks import ALONE
from runtime.training.together import save_together
from tests.unit.training.worlds import a_store

torch: Any = pytest.importorskip("torch", reason="torch is not installed; install it to try the forms for PyTorch")

pytestmark = [
    pytest.mark.long,
    # torch says so at every save of a single process.
    pytest.mark.filterwarnings("ignore:torch.distributed is disabled:UserWarning"),
]

RANKS_PROGRAM = Path(__file__).with_name("ranks_program.py")


def test_what_torch_saved_comes_back_and_what_did_not_change_is_linked(tmp_path: Path) -> None:
    store = a_store(tmp_path)
    frozen = torch.randn(1_000)

    def save(saving: Saving) -> None:
        save_torch(saving, {"frozen": frozen}, "frozen.pt")
        save_torch(saving, {"weights": torch.full((4,), float(saving.step))})

    save_together(store, 1, save)
    second = save_together(store, 2, save)

    found = store.newest()
    assert found is not None
    assert torch.equal(load_torch(found)["weights"], torch.full((4,), 2.0))
    assert torch.equal(load_torch(found, "frozen.pt")["frozen"], frozen)
    assert second.linked_bytes == (found.path / "frozen.pt").stat().st_size


def test_the_random_generators_go_on(tmp_path: Path) -> None:
    store = a_store(tmp_path)
    random.gauss(0, 1)
    save_together(store, 1, lambda saving: save_torch(saving, random_state()))
    expected = (random.random(), random.gauss(0, 1), torch.rand(3).tolist())

    restore_random_state(load_torch(store.open(1)))

    assert (random.random(), random.gauss(0, 1), torch.rand(3).tolist()) == expected


def test_a_sharded_checkpoint_of_one_rank(tmp_path: Path) -> None:
    store = a_store(tmp_path)
    save_together(store, 1, lambda saving: save_sharded(saving, {"weights": torch.arange(5)}))
    state = {"weights": torch.zeros(5, dtype=torch.int64)}

    load_sharded(store.open(1), state)

    assert state["weights"].tolist() == [0, 1, 2, 3, 4]
    assert {entry.name for entry in store.open(1).manifest.files} == {"shared/.metadata", "shared/__0_0.distcp"}


def test_a_full_disk_under_torch_is_a_failed_save(tmp_path: Path) -> None:
    if not Path("/dev/full").exists():
        pytest.skip("no /dev/full here")

    def save(saving: Saving) -> None:
        (saving.path / "full.pt").symlink_to("/dev/full")
        save_torch(saving, torch.randn(100_000), "full.pt")

    with pytest.raises((training.SaveFailed, OSError)):
        save_together(a_store(tmp_path), 1, save)


def test_without_torch_distributed_there_is_one_rank() -> None:
    assert torch_ranks() is ALONE


def run_ranks(tmp_path: Path, world: int, attempt: int, steps: int, stop: int) -> tuple[list[int], list[str]]:
    arguments = [str(world), str(tmp_path / f"meeting-{attempt}"), str(tmp_path / "store"), str(steps), str(stop)]
    ranks = [
        subprocess.Popen([sys.executable, str(RANKS_PROGRAM), str(rank), *arguments], stdout=subprocess.PIPE)
        for rank in range(world)
    ]
    said = [rank.communicate(timeout=100)[0].decode().strip() for rank in ranks]
    return [rank.returncode for rank in ranks], said


def test_two_ranks_stop_together_and_go_on_together(tmp_path: Path) -> None:
    assert run_ranks(tmp_path, 2, 1, 100, stop=7) == ([143, 143], ["-1 0 0.0", "-1 0 0.0"])
    assert run_ranks(tmp_path, 2, 2, 9, stop=-1) == ([0, 0], ["0 7 56.0", "1 7 56.0"])
