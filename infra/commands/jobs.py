"""`gpufleet queue`, `explain` and `submit`: who waits and why, and a simulated job to try it with."""

from __future__ import annotations

import asyncio
import json
import secrets
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from infra.commands.cluster import Cluster, NotDeployedError, SeenJob, connect, read_cluster
from infra.commands.project import checkout, stack_file
from infra.local.errors import KubeError
from infra.local.kubeclient import KubeClient
from infra.local.state import State
from infra.replay.cells import default_max
from infra.replay.jobs import job_manifest
from infra.replay.trace import TraceJob
from runtime.routing.explain import sentence, verdict_from_json
from runtime.routing.snapshot import Job, Stage
from stacks.labels import VERDICT_ANNOTATION
from stacks.load import load_file
from stacks.quantities import format_duration, parse_duration

Stack = Annotated[str, typer.Option(help="Embedded stack to use where KUBECONFIG is not set.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON for a program to read.")]
Namespace = Annotated[str | None, typer.Option("--namespace", "-n", help="Only this namespace. Default: all.")]

_WAITING = (Stage.QUEUED, Stage.RELEASED, Stage.AT_GATE, Stage.RECALLING)


def queue(namespace: Namespace = None, stack: Stack = "local", as_json: Json = False) -> None:
    """List the jobs that wait or run: place, wait, where, and why."""
    cluster, seen = asyncio.run(_jobs(stack, namespace))
    places = _places(seen)
    rows = [_row(one, cluster, places) for one in sorted(seen, key=_order) if one.job.stage is not Stage.FINISHED]
    if as_json:
        typer.echo(json.dumps(rows, indent=2))
        return
    table = Table("job", "class", "GPUs", "place", "waited", "state", "flavor", "why")
    for row in rows:
        waited = format_duration(timedelta(seconds=row["waited_seconds"]))
        place, flavor = str(row["place"] or ""), row["flavor"] or ""
        table.add_row(row["job"], row["class"], str(row["gpus"]), place, waited, row["state"], flavor, row["why"])
    Console().print(table if rows else "no job waits or runs")


def explain(
    job: Annotated[str, typer.Argument(help="Name of the Job, or of its Workload.")],
    namespace: Namespace = None,
    stack: Stack = "local",
    as_json: Json = False,
) -> None:
    """Say why a job is where it is, from the decision the agent recorded on it."""
    cluster, seen = asyncio.run(_jobs(stack, namespace))
    found = [one for one in seen if job in (one.job.owner_name, one.job.name)]
    if not found:
        where = f"namespace {namespace}" if namespace else "any team's namespace"
        raise NotDeployedError(f"no job {job} in {where}; `gpufleet queue` lists those there are")
    stories = [_story(one, cluster, _places(seen)) for one in found]
    if as_json:
        typer.echo(json.dumps(stories, indent=2))
        return
    for story in stories:
        typer.echo("\n".join(_told(story)))


def submit(
    team: Annotated[str, typer.Option(help="Team of the fleet file; its queue gets the job.")],
    gpus: Annotated[int, typer.Option(min=1, max=1_024, help="GPUs the job asks for.")] = 1,
    run: Annotated[str, typer.Option(help="How long it runs, in fleet time, e.g. 20m.")] = "20m",
    longest: Annotated[str | None, typer.Option("--max", help="When it is stopped. Default: from --run.")] = None,
    job_class: Annotated[
        str | None, typer.Option("--class", help="Class of the fleet file. Default: its default.")
    ] = None,
    name: Annotated[str, typer.Option(help="Name of the job; a short suffix is added.")] = "job",
    stack: Stack = "local",
) -> None:
    """Submit one simulated job to the embedded stack."""
    fleet = load_file(stack_file(stack), display=f"stacks/Pulumi.{stack}.yaml")
    if team not in fleet.teams:
        raise typer.BadParameter(f"no team {team}; teams: {', '.join(fleet.teams)}", param_hint="--team")
    classes = {known.lower(): known for known in fleet.classes}
    chosen = classes.get(job_class.lower()) if job_class else next(k for k, c in fleet.classes.items() if c.default)
    if chosen is None:
        raise typer.BadParameter(f"no class {job_class}; classes: {', '.join(fleet.classes)}", param_hint="--class")
    seconds = _seconds(run, "--run")
    job = TraceJob(
        name=name,
        team=team,
        job_class=chosen,
        gpus=gpus,
        submit_seconds=0,
        run_seconds=seconds,
        expected_seconds=seconds,
        max_seconds=_seconds(longest, "--max") if longest else default_max(seconds, seconds),
    )
    manifest = job_manifest(job, fleet, fleet.agent.replay_speed, run_id=secrets.token_hex(3))
    kubeconfig = State.open(checkout(), stack).kubeconfig
    try:
        with KubeClient(kubeconfig) as client:
            created = client.create(manifest)
    except KubeError as error:
        raise NotDeployedError(f"the job was not accepted: {error}; does the stack run (make up)?") from None
    metadata = created["metadata"]
    typer.echo(f"submitted {metadata['namespace']}/{metadata['name']}")
    typer.echo(f"  gpufleet explain {metadata['name']} -n {metadata['namespace']}")


