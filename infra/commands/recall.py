"""`gpufleet recall`: take a job out of the cloud, back to its team's queue. For administrators.

It only writes down the wish and its reason on the Workload; the agent does the rest, step by step, and takes the note
off when it is done. Rights and the admission policies decide who may write it.
"""

from __future__ import annotations

import asyncio
import json
from typing import Annotated, Final

import typer
from rich.console import Console

from infra.commands import orders
from infra.commands.cluster import Cluster, SeenJob, connect, read_cluster
from infra.commands.options import ClusterStack, Json
from infra.commands.orders import OrderError, confirm, find_job, one_line, say
from infra.local.progress import step
from runtime.errors import Forbidden, NotFound, Rejected, Unreachable
from runtime.kube import WORKLOADS
from runtime.routing.snapshot import Stage
from stacks.labels import RECALL_ANNOTATION

_IN_CLOUD: Final = (Stage.RELEASED, Stage.AT_GATE, Stage.RUNNING_CLOUD, Stage.RECALLING)
_STEPS: Final = 2  # asked for, under way, back
_PATIENCE_SECONDS: Final = 600.0  # longer than any grace that admission allows a pod
_NOT_TAKEN_SECONDS: Final = 60.0  # the agent decides every few seconds

_WHAT_HAPPENS: Final = {
    Stage.RELEASED: "it waits for cloud GPUs; it goes back to its team's queue and keeps its age",
    Stage.AT_GATE: "it holds cloud quota at the gate; it goes back to its team's queue and keeps its age",
    Stage.RUNNING_CLOUD: (
        "it runs in the cloud: its pods are stopped, what it has not saved is lost, and it waits in its team's queue "
        "again; what it has cost stays spent"
    ),
    Stage.RECALLING: "it is on its way back already; the reason is recorded",
}


def recall(
    job: Annotated[str, typer.Argument(metavar="NAMESPACE/JOB", help="Name of the job or of its Workload.")],
    reason: Annotated[str, typer.Option("--reason", help="Why, for its users: shown on the job.")],
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask before a running job is stopped.")] = False,
    wait: Annotated[bool, typer.Option("--wait", help="Wait until the job is back in its team's queue.")] = False,
    stack: ClusterStack = "local",
    as_json: Json = False,
) -> None:
    """Take a job out of the cloud, back to its team's queue.

    A job that runs there is asked for first, as its pods are stopped. Exit code: 0, also where the job is not in the
    cloud; 1 where it cannot be recalled or does not come back; 2 for a wrong name or reason.
    """
    namespace, _, name = job.partition("/")
    if not namespace or not name or "/" in name:
        raise typer.BadParameter(f"{job!r}: write NAMESPACE/JOB, e.g. vision/train-17", param_hint="JOB")
    because = one_line(reason, needed=True)
    stage = asyncio.run(_recall(stack, namespace, name, because, yes=yes, wait=wait, quiet=as_json))
    if as_json:
        done = {"job": job, "state": stage.value, "recalled": stage in _IN_CLOUD, "reason": because, "waited": wait}
        typer.echo(json.dumps(done, indent=2))


async def _recall(stack: str, namespace: str, name: str, reason: str, *, yes: bool, wait: bool, quiet: bool) -> Stage:
    """Write the wish down; returns where the job was before."""
    async with connect(stack) as connection:
        cluster = await read_cluster(connection, namespace)
        found = await find_job(cluster, namespace, name, _rank)
        stage, what = found.job.stage, f"{namespace}/{found.job.owner_name}"
        if stage in (Stage.STOPPED, Stage.FINISHED):
            raise OrderError(f"{what} {'has ended' if stage is Stage.FINISHED else 'was stopped by somebody else'}")
        if stage not in _IN_CLOUD:
            say(f"{what} is not in the cloud ({stage.value}); there is nothing to recall", quiet)
            return stage
        say(f"{what}: {_WHAT_HAPPENS[stage]}", quiet)
        if stage is Stage.RUNNING_CLOUD and not yes:
            confirm(f"stop {what}?", f"{what} runs; add --yes to stop it without being asked")
        await _write(cluster, found, reason)
        say(f"{what}: recall asked for; the agent begins at its next look", quiet)
        if wait:
            await _wait(cluster, found)
        return stage


def _rank(seen: SeenJob) -> tuple[bool, bool]:
    """One that has not ended, and is in the cloud, first."""
    return seen.job.stage is Stage.FINISHED, seen.job.stage not in _IN_CLOUD


async def _write(cluster: Cluster, found: SeenJob, reason: str) -> None:
    job = found.job
    body = {"metadata": {"annotations": {RECALL_ANNOTATION: reason}}}
    try:
        await cluster.kube.merge(WORKLOADS, job.namespace, job.name, body)
    except (Forbidden, Rejected) as error:
        raise OrderError(
            f"you may not recall {job.namespace}/{job.owner_name}: {error}; it takes an administrator, with the right "
            "to patch workloads.kueue.x-k8s.io"
        ) from None
    except NotFound:
        raise OrderError(f"{job.namespace}/{job.owner_name} is gone") from None


async def _wait(cluster: Cluster, found: SeenJob) -> None:
    """Wait until the agent has taken the note off: the job is in its team's queue then, or gone."""
    what = f"{found.job.namespace}/{found.job.owner_name}"
    clock = asyncio.get_running_loop().time
    began = clock()
    with step(Console(stderr=True), f"recall {what}") as progress:
        while (stage := await _stage_on_the_way(cluster, found)) is not None:
            waited = clock() - began
            begun = stage is Stage.RECALLING
            if waited > (_PATIENCE_SECONDS if begun else _NOT_TAKEN_SECONDS):
                raise OrderError(
                    f"{what} is still {stage.value} after {waited:.0f} s; does the agent run (gpufleet explain {what})?"
                )
            progress.update(1 if begun else 0, _STEPS, stage.value)
            await asyncio.sleep(orders.POLL_SECONDS)
        progress.update(_STEPS, _STEPS)


async def _stage_on_the_way(cluster: Cluster, found: SeenJob) -> Stage | None:
    """Where the job is while its recall is not over."""
    try:
        raw = await cluster.kube.get(WORKLOADS, found.job.name, found.job.namespace)
    except NotFound:
        return None
    except Unreachable:
        return Stage.RECALLING
    seen = cluster.read(raw)
    if seen is None or seen.job.uid != found.job.uid or seen.job.stage in (Stage.FINISHED, Stage.STOPPED):
        return None
    noted = RECALL_ANNOTATION in (raw["metadata"].get("annotations") or {})
    return seen.job.stage if noted or seen.job.stage is Stage.RECALLING else None
