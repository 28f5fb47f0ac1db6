"""`gpufleet up`, `down`, `status`, `env` and `tools`: the embedded stack."""

from __future__ import annotations

import json
import shlex
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from infra.commands.columns import columns
from infra.commands.options import Json, LocalStack, Seed, Trace
from infra.commands.places import checkout
from infra.commands.project import load_stack_file, open_state
from infra.commands.replays import run_replay, too_slow, trace_jobs
from infra.local import toolchain
from infra.local.controlplane import ComponentStatus, ControlPlane
from infra.local.embedded import TOOLS, Embedded
from infra.local.errors import LocalError
from infra.local.state import State
from infra.replay.synthetic import DEFAULT_SEED
from infra.replay.trace import TraceOptions
from stacks.quantities import format_duration


class TooSlowError(LocalError):
    """The synthetic replay would take hours."""


def up(
    stack: LocalStack = "local",
    seed: Seed = DEFAULT_SEED,
    trace: Trace = None,
    replay: Annotated[bool, typer.Option(help="Replay a trace once the stack is up.")] = True,
    as_json: Json = False,
) -> None:
    """Start the embedded stack, run `pulumi up`, and replay a trace in compressed time.

    Safe to repeat: what runs already is kept. The stack stays up afterwards; `gpufleet down` removes it. With --json
    standard output is the summary of the replay, or without one the stack and its kubeconfig.

    Exit code: 0; 1 where a step failed, or a job got to the cloud without the gate; 130 after Ctrl-C.
    """
    console = Console(stderr=as_json)
    began = time.monotonic()
    fleet = load_stack_file(stack)
    exact = True
    jobs = trace_jobs(fleet, trace, seed, TraceOptions(auto_teams=True), console) if replay else []
    if trace is None and (needed := too_slow(fleet, jobs)):
        raise TooSlowError(
            f"stacks/Pulumi.{stack}.yaml: agent.replay_speed is {fleet.agent.replay_speed:g}, so the synthetic replay "
            f"would take {format_duration(needed)}; write agent: {{replay_speed: 60}}, or leave it out with --no-replay"
        )
    embedded = Embedded.open(checkout(), stack, console)
    with embedded.locked("runs gpufleet up"):
        with _interruptible(console, "the tools were being prepared; what is finished stays in the cache"):
            tools = embedded.tools()
        with _interruptible(console, "the control plane was being started; what of it ran was stopped"):
            embedded.start(tools, fleet)
        console.print(
            f"control plane ready after {time.monotonic() - began:.1f} s: {embedded.state.kubeconfig}", soft_wrap=True
        )
        with _interruptible(console, "pulumi up had begun; the control plane runs on"):
            embedded.deploy(embedded.engine(tools))
        console.print(f"stack deployed after {time.monotonic() - began:.1f} s")
        if replay:
            with _interruptible(console, "the stack runs on"):
                exact = run_replay(embedded, fleet, jobs, Console() if as_json else console, as_json=as_json)
    if as_json and not replay:
        typer.echo(json.dumps({"stack": stack, "kubeconfig": str(embedded.state.kubeconfig)}))
    _next_steps(console, embedded, tools.path("kubectl"), team=next(iter(fleet.teams)))
    raise typer.Exit(0 if exact else 1)


def down(stack: LocalStack = "local", as_json: Json = False) -> None:
    """Stop every process of the embedded stack and delete its state; nothing else is touched.

    Exit code: 0, also where there is nothing to remove; 1 where another command uses the stack.
    """
    directory = State.directory(checkout(), stack)
    was_there = directory.is_dir()
    if was_there:
        Embedded.open(checkout(), stack, Console(stderr=as_json)).down()
    if as_json:
        typer.echo(json.dumps({"stack": stack, "removed": was_there}))
    else:
        typer.echo(f"stack {stack} is removed" if was_there else f"stack {stack} is not there (no {directory})")


