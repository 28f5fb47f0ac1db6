"""Runs a replay on the embedded stack and prints its summary; `gpufleet up` and `gpufleet replay` share it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path

from rich.console import Console

from infra.local.embedded import Embedded
from infra.local.kubeclient import KubeClient
from infra.replay import report
from infra.replay.client import ThreadedClient
from infra.replay.run import replay
from infra.replay.summary import Summary
from infra.replay.synthetic import synthetic
from infra.replay.trace import TraceJob, TraceOptions, read_trace
from stacks.fleet import Fleet

_PATIENCE = timedelta(minutes=30)  # a first look at the product takes two; who has a longer trace names its file


def trace_jobs(
    fleet: Fleet, trace: Path | None, seed: int, options: TraceOptions, console: Console
) -> Sequence[TraceJob]:
    """The jobs of a file, or the synthetic ones; says what was left out of a file.

    Raises:
        TraceError: the file cannot be read or holds no usable job.
    """
    if trace is None:
        return synthetic(fleet, seed=seed)
    return read_trace(trace, fleet, options, console=console)


def too_slow(fleet: Fleet, jobs: Sequence[TraceJob]) -> timedelta | None:
    """The real time that submitting the jobs alone would take, where nobody would wait for it."""
    last = max((job.submit_seconds for job in jobs), default=0.0)
    needed = timedelta(seconds=round(last / fleet.agent.replay_speed))
    return needed if needed > _PATIENCE else None


def run_replay(embedded: Embedded, fleet: Fleet, jobs: Sequence[TraceJob], console: Console, *, as_json: bool) -> bool:
    """Replay jobs on a deployed embedded stack and print the summary; whether every cloud start passed the gate.

    Raises:
        ReplayError: the trace, the API server, the audit log or the ledger cannot be used.
    """
    summary = asyncio.run(_replay(embedded, fleet, jobs, console))
    if as_json:
        console.print_json(json.dumps(report.to_dict(summary)))
        return summary.exact
    for line in report.lines(summary):
        console.print(line, highlight=False, markup=False, soft_wrap=True)
    return summary.exact


async def _replay(embedded: Embedded, fleet: Fleet, jobs: Sequence[TraceJob], console: Console) -> Summary:
    with KubeClient(embedded.state.kubeconfig) as kube:
        async with ThreadedClient(kube) as client:
            return await replay(
                client,
                fleet,
                jobs,
                audit_log=embedded.state.audit_log,
                ledger=embedded.ledger,
                speed=fleet.agent.replay_speed,
                console=console,
            )
