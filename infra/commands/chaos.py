"""`gpufleet chaos`: drills that show what becomes of jobs when their nodes are taken away. For administrators."""

from __future__ import annotations

import asyncio
import json
import secrets
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Final

import typer
from rich.console import Console

from infra.chaos.drill import Drill, DrillInterrupted, unfinished
from infra.chaos.machines import clean as undo
from infra.chaos.machines import leftovers, put_back
from infra.chaos.planning import Plan, plan
from infra.chaos.report import DrillReport, report
from infra.chaos.terms import LONGEST_NOTICE_SECONDS, MOST_NODES, ChaosError, DrillKind, DrillTerms
from infra.commands.chaos_text import plan_lines, report_lines, trouble_lines
from infra.commands.cluster import Cluster, connect, read_cluster
from infra.commands.options import ClusterStack, Json
from infra.local.progress import step
from stacks.quantities import format_duration, parse_duration

_RUN_BYTES: Final = 3
_MOST_SEED: Final = 2**31 - 1
_INTERRUPTED: Final = 130

Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]

app = typer.Typer(
    help=(
        "Take nodes away on purpose, and measure what becomes of their jobs.\n\n"
        "Exit codes: 0 no job was lost; 1 one was, or it failed, and standard error says why; 130 interrupted."
    ),
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


@app.command()
def spot(
    pool: Annotated[str, typer.Option(help="Pool of the fleet file whose nodes are told that they go.")],
    nodes: Annotated[int, typer.Option(min=1, max=MOST_NODES, help="How many of them.")] = 1,
    notice: Annotated[str, typer.Option(help="Time between the notice and the end, 0s to 1h.")] = "120s",
    kind: Annotated[DrillKind, typer.Option(help="What they face.")] = DrillKind.SPOT,
    every: Annotated[
        str, typer.Option(help="Time between one node's notice and the next. Default: all at once.")
    ] = "0s",
    away: Annotated[str, typer.Option(help="How long after its end a node is back, as a new one would be.")] = "30s",
    patience: Annotated[str, typer.Option(help="How long jobs have from then on to run again.")] = "5m",
    seed: Annotated[
        int | None, typer.Option(min=0, help="Seed of the choice among equal nodes. Default: another each time.")
    ] = None,
    lose_nodes: Annotated[
        bool, typer.Option("--lose-nodes", help="Delete Nodes at the deadline that are no simulated ones, too.")
    ] = False,
    yes: Yes = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what it would do, and do nothing.")] = False,
    stack: ClusterStack = "local",
    as_json: Json = False,
) -> None:
    """Tell nodes of a pool that they will go, and report what that costs their jobs.

    The nodes with most running GPU pods are taken. Each gets a notice as the node agent writes it; at the deadline a
    simulated node is deleted with its pods, and put back later. A real one stays, unless --lose-nodes is given. All is
    put back at the end, after Ctrl-C too; `gpufleet chaos clean` puts back what a killed drill left.

    Exit code: 0 if no job was lost; 1 if one was lost, or nobody moved it, or the drill failed; 2 for a wrong option;
    130 after Ctrl-C or SIGTERM.
    """
    terms = DrillTerms(
        pool=pool,
        nodes=nodes,
        kind=kind,
        notice_seconds=_seconds("--notice", notice, LONGEST_NOTICE_SECONDS),
        every_seconds=_seconds("--every", every, LONGEST_NOTICE_SECONDS),
        away_seconds=_seconds("--away", away, LONGEST_NOTICE_SECONDS),
        patience_seconds=_seconds("--patience", patience, 24 * LONGEST_NOTICE_SECONDS),
        seed=secrets.randbelow(_MOST_SEED) if seed is None else seed,
        lose_nodes=lose_nodes,
    )
    try:
        found = asyncio.run(_spot(stack, terms, yes=yes, dry_run=dry_run, quiet=as_json))
    except DrillInterrupted as interrupted:
        typer.echo(f"gpufleet: {interrupted}", err=True)
        raise typer.Exit(_INTERRUPTED) from None
    if found is None:
        return
    if as_json:
        typer.echo(json.dumps(found.to_dict(), indent=2))
    else:
        typer.echo("\n".join(report_lines(found)))
    for line in trouble_lines(found):
        typer.echo(line, err=True)
    raise typer.Exit(0 if found.passed else 1)


@app.command()
def clean(yes: Yes = False, stack: ClusterStack = "local", as_json: Json = False) -> None:
    """Put back what drills left that were killed: notices, cordons and deleted Nodes.

    Only what a drill did is undone. Exit code: 0, also where there is nothing to do; 1 where something is left.
    """
    done = asyncio.run(_clean(stack, yes=yes))
    if as_json:
        typer.echo(json.dumps({"done": done}, indent=2))
    else:
        typer.echo("\n".join(done) if done else "no drill has left anything")


async def _spot(stack: str, terms: DrillTerms, *, yes: bool, dry_run: bool, quiet: bool) -> DrillReport | None:
    async with connect(stack) as connection:
        cluster = await read_cluster(connection)
        found = await plan(cluster, terms, time.time())
        if not quiet:
            typer.echo("\n".join(plan_lines(found)))
        elif dry_run:
            typer.echo(json.dumps(found.to_dict(), indent=2))
        if dry_run:
            return None
        if not found.workloads:
            raise ChaosError(f"no job of the fleet runs on a free node of pool {terms.pool}, so nothing would be shown")
        if not yes and not found.simulated:
            _ask(len(found.workloads))
        return await _run(cluster, found)


async def _run(cluster: Cluster, found: Plan) -> DrillReport:
    stop = asyncio.Event()
    run = secrets.token_hex(_RUN_BYTES)
    drill = Drill(cluster, found.terms, found.targets, run, loses=found.loses, now=time.time, stop=stop)
    with _heard(stop), step(Console(stderr=True), f"drill {run}") as progress:
        jobs = await drill.run(progress)
    return report(run, found.terms, drill.nodes, jobs.tales)


async def _clean(stack: str, *, yes: bool) -> list[str]:
    async with connect(stack) as connection:
        cluster = await read_cluster(connection)
        records = await unfinished(cluster)
        running = [record for record in records if record.until > time.time()]
        if running and not yes:
            left = format_duration_of(running[0].until - time.time())
            _ask_to_clean(f"drill {running[0].run} on pool {running[0].pool} may run for another {left}")
        done = [line for record in records for line in await undo(connection, record)]
        for node in await leftovers(connection, records):
            done.append(await put_back(connection, node))
        return [line for line in done if line] + [f"record of drill {record.run} removed" for record in records]


def _ask(jobs: int) -> None:
    what = f"{jobs} job{'s'[: jobs != 1]}"
    if not sys.stdin.isatty():
        raise ChaosError(f"the drill stops {what} on real machines; add --yes to begin without being asked")
    if not typer.confirm(f"these are real machines; stop {what}?", default=False, err=True):
        raise ChaosError("nothing was changed")


def _ask_to_clean(what: str) -> None:
    if not sys.stdin.isatty():
        raise ChaosError(f"{what}; add --yes if it does not run any more")
    if not typer.confirm(f"{what}; undo it all the same?", default=False, err=True):
        raise ChaosError("nothing was changed")


def format_duration_of(seconds: float) -> str:
    """Whole seconds as people write them."""
    return format_duration(parse_duration(f"{max(0, round(seconds))}s"))


def _seconds(option: str, text: str, longest: float) -> float:
    try:
        seconds = parse_duration(text).total_seconds()
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint=option) from None
    if seconds > longest:
        raise typer.BadParameter(f"{text} is too long; at most {format_duration_of(longest)}", param_hint=option)
    return seconds


@contextmanager
def _heard(stop: asyncio.Event) -> Iterator[None]:
    """Let Ctrl-C and SIGTERM end the drill in order, however often they come."""
    loop = asyncio.get_running_loop()
    signals = (signal.SIGINT, signal.SIGTERM)
    for number in signals:
        loop.add_signal_handler(number, stop.set)
    try:
        yield
    finally:
        for number in signals:
            loop.remove_signal_handler(number)
