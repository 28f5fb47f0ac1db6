"""`gpufleet check`, `schema` and `render`: what can be said about a stack file without a cluster or an engine."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer
import yaml
from rich.console import Console
from rich.table import Table

from components.kubernetes import admission, agent, kueue
from components.onprem import nodepool
from stacks.flavors import flavors_of_pools
from stacks.fleet import Fleet
from stacks.load import ConfigError, Problem, load_file
from stacks.quantities import format_usd
from stacks.schema import render_schema

Files = Annotated[list[Path], typer.Argument(help="Stack files, e.g. stacks/Pulumi.local.yaml.")]
File = Annotated[Path, typer.Argument(help="A stack file, e.g. stacks/Pulumi.local.yaml.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON for a program to read.")]


def check(files: Files, as_json: Json = False) -> None:
    """Say everything that is wrong with stack files; exit 1 if anything is."""
    problems: list[Problem] = []
    for file in files:
        try:
            load_file(file)
        except ConfigError as error:
            problems += error.problems
    if as_json:
        rows = [
            {"file": p.file, "line": p.line, "column": p.column, "path": p.path, "message": p.message} for p in problems
        ]
        typer.echo(json.dumps({"ok": not problems, "problems": rows}, indent=2))
    else:
        for problem in problems:
            typer.echo(str(problem))
        if not problems:
            typer.echo(f"{len(files)} file{'s' if len(files) > 1 else ''} right")
    raise typer.Exit(1 if problems else 0)


def schema() -> None:
    """Print the JSON schema of a stack file, for editors."""
    typer.echo(render_schema(), nl=False)


def plan(file: File) -> None:
    """Show what a stack file amounts to: flavors, their nodes' labels, and the teams' shares."""
    fleet = load_file(file)
    console = Console()
    flavors = Table("flavor", "GPUs", "USD per GPU-hour", "pools", "node labels", title="Flavors")
    for flavor in flavors_of_pools(fleet.pools).values():
        labels = " ".join(f"{key}={value}" for key, value in flavor.node_labels.items())
        price = format_usd(flavor.usd_per_gpu_hour)
        flavors.add_row(flavor.name, str(flavor.gpus), price, " ".join(flavor.pools), labels)
    teams = Table("team", "queue", "quota", "monthly budget", title="Teams")
    for name, team in fleet.teams.items():
        quota = " ".join(f"{flavor}={gpus}" for flavor, gpus in team.quota.items())
        monthly = team.budget and team.budget.monthly
        limit = format_usd(monthly) if monthly else "the fleet's"
        teams.add_row(name, f"{team.namespace or name}/{name}", quota, limit)
    console.print(flavors, teams)
    console.print(f"{len(objects_of(fleet))} Kubernetes objects; `gpufleet render {file}` prints them")


def render(file: File) -> None:
    """Print every Kubernetes object of a stack file as YAML."""
    typer.echo(yaml.safe_dump_all(objects_of(load_file(file)), sort_keys=False, width=120), nl=False)


def objects_of(fleet: Fleet) -> list[dict[str, object]]:
    """Every object that `pulumi up` creates, in order; patches of nodes are left out, as the nodes are not ours."""
    return [*admission.manifests().values(), *agent.manifests(fleet).values(), *kueue.manifests(fleet).values()]


def node_patches(fleet: Fleet) -> list[dict[str, object]]:
    """The labels that `pulumi up` puts on named on-prem nodes."""
    pools = fleet.onprem_pools.items()
    return [manifest for name, pool in pools for manifest in nodepool.manifests(name, pool).values()]
