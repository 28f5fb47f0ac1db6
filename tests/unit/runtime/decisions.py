"""One decision of an ordinary fleet, and what it says of each job by its UID."""

from __future__ import annotations

from typing import Any

from runtime.routing.decide import decide
from runtime.routing.decision import Decision
from runtime.routing.snapshot import Job, Snapshot, Stage
from runtime.routing.verdict import Code
from stacks.agent_config import AgentConfig
from tests.builders import NOON, SPOT, a_config, a_job


def decided(snapshot: Snapshot, config: AgentConfig | None = None, now: float = NOON) -> Decision:
    """What is decided of the snapshot."""
    return decide(snapshot, config or a_config(), now, "d-2")


def held(decision: Decision) -> dict[str, Code]:
    """Why jobs are newly held."""
    return {hold.job.uid: hold.verdict.code for hold in decision.holds}


def running(uid: str, **changes: Any) -> Job:
    """A job that runs on spot GPUs."""
    values = {"stage": Stage.RUNNING_CLOUD, "flavor": SPOT, "attempt": 1, "reserved_at": NOON} | changes
    return a_job(uid, **values)
