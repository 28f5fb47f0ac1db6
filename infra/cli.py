"""The command line: `gpufleet COMMAND`. It only puts the commands together and turns known errors into one message."""

from __future__ import annotations

import sys
from collections.abc import Callable

import typer

from infra.commands import check, jobs, local, traces
from infra.local.errors import LocalError
from infra.replay.errors import ReplayError
from stacks.load import ConfigError

app = typer.Typer(
    name="gpufleet",
    help="Keeps ML clusters productive when GPUs are scarce.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)

COMMANDS: tuple[Callable[..., None], ...] = (
    check.check,
    check.plan,
    check.render,
    check.schema,
    local.up,
    local.down,
    local.status,
    local.env,
    local.tools,
    jobs.submit,
    jobs.queue,
    jobs.explain,
    traces.replay,
)

for command in COMMANDS:
    app.command()(command)
app.add_typer(traces.app, name="trace")


def main() -> None:
    """Run the command line; every foreseen error is one message on standard error and exit 1."""
    try:
        app()
    except (ConfigError, LocalError, ReplayError) as error:
        typer.echo(f"gpufleet: {error}", err=True)
        sys.exit(1)
    except KeyboardInterrupt:
        typer.echo("gpufleet: interrupted; what was started stays, `gpufleet down` removes it", err=True)
        sys.exit(130)
