"""`gpufleet drain`: empty nodes for planned work by a time, without losing what jobs computed. For administrators.

It only puts a taint on the nodes (runtime.eviction.drains). That keeps new jobs away; the agent asks the jobs there to
save, stops them in time and sends them on, as for a node that a provider takes away.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import UTC, datetime
from enum import StrEnum
from typing import Annotated, Any, Final, TypeVar

import typer
from rich.console import Console

from infra.chaos.follow import running_gpu_pods
from infra.commands import orders
from infra.commands.cluster import Cluster, connect, read_cluster
from infra.commands.options import ClusterStack, Json
from infra.commands.orders import OrderError, confirm, one_line, say, seconds_within
from infra.local.progress import step
from runtime.errors import Forbidden, KubeError, Rejected, Unreachable
from runtime.eviction import drains
from runtime.eviction.drains import Drain
from runtime.eviction.notice import NoticeKind
from runtime.kube import NODES
from stacks.kinds import LONGEST_GRACE_SECONDS
from stacks.labels import DRAIN_TAINT, FLAVOR_LABEL
from stacks.suggest import did_you_mean

LONGEST_SECONDS: Final = 604_800.0
"""A week: work that is planned for later is asked for later."""

_PATIENCE_SECONDS: Final = LONGEST_GRACE_SECONDS + 60.0  # pods that end at the last moment, and a slow kubelet

Result = TypeVar("Result")


class Work(StrEnum):
    """What nodes are drained for."""

    MAINTENANCE = NoticeKind.MAINTENANCE.value
    UPGRADE = NoticeKind.UPGRADE.value
    REPAIR = NoticeKind.REPAIR.value
    LAYOUT = NoticeKind.LAYOUT.value


def drain(
    nodes: Annotated[list[str], typer.Argument(metavar="NODE...", help="Names of nodes of the fleet.")],
    within: Annotated[
        str, typer.Option("--within", help="When they must be empty, up to 7d. Jobs run on until 10m before it.")
    ] = "10m",
    work: Annotated[Work, typer.Option("--for", help="What for.")] = Work.MAINTENANCE,
    reason: Annotated[str, typer.Option("--reason", help="Why, in words: noted on the nodes.")] = "",
    undo: Annotated[bool, typer.Option("--undo", help="Let jobs onto the nodes again.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask before jobs have to leave.")] = False,
    wait: Annotated[bool, typer.Option("--wait", help="Wait until no pod with GPUs is left on them.")] = False,
    stack: ClusterStack = "local",
    as_json: Json = False,
) -> None:
    """Empty nodes by a time: jobs there are asked to save, stopped in time, and run again elsewhere.

    No new job starts there, until --undo. Jobs that end by themselves in time are left alone; the others are asked ten
    minutes before the end. Undone before they were stopped, they run on.

    It is the agent's from then on: who stops waiting, undoes nothing.

    Exit code: 0; 1 where a node cannot be drained, or with --wait is not empty in time; 2 for a wrong name or option.
    """
    seconds, because = seconds_within(within, LONGEST_SECONDS), one_line(reason)
    now = time.time()
    asked = None if undo else Drain(NoticeKind(work.value), now, now + seconds)
    names = list(dict.fromkeys(nodes))
    done = asyncio.run(_drain(stack, names, asked, because, yes=yes, wait=wait and not undo, quiet=as_json))
    if as_json:
        typer.echo(json.dumps({"undone": undo, "nodes": done}, indent=2))


async def _drain(
    stack: str, names: Sequence[str], asked: Drain | None, reason: str, *, yes: bool, wait: bool, quiet: bool
) -> list[dict[str, Any]]:
    """Put the request on every node, or take it off; returns what was done on each."""
    async with connect(stack) as connection:
        cluster = await read_cluster(connection)
        # A node that has left the fleet since can still be let go.
        _check(names, await connection.list(NODES, labels=None if asked is None else FLAVOR_LABEL), asked)
        if asked is None:
            return await _undo(cluster, names, quiet)
        jobs = await _jobs_on(cluster, names)
        for name in names:
            there = ", ".join(jobs[name]) if jobs[name] else "no job"
            say(f"{name}: empty by {_moment(asked.deadline)} for {asked.kind}; {there} runs there", quiet)
        if any(jobs.values()) and not yes:
            found = sum(map(len, jobs.values()))
            confirm(f"make {found} jobs leave?", f"{found} jobs run there; add --yes to drain without being asked")
        await _each(names, lambda name: drains.ask(cluster.kube, name, asked, key=DRAIN_TAINT, reason=reason))
        if wait:
            await _wait(cluster, names, asked)
        deadline = None if asked.deadline is None else _moment(asked.deadline)
        return [{"node": name, "for": asked.kind.value, "by": deadline, "jobs": jobs[name]} for name in names]


def _check(names: Sequence[str], nodes: Sequence[Mapping[str, Any]], asked: Drain | None) -> None:
    whose = "cluster" if asked is None else "fleet"
    known = {node["metadata"]["name"] for node in nodes}
    for name in names:
        if name not in known:
            raise OrderError(f"the {whose} has no node {name}{did_you_mean(name, known)}")


async def _undo(cluster: Cluster, names: Sequence[str], quiet: bool) -> list[dict[str, Any]]:
    async def undo(name: str) -> dict[str, Any]:
        was = await drains.take_back(cluster.kube, name, key=DRAIN_TAINT)
        say(f"{name}: {'takes jobs again' if was else 'was not drained'}", quiet)
        return {"node": name, "was_drained": was}

    return await _each(names, undo)


async def _jobs_on(cluster: Cluster, names: Sequence[str]) -> dict[str, list[str]]:
    found: dict[str, set[str]] = {name: set() for name in names}
    owners = {(one.job.namespace, one.job.name): one.job.owner_name for one in await cluster.jobs()}
    for pod in await running_gpu_pods(cluster, names):
        job = owners.get((pod.namespace, pod.workload), pod.workload)
        found[pod.node].add(f"{pod.namespace}/{job}")
    return {name: sorted(jobs) for name, jobs in found.items()}


async def _wait(cluster: Cluster, names: Sequence[str], asked: Drain) -> None:
    until = (asked.deadline or asked.asked_at) + _PATIENCE_SECONDS
    with step(Console(stderr=True), f"drain {', '.join(names)}") as progress:
        while True:
            try:
                left = [pod for name in names for pod in await drains.holders(cluster.kube, name)]
            except Unreachable:
                why = said = "the API server does not answer"
            else:
                if not left:
                    return
                why, said = f"still there: {', '.join(left)}", f"{len(left)} pods with GPUs left"
            if time.time() > until:
                raise OrderError(f"not empty in time; {why}")
            progress.update(0, None, said)
            await asyncio.sleep(orders.POLL_SECONDS)


async def _each(names: Sequence[str], request: Callable[[str], Awaitable[Result]]) -> list[Result]:
    """Do it for every node, also where it fails for some.

    Raises:
        OrderError: naming those for which it failed, once the others are done.
    """
    done, failed = [], []
    for name in names:
        try:
            done.append(await _guarded(name, request(name)))
        except OrderError as error:
            failed.append(str(error))
    if failed:
        raise OrderError("\n".join(failed))
    return done


async def _guarded(name: str, request: Awaitable[Result]) -> Result:
    try:
        return await request
    except (Forbidden, Rejected) as error:
        raise OrderError(
            f"you may not drain node {name}: {error}; it takes an administrator, with the right to patch nodes and to "
            "update clusterqueues.kueue.x-k8s.io"
        ) from None
    except KubeError as error:
        raise OrderError(f"node {name} was not changed: {error}") from None


def _moment(at: float | None) -> str:
    return "any time" if at is None else datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
