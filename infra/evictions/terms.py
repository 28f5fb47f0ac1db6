"""What is assumed of jobs, nodes and notices in a replay of evictions; each figure of a report rests on these."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields

from infra.replay.errors import TraceError


@dataclass(frozen=True, slots=True)
class ReplayTerms:
    """All jobs are alike: each fills `nodes_per_job` nodes, and there is always one more waiting for nodes."""

    nodes_per_job: int = 1
    gpus_per_node: int = 1

    notice_seconds: float = 120.0
    """Between the notice and the end of the machine: what AWS gives."""

    checkpoint_every_seconds: float = 1_800.0
    """Of training between two checkpoints that nobody asked for."""

    save_seconds: float = 60.0
    """During one checkpoint nothing is trained."""

    restart_seconds: float = 120.0
    """From having nodes to the first step: containers start, and the checkpoint is loaded."""

    grace_seconds: float = 30.0
    """Between SIGTERM and SIGKILL; 30 s is the default of Kubernetes."""

    tell_seconds: float = 2.0
    """From the agent's request until the job begins to save."""

    stop_seconds: float = 1.0
    """From the agent's stop until pods have SIGTERM: Kueue suspends the job, whose controller deletes the pods."""

    unreachable_seconds: float = 110.0
    """Until pods of a node that went without a word are replaced, where a cloud controller deletes the Node: 50 s until
    Kubernetes ≥ 1.32 counts it as unreachable, and 40 s and up to 20 s more until the pod collector takes its pods."""

    def __post_init__(self) -> None:
        """Refuse what cannot be simulated.

        Raises:
            TraceError: a value is out of range.
        """
        for field in fields(self):
            value = getattr(self, field.name)
            least = 1 if field.name in ("nodes_per_job", "gpus_per_node", "checkpoint_every_seconds") else 0
            if not math.isfinite(value) or value < least:
                name = field.name.removesuffix("_seconds").replace("_", " ")
                raise TraceError(f"{name}: must be at least {least} (got {value:g})")
