"""Everything that the training helper raises.

TrainingError
├── StoreUnusable      the checkpoint directory cannot be used at all; said when the session starts
├── TornCheckpoint     a checkpoint is not what its manifest says, or the manifest is not one
│   └── Unreadable     it may be whole: the store did not let it be read
├── SaveFailed         one save came to nothing; what was saved before it stands
├── BadRequest         a request to save that cannot be read
└── Conflict           a conditional write of an object found another content than it expected
Stopped                SystemExit with code 143: the session was told to stop, and has saved what it could
"""

from __future__ import annotations

from typing import Final

STOPPED_EXIT_CODE: Final = 143
"""128 + SIGTERM, what a shell reports of a process that SIGTERM ended. Never 0: a Job would count as finished."""


class TrainingError(Exception):
    """Root of this package's errors."""


class StoreUnusable(TrainingError):
    """The checkpoint directory cannot be used: it is missing and cannot be made, read-only, or no directory."""


class TornCheckpoint(TrainingError):
    """A checkpoint is not what its manifest says it is, or its manifest is not one."""


class Unreadable(TornCheckpoint):
    """A checkpoint could not be read just now: no rights, or a failure of the store. It may be whole all the same."""


class SaveFailed(TrainingError):
    """One save came to nothing. No checkpoint was harmed."""


class BadRequest(TrainingError):
    """A request to save that cannot be read."""


class Conflict(TrainingError):
    """A conditional write found another content than it expected."""


class Stopped(SystemExit):
    """The session was told to stop. Let it pass: the exit code tells Kubernetes that the work is not finished."""

    def __init__(self) -> None:
        super().__init__(STOPPED_EXIT_CODE)
