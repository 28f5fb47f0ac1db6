"""`gpufleet queue` and `explain`: who waits, who runs, why, and when who waits will start."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from datetime import timedelta
from decimal import Decimal
from typing import Annotated, Any

import typer

from infra.commands.cluster import Cluster, SeenJob, connect, read_cluster
from infra.commands.columns import columns, note
from infra.commands.options import ClusterStack, Json
from infra.commands.outlook import Outlook, read_outlook, rough
from infra.commands.reliability import read_evicted
from infra.commands.stories import rows, stories
from infra.local.errors import LocalError
from runtime.routing.snapshot import Stage
from stacks.quantities import format_duration, format_usd
from stacks.suggest import did_you_mean

Namespace = Annotated[str | None, typer.Option("--namespace", "-n", help="Only this namespace. Default: all teams'.")]
Wide = Annotated[bool, typer.Option("--wide", help="Each job on one line, with its flavor and the reason.")]


_TOLD_INDENT = 12  # where the texts of `explain` begin
_NOW_SECONDS = 30  # a start that is nearer than this is one at any moment
_PERIODS = {"day": "today", "week": "this week", "month": "this month"}


class NoSuchJobError(LocalError):
    """No job of that name is the fleet's."""


def queue(
    namespace: Namespace = None, wide: Wide = False, stack: ClusterStack = "local", as_json: Json = False
) -> None:
    """List the jobs that wait or run: place in the team's queue, wait and expected start in fleet time, state, and why.

    With -n it reads that namespace alone, which a team's user may. Exit code: 0, also where no job waits; 1 where the
    cluster cannot be read.
    """
    cluster, seen, outlook = asyncio.run(_jobs(stack, namespace))
    found = rows(seen, cluster, outlook)
    if as_json:
        typer.echo(json.dumps(found, indent=2))
        return
    if not found:
        ended = sum(one.job.stage is Stage.FINISHED for one in seen)
        where = f" in namespace {namespace}" if namespace else ""
        typer.echo(f"no job waits or runs{where}" + (f"; {ended:,} have ended" if ended else ""), err=True)
        return
    for line in table(found, wide=wide):
        typer.echo(line)
    if outlook.places and outlook.stale:
        typer.echo(f"no expected starts: {outlook.stale}", err=True)


def explain(
    job: Annotated[str, typer.Argument(help="Name of the Job or of its Workload, or NAMESPACE/NAME.")],
    namespace: Namespace = None,
    stack: ClusterStack = "local",
    as_json: Json = False,
) -> None:
    """Say why a job is where it is, from the decision that the agent recorded on it.

    Of a job that lost its nodes it also says when, why, and what it had saved, where the ledger can be read from here.

    Exit code: 0; 1 where there is no such job or the cluster cannot be read.
    """
    name = job
    if namespace is None and "/" in job:
        namespace, _, name = job.partition("/")
    cluster, seen, outlook = asyncio.run(_jobs(stack, namespace))
    found = [one for one in seen if name in (one.job.owner_name, one.job.name)]
    if not found:
        raise _no_such_job(name, namespace, cluster, seen)
    evicted = asyncio.run(read_evicted(cluster, stack, [one.job for one in found]))
    told = stories(found, cluster, outlook, evicted)
    if as_json:
        typer.echo(json.dumps(told, indent=2))
        return
    typer.echo("\n\n".join("\n".join(_told(story)) for story in told))


def table(found: Sequence[dict[str, Any]], *, wide: bool) -> list[str]:
    """The lines of `queue`; the reason stands below its job, or at the end of its line."""
    heading = ["JOB", "CLASS", "GPUS", "PLACE", "WAITED", "STARTS", "STATE"]
    heading += ["KIND", "PROJECT", "FLAVOR", "WHY"] if wide else []
    cells = [
        [row["job"], row["class"], row["gpus"], row["place"], _waited(row), _starts(row), row["state"]]
        + ([row["kind"], row["project"], row["flavor"] or row["target"], _reason(row)] if wide else [])
        for row in found
    ]
    first, *lines = columns(heading, cells)
    if wide:
        return [first, *lines]
    return [first, *(line for text, row in zip(lines, found, strict=True) for line in (text, *note(_reason(row))))]


