"""`gpufleet plan`: what a stack file amounts to, in objects, GPUs, shares and money.

It reads the file alone; `pulumi preview` says what would change in a cluster.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from decimal import Decimal
from typing import Annotated, Any, Final

import typer

from infra.commands.annotations import json_text, problem_row
from infra.commands.columns import columns
from infra.commands.money import cost_row, lines_of_costs, spending_row
from infra.commands.options import Json
from infra.commands.places import stack_files
from infra.coverage import parts_without_components
from infra.planning import sources
from infra.planning.costs import costs_of
from infra.planning.facts import filled_rows, flavor_rows, inline, pool_rows, project_rows, team_rows
from infra.planning.objects import Manifest, counts, identity, node_patches, objects_of, releases_of
from infra.planning.sources import Source
from stacks.labels import POOL_LABEL
from stacks.layouts import node_labels
from stacks.load import ConfigError
from stacks.quantities import format_usd

File = Annotated[
    str,
    typer.Argument(
        help="A stack file, e.g. stacks/Pulumi.local.yaml, or REVISION:path as Git names it.",
        autocompletion=stack_files,
    ),
]
Objects = Annotated[bool, typer.Option("--objects", help="Name each object, not only how many there are.")]

_PER: Final = {"monthly": "", "weekly": " a week", "daily": " a day"}
_NOT_DEPLOYED: Final = "checked and planned, not deployed by this version, and no object of theirs is counted:"


def plan(file: File, objects: Objects = False, as_json: Json = False) -> None:
    """Show what a stack file amounts to: objects, flavors, the teams' shares, and what a month can cost.

    It reads the file alone; `pulumi preview` says what would change in a cluster.

    Exit code: 0; 1 if anything is wrong with the file.
    """
    with problems_as_json(as_json):
        source = sources.read(file)
    made, labelled = objects_of(source.fleet), node_patches(source.fleet)
    if as_json:
        typer.echo(json.dumps(_document(source, made, labelled), indent=2))
        return
    sections = (
        _objects(file, made, labelled, each=objects),
        _releases(source),
        _flavors(source),
        _teams(source),
        _projects(source),
        _filled(source),
        lines_of_costs(costs_of(source.fleet)),
        _open_parts(source),
        [str(warning) for warning in source.warnings],
    )
    typer.echo("\n\n".join("\n".join(lines) for lines in map(list, sections) if lines))


@contextmanager
def problems_as_json(wanted: bool, files: int = 1) -> Iterator[None]:
    """Print the problems of wrong files as `check --json` does and exit with 1; without it they pass on as they are."""
    try:
        yield
    except ConfigError as error:
        if not wanted:
            raise
        typer.echo(json_text(error.problems, files))
        raise typer.Exit(1) from None


def _document(source: Source, made: Sequence[Manifest], labelled: Sequence[Manifest]) -> dict[str, Any]:
    costs = costs_of(source.fleet)
    return {
        "objects": {
            "count": len(made),
            "by_kind": counts(made),
            "labelled_nodes": len(labelled),
            "all": [identity(one)._asdict() for one in made],
        },
        "helm_releases": releases_of(source.fleet),
        "flavors": flavor_rows(source.fleet),
        "pools": pool_rows(source.fleet),
        "teams": team_rows(source.fleet),
        "projects": project_rows(source.fleet),
        "filled_in": filled_rows(source.filled),
        "cost": {**spending_row(costs), "pools": [cost_row(cost) for cost in [*costs.owned, *costs.rented]]},
        "not_deployed": parts_without_components(source.fleet),
        "warnings": [problem_row(one) for one in source.warnings],
    }


def _objects(file: str, made: Sequence[Manifest], labelled: Sequence[Manifest], *, each: bool) -> Iterator[str]:
    if each:
        rows = [(one.kind, one.namespace, one.name) for one in map(identity, made)]
        rows += [("Node (labels)", "", node["metadata"]["name"]) for node in labelled]
        yield from columns(["KIND", "NAMESPACE", "NAME"], rows)
    else:
        rows_of_counts = [*counts(made).items(), *([("Node (labels)", len(labelled))] if labelled else [])]
        yield from columns(["KIND", "OBJECTS"], rows_of_counts)
    yield f"{len(made)} Kubernetes objects; `gpufleet render {file}` prints them"


def _releases(source: Source) -> list[str]:
    rows = [(one["name"], one["version"], one["namespace"]) for one in releases_of(source.fleet)]
    return columns(["HELM RELEASE", "VERSION", "NAMESPACE"], rows) if rows else []


def _flavors(source: Source) -> Iterator[str]:
    """One line for each flavor; below it what its nodes must carry, and what pods can ask for."""
    rows = flavor_rows(source.fleet)
    cells = [
        (row["name"], row["gpus"], format_usd(Decimal(row["usd_per_gpu_hour"])), ",".join(row["pools"])) for row in rows
    ]
    heading, *lines = columns(["FLAVOR", "GPUS", "PER GPU-HOUR", "POOLS"], cells)
    yield heading
    for line, row in zip(lines, rows, strict=True):
        yield line
        yield from (f"    {key}={value}" for key, value in row["node_labels"].items())
        for pool in row["pools"]:
            yield f"    {POOL_LABEL}={pool}"
            yield from (f"        {key}={value}" for key, value in node_labels(source.fleet, pool).items())
        yield from (f"    {taint}" for taint in row["node_taints"])
        yield from (f"    {device}: {count}" for device, count in row["devices"].items())


def _teams(source: Source) -> Iterator[str]:
    """One line for each team; below it the queues that the agent moves its jobs to, and those that open in a window."""
    without = "the fleet's" if source.fleet.burst.budget else None
    rows = team_rows(source.fleet)
    cells = [
        (
            row["name"],
            row["queue"],
            ",".join(f"{name}={gpus}" for name, gpus in row["quota"].items()),
            _budget(row) or without,
        )
        for row in rows
    ]
    heading, *lines = columns(["TEAM", "QUEUE", "QUOTA", "BUDGET PER MONTH"], cells)
    yield heading
    for line, row in zip(lines, rows, strict=True):
        yield line
        for flavor, queue in row["burst_queues"].items():
            yield f"    {_in_its_namespace(queue)} bursts to {flavor}"
        for job_class, queue in row["window_queues"].items():
            yield f"    {_in_its_namespace(queue)} opens {source.fleet.classes[job_class].window}"


def _in_its_namespace(place: str) -> str:
    return place.partition("/")[2]


def _projects(source: Source) -> list[str]:
    rows = [(row["name"], ",".join(row["teams"]), _budget(row)) for row in project_rows(source.fleet)]
    return columns(["PROJECT", "TEAMS", "BUDGET PER MONTH"], rows) if rows else []


def _budget(row: dict[str, Any]) -> str:
    """`$300.00, $40.00 a day`, with `soft` where it stops nothing; empty where there is none."""
    limits = [(row[f"{period}_budget_usd"], per) for period, per in _PER.items()]
    amounts = [format_usd(Decimal(usd)) + per for usd, per in limits if usd is not None]
    return ", ".join(amounts) + (" soft" if row["budget_kind"] == "soft" else "")


def _filled(source: Source) -> list[str]:
    rows = [(row["path"], inline(row["value"]), row["source"]) for row in filled_rows(source.filled)]
    return columns(["FILLED IN", "VALUE", "FROM"], rows) if rows else []


def _open_parts(source: Source) -> list[str]:
    missing = parts_without_components(source.fleet)
    return [_NOT_DEPLOYED, *(f"    {part}" for part in missing)] if missing else []
