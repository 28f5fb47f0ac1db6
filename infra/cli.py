"""The command line: `gpufleet COMMAND`. It only puts the commands together and turns known errors into one message."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable

import typer

from infra.commands import check, jobs, local, submit, traces
from infra.local.errors import LocalError
from infra.replay.errors import ReplayError
from runtime.errors import AgentError
from stacks.load import ConfigError

app = typer.Typer(
    name="gpufleet",
    help=(
        "Keeps ML clusters productive when GPUs are scarce.\n\n"
        "Exit codes: 0 done; 1 it failed, and standard error says why; 2 wrong usage; 130 interrupted."
    ),
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)

COMMANDS: tuple[Callable[..., None], ...] = (
    check.check,
    check.plan,
    check.render,
    check.schema,
    check.reference,
    local.up,
    local.down,
    local.status,
    local.env,
    local.tools,
    submit.submit,
    jobs.queue,
    jobs.explain,
    traces.replay,
)

for command in COMMANDS:
    app.command()(command)
app.add_typer(traces.app, name="trace")


_FAILED = 1
_INTERRUPTED = 130
_NOBODY_READS = 141  # what a shell reports of a program that SIGPIPE ended


def main() -> None:
    """Run the command line; every foreseen error is one message on standard error and exit 1."""
    try:
        app()
    except ConfigError as error:
        typer.echo(f"gpufleet: the stack file cannot be used\n{error}", err=True)
        sys.exit(_FAILED)
    except (LocalError, ReplayError, AgentError) as error:
        typer.echo(f"gpufleet: {error}", err=True)
        sys.exit(_FAILED)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # or the exit would try to write once more
        sys.exit(_NOBODY_READS)
    except SystemExit as ended:
        if ended.code == _INTERRUPTED:
            typer.echo("gpufleet: interrupted", err=True)
        raise
