"""Replays a trace against a cluster of simulated nodes: submits, watches, waits for the end, and proves what happened.

It changes nothing but the Jobs it creates, and deletes none of them: what ran stays there to be looked at. Interrupted,
it says what it leaves behind and how to remove it.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Iterable
from datetime import timedelta
from pathlib import Path
from typing import Final

from rich.console import Console

from infra.local.errors import KubeError
from infra.replay.audit import AuditReport, read_audit
from infra.replay.books import LedgerReader
from infra.replay.client import Client
from infra.replay.errors import EvidenceError, SubmitError, first_error
from infra.replay.follow import Follower
from infra.replay.histories import histories_of
from infra.replay.jobs import REPLAY_LABEL, check_run_id, job_manifest
from infra.replay.live import LiveTable
from infra.replay.submit import new_report, submit
from infra.replay.summary import Evidence, Summary
from infra.replay.tally import summary_of
from infra.replay.trace import TraceJob
from runtime.clock import Clock, parse_time
from stacks.flavors import flavors_of_pools
from stacks.fleet import Fleet
from stacks.labels import FLAVOR_LABEL, SYSTEM_NAMESPACE

_RUN_ID_BYTES: Final = 3


async def replay(
    client: Client,
    fleet: Fleet,
    jobs: Iterable[TraceJob],
    *,
    audit_log: Path,
    ledger: Path,
    speed: float,
    console: Console,
    run_id: str | None = None,
    start_delay: timedelta = timedelta(0),
    drain: timedelta | None = None,
) -> Summary:
    """Replay a trace and return what happened.

    Args:
        client: The cluster.
        fleet: The stack that was deployed there.
        jobs: The trace, in the order of arrival.
        audit_log: The API server's audit log.
        ledger: Directory of the agent's ledger.
        speed: Seconds of fleet time in each real second; the agent must have been told the same.
        console: Where the progress is shown.
        run_id: Ends the names of the jobs; give an earlier one to complete that replay. Default: a fresh one.
        start_delay: Fleet time that a simulated pod takes from binding to Running.
        drain: Real time to wait for the end after the last submission. Default: until all ended or nothing moves.

    Raises:
        ReplayError: when the trace, the API server, the audit log or the ledger cannot be used.
    """
    run_id = check_run_id(run_id or f"r{secrets.token_hex(_RUN_ID_BYTES)}")
    clock = Clock(await _origin(client), speed)
    report, books = new_report(speed), LedgerReader(ledger)
    books.read()  # an unreadable ledger is better known before than after
    submission = submit(
        client,
        jobs,
        lambda job: job_manifest(job, fleet, speed, run_id=run_id, start_delay=start_delay),
        speed,
        report,
    )
    with LiveTable(console, f"replay {run_id}") as table:
        follower = Follower(client, fleet, clock, run_id, report, books, table)
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(submission)
                notes = await follower.follow(drain)
        except asyncio.CancelledError:
            console.print(f"\n{left_behind(report.in_cluster, run_id)}", soft_wrap=True)
            raise
        except BaseExceptionGroup as group:
            raise first_error(group) from None
    ended_at = time.time()
    audit = AuditReport()
    histories = await asyncio.to_thread(lambda: histories_of(read_audit(audit_log, audit), fleet))
    files = books.read()
    return summary_of(
        run_id=run_id,
        fleet=fleet,
        clock=clock,
        started_at=report.started_at,
        ended_at=ended_at,
        histories=histories,
        ledger=files,
        cloud_nodes=await _cloud_nodes(client, fleet),
        evidence=Evidence(str(audit_log), audit.lines, audit.unreadable, str(ledger), files.unreadable),
        notes=[*report.lines(), *notes],
        told=follower.told,
    )


def left_behind(count: int, run_id: str) -> str:
    """What an interrupted replay says."""
    return (
        f"Interrupted. {count} jobs of replay {run_id} stay in the cluster and go on; "
        f"remove them with: kubectl delete jobs -A -l {REPLAY_LABEL}={run_id}"
    )


async def _origin(client: Client) -> float:
    """The origin of fleet time, from which the agent counts too: when its namespace was created."""
    try:
        namespaces = await client.list("v1", "Namespace")
    except KubeError as error:
        raise SubmitError(f"the API server does not answer: {error}") from error
    for namespace in namespaces:
        if namespace["metadata"]["name"] == SYSTEM_NAMESPACE:
            return parse_time(namespace["metadata"]["creationTimestamp"])
    raise SubmitError(f"the cluster has no namespace {SYSTEM_NAMESPACE}: deploy the stack first (`gpufleet up`)")


async def _cloud_nodes(client: Client, fleet: Fleet) -> dict[str, str]:
    cloud = {flavor.name for flavor in flavors_of_pools(fleet.pools).values() if flavor.cloud}
    try:
        nodes = await client.list("v1", "Node", FLAVOR_LABEL)
    except KubeError as error:
        raise EvidenceError(
            f"the nodes cannot be listed, so starts on cloud nodes cannot be checked: {error}"
        ) from error
    labels = {node["metadata"]["name"]: node["metadata"]["labels"][FLAVOR_LABEL] for node in nodes}
    return {name: flavor for name, flavor in labels.items() if flavor in cloud}
