"""A loss for tests, complete and ordinary, so that a test names only what it is about."""

from __future__ import annotations

from typing import Any

from runtime.cost.losses import Loss
from tests.builders import NOON, SPOT


def a_loss(uid: str = "job-1", number: int = 1, **changes: Any) -> Loss:
    """A spot interruption of one node: asked and answered within 41 seconds, a minute lost on each of three GPUs."""
    stopped_at = changes.pop("stopped_at", NOON)
    values: dict[str, Any] = {
        "workload_uid": uid,
        "request": f"spot-interruption-{number}",
        "namespace": "vision",
        "job": uid,
        "workload": f"job-{uid}",
        "team": "vision",
        "job_class": "p1",
        "flavor": SPOT,
        "gpus": 3,
        "kind": "spot-interruption",
        "notice": "spot-i-1",
        "nodes": ("n1",),
        "noticed_at": stopped_at - 101,
        "stopped_at": stopped_at,
        "gone_at": stopped_at + 20,
        "answered": True,
        "step": 1_200,
        "url": "s3://bucket/train/step-1200",
        "checkpoint_at": stopped_at - 60,
        "lost_gpu_seconds": 180.0,
        "number": number,
    }
    return Loss(**(values | changes))
