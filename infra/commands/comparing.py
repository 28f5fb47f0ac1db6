"""`gpufleet diff`: what becomes of the objects and the money when one version of a stack file replaces another."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from typing import Annotated, Any, Final

import typer

from infra.commands.columns import columns
from infra.commands.completion import stack_files
from infra.commands.money import cloud_range, cost_row, spending_row
from infra.commands.options import Json
from infra.planning import sources
from infra.planning.changes import Changes, CostChange, changes
from infra.planning.compare import Difference
from infra.planning.costs import PoolCost
from infra.planning.objects import Identity
from stacks.quantities import format_usd

Old = Annotated[
    str,
    typer.Argument(
        help="The stack file as it was, or REVISION:path as Git names it, e.g. HEAD:stacks/Pulumi.prod.yaml.",
        autocompletion=stack_files,
    ),
]
New = Annotated[str, typer.Argument(help="The stack file as it shall be, named alike.", autocompletion=stack_files)]
Full = Annotated[bool, typer.Option("--full", help="Show every field that differs.")]
ExitCode = Annotated[bool, typer.Option("--exit-code", help="Exit with 1 where anything differs, as git diff does.")]

_SHOWN_FIELDS: Final = 5


def diff(old: Old, new: New, full: Full = False, exit_code: ExitCode = False, as_json: Json = False) -> None:
    """Show what changes between two stack files: objects, dangers, budgets, and what a month can cost.

    It compares the files alone; `pulumi preview` says what would change in a cluster.

    Exit code: 0, also where they differ; 1 if anything is wrong with a file, or with --exit-code where they differ.
    """
    before, after = sources.read_both(old, new)
    found = changes(before.fleet, after.fleet)
    if as_json:
        typer.echo(json.dumps(_document(found), indent=2))
    else:
        for line in _lines(found, full=full):
            typer.echo(line)
    raise typer.Exit(1 if exit_code and found else 0)


def _document(found: Changes) -> dict[str, Any]:
    old, new = found.costs
    return {
        "differs": bool(found),
        "dangers": list(found.dangers),
        "objects": {
            "added": [one._asdict() for one in found.added],
            "removed": [one._asdict() for one in found.removed],
            "changed": [
                {**one.identity._asdict(), "fields": [_field(field) for field in one.fields]} for one in found.changed
            ],
        },
        "not_deployed": [_field(field) for field in found.parts],
        "budgets": [_field(field) for field in found.budgets],
        "cost": {
            "pools": [
                {
                    "name": one.pool,
                    "old": cost_row(one.old) if one.old else None,
                    "new": cost_row(one.new) if one.new else None,
                }
                for one in found.pools
            ],
            "old": spending_row(old),
            "new": spending_row(new),
        },
    }


def _field(one: Difference) -> dict[str, str | None]:
    return {"path": one.path, "old": one.old, "new": one.new}


def _lines(found: Changes, *, full: bool) -> Iterator[str]:
    if not found:
        yield "no difference in objects, budgets or cost"
        return
    sections = [
        [f"! {danger}" for danger in found.dangers],
        list(_objects(found, full=full)),
        [f"not deployed by this version: {one}" for one in _some(found.parts, full=full)],
        [f"budget {one}" for one in found.budgets],
        list(_costs(found)),
    ]
    yield "\n\n".join("\n".join(lines) for lines in sections if lines)


def _objects(found: Changes, *, full: bool) -> Iterator[str]:
    yield from (f"- {_named(one)}" for one in found.removed)
    yield from (f"+ {_named(one)}" for one in found.added)
    for changed in found.changed:
        yield f"~ {_named(changed.identity)}"
        yield from (f"    {line}" for line in _some(changed.fields, full=full))
    added, removed, differing = map(len, (found.added, found.removed, found.changed))
    yield f"objects: {added} added, {removed} removed, {differing} changed"


def _some(fields: Sequence[Difference], *, full: bool) -> Iterator[str]:
    shown = fields if full else fields[:_SHOWN_FIELDS]
    yield from map(str, shown)
    if more := len(fields) - len(shown):
        yield f"and {more} more; --full shows them"


def _named(one: Identity) -> str:
    return f"{one.kind} {one.place}"


def _costs(found: Changes) -> Iterator[str]:
    old, new = found.costs
    if found.pools:
        yield from columns(["POOL", "CHANGE", "GPUS", "MONTH, LEAST", "MONTH, MOST"], map(_cost, found.pools))
        yield ""
    if old.fixed != new.fixed:
        yield f"owned GPUs: {_from_to(format_usd(old.fixed), format_usd(new.fixed))} a month"
    yield f"cloud GPUs: {_from_to(cloud_range(old), cloud_range(new))} a month, bound by {new.bound_by}"


def _cost(one: CostChange) -> tuple[str, ...]:
    return (
        one.pool,
        "removed" if one.new is None else "added" if one.old is None else "changed",
        _between(one, lambda cost: str(cost.gpus)),
        _between(one, lambda cost: format_usd(cost.lowest)),
        _between(one, lambda cost: format_usd(cost.highest)),
    )


def _between(one: CostChange, said: Callable[[PoolCost], str]) -> str:
    sides = [said(cost) for cost in (one.old, one.new) if cost is not None]
    return _from_to(sides[0], sides[-1])


def _from_to(old: str, new: str) -> str:
    return old if old == new else f"{old} -> {new}"
