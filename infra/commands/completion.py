"""`gpufleet completion`: what a shell needs to complete commands, options and the names of stacks.

The scripts are typer's own; it leaves them out of an application without its `--install-completion`, which edits
people's start-up files. Ours prints, and the person decides where it goes.
"""

from __future__ import annotations

import os
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Final

import typer

# Private names of typer, which exports neither; the tests that complete in a real shell tell when they move.
from typer._completion_classes import completion_init
from typer._completion_shared import get_completion_script

_PROGRAM: Final = "gpufleet"
_VARIABLE: Final = "_GPUFLEET_COMPLETE"  # typer derives it from the program's name


class Shell(StrEnum):
    """A shell that completes."""

    BASH = "bash"
    ZSH = "zsh"
    FISH = "fish"
    POWERSHELL = "powershell"


Wanted = Annotated[Shell | None, typer.Argument(help="The shell. Default: that of the variable SHELL.")]


def completion(shell: Wanted = None) -> None:
    """Print the script that makes a shell complete gpufleet's commands.

    bash: source <(gpufleet completion bash)

    zsh: source <(gpufleet completion zsh), behind compinit

    fish: gpufleet completion fish | source

    powershell: gpufleet completion powershell | Out-String | Invoke-Expression

    Exit code: 0; 2 if the shell is none of these.
    """
    wanted = shell or _shell_of_the_user()
    script = get_completion_script(prog_name=_PROGRAM, complete_var=_VARIABLE, shell=wanted.value)
    typer.echo(script)


def answer_shells() -> None:
    """Make the command line answer the scripts' questions; to be called once, before it runs."""
    completion_init()


def _shell_of_the_user() -> Shell:
    path = os.environ.get("SHELL", "")
    name = Path(path).name.lower()
    if name == "pwsh":
        return Shell.POWERSHELL
    if name not in set(Shell):
        told = f"SHELL is {path}, which has no script here" if path else "SHELL is not set"
        raise typer.BadParameter(f"{told}; name one of {', '.join(Shell)}", param_hint="SHELL")
    return Shell(name)
