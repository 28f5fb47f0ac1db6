"""What an eviction cost a job: one entry of the ledger for each time that a job was stopped because its nodes went.

A loss is work, not money: the machines are charged by openings and closings, whatever became of the work. It is named
by the Workload's UID and its number, both of which stand on the Workload before it is recorded, so a restarted agent
names it the same and cannot count it twice. This module does no I/O; runtime.cost.entries writes entries down.

Invariant: what `recordable` returns of a loss with sound names can be written and read back, whatever pods answered and
clocks said.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, replace
from typing import Final

GpuSeconds = float
"""GPUs times seconds of fleet time: more than a moment in time can be."""

MOST_NODES: Final = 5_000
"""As many as Kubernetes supports in one cluster."""

LONGEST_TEXT: Final = 1_024
"""Characters; no name in Kubernetes is longer than 253, and keys of object stores have about so many."""

MOST_STEP: Final = 2**63 - 1
"""Steps of a training loop are counted in 64 bits."""

_UID: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,127}")
"""A UUID in a cluster; it names an object of the ledger."""
_KIND: Final = re.compile(r"[a-z][a-z0-9-]{0,62}")
_NAMED: Final = ("namespace", "job", "workload", "team", "job_class")
_TEXTS: Final = (*_NAMED, "request", "flavor", "notice", "url")


@dataclass(frozen=True, slots=True)
class LossKey:
    """Names one loss: the Workload, and the how-many-th of its losses it is."""

    workload_uid: str
    number: int


@dataclass(frozen=True, slots=True)
class Loss:
    """One job that was stopped because its nodes went; all times are fleet time.

    `request` is the id of the request to save that its pods were shown, empty where there was no time to ask; `notice`
    that of the notice, of the kind `kind`. `nodes` are those of its nodes that were under notice. `flavor` is what it
    ran on. It was told of at `noticed_at`, stopped at `stopped_at`, which is when the loss counts, and its quota and
    pods were gone at `gone_at`. `answered` says that its pods told of a checkpoint after they were asked, at `step` and
    `url`, as far as they said. `checkpoint_at` is the last checkpoint that is known, None if none is.
    `lost_gpu_seconds` is the work since then, or since its start. `number` counts the losses of the Workload, from 1.
    """

    workload_uid: str
    request: str
    namespace: str
    job: str
    workload: str
    team: str
    job_class: str
    flavor: str
    gpus: int
    kind: str
    notice: str
    nodes: tuple[str, ...]
    noticed_at: float
    stopped_at: float
    gone_at: float
    answered: bool
    step: int | None
    url: str
    checkpoint_at: float | None
    lost_gpu_seconds: GpuSeconds
    number: int

    @property
    def key(self) -> LossKey:
        """Its name in the ledger."""
        return LossKey(self.workload_uid, self.number)


def check(loss: Loss) -> Loss:
    """Return the loss if it can be one.

    Raises:
        ValueError: when a field is empty, too long or out of range; the message says what is allowed.
    """
    if not _UID.fullmatch(loss.workload_uid):
        raise ValueError(f"workload_uid must be the UID of a Workload: {_UID.pattern} (got {loss.workload_uid[:60]!r})")
    if not _KIND.fullmatch(loss.kind):
        raise ValueError(f"kind must be that of a notice, for example spot-interruption (got {loss.kind[:60]!r})")
    for name in _TEXTS:
        text = getattr(loss, name)
        if len(text) > LONGEST_TEXT or (name in _NAMED and not text):
            least = 1 if name in _NAMED else 0
            raise ValueError(f"{name} must have {least} to {LONGEST_TEXT:,} characters (got {len(text):,})")
    if len(loss.nodes) > MOST_NODES or any(not 0 < len(node) <= LONGEST_TEXT for node in loss.nodes):
        raise ValueError(f"nodes must be at most {MOST_NODES:,} names of 1 to {LONGEST_TEXT:,} characters")
    if loss.number < 1:
        raise ValueError(f"number counts from 1 (got {loss.number})")
    if loss.step is not None and loss.step > MOST_STEP:
        raise ValueError(f"step must be at most {MOST_STEP:,}")
    if not loss.noticed_at <= loss.stopped_at <= loss.gone_at:
        raise ValueError(f"noticed_at, stopped_at {loss.stopped_at} and gone_at must follow each other")
    if loss.checkpoint_at is not None and loss.checkpoint_at > loss.stopped_at:
        raise ValueError(f"checkpoint_at {loss.checkpoint_at} is after stopped_at {loss.stopped_at}")
    return loss


def recordable(loss: Loss) -> Loss:
    """The loss with its moments in order, and without a step, a URL or a checkpoint that cannot be one.

    Clocks of different machines differ by moments, and pods answer what they like; neither may keep a loss out of the
    ledger.
    """
    step, url, checkpoint_at = loss.step, loss.url, loss.checkpoint_at
    lost = loss.lost_gpu_seconds
    return replace(
        loss,
        nodes=tuple(sorted(set(loss.nodes)))[:MOST_NODES],
        noticed_at=max(0.0, min(loss.noticed_at, loss.stopped_at)),
        gone_at=max(loss.gone_at, loss.stopped_at),
        step=step if step is not None and 0 <= step <= MOST_STEP else None,
        url=url if len(url) <= LONGEST_TEXT else "",
        checkpoint_at=min(checkpoint_at, loss.stopped_at) if checkpoint_at is not None and checkpoint_at >= 0 else None,
        lost_gpu_seconds=max(0.0, lost) if math.isfinite(lost) else 0.0,
    )
