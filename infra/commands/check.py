"""`gpufleet check`, `plan`, `render`, `schema`, `reference`: what a stack file says without a cluster or an engine."""

from __future__ import annotations

import json
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any

import typer
import yaml

from components.kubernetes import admission, agent, kueue
from components.onprem import nodepool
from infra.commands.columns import columns
from infra.commands.options import Json
from stacks.flavors import flavors_of_pools
from stacks.fleet import Fleet
from stacks.load import ConfigError, Problem, load_file
from stacks.quantities import format_usd
from stacks.reference import render_reference
from stacks.schema import render_schema

Files = Annotated[list[Path], typer.Argument(help="Stack files, e.g. stacks/Pulumi.local.yaml.")]
File = Annotated[Path, typer.Argument(help="A stack file, e.g. stacks/Pulumi.local.yaml.")]


def check(files: Files, as_json: Json = False) -> None:
    """Say everything that is wrong with stack files, each with its line.

    Exit code: 0; 1 if anything is wrong.
    """
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


def reference() -> None:
    """Print the reference of every setting (docs/config.md)."""
    typer.echo(render_reference(), nl=False)


def schema() -> None:
    """Print the JSON schema of a stack file, for editors."""
    typer.echo(render_schema(), nl=False)


def plan(file: File, as_json: Json = False) -> None:
    """Show what a stack file amounts to: flavors, the labels of their nodes, and the teams' shares.

    It reads the file alone; `pulumi preview` says what would change in a cluster.

    Exit code: 0; 1 if anything is wrong with the file.
    """
    fleet = load_file(file)
    flavors, teams, objects = _flavors(fleet), _teams(fleet), len(objects_of(fleet))
    if as_json:
        typer.echo(json.dumps({"flavors": flavors, "teams": teams, "objects": objects}, indent=2))
        return
    heading = ["FLAVOR", "GPUS", "PER GPU-HOUR", "POOLS"]
    priced = [
        (row["name"], row["gpus"], format_usd(Decimal(row["usd_per_gpu_hour"])), ",".join(row["pools"]))
        for row in flavors
    ]
    for line, row in zip(columns(heading, priced), [None, *flavors], strict=True):
        typer.echo(line)
        if row:
            typer.echo("\n".join(f"    {key}={value}" for key, value in row["node_labels"].items()))
    shares = [
        (row["name"], row["queue"], ",".join(f"{name}={gpus}" for name, gpus in row["quota"].items()), _budget(row))
        for row in teams
    ]
    typer.echo("")
    for line in columns(["TEAM", "QUEUE", "QUOTA", "PER MONTH"], shares):
        typer.echo(line)
    typer.echo(f"\n{objects} Kubernetes objects; `gpufleet render {file}` prints them")


def _flavors(fleet: Fleet) -> list[dict[str, Any]]:
    return [
        {
            "name": flavor.name,
            "gpus": flavor.gpus,
            "usd_per_gpu_hour": _plain(flavor.usd_per_gpu_hour),
            "pools": list(flavor.pools),
            "node_labels": dict(flavor.node_labels),
        }
        for flavor in flavors_of_pools(fleet.pools).values()
    ]


def _teams(fleet: Fleet) -> list[dict[str, Any]]:
    return [
        {
            "name": name,
            "queue": f"{team.namespace or name}/{name}",
            "quota": dict(team.quota),
            "monthly_budget_usd": f"{team.budget.monthly.normalize():f}"
            if team.budget and team.budget.monthly
            else None,
        }
        for name, team in fleet.teams.items()
    ]


def _plain(amount: Decimal) -> str:
    return f"{amount.normalize():f}"


def _budget(team: dict[str, Any]) -> str:
    monthly = team["monthly_budget_usd"]
    return format_usd(Decimal(monthly)) if monthly else "the fleet's"


def render(file: File) -> None:
    """Print every Kubernetes object of a stack file as YAML.

    Exit code: 0; 1 if anything is wrong with the file.
    """
    typer.echo(yaml.safe_dump_all(objects_of(load_file(file)), sort_keys=False, width=120), nl=False)


def objects_of(fleet: Fleet) -> list[dict[str, object]]:
    """Every object that `pulumi up` creates, in order; patches of nodes are left out, as the nodes are not ours."""
    return [*admission.manifests().values(), *agent.manifests(fleet).values(), *kueue.manifests(fleet).values()]


def node_patches(fleet: Fleet) -> list[dict[str, object]]:
    """The labels that `pulumi up` puts on named on-prem nodes."""
    pools = fleet.onprem_pools.items()
    return [manifest for name, pool in pools for manifest in nodepool.manifests(name, pool).values()]
