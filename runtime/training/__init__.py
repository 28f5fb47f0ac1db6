"""Saves a training job's state so that losing its node costs seconds: the helper for docs/checkpointing.md.

    with training.session("/checkpoints") as session:
        state = session.resume(State())
        for step in range(session.done, STEPS):
            train(state)
            session.step(step + 1, lambda saving: saving.pickle(state))

It is not part of the agent and imports nothing of it: this directory can be copied into a project as it is. It needs
Python's standard library alone; torch is imported by the functions that are named after it, when they are called.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Final

from .checkpoint import Checkpoint
from .errors import BadRequest, Conflict, SaveFailed, Stopped, StoreUnusable, TornCheckpoint, TrainingError
from .options import Options
from .ranks import ALONE, Ranks
from .retention import Retention
from .saving import Saving
from .session import Session
from .store import Checkpoints

if TYPE_CHECKING:
    from .remote import Remote

__all__ = [
    "ALONE",
    "BadRequest",
    "Checkpoint",
    "Checkpoints",
    "Conflict",
    "Options",
    "Ranks",
    "Retention",
    "SaveFailed",
    "Saving",
    "Session",
    "Stopped",
    "StoreUnusable",
    "TornCheckpoint",
    "TrainingError",
    "session",
]

DIRECTORY_VARIABLE: Final = "GPUFLEET_CHECKPOINT_DIR"
REQUEST_VARIABLE: Final = "GPUFLEET_REQUEST_FILE"
TERMINATION_VARIABLE: Final = "GPUFLEET_TERMINATION_LOG"
DEFAULT_REQUEST_FILE: Final = "/etc/gpufleet/checkpoint-request"
DEFAULT_TERMINATION_LOG: Final = "/dev/termination-log"


def session(
    directory: str | os.PathLike[str] | None = None,
    *,
    every_seconds: float | None = 600.0,
    every_steps: int | None = None,
    keep_last: int = 3,
    keep_every: int | None = None,
    ranks: Ranks = ALONE,
    agree_every: int = 1,
    remote: Remote | None = None,
    hook_port: int | None = None,
    metrics_file: str | os.PathLike[str] | None = None,
) -> Session:
    """A session over the checkpoints in `directory`; without it, in that of GPUFLEET_CHECKPOINT_DIR.

    Args:
        directory: a path, or a file:// URL.
        every_seconds: save when so much time has passed since the last save; None: never for that reason.
        every_steps: save when so many steps were done since the last save.
        keep_last: how many checkpoints stay; at least 2.
        keep_every: checkpoints whose step is a multiple of it stay for good.
        ranks: this process's place among those that train together, e.g. `distributed.torch_ranks()`.
        agree_every: after how many steps ranks agree whether to save; more is cheaper and answers later.
        remote: an object store that each checkpoint is sent to before it counts as saved.
        hook_port: listen there for requests (0: any free port); on a node's first rank only.
        metrics_file: keep progress there, in Prometheus' text format.
    """
    environment = os.environ
    termination_log = Path(environment.get(TERMINATION_VARIABLE) or DEFAULT_TERMINATION_LOG)
    options = Options(
        every_seconds=every_seconds,
        every_steps=every_steps,
        agree_every=agree_every,
        request_file=Path(environment.get(REQUEST_VARIABLE) or DEFAULT_REQUEST_FILE),
        termination_log=termination_log if termination_log.exists() else None,
        metrics_file=None if metrics_file is None else Path(metrics_file),
        hook_port=hook_port if environment.get("LOCAL_RANK", "0") == "0" else None,
    )
    checkpoints = Checkpoints(_directory(directory), Retention(keep_last, keep_every))
    return Session(checkpoints, options, ranks, remote)


def _directory(given: str | os.PathLike[str] | None) -> Path:
    value = os.fspath(given) if given is not None else os.environ.get(DIRECTORY_VARIABLE, "")
    if not value:
        raise StoreUnusable(f"no checkpoint directory: pass one to session(), or set {DIRECTORY_VARIABLE}")
    if "://" not in value:
        return Path(value)
    if not value.startswith("file:///"):
        raise StoreUnusable(
            f"{value!r} is no directory: a path or a file:/// URL; for an object store give a local directory, and "
            "remote=Remote(bucket) (docs/checkpointing.md)"
        )
    from urllib.parse import unquote

    return Path(unquote(value.removeprefix("file://")))
