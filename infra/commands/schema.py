"""`gpufleet schema` and `gpufleet reference`: what the settings are, for editors and for people.

Both print what is in the repository already (`stacks/*.schema.json`, `docs/config.md`); `make generate` writes it.
"""

from __future__ import annotations

from typing import Annotated

import typer

from stacks.describing.reference import render_reference
from stacks.describing.schema import render_schema, stack_file_schema, teams_file_schema


def schema(
    teams: Annotated[bool, typer.Option("--teams", help="The schema of a teams file instead.")] = False,
) -> None:
    """Print the JSON schema of a stack file, for editors.

    A stack file uses it by its first line: # yaml-language-server: $schema=fleet.schema.json
    """
    typer.echo(render_schema(teams_file_schema() if teams else stack_file_schema()), nl=False)


def reference() -> None:
    """Print the reference of every setting (docs/config.md)."""
    typer.echo(render_reference(), nl=False)
