"""Says what was saved, where others find it: the container's termination message, and a file of metrics.

Nothing that fails here harms a checkpoint, so it is said and otherwise ignored.
"""

from __future__ import annotations

import logging
from pathlib import Path

from .files import overwrite, replace_quickly
from .messages import Answer

log = logging.getLogger(__name__)


def tell_termination(path: Path | None, answer: Answer) -> None:
    """Leave the last checkpoint where kubelet finds it, whatever ends this process."""
    if path is not None:
        try:
            overwrite(path, answer.to_json().encode())
        except OSError as error:
            log.warning("%s: not written: %s", path, error)


def tell_metrics(path: Path | None, text: str) -> None:
    """Replace the file of metrics."""
    if path is not None:
        try:
            replace_quickly(path, text.encode())
        except OSError as error:
            log.warning("%s: not written: %s", path, error)
