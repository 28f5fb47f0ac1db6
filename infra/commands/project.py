"""Where the checkout, its stack files and the state of its embedded stacks are."""

from __future__ import annotations

from pathlib import Path

import typer

from infra.commands.places import checkout, stacks
from infra.local.errors import LocalError
from infra.local.state import State
from stacks.fleet import Fleet
from stacks.load import load_file
from stacks.suggest import did_you_mean


class NotRunningError(LocalError):
    """The command needs an embedded stack, and there is none."""


def stack_file(stack: str, hint: str = "--stack") -> Path:
    """The stack's file; `hint` is what the caller named it by.

    Raises:
        typer.BadParameter: there is none; the message says which there are.
    """
    known = stacks()
    if stack not in known:
        message = f"there is no stacks/Pulumi.{stack}.yaml{did_you_mean(stack, known)}"
        raise typer.BadParameter(message, param_hint=hint)
    return known[stack]


def load_stack_file(stack: str) -> Fleet:
    """Read a stack's file; its problems are named by the path from the checkout.

    Raises:
        typer.BadParameter: there is none.
        ConfigError: it is wrong.
    """
    return load_file(stack_file(stack), display=f"stacks/Pulumi.{stack}.yaml")


def open_state(stack: str) -> State:
    """The state of an embedded stack that was started; nothing is created for one that was not.

    Raises:
        NotRunningError: it was never started, or was removed.
        StateError: the directory cannot be used.
    """
    root = State.directory(checkout(), stack)
    if not (root / "kubeconfig").is_file():
        if not State.directory(checkout(), stack).is_dir():
            stack_file(stack)  # a mistyped name is the likelier cause
        raise NotRunningError(f"stack {stack} does not run here (no {root / 'kubeconfig'}); start it with `make up`")
    return State.open(checkout(), stack)
