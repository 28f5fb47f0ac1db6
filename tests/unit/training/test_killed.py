"""A real training loop, killed at random moments and resumed each time, ends bit for bit as if nobody had touched it."""

from __future__ import annotations

import random
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Final

import pytest

from runtime.training import Checkpoints
from runtime.training.checkpoint import step_of
from tests.unit.training.worlds import visible

LOOP: Final = Path(__file__).with_name("loop.py")
TORCH_LOOP: Final = Path(__file__).with_name("torch_loop.py")


def start(loop: Path, *arguments: object) -> subprocess.Popen[bytes]:
    command = [sys.executable, str(loop), *map(str, arguments)]
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)


def finish(process: subprocess.Popen[bytes]) -> tuple[int, str]:
    _, said = process.communicate(timeout=110)
    return process.returncode, said.decode()


def wait_for_progress(process: subprocess.Popen[bytes], directory: Path, beyond: int) -> None:
    """Until a checkpoint is there that is newer than before: each attempt gets a little further, as on real nodes."""
    until = time.monotonic() + 60
    while process.poll() is None and time.monotonic() < until:
        steps = [step_of(path.name) for path in directory.glob("step-*")]
        if max((step for step in steps if step is not None), default=0) > beyond:
            return
        time.sleep(0.002)


def kill_often(loop: Path, tmp_path: Path, steps: int, kills: int) -> dict[str, int]:
    """Kill the loop at random moments and let it end; how often it was by which signal."""
    chance = random.Random()
    directory, killed = tmp_path / "killed", {"SIGTERM": 0, "SIGKILL": 0}
    for _ in range(kills):
        process = start(loop, directory, tmp_path / "result", steps)
        wait_for_progress(
            process, directory, max(Checkpoints(directory).steps(), default=0) if directory.exists() else 0
        )
        time.sleep(chance.uniform(0, 0.03))
        number = chance.choice([signal.SIGTERM, signal.SIGKILL])
        process.send_signal(number)
        code, said = finish(process)
        if code == 0:
            pytest.fail(f"the loop ended before its {kills} kills: make it longer; it said {said}")
        assert code == (143 if number is signal.SIGTERM else -signal.SIGKILL), said
        killed[number.name] += 1
    code, said = finish(start(loop, directory, tmp_path / "result", steps))
    assert code == 0, said
    return killed


def undisturbed(loop: Path, tmp_path: Path, steps: int) -> str:
    code, said = finish(start(loop, tmp_path / "undisturbed", tmp_path / "expected", steps))
    assert code == 0, said
    return (tmp_path / "expected").read_text()


@pytest.mark.parametrize(("kills", "steps"), [(2, 3_000), pytest.param(20, 25_000, marks=pytest.mark.long)])
def test_a_loop_that_is_killed_ends_with_the_result_of_an_undisturbed_run(
    tmp_path: Path, kills: int, steps: int
) -> None:
    killed = kill_often(LOOP, tmp_path, steps, kills)

    assert (tmp_path / "result").read_text() == undisturbed(LOOP, tmp_path, steps)
    assert sum(killed.values()) == kills
    assert re.fullmatch(r"(step-\d{12} ){2,3}latest", " ".join(visible(tmp_path / "killed")))


@pytest.mark.long
def test_a_loop_in_torch_that_is_killed_ends_with_the_result_of_an_undisturbed_run(tmp_path: Path) -> None:
    pytest.importorskip("torch", reason="torch is not installed; the plain loop above shows the same without it")
    steps = 6_000

    killed = kill_often(TORCH_LOOP, tmp_path, steps, 20)

    assert (tmp_path / "result").read_text() == undisturbed(TORCH_LOOP, tmp_path, steps)
    assert sum(killed.values()) == 20
