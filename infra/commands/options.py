"""Options that several commands take, so that they are called and described alike."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from infra.commands.places import stack_names

LocalStack = Annotated[
    str,
    typer.Option(help="Stack file stacks/Pulumi.<STACK>.yaml of the embedded stack.", autocompletion=stack_names),
]
ClusterStack = Annotated[
    str, typer.Option(help="Embedded stack to read where KUBECONFIG is not set.", autocompletion=stack_names)
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON for a program to read.")]
Since = Annotated[
    str | None, typer.Option(metavar="DATE|DURATION", help="Only from then on, e.g. 2026-11-01 (UTC) or 7d.")
]
Seed = Annotated[int, typer.Option(help="Seed of the synthetic trace; equal seeds give equal traces.")]
Trace = Annotated[Path | None, typer.Option(help="CSV of jobs (docs/traces.md has its form). Default: synthetic.")]
