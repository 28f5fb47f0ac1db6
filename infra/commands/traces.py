"""`gpufleet replay` and `gpufleet trace`: put the load of a file, or a synthetic one, onto the embedded stack.

`gpufleet trace evictions` is in `infra.commands.spot_traces`: it needs no stack.
"""

from __future__ import annotations

import csv
import json
import sys
from dataclasses import asdict, astuple
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from infra.commands.options import Json, LocalStack, Seed, Trace
from infra.commands.places import checkout
from infra.commands.project import load_stack_file, open_state
from infra.commands.replays import run_replay, trace_jobs
from infra.commands.spot_traces import evictions
from infra.local.embedded import Embedded
from infra.replay.convert import FORMATS, convert
from infra.replay.synthetic import DEFAULT_SEED, synthetic
from infra.replay.trace import COLUMNS, TraceOptions

app = typer.Typer(help="Make, convert and examine traces (docs/traces.md).", no_args_is_help=True, add_completion=False)
app.command()(evictions)

Pairs = Annotated[
    list[str] | None, typer.Option(help="The file's name = the fleet's, e.g. ee9e8c=vision; * = all others.")
]


def replay(
    trace: Trace = None,
    seed: Seed = DEFAULT_SEED,
    map_team: Pairs = None,
    map_class: Pairs = None,
    limit: Annotated[int | None, typer.Option(help="Take at most this many jobs of the file.")] = None,
    window: Annotated[tuple[str, str] | None, typer.Option(help="Take jobs that arrive in [START, END).")] = None,
    stack: LocalStack = "local",
    as_json: Json = False,
) -> None:
    """Replay a trace on the running embedded stack, in compressed time, and print what happened.

    Exit code: 0; 1 where it failed, or a job got to the cloud without the gate; 130 after Ctrl-C.
    """
    if trace is None and (map_team or map_class or limit is not None or window):
        raise typer.BadParameter("--map-team, --map-class, --limit and --window choose from a file: add --trace FILE")
    console = Console(stderr=as_json)
    fleet = load_stack_file(stack)
    options = TraceOptions(
        teams=_pairs(map_team, "--map-team"),
        auto_teams="auto" in (map_team or []),
        classes=_pairs(map_class, "--map-class"),
        limit=limit,
        window=window,
    )
    jobs = trace_jobs(fleet, trace, seed, options, console)
    open_state(stack)
    embedded = Embedded.open(checkout(), stack, console)
    with embedded.locked("replays a trace"):
        exact = run_replay(embedded, fleet, jobs, Console() if as_json else console, as_json=as_json)
    raise typer.Exit(0 if exact else 1)


@app.command("convert")
def convert_command(
    source: Annotated[Path, typer.Argument(help="File to read; .gz is unpacked.")],
    destination: Annotated[Path, typer.Argument(help="CSV to write; .gz is packed.")],
    form: Annotated[str, typer.Option("--from", help=f"Format of the source: {', '.join(FORMATS)}.")] = "philly",
    as_json: Json = False,
) -> None:
    """Turn another trace format into ours; say which rows cannot be used.

    Exit code: 0; 1 where no file or no row can be used.
    """
    report = convert(source, destination, form)
    if as_json:
        typer.echo(json.dumps(asdict(report), indent=2, default=str))
        return
    for line in report.lines():
        typer.echo(line)


@app.command()
def synthesize(
    stack: LocalStack = "local",
    seed: Seed = DEFAULT_SEED,
    as_json: Json = False,
) -> None:
    """Print the synthetic trace of a stack as CSV."""
    fleet = load_stack_file(stack)
    if as_json:
        typer.echo(json.dumps([asdict(job) for job in synthetic(fleet, seed=seed)], indent=2))
        return
    writer = csv.writer(sys.stdout)
    writer.writerow(COLUMNS)
    for job in synthetic(fleet, seed=seed):
        name, team, job_class, gpus, submit, run, expected, longest = astuple(job)
        writer.writerow([submit, team, job_class, gpus, run, "" if expected is None else expected, longest, name])


def _pairs(texts: list[str] | None, option: str) -> dict[str, str]:
    pairs = {}
    for text in texts or []:
        if text == "auto" and option == "--map-team":
            continue
        theirs, equals, ours = text.partition("=")
        if not equals or not theirs or not ours:
            raise typer.BadParameter(f"{text!r}: write THEIRS=OURS, e.g. ee9e8c=vision", param_hint=option)
        pairs[theirs] = ours
    return pairs
