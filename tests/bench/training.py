"""What the training helper costs: python tests/bench/training.py

The same loop without the helper, with it and nothing to save, and the parts that take time: a save of 64 MiB, one of
which nine tenths have not changed, verifying and resuming. The figure is what `session.step` adds to one step; a step of
a training job takes from ten milliseconds to seconds.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from runtime import training
from runtime.training import Checkpoints, Saving
from runtime.training.inbox import Inbox
from runtime.training.together import save_together

AIM_MICROSECONDS: Final = 2.0
"""Two in ten thousand of a step of 10 ms."""

STEPS: Final = 100_000
REPEATS: Final = 7
PARTS: Final = 64
PART_BYTES: Final = 1 << 20


def save_nothing(saving: Saving) -> None:
    """Never called: the bench has nothing to save."""
    raise AssertionError("no save was due")


def bare(step: int) -> None:
    """What a loop calls that has no helper."""


def per_step(call: Callable[[int], object], steps: int = STEPS) -> float:
    """Microseconds of CPU that one call takes, the loop included."""
    taken = []
    for _ in range(REPEATS):
        start = time.process_time()
        for step in range(steps):
            call(step)
        taken.append((time.process_time() - start) / steps * 1e6)
    return statistics.median(taken)


def overhead(root: Path) -> float:
    """What `session.step` adds to a step that calls an empty function, in microseconds."""
    with training.session(root, every_seconds=3_600.0) as session:
        step = session.step
        with_helper = per_step(lambda done: step(done, save_nothing))
    without = per_step(lambda done: bare(done))
    print(f"per step: {without:.3f} us without the helper, {with_helper:.3f} us with it")
    return with_helper - without


def look(root: Path) -> None:
    """What reading the request file costs, which is done at most twice in a second."""
    request = root.with_suffix(".request")
    request.write_text('{"version": 1, "request": "seen"}')
    inbox = Inbox(request)
    print(f"a look at the request file: {per_step(lambda step: inbox.look(), 2_000):.1f} us")


def saves(root: Path) -> None:
    """Wall clock of saves, and how much of each was written."""
    store = Checkpoints(root)
    store.prepare()
    parts = [os.urandom(PART_BYTES) for _ in range(PARTS)]
    for name, changed in (("first", PARTS), ("nine tenths unchanged", PARTS // 10), ("nothing changed", 0)):
        for index in range(changed):
            parts[index] = os.urandom(PART_BYTES)

        def save(saving: Saving) -> None:
            for index, part in enumerate(parts):
                saving.write(f"part-{index:03d}", part)

        before = written()
        done = save_together(store, len(store.steps()), save)
        size = done.checkpoint.manifest.size
        print(
            f"save of {size >> 20} MiB, {name}: {done.seconds:.3f} s, {(size - done.linked_bytes) >> 20} MiB as files, "
            f"{(written() - before) >> 20} MiB by the kernel's count"
        )
    start = time.monotonic()
    Checkpoints(root).newest()
    print(f"finding and verifying {PARTS} MiB: {time.monotonic() - start:.3f} s")


def written() -> int:
    """Bytes that this process caused to be written to a disk."""
    for line in Path("/proc/self/io").read_text().splitlines():
        if line.startswith("write_bytes:"):
            return int(line.split()[1])
    return 0


def import_milliseconds() -> float:
    """What `import runtime.training` adds to a start of Python; the least of several."""

    def start(code: str) -> float:
        begin = time.monotonic()
        subprocess.run([sys.executable, "-c", code], check=True, cwd=Path(__file__).parents[2])
        return (time.monotonic() - begin) * 1e3

    return min(start("import runtime.training") for _ in range(5)) - min(start("pass") for _ in range(5))


def main() -> None:
    """Measure and print."""
    print(f"load {os.getloadavg()[0]:.1f}; disk as it is")
    with tempfile.TemporaryDirectory(dir=Path.cwd()) as root:
        added = overhead(Path(root) / "steps")
        look(Path(root) / "look")
        saves(Path(root) / "saves")
    print(f"import: {import_milliseconds():.0f} ms")
    verdict = "ok" if added <= AIM_MICROSECONDS else "short"
    print(f"training-step: {added:.2f} us (aim {AIM_MICROSECONDS:.0f} us) {verdict}")


if __name__ == "__main__":
    main()