def _no_such_job(name: str, namespace: str | None, cluster: Cluster, seen: Sequence[SeenJob]) -> NoSuchJobError:
    namespaces = {team.namespace for team in cluster.config.teams.values()}
    if namespace is not None and namespace not in namespaces:
        return NoSuchJobError(f"namespace {namespace} is no team's{did_you_mean(namespace, namespaces)}")
    where = f"namespace {namespace}" if namespace else "any team's namespace"
    near = did_you_mean(name, {one.job.owner_name for one in seen})
    return NoSuchJobError(f"no job {name} in {where}{near if seen else '; there is none at all'}")


async def _jobs(stack: str, namespace: str | None) -> tuple[Cluster, list[SeenJob], Outlook]:
    async with connect(stack) as connection:
        cluster = await read_cluster(connection, namespace)
        seen = await cluster.jobs(namespace)
        return cluster, seen, await read_outlook(cluster, seen, namespace)


def _waited(row: dict[str, Any]) -> str:
    return format_duration(timedelta(seconds=row["waited_seconds"]))


def _starts(row: dict[str, Any]) -> str | None:
    """The expected start in a cell of a table."""
    seconds = row["starts_in_seconds"]
    if seconds is None:
        return None
    return f"~{rough(seconds)}" if seconds > _NOW_SECONDS else "now"


def _reason(row: dict[str, Any]) -> str:
    return f"{row['why']}; {row['start']}" if row["start"] else str(row["why"])


def _told(story: dict[str, Any]) -> list[str]:
    place = f", place {story['place']} in its team's queue" if story["place"] else ""
    flavor = f" on {story['flavor']}" if story["flavor"] else f" to {story['target']}" if story["target"] else ""
    gpus = f"{story['kind']}, {story['gpus']} GPU{'' if story['gpus'] == 1 else 's'}"
    project = f", project {story['project']}" if story["project"] else ""
    first, *more = note(story["why"], _TOLD_INDENT)
    lines = [
        f"{story['job']}: {gpus}, class {story['class']} (priority {story['priority']}), team {story['team']}{project}",
        f"  state     {story['state']}{flavor}{place}",
        f"  waited    {_waited(story)} of fleet time, created {story['created']}",
        f"  why       {first.strip()}",
        *more,
        *_outlook(story),
        *_evicted(story),
    ]
    if story["decision"]:
        lines.append(f"  decision  {story['decision']} ({story['verdict']}) at {story['decided']}")
    namespace, workload = story["workload"].split("/")
    return [*lines, f"  check     kubectl get workload -n {namespace} {workload} -o yaml"]


def _evicted(story: dict[str, Any]) -> list[str]:
    """How often the job lost its nodes, if it did."""
    if not story["evicted"]:
        return []
    first, *more = note(story["evicted"], _TOLD_INDENT)
    return [f"  story     {first.strip()}", *more]


def _outlook(story: dict[str, Any]) -> list[str]:
    """When the job starts, and what is left of the budgets that apply to its team, where that is known."""
    lines = []
    if story["start"]:
        age = f" (forecast {rough(story['forecast_age_seconds'] or 0)} ago)" if story["starts_at"] else ""
        lines += [f"  outlook   {story['start']}{age}"]
    elif story["place"] and story["no_forecast"]:
        lines += [f"  outlook   not known: {story['no_forecast']}"]
    for scope, left in story["left_usd"].items():
        amounts = ", ".join(
            f"{format_usd(Decimal(usd))} {_PERIODS.get(period, period)}" for period, usd in left.items()
        )
        lines += [f"  budget    {scope} has left: {amounts}"]
    return lines
