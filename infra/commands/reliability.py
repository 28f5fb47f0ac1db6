"""`gpufleet evictions`, and what `explain` says of them: how often jobs lost their nodes, and what work that cost."""

from __future__ import annotations

import asyncio
import json
import math
from collections import Counter
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Annotated

import typer

from infra.commands.cluster import Cluster, connect, read_cluster
from infra.commands.eviction_stories import Evicted, marked, row_of, runs_since, story, table
from infra.commands.ledgers import LedgerUrl, bucket_in, bucket_of, ledger_of_cluster
from infra.commands.options import ClusterStack, Json, Since
from infra.commands.topping import moment_of
from infra.local.errors import LocalError
from runtime.cost.ledger import Books
from runtime.cost.losses import Loss
from runtime.cost.periods import Period
from runtime.cost.reliability import Reliability, added_up, reliability
from runtime.errors import AgentError
from runtime.routing.snapshot import Job
from runtime.store import Bucket, history
from runtime.store.walk import History, losses_of
from stacks.suggest import did_you_mean


class NoSuchTeamError(LocalError):
    """The ledger has no job of that team."""


def evictions(
    team: Annotated[str | None, typer.Option(help="Only this team's jobs.")] = None,
    since: Since = None,
    stack: ClusterStack = "local",
    ledger: LedgerUrl = None,
    as_json: Json = False,
) -> None:
    """Show by class how often jobs were stopped before their end, what work that cost, and how they fared otherwise.

    All of it is read from the ledger. ATTEMPTS: cloud attempts that ran, and local runs that an eviction ended; PER-JOB
    is their mean. EVICTIONS: jobs stopped because their nodes went or were drained, because they were moved, or by
    Kueue's preemption, which gives no warning; ANSWERED: before which share of them the job said that it had saved.
    RESUMED: after how many it is known to have run again, in the cloud, until its next eviction, or (without --ledger)
    in the cluster now. LOST-GPU-HOURS: work since the last known checkpoint. SUCCESS: the share of jobs that succeeded,
    of those that ended in the cloud by themselves.

    Exit code: 0, also where there is nothing; 1 where cluster or ledger cannot be read, or something in it is left out.
    """
    read, found, period = asyncio.run(_found(stack, ledger, since))
    if team is not None:
        found = _of_team(team, read, found)
    losses = (loss for loss in read.losses.values() if team in (None, loss.team))
    kinds = Counter(loss.kind for loss in losses if period.start <= loss.stopped_at < period.end)
    if as_json:
        rows = [row_of(row) | {"team": of, "class": job_class} for (of, job_class), row in found.items()]
        everything = {"rows": rows, "all": row_of(added_up(found.values())), "kinds": dict(sorted(kinds.items()))}
        typer.echo(json.dumps(everything, indent=2))
    else:
        for line in table(found) if found else ():
            typer.echo(line)
        if kinds:
            typer.echo(f"evictions by kind: {', '.join(f'{kind} {count:,}' for kind, count in sorted(kinds.items()))}")
        if not found:
            typer.echo("no job ran in the cloud, and none was evicted", err=True)
    for path, reason in sorted(read.unread.items()):
        typer.echo(f"left out: {path}: {reason}", err=True)
    raise typer.Exit(1 if read.unread else 0)


async def read_evicted(cluster: Cluster, stack: str, jobs: Iterable[Job]) -> dict[str, Evicted]:
    """What is known of the evictions of those jobs that had any, by Workload UID.

    The ledger is read only if there is such a job. Where it cannot be, as by most who only submit jobs, the marker on
    the Workload has to do.
    """
    evicted = [(job, job.eviction) for job in jobs if job.eviction is not None and job.eviction.attempts]
    bucket: Bucket | None = None
    if evicted and cluster.known:
        with suppress(LocalError, AgentError):
            bucket = bucket_in(cluster, stack)
    found = {}
    for job, marker in evicted:
        losses = None if bucket is None else await _losses_of(bucket, job)
        if losses:
            found[job.uid] = Evicted(story(losses, runs_since(job)), tuple(losses))
        elif losses is None:
            found[job.uid] = Evicted(marked(marker, "the ledger, which has the rest, cannot be read from here"))
        else:
            found[job.uid] = Evicted(marked(marker, "the rest is not in the ledger yet"))
    return found


async def _losses_of(bucket: Bucket, job: Job) -> list[Loss] | None:
    try:
        return await losses_of(bucket, job.uid, job.created_at)
    except AgentError:
        return None


async def _found(
    stack: str, url: str | None, since: str | None
) -> tuple[History, dict[tuple[str, str], Reliability], Period]:
    now: float | None = None
    running: Mapping[str, float] = {}
    if url is None:
        async with connect(stack) as connection:
            cluster = await read_cluster(connection)
            running = {one.job.uid: at for one in await cluster.jobs() if (at := runs_since(one.job)) is not None}
        bucket, now = bucket_in(cluster, stack), cluster.clock.now()
    elif since is None or "-" in since:
        bucket = await bucket_of(stack, url)
    else:
        found = await ledger_of_cluster(stack, url)
        bucket, now = found.bucket, found.clock.now()
    earliest = -math.inf if since is None else moment_of(since, now, "UTC", "--since", backwards=True)
    read = await history(bucket)
    period = Period(earliest, math.inf)
    return read, reliability(_books(read), period, running), period


def _books(read: History) -> Books:
    closings = {attempt: closing for attempt, (_, closing) in read.attempts.items() if closing is not None}
    openings = {attempt: opening for attempt, (opening, _) in read.attempts.items()}
    return Books(openings, closings, read.top_ups, read.losses)


def _of_team(
    team: str, read: History, found: Mapping[tuple[str, str], Reliability]
) -> dict[tuple[str, str], Reliability]:
    teams = {opening.team for opening, _ in read.attempts.values()} | {loss.team for loss in read.losses.values()}
    if teams and team not in teams:
        raise NoSuchTeamError(f"the ledger has no job of a team {team}{did_you_mean(team, teams)}")
    return {key: row for key, row in found.items() if key[0] == team}