def _seconds(text: str, option: str) -> float:
    try:
        seconds = parse_duration(text).total_seconds()
    except ValueError as error:
        raise typer.BadParameter(f"{text!r}: {error}", param_hint=option) from None
    if seconds <= 0:
        raise typer.BadParameter(f"{text!r}: must be longer than 0s", param_hint=option)
    return seconds


async def _jobs(stack: str, namespace: str | None) -> tuple[Cluster, list[SeenJob]]:
    async with connect(stack) as connection:
        cluster = await read_cluster(connection)
        return cluster, await cluster.jobs(namespace)


def _order(seen: SeenJob) -> tuple[str, bool, int, float]:
    job = seen.job
    return job.team, job.stage not in _WAITING, -job.priority, job.created_at


def _places(seen: list[SeenJob]) -> dict[str, int]:
    """Place of every waiting job among its team's, by priority and age: the order in which Kueue tries them."""
    places: dict[str, int] = {}
    counts: dict[str, int] = {}
    for one in sorted(seen, key=_order):
        if one.job.stage in _WAITING:
            counts[one.job.team] = places[one.job.uid] = counts.get(one.job.team, 0) + 1
    return places


def _row(seen: SeenJob, cluster: Cluster, places: dict[str, int]) -> dict[str, Any]:
    job = seen.job
    return {
        "job": f"{job.namespace}/{job.owner_name}",
        "team": job.team,
        "class": job.job_class,
        "gpus": job.gpus,
        "place": places.get(job.uid),
        "waited_seconds": round(_waited(job, cluster)),
        "state": job.stage.value,
        "flavor": job.flavor,
        "why": _why(seen, cluster),
    }


def _waited(job: Job, cluster: Cluster) -> float:
    """Seconds of fleet time from its creation to its last reservation, or to now."""
    until = job.reserved_at if job.reserved_at is not None else cluster.clock.now()
    return max(0.0, until - job.created_at)


def _why(seen: SeenJob, cluster: Cluster) -> str:
    job = seen.job
    if job.stage is Stage.RUNNING_LOCAL:
        return "runs on local GPUs"
    if job.stage is Stage.STOPPED:
        return "was deactivated by somebody else than gpufleet"
    checks = (seen.workload.get("status") or {}).get("admissionChecks") or []
    answer = next((check.get("message") for check in checks if check.get("name") == cluster.config.gate), None)
    if job.stage in (Stage.AT_GATE, Stage.RUNNING_CLOUD) and answer:
        return str(answer)
    recorded = verdict_from_json(seen.workload["metadata"].get("annotations", {}).get(VERDICT_ANNOTATION))
    return sentence(recorded.verdict) if recorded else "no decision recorded yet; the agent decides at its next look"


def _story(seen: SeenJob, cluster: Cluster, places: dict[str, int]) -> dict[str, Any]:
    recorded = verdict_from_json(seen.workload["metadata"].get("annotations", {}).get(VERDICT_ANNOTATION))
    return {
        **_row(seen, cluster, places),
        "workload": f"{seen.job.namespace}/{seen.job.name}",
        "priority": seen.job.priority,
        "created": _moment(seen.job.created_at),
        "verdict": recorded.verdict.code.value if recorded else None,
        "decision": recorded.decision_id if recorded else None,
        "decided": _moment(recorded.at) if recorded else None,
        "facts": dict(recorded.verdict.facts) if recorded else {},
    }


def _told(story: dict[str, Any]) -> list[str]:
    place = f", place {story['place']} in its team's queue" if story["place"] else ""
    flavor = f" on {story['flavor']}" if story["flavor"] else ""
    job_class = f"class {story['class']} (priority {story['priority']})"
    lines = [
        f"{story['job']}: {story['gpus']} GPUs, {job_class}, team {story['team']}",
        f"  state     {story['state']}{flavor}{place}",
        f"  waited    {format_duration(timedelta(seconds=story['waited_seconds']))} since {story['created']}",
        f"  why       {story['why']}",
    ]
    if story["decision"]:
        namespace, workload = story["workload"].split("/")
    return [*lines, f"  check     kubectl get workload -n {namespace} {workload} -o yaml"]


def _moment(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M:%S fleet time")
