"""`gpufleet move`: let a job that runs in the cloud go on on another flavor or market. For administrators.

It only writes the wish on the Workload. The agent judges whether what is wanted is free and within budget, asks the job
to save, stops it and sends it on, and takes the wish off when that is done or its time is over; until then the job runs
where it is. Rights and the admission policies decide who may write it.
"""

from __future__ import annotations

import asyncio
import json
import secrets
import time
from datetime import timedelta
from typing import Annotated, Any, Final

import typer
from rich.console import Console

from infra.commands import orders
from infra.commands.cluster import Cluster, SeenJob, connect, read_cluster
from infra.commands.options import ClusterStack, Json
from infra.commands.orders import OrderError, confirm, find_job, one_line, say, seconds_within
from infra.local.progress import step
from runtime.errors import Forbidden, NotFound, Rejected, Unreachable
from runtime.eviction.wish import LONGEST_SECONDS, MoveWish, wish_to_json
from runtime.kube import WORKLOADS
from runtime.routing.explain import sentence, verdict_from_json
from runtime.routing.moves import is_wanted
from runtime.routing.snapshot import Stage
from runtime.routing.verdict import Code
from stacks.labels import MOVE_ANNOTATION, VERDICT_ANNOTATION
from stacks.quantities import format_duration
from stacks.suggest import did_you_mean

_ENDING_SECONDS: Final = 900.0  # beyond the time for trying: to save, to end with the longest grace, and to be sent on
_STEPS: Final = 3  # asked for, under way, on its way again
_OVER: Final = (Stage.STOPPED, Stage.FINISHED)


def move(
    job: Annotated[str, typer.Argument(help="Name of the job or of its Workload, or NAMESPACE/NAME.")],
    namespace: Annotated[str | None, typer.Option("--namespace", "-n", help="Its namespace.")] = None,
    to: Annotated[
        str, typer.Option("--to", metavar="MARKET|FLAVOR", help="Where to. Default: any other cloud flavor.")
    ] = "",
    within: Annotated[str, typer.Option("--within", help="How long it is tried, up to 7d.")] = "10m",
    reason: Annotated[str, typer.Option("--reason", help="Why, for its users: shown on the job.")] = "",
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask before.")] = False,
    wait: Annotated[bool, typer.Option("--wait", help="Wait until it is on its way there, or was not moved.")] = False,
    stack: ClusterStack = "local",
    as_json: Json = False,
) -> None:
    """Let a job that runs in the cloud go on on another flavor or market, e.g. from spot to on-demand.

    It is asked to save, then stopped, and keeps its place in the queue. As long as what is wanted is not free, or a
    budget has no room for it, the job runs on and it is tried again; `gpufleet explain` says what stands in the way.

    It is the agent's from then on: who stops waiting, takes nothing back.

    Exit code: 0; 1 where the job cannot be moved, or with --wait was not; 2 for a wrong name or option.
    """
    name = job
    if namespace is None:
        namespace, _, name = job.partition("/")
    if not namespace or not name or "/" in name:
        raise typer.BadParameter(f"{job!r}: write NAMESPACE/JOB, e.g. vision/train-17, or add -n", param_hint="JOB")
    because = one_line(reason)
    seconds, asked_at = seconds_within(within, LONGEST_SECONDS), time.time()
    wish = MoveWish(f"move-{secrets.token_hex(6)}", to, asked_at, asked_at + seconds, because)
    done = asyncio.run(_move(stack, namespace, name, wish, yes=yes, wait=wait, quiet=as_json))
    if as_json:
        asked = {"job": f"{namespace}/{name}", "to": to or None, "within_seconds": seconds}
        typer.echo(json.dumps({**asked, **done}, indent=2))


async def _move(
    stack: str, namespace: str, name: str, wish: MoveWish, *, yes: bool, wait: bool, quiet: bool
) -> dict[str, Any]:
    """Write the wish down; returns what came of it."""
    async with connect(stack) as connection:
        cluster = await read_cluster(connection, namespace)
        found = await find_job(cluster, namespace, name, _rank)
        what, where = f"{namespace}/{found.job.owner_name}", wish.to or "another cloud flavor"
        _check(cluster, found, what, wish.to)
        length = format_duration(timedelta(seconds=round(wish.until - wish.asked_at)))
        say(
            f"{what} runs on {found.job.flavor}: as soon as {where} is free for it, it is asked to save, stopped, and "
            f"goes on there; it is tried for {length}",
            quiet,
        )
        if not yes:
            confirm(f"move {what}?", f"{what} runs; add --yes to move it without being asked")
        await _write(cluster, found, wish)
        say(f"{what}: move asked for; the agent begins at its next look", quiet)
        done: dict[str, Any] = {"from": found.job.flavor, "waited": wait}
        if wait:
            verdict = await _wait(cluster, found, wish)
            say(f"{what}: {verdict}", quiet)
            done["outcome"] = verdict
        return done


