"""`gpufleet up`, `down`, `status`, `env` and `tools`: the embedded stack."""

from __future__ import annotations

import json
import shlex
import time
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from infra.commands.project import checkout, stack_file
from infra.commands.replays import run_replay, trace_jobs
from infra.local.controlplane import ControlPlane
from infra.local.embedded import Embedded
from infra.local.toolchain import Toolchain
from infra.replay.synthetic import DEFAULT_SEED
from infra.replay.trace import TraceOptions
from stacks.load import load_file

Stack = Annotated[str, typer.Option(help="Stack file stacks/Pulumi.<STACK>.yaml to run.")]
Seed = Annotated[int, typer.Option(help="Seed of the synthetic trace; equal seeds give equal traces.")]
Trace = Annotated[Path | None, typer.Option(help="Replay this CSV instead (docs/traces.md has its form).")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON for a program to read.")]


def up(
    stack: Stack = "local",
    seed: Seed = DEFAULT_SEED,
    trace: Trace = None,
    replay: Annotated[bool, typer.Option(help="Replay a trace once the stack is up.")] = True,
) -> None:
    """Start the embedded stack, run `pulumi up`, and replay a trace in compressed time.

    Safe to repeat: what runs already is kept. The stack stays up afterwards; `gpufleet down` removes it.
    """
    console = Console()
    began = time.monotonic()
    fleet = load_file(stack_file(stack), display=f"stacks/Pulumi.{stack}.yaml")
    exact = True
    jobs = trace_jobs(fleet, trace, seed, TraceOptions(auto_teams=True), console) if replay else []
    embedded = Embedded.open(checkout(), stack, console)
    with embedded.locked("runs gpufleet up"):
        tools = embedded.tools()
        embedded.start(tools, fleet)
        console.print(f"control plane ready after {time.monotonic() - began:.1f} s: {embedded.state.kubeconfig}")
        embedded.deploy(embedded.engine(tools))
        console.print(f"stack deployed after {time.monotonic() - began:.1f} s")
        if replay:
            exact = run_replay(embedded, fleet, jobs, console, as_json=False)
    _next_steps(console, embedded, tools.path("kubectl"))
    raise typer.Exit(0 if exact else 1)


def down(stack: Stack = "local") -> None:
    """Stop every process of the embedded stack and delete its state; nothing else is touched."""
    Embedded.open(checkout(), stack, Console()).down()
    typer.echo(f"stack {stack} is removed")


def status(stack: Stack = "local", as_json: Json = False) -> None:
    """List the processes of the embedded stack; exit 1 unless all of them run."""
    embedded = Embedded.open(checkout(), stack, Console())
    rows = ControlPlane(embedded.state, Toolchain({}, Path())).status()
    if as_json:
        typer.echo(json.dumps([{**vars(row), "log": str(row.log), "ports": dict(row.ports)} for row in rows], indent=2))
    else:
        table = Table("process", "state", "pid", "MiB", "ports", "log")
        for row in rows:
            ports = " ".join(f"{name}={port}" for name, port in row.ports.items())
            state = "up" if row.running else "down"
            table.add_row(row.name, state, str(row.pid or ""), f"{row.memory_mib:.0f}", ports, str(row.log))
        Console().print(table)
    raise typer.Exit(0 if rows and all(row.running for row in rows) else 1)


def env(stack: Stack = "local") -> None:
    """Print the variables for plain `pulumi` and `kubectl`: eval "$(gpufleet env)"."""
    console = Console(stderr=True)
    embedded = Embedded.open(checkout(), stack, console)
    tools = embedded.tools()
    variables = embedded.engine(tools).environment()
    for name, value in variables.items():
        typer.echo(f"export {name}={shlex.quote(value)}")
    typer.echo(f'export PATH={shlex.quote(str(tools.path("kubectl").parent))}:"$PATH"')


def tools() -> None:
    """Find, download or build the binaries of the embedded stack."""
    console = Console()
    found = Embedded.open(checkout(), "local", console).tools()
    for name, path in sorted(found.paths.items()):
        typer.echo(f"{name:<26}{path}")


def _next_steps(console: Console, embedded: Embedded, kubectl: Path) -> None:
    console.print("\nThe stack is up. Try:", style="bold")
    for line in (
        f"export KUBECONFIG={embedded.state.kubeconfig} PATH={kubectl.parent}:$PATH",
        "kubectl get workloads -A            # every job, its queue and where it was admitted",
        ".venv/bin/gpufleet submit --team vision --gpus 8 --run 20m",
        ".venv/bin/gpufleet queue            # who waits, how long, and why",
        ".venv/bin/gpufleet explain JOB -n TEAM",
        "make up                             # again: keeps the stack, replays the next trace",
        "make down                           # removes everything",
    ):
        console.print(f"  {line}", highlight=False, soft_wrap=True)
