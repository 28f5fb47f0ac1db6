"""Where the checkout and its stack files are."""

from __future__ import annotations

from pathlib import Path

import typer


def checkout() -> Path:
    """The checkout this installation belongs to: gpufleet is a template that is cloned, not a wheel."""
    return Path(__file__).resolve().parents[2]


def stack_file(stack: str) -> Path:
    """The stack's file.

    Raises:
        typer.BadParameter: there is none; the message lists those that exist.
    """
    file = checkout() / "stacks" / f"Pulumi.{stack}.yaml"
    if not file.is_file():
        known = ", ".join(path.stem.removeprefix("Pulumi.") for path in sorted(file.parent.glob("Pulumi.*.yaml")))
        raise typer.BadParameter(f"there is no {file.relative_to(checkout())}; stacks: {known}")
    return file
