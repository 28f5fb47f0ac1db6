"""One save by all ranks: everybody writes, rank 0 gives the checkpoint its name, and all learn whether it has one.

Each rank takes part in every agreement whatever fails in it, so that no rank waits for one that has given up.
"""

from __future__ import annotations

import contextlib
import json
import random
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TypeVar

from .checkpoint import Checkpoint
from .errors import SaveFailed
from .files import write_durably
from .manifest import MAX_FILES, MAX_STEP, Entry, Manifest
from .ranks import ALONE, TOKEN_BITS, Ranks
from .saving import Saving
from .store import Checkpoints, Save

_Result = TypeVar("_Result")


@dataclass(frozen=True, slots=True)
class Saved:
    """A checkpoint, what it took, and how many bytes of this rank did not have to be written."""

    checkpoint: Checkpoint
    seconds: float
    linked_bytes: int


def save_together(checkpoints: Checkpoints, step: int, save: Save, ranks: Ranks = ALONE) -> Saved:
    """Save one step. All ranks call it for the same step.

    Raises:
        SaveFailed: another rank could not, or what was written is no checkpoint.
        OSError: this rank could not write.
    """
    if not 0 <= step <= MAX_STEP:
        raise ValueError(f"step {step}: must be from 0 to {MAX_STEP}")
    start = time.monotonic()
    token = ranks.agree(random.SystemRandom().getrandbits(TOKEN_BITS) if ranks.first else 0)
    fresh = checkpoints.fresh(step, f"{token:012x}")
    with contextlib.ExitStack() as stack:
        everyone(ranks, lambda: stack.enter_context(checkpoints.writing(fresh)) if ranks.first else None)
        saving = everyone(ranks, lambda: _write(Saving(fresh, step, ranks, checkpoints.known), save))
        published = everyone(ranks, lambda: _publish(checkpoints, saving) if ranks.first else None)
    checkpoint = published or checkpoints.open(step)
    checkpoints.learn(checkpoint)
    return Saved(checkpoint, time.monotonic() - start, saving.linked_bytes)


def everyone(ranks: Ranks, work: Callable[[], _Result]) -> _Result:
    """Do this rank's share of something, and learn whether all ranks have done theirs; else raise SaveFailed."""
    try:
        result = work()
    except BaseException:  # whatever it is, the other ranks wait to hear of it
        ranks.all_well(False)
        raise
    if not ranks.all_well(True):
        raise SaveFailed("another rank failed; its own log says why")
    return result


def _write(saving: Saving, save: Save) -> Saving:
    save(saving)
    saving.collect()
    if not saving.ranks.first:
        part = json.dumps([asdict(entry) for entry in saving.entries]).encode()
        write_durably(_part(saving.root, saving.ranks.rank), part)
    return saving


def _publish(checkpoints: Checkpoints, saving: Saving) -> Checkpoint:
    entries = list(saving.entries)
    for rank in range(1, saving.ranks.world):
        part = _part(saving.root, rank)
        entries += [Entry(**value) for value in json.loads(part.read_bytes())]
        part.unlink()
    if not entries:
        raise SaveFailed(f"step {saving.step}: the save function wrote no file; see Saving.write and Saving.path")
    if len(entries) > MAX_FILES:
        raise SaveFailed(f"step {saving.step}: {len(entries)} files; a checkpoint holds at most {MAX_FILES}")
    return checkpoints.publish(saving.root, Manifest(saving.step, time.time(), tuple(entries)))


def _part(root: Path, rank: int) -> Path:
    """Where a rank lists its files for rank 0."""
    return root / f".part-{rank:05d}.json"
