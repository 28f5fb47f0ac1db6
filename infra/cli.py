"""The command line: `gpufleet COMMAND`. It only finds the commands and turns known errors into one message.

A command's module is imported when the command is called: `gpufleet check` in an editor's save hook must not wait for
the Pulumi SDK, which `up` needs.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Mapping
from importlib.metadata import version
from typing import Annotated, Any, Final

import typer
from typer._click import Command, Context
from typer.core import TyperGroup
from typer.main import get_command

from infra.local.errors import LocalError
from infra.replay.errors import ReplayError
from runtime.errors import AgentError
from stacks.problems import ConfigError
from stacks.suggest import did_you_mean

COMMANDS: Final[Mapping[str, str]] = {
    "init": "infra.commands.init:init",
    "check": "infra.commands.checking:check",
    "plan": "infra.commands.planning:plan",
    "diff": "infra.commands.comparing:diff",
    "render": "infra.commands.rendering:render",
    "migrate": "infra.commands.migrate:migrate",
    "catalog": "infra.commands.catalog:app",
    "mig": "infra.commands.mig:app",
    "gpu": "infra.commands.gpu:app",
    "schema": "infra.commands.schema:schema",
    "reference": "infra.commands.schema:reference",
    "up": "infra.commands.local:up",
    "down": "infra.commands.local:down",
    "status": "infra.commands.local:status",
    "env": "infra.commands.local:env",
    "tools": "infra.commands.local:tools",
    "submit": "infra.commands.submit:submit",
    "queue": "infra.commands.jobs:queue",
    "explain": "infra.commands.jobs:explain",
    "recall": "infra.commands.recall:recall",
    "move": "infra.commands.move:move",
    "drain": "infra.commands.drain:drain",
    "chaos": "infra.commands.chaos:app",
    "evictions": "infra.commands.reliability:evictions",
    "budget": "infra.commands.budget:app",
    "ledger": "infra.commands.ledger:app",
    "replay": "infra.commands.traces:replay",
    "trace": "infra.commands.traces:app",
    "completion": "infra.commands.completion:completion",
}
"""Where each command is, in the order of `gpufleet --help`: a function, or a group of commands."""


class LazyGroup(TyperGroup):
    """The group of all commands, each imported when it is asked for."""

    def list_commands(self, ctx: Context) -> list[str]:
        """The names of all commands."""
        return list(COMMANDS)

    def resolve_command(self, ctx: Context, args: list[str]) -> tuple[str | None, Command | None, list[str]]:
        """Find the command that the arguments call for; one that there is not is wrong usage, with the nearest name."""
        if args and args[0] not in COMMANDS and not args[0].startswith("-"):
            ctx.fail(f"there is no command {args[0]!r}{did_you_mean(args[0], COMMANDS)}")
        return super().resolve_command(ctx, args)

    def get_command(self, ctx: Context, cmd_name: str) -> Command | None:
        """Import one command; None where there is no such."""
        place = COMMANDS.get(cmd_name)
        if place is None:
            return None
        module, _, attribute = place.partition(":")
        return _built(cmd_name, getattr(importlib.import_module(module), attribute))


def _built(name: str, found: Any) -> Command:
    app = found
    if not isinstance(found, typer.Typer):
        app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
        app.command(name)(found)
    command = get_command(app)
    command.name = name
    return command


app = typer.Typer(
    name="gpufleet",
    cls=LazyGroup,
    help=(
        "Keeps ML clusters productive when GPUs are scarce.\n\n"
        "Exit codes: 0 done; 1 it failed, and standard error says why; 2 wrong usage; 130 interrupted."
    ),
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


def _say_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"gpufleet {version('gpufleet')}")
        raise typer.Exit


@app.callback()
def _gpufleet(
    _version: Annotated[
        bool, typer.Option("--version", callback=_say_version, is_eager=True, help="Say which version this is.")
    ] = False,
) -> None:
    """Nothing of its own: every other option belongs to a command."""


_ASKED_BY_A_SHELL = "_GPUFLEET_COMPLETE"  # set by the scripts of `gpufleet completion`
_FAILED = 1
_INTERRUPTED = 130


def main() -> None:
    """Run the command line; every foreseen error is one message on standard error and exit 1."""
    if _ASKED_BY_A_SHELL in os.environ:
        importlib.import_module("infra.commands.completion").answer_shells()
    try:
        app(prog_name="gpufleet")
    except ConfigError as error:
        typer.echo(f"gpufleet: the stack file cannot be used\n{error}", err=True)
        sys.exit(_FAILED)
    except (LocalError, ReplayError, AgentError) as error:
        typer.echo(f"gpufleet: {error}", err=True)
        sys.exit(_FAILED)
    except SystemExit as ended:
        if ended.code == _INTERRUPTED:
            typer.echo("gpufleet: interrupted", err=True)
        raise
