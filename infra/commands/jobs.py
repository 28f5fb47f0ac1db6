"""`gpufleet queue` and `explain`: who waits, who runs, and why."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from datetime import timedelta
from typing import Annotated, Any

import typer

from infra.commands.cluster import Cluster, SeenJob, connect, read_cluster
from infra.commands.columns import columns, note
from infra.commands.options import ClusterStack, Json
from infra.commands.stories import rows, stories
from infra.local.errors import LocalError
from runtime.routing.snapshot import Stage
from stacks.quantities import format_duration
from stacks.suggest import did_you_mean

Namespace = Annotated[str | None, typer.Option("--namespace", "-n", help="Only this namespace. Default: all teams'.")]
Wide = Annotated[bool, typer.Option("--wide", help="Each job on one line, with its flavor and the reason.")]


_TOLD_INDENT = 12  # where the texts of `explain` begin


class NoSuchJobError(LocalError):
    """No job of that name is the fleet's."""


def queue(
    namespace: Namespace = None, wide: Wide = False, stack: ClusterStack = "local", as_json: Json = False
) -> None:
    """List the jobs that wait or run: place in the team's queue, wait in fleet time, state, and why.

    Exit code: 0, also where no job waits; 1 where the cluster cannot be read.
    """
    cluster, seen = asyncio.run(_jobs(stack, namespace))
    found = rows(seen, cluster)
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


def explain(
    job: Annotated[str, typer.Argument(help="Name of the Job or of its Workload, or NAMESPACE/NAME.")],
    namespace: Namespace = None,
    stack: ClusterStack = "local",
    as_json: Json = False,
) -> None:
    """Say why a job is where it is, from the decision that the agent recorded on it.

    Exit code: 0; 1 where there is no such job or the cluster cannot be read.
    """
    name = job
    if namespace is None and "/" in job:
        namespace, _, name = job.partition("/")
    cluster, seen = asyncio.run(_jobs(stack, namespace))
    found = [one for one in seen if name in (one.job.owner_name, one.job.name)]
    if not found:
        raise _no_such_job(name, namespace, cluster, seen)
    told = stories(found, seen, cluster)
    if as_json:
        typer.echo(json.dumps(told, indent=2))
        return
    typer.echo("\n\n".join("\n".join(_told(story)) for story in told))


def table(found: Sequence[dict[str, Any]], *, wide: bool) -> list[str]:
    """The lines of `queue`; the reason stands below its job, or at the end of its line."""
    heading = ["JOB", "CLASS", "GPUS", "PLACE", "WAITED", "STATE", *(["FLAVOR", "WHY"] if wide else [])]
    cells = [
        [row["job"], row["class"], row["gpus"], row["place"], _waited(row), row["state"]]
        + ([row["flavor"], row["why"]] if wide else [])
        for row in found
    ]
    first, *lines = columns(heading, cells)
    if wide:
        return [first, *lines]
    return [first, *(line for text, row in zip(lines, found, strict=True) for line in (text, *note(row["why"])))]


def _no_such_job(name: str, namespace: str | None, cluster: Cluster, seen: Sequence[SeenJob]) -> NoSuchJobError:
    namespaces = {team.namespace for team in cluster.config.teams.values()}
    if namespace is not None and namespace not in namespaces:
        return NoSuchJobError(f"namespace {namespace} is no team's{did_you_mean(namespace, namespaces)}")
    where = f"namespace {namespace}" if namespace else "any team's namespace"
    near = did_you_mean(name, {one.job.owner_name for one in seen})
    return NoSuchJobError(f"no job {name} in {where}{near if seen else '; there is none at all'}")


async def _jobs(stack: str, namespace: str | None) -> tuple[Cluster, list[SeenJob]]:
    async with connect(stack) as connection:
        cluster = await read_cluster(connection)
        return cluster, await cluster.jobs(namespace)


def _waited(row: dict[str, Any]) -> str:
    return format_duration(timedelta(seconds=row["waited_seconds"]))


def _told(story: dict[str, Any]) -> list[str]:
    place = f", place {story['place']} in its team's queue" if story["place"] else ""
    flavor = f" on {story['flavor']}" if story["flavor"] else ""
    gpus = f"{story['gpus']} GPU{'' if story['gpus'] == 1 else 's'}"
    first, *more = note(story["why"], _TOLD_INDENT)
    lines = [
        f"{story['job']}: {gpus}, class {story['class']} (priority {story['priority']}), team {story['team']}",
        f"  state     {story['state']}{flavor}{place}",
        f"  waited    {_waited(story)} of fleet time, created {story['created']}",
        f"  why       {first.strip()}",
        *more,
    ]
    if story["decision"]:
        lines.append(f"  decision  {story['decision']} ({story['verdict']}) at {story['decided']}")
    namespace, workload = story["workload"].split("/")
    return [*lines, f"  check     kubectl get workload -n {namespace} {workload} -o yaml"]