def _rank(seen: SeenJob) -> tuple[bool, bool]:
    """One that is not over, and that runs in the cloud, first."""
    return seen.job.stage in _OVER, seen.job.stage is not Stage.RUNNING_CLOUD


def _check(cluster: Cluster, found: SeenJob, what: str, to: str) -> None:
    """Refuse what cannot be; whether there is room and money is the agent's to say.

    Raises:
        OrderError: with the reason.
        BadParameter: where there is no such flavor or market.
    """
    job, config = found.job, cluster.config
    if job.stage is not Stage.RUNNING_CLOUD:
        raise OrderError(f"{what} does not run in the cloud ({job.stage.value}), so it cannot be moved from there")
    if not cluster.known:
        raise OrderError(f"you may not move {what}: it takes an administrator, who may read the agent's configuration")
    markets = {config.flavors[flavor].place for flavor in config.burst_order}
    if to and to not in markets and to not in config.burst_order:
        known = dict.fromkeys([*sorted(markets), *config.burst_order])
        raise typer.BadParameter(f"{to!r} is no cloud flavor and no market{did_you_mean(to, known)}", param_hint="--to")
    if to and to in (job.flavor, _market(cluster, job.flavor)):
        raise OrderError(f"{what} runs on {job.flavor} already")
    if len(config.burst_order) < 2 and job.flavor in config.burst_order:
        raise OrderError(f"there is no other cloud flavor than {job.flavor}")


def _market(cluster: Cluster, flavor: str | None) -> str | None:
    settings = None if flavor is None else cluster.config.flavors.get(flavor)
    return None if settings is None else settings.place


async def _write(cluster: Cluster, found: SeenJob, wish: MoveWish) -> None:
    job = found.job
    body = {"metadata": {"uid": job.uid, "annotations": {MOVE_ANNOTATION: wish_to_json(wish)}}}
    try:
        await cluster.kube.merge(WORKLOADS, job.namespace, job.name, body)
    except (Forbidden, Rejected) as error:
        raise OrderError(
            f"you may not move {job.namespace}/{job.owner_name}: {error}; it takes an administrator, with the right "
            "to patch workloads.kueue.x-k8s.io"
        ) from None
    except NotFound:
        raise OrderError(f"{job.namespace}/{job.owner_name} is gone") from None


async def _wait(cluster: Cluster, found: SeenJob, wish: MoveWish) -> str:
    """Wait until the agent has taken the wish off; returns what it said last."""
    what = f"{found.job.namespace}/{found.job.owner_name}"
    with step(Console(stderr=True), f"move {what}") as progress:
        while time.time() <= wish.until + _ENDING_SECONDS:
            try:
                raw = await cluster.kube.get(WORKLOADS, found.job.name, found.job.namespace)
            except NotFound:
                raise OrderError(f"{what} is gone") from None
            except Unreachable:
                raw = None
            if raw is not None:
                code, said = _verdict(raw)
                seen, text = cluster.read(raw), _annotation(raw, MOVE_ANNOTATION)
                if wish.id not in text:
                    if code is Code.MOVE_REFUSED:
                        raise OrderError(f"{what} {said}")
                    if text:
                        raise OrderError(f"somebody wants {what} elsewhere since; see gpufleet explain {what}")
                    if seen is None or not is_wanted(cluster.config, wish, seen.job.target or "", found.job.flavor):
                        raise OrderError(f"{what} is not on its way to {wish.to or 'another cloud flavor'}: it {said}")
                    progress.update(_STEPS, _STEPS)
                    return said
                if seen is None or seen.job.stage in _OVER:
                    raise OrderError(f"{what} has ended, or was stopped by somebody else; it was not moved")
                progress.update(1 if code is Code.MOVING else 0, _STEPS, said)
            await asyncio.sleep(orders.POLL_SECONDS)
    raise OrderError(f"nobody has ended the move of {what}; does the agent run (gpufleet explain {what})?")


def _verdict(raw: dict[str, Any]) -> tuple[Code | None, str]:
    recorded = verdict_from_json(_annotation(raw, VERDICT_ANNOTATION))
    return (None, "") if recorded is None else (recorded.verdict.code, sentence(recorded.verdict))


def _annotation(raw: dict[str, Any], name: str) -> str:
    return str((raw["metadata"].get("annotations") or {}).get(name, ""))
