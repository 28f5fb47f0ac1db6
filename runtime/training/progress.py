"""What a session has done, as text in Prometheus' format: served by the hook, and written to a file for others to read.

The file says when the last checkpoint was made, not how old it is, because it gets no younger while nobody writes it:
`time() - gpufleet_training_checkpoint_timestamp_seconds` is its age. Over HTTP the age is there as well.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

_PREFIX = "gpufleet_training_"
_HELP = {
    "step": ("gauge", "Steps done."),
    "checkpoint_step": ("gauge", "Step of the last complete checkpoint."),
    "checkpoint_timestamp_seconds": ("gauge", "When the last complete checkpoint was made, by this machine's clock."),
    "checkpoint_bytes": ("gauge", "Size of the last complete checkpoint."),
    "checkpoint_linked_bytes": ("gauge", "How much of it had not changed and was not written again."),
    "save_seconds": ("gauge", "What the last save took."),
    "save_seconds_total": ("counter", "What all saves took."),
    "saves_total": ("counter", "Saves that made a checkpoint."),
    "save_failures_total": ("counter", "Saves that came to nothing."),
    "resume_seconds": ("gauge", "What finding, verifying and loading took when this attempt started."),
    "resumed_step": ("gauge", "Step this attempt went on from; 0 from the beginning."),
    "checkpoint_age_seconds": ("gauge", "Time since the last complete checkpoint, or since the start."),
}


@dataclass(slots=True)
class Progress:
    """Counts of one session. Ages are by the monotonic clock: setting the machine's clock does not change them."""

    step: int = 0
    checkpoint_step: int | None = None
    checkpoint_timestamp_seconds: float | None = None
    checkpoint_bytes: int | None = None
    checkpoint_linked_bytes: int | None = None
    save_seconds: float | None = None
    save_seconds_total: float = 0.0
    saves_total: int = 0
    save_failures_total: int = 0
    resume_seconds: float | None = None
    resumed_step: int = 0

    def text(self, age: float | None = None) -> str:
        """All that is known; what is not known yet is left out."""
        values: dict[str, float | None] = {name: getattr(self, name, None) for name in _HELP}
        values["checkpoint_age_seconds"] = age
        return "".join(
            f"# HELP {_PREFIX}{name} {text}\n# TYPE {_PREFIX}{name} {kind}\n{_PREFIX}{name} {values[name]!r}\n"
            for name, (kind, text) in _HELP.items()
            if values[name] is not None
        )

    def saved(self, step: int, size: int, linked: int, seconds: float) -> None:
        """A save made a checkpoint."""
        self.checkpoint_step = step
        self.checkpoint_timestamp_seconds = time.time()
        self.checkpoint_bytes = size
        self.checkpoint_linked_bytes = linked
        self.save_seconds = seconds
        self.save_seconds_total += seconds
        self.saves_total += 1
