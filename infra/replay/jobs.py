"""Turns a job of a trace into the Job that its owner would submit, with a simulated life.

It writes nothing that a user could not: no burst toleration, no flavor selector, no burst queue. What the cluster
enforces or plays in real time (longest run, simulated run) is divided by the speed; what the agent reads (expected run
time) stays in fleet time.

Invariants: the GPUs over all pods are exactly those of the trace; no pod asks for more than one node of any pool has.
"""

from __future__ import annotations

import math
from datetime import timedelta
from typing import Any, Final

from infra.replay.errors import SubmitError
from infra.replay.trace import TraceJob
from stacks.fleet import Fleet
from stacks.labels import (
    EXPECTED_RUNTIME_ANNOTATION,
    GPU_RESOURCE,
    MAX_EXEC_LABEL,
    PREFIX,
    PRIORITY_CLASS_LABEL,
    QUEUE_LABEL,
    window_queue,
)
from stacks.quantities import format_duration, parse_kube_name

REPLAY_LABEL: Final = f"{PREFIX}/replay"
"""Label of every Job of a replay: the replay's id."""

RUN_SECONDS_ANNOTATION: Final = f"{PREFIX}/sim-run-seconds"
"""Pod annotation that a simulated node obeys: real seconds until the pod ends."""

START_DELAY_ANNOTATION: Final = f"{PREFIX}/sim-start-delay"
"""Pod annotation that a simulated node obeys: real time from binding to Running."""

LONGEST_RUN_ID: Final = 16
"""Characters; with the trace's own names, the names of pods stay within Kubernetes' 63."""

# Beside each GPU; small, so that GPUs are what runs out on every node type.
_CPUS_PER_GPU: Final = 1
_MEMORY_GIB_PER_GPU: Final = 4

_IMAGE: Final = "registry.k8s.io/pause:3.10"  # never pulled on simulated nodes, harmless on real ones


def check_run_id(run_id: str) -> str:
    """Return the id of a replay if Kubernetes names can end with it.

    Raises:
        SubmitError: when they cannot.
    """
    try:
        parse_kube_name(run_id)
    except ValueError as error:
        raise SubmitError(f"run id {run_id!r}: {error}") from None
    if len(run_id) > LONGEST_RUN_ID:
        raise SubmitError(f"run id {run_id!r}: has {len(run_id)} characters; use at most {LONGEST_RUN_ID}")
    return run_id


def job_manifest(
    trace_job: TraceJob, fleet: Fleet, speed: float, *, run_id: str, start_delay: timedelta = timedelta(0)
) -> dict[str, Any]:
    """The batch/v1 Job of a job of the trace, suspended, in its team's queue, or in that of its class's window.

    Args:
        trace_job: The job; its team and class are names of the fleet.
        fleet: Where it goes.
        speed: Seconds of fleet time in each real second.
        run_id: The replay's id; ends the job's name, so that a repeated submission meets the same job.
        start_delay: Fleet time between binding and Running on a simulated node.
    """
    pods, gpus_per_pod = _pods(trace_job.gpus, fleet)
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "name": f"{trace_job.name}-{run_id}",
            "namespace": fleet.teams[trace_job.team].namespace or trace_job.team,
            "labels": {
                QUEUE_LABEL: _queue(trace_job, fleet),
                PRIORITY_CLASS_LABEL: trace_job.job_class.lower(),
                MAX_EXEC_LABEL: str(max(1, math.ceil(trace_job.max_seconds / speed))),
                REPLAY_LABEL: run_id,
            },
        },
        "spec": {
            "suspend": True,
            "parallelism": pods,
            "completions": pods,
            "completionMode": "Indexed",
            "backoffLimit": 0,
            "template": {
                "metadata": {"annotations": _annotations(trace_job, speed, start_delay)},
                "spec": {"restartPolicy": "Never", "containers": [_container(gpus_per_pod)]},
            },
        },
    }


def _queue(trace_job: TraceJob, fleet: Fleet) -> str:
    windowed = fleet.classes[trace_job.job_class].window is not None
    return window_queue(trace_job.team, trace_job.job_class) if windowed else trace_job.team


def _pods(gpus: int, fleet: Fleet) -> tuple[int, int]:
    """The fewest equal pods that fit the smallest node, and the GPUs of each."""
    node = min(pool.gpus_per_node for pool in fleet.pools.values())
    pods = next(count for count in range(math.ceil(gpus / node), gpus + 1) if gpus % count == 0)
    return pods, gpus // pods


def _annotations(trace_job: TraceJob, speed: float, start_delay: timedelta) -> dict[str, str]:
    annotations = {RUN_SECONDS_ANNOTATION: _decimal(trace_job.run_seconds / speed)}
    if start_delay:
        annotations[START_DELAY_ANNOTATION] = f"{_decimal(start_delay.total_seconds() / speed)}s"
    if trace_job.expected_seconds is not None:
        annotations[EXPECTED_RUNTIME_ANNOTATION] = format_duration(timedelta(seconds=trace_job.expected_seconds))
    return annotations


def _container(gpus: int) -> dict[str, Any]:
    requests = {"cpu": str(gpus * _CPUS_PER_GPU), "memory": f"{gpus * _MEMORY_GIB_PER_GPU}Gi", GPU_RESOURCE: str(gpus)}
    return {
        "name": "train",
        "image": _IMAGE,
        "resources": {"requests": requests, "limits": {GPU_RESOURCE: str(gpus)}},
    }


def _decimal(seconds: float) -> str:
    """Seconds with milliseconds where needed, never in exponent form and never zero."""
    return f"{max(seconds, 0.001):.3f}".rstrip("0").rstrip(".")
