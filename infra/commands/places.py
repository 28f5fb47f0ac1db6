"""Where the checkout and its stack files are, by name; light, as completion and `check` import it."""

from __future__ import annotations

from pathlib import Path


def checkout() -> Path:
    """The checkout this installation belongs to: gpufleet is a template that is cloned, not a wheel."""
    return Path(__file__).resolve().parents[2]


def stacks() -> dict[str, Path]:
    """The stack files of the checkout, by the stack's name."""
    files = sorted((checkout() / "stacks").glob("Pulumi.*.yaml"))
    return {file.stem.removeprefix("Pulumi."): file for file in files}


def stack_names(incomplete: str) -> list[str]:
    """Stacks of the checkout whose name starts so."""
    return [name for name in stacks() if name.startswith(incomplete)]


def stack_files(incomplete: str) -> list[str]:
    """Stack files below the working directory whose path starts so; without any, the shell offers all files."""
    files = sorted(str(path) for pattern in ("Pulumi.*.yaml", "stacks/Pulumi.*.yaml") for path in Path().glob(pattern))
    return [file for file in files if file.startswith(incomplete)]