def status(stack: LocalStack = "local", as_json: Json = False) -> None:
    """List the processes of the embedded stack.

    Exit code: 0 if all of them run; 1 if not, or if there is no such stack.
    """
    state = open_state(stack)
    rows = ControlPlane(state, toolchain.Toolchain({}, Path())).status()
    if as_json:
        typer.echo(json.dumps([{**vars(row), "log": str(row.log), "ports": dict(row.ports)} for row in rows], indent=2))
    else:
        cells = [(row.name, _state(row), row.pid, f"{row.memory_mib:.0f}", _ports(row)) for row in rows]
        for line in columns(["PROCESS", "STATE", "PID", "MIB", "PORTS"], cells):
            typer.echo(line)
        typer.echo(f"logs: {state.logs}/PROCESS.log")
    raise typer.Exit(0 if rows and all(row.running for row in rows) else 1)


def env(stack: LocalStack = "local", as_json: Json = False) -> None:
    """Print the variables for plain `pulumi` and `kubectl`: eval "$(gpufleet env)".

    Exit code: 0; 1 where the stack does not run.
    """
    open_state(stack)
    console = Console(stderr=True, quiet=True)
    embedded = Embedded.open(checkout(), stack, console)
    tools = toolchain.resolve(TOOLS, console=console, only_present=True)
    variables = embedded.engine(tools).environment()
    folders = list(dict.fromkeys(str(tools.path(name).parent) for name in ("kubectl", "pulumi")))
    if as_json:
        typer.echo(json.dumps({"variables": dict(variables), "path": folders}, indent=2))
        return
    for name, value in variables.items():
        typer.echo(f"export {name}={shlex.quote(value)}")
    typer.echo(f'export PATH={":".join(map(shlex.quote, folders))}:"$PATH"')


def tools(as_json: Json = False) -> None:
    """Find, download or build the binaries of the embedded stack, and say where they are.

    Those marked on-demand serve tests and benchmarks only; whoever is the first to need one builds it.

    Exit code: 0; 1 where one cannot be had, with every way that was tried.
    """
    found = toolchain.resolve(TOOLS, console=Console(stderr=True))
    if as_json:
        rows = {name: {"path": str(path), "way": found.ways[name]} for name, path in sorted(found.paths.items())}
        spare = {name: {"path": path and str(path), "way": "on-demand"} for name, path in toolchain.on_demand().items()}
        typer.echo(json.dumps(rows | spare, indent=2))
        return
    cells = [(name, found.ways[name].replace(" ", "-"), path) for name, path in sorted(found.paths.items())]
    unasked = [(name, "on-demand", path) for name, path in toolchain.on_demand().items()]
    for line in columns(["TOOL", "WAY", "PATH"], [*cells, *unasked]):
        typer.echo(line)


@contextmanager
def _interruptible(console: Console, what: str) -> Iterator[None]:
    """Say what an interrupted step leaves behind, and how to go on."""
    try:
        yield
    except KeyboardInterrupt:
        line = f"\ninterrupted: {what}. `make up` goes on from here, `make down` removes everything"
        console.print(line, highlight=False, soft_wrap=True)
        raise


def _state(row: ComponentStatus) -> str:
    return "up" if row.running else "down"


def _ports(row: ComponentStatus) -> str:
    return " ".join(f"{name.removeprefix(f'{row.name}-')}={port}" for name, port in row.ports.items())


def _next_steps(console: Console, embedded: Embedded, kubectl: Path, team: str) -> None:
    console.print("\nThe stack is up. Try:", style="bold")
    gpufleet = ".venv/bin/gpufleet"
    kubeconfig, folder = shlex.quote(str(embedded.state.kubeconfig)), shlex.quote(str(kubectl.parent))
    for line in (
        f'export KUBECONFIG={kubeconfig} PATH={folder}:"$PATH"',
        "kubectl get workloads -A            # every job, its queue and where it was admitted",
        f"{gpufleet} submit --team {team} --gpus 8 --run 20m",
        f"{gpufleet} queue            # who waits, how long, and why",
        f"{gpufleet} explain JOB      # why a job is where it is",
        f'eval "$({gpufleet} env)"    # then plain pulumi preview, pulumi up',
        "make up SEED=9                      # again: keeps the stack, replays another trace",
        "make down                           # removes everything",
    ):
        console.print(f"  {line}", highlight=False, soft_wrap=True)
