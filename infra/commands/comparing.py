"""`gpufleet diff`: the settings that changed between two versions of a stack file, and what becomes of it.

Dangers stand first, then the settings, then what they mean in objects and money. It compares files, not clusters.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from typing import Annotated, Any, Final

import typer

from infra.commands.columns import columns
from infra.commands.money import cloud_range, cost_row, spending_row
from infra.commands.options import Json
from infra.commands.places import stack_files
from infra.commands.planning import problems_as_json
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
Full = Annotated[bool, typer.Option("--full", help="Show every field that differs, and whole values.")]
ExitCode = Annotated[bool, typer.Option("--exit-code", help="Exit with 1 where anything differs, as git diff does.")]

_SHOWN_FIELDS: Final = 5  # of one object
_SHOWN_SETTINGS: Final = 20  # with the dangers above them one screen


def diff(old: Old, new: New, full: Full = False, exit_code: ExitCode = False, as_json: Json = False) -> None:
    """Show what changes between two stack files: dangers, settings, objects, and what a month can cost.

    It compares the files alone; `pulumi preview` says what would change in a cluster.

    Exit code: 0, also where they differ; 1 if anything is wrong with a file, or with --exit-code where they differ.
    """
    with problems_as_json(as_json, files=2):
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
        "settings": [_field(field) for field in found.settings],
        "not_deployed": list(found.parts),
        "objects": {
            "added": [one._asdict() for one in found.added],
            "removed": [one._asdict() for one in found.removed],
            "kept": [one._asdict() for one in found.kept],
            "changed": [
                {**one.identity._asdict(), "fields": [_field(field) for field in one.fields]} for one in found.changed
            ],
        },
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
        yield "no difference"
        return
    sections = [
        [f"! {danger}" for danger in found.dangers],
        list(_some(found.settings, _SHOWN_SETTINGS, full=full)),
        [f"not deployed by this version: {part}" for part in found.parts],
        list(_objects(found, full=full)),
        list(_costs(found)),
    ]
    yield "\n\n".join("\n".join(lines) for lines in sections if lines)


def _objects(found: Changes, *, full: bool) -> Iterator[str]:
    yield from (f"- {_named(one)}" for one in found.removed)
    yield from (f"= {_named(one)} stays (on_destroy: keep-data)" for one in found.kept)
    yield from (f"+ {_named(one)}" for one in found.added)
    for changed in found.changed:
        yield f"~ {_named(changed.identity)}"
        yield from (f"    {line}" for line in _some(changed.fields, _SHOWN_FIELDS, full=full))
    added, removed, kept, differing = map(len, (found.added, found.removed, found.kept, found.changed))
    yield f"objects: {added} added, {removed} removed, {f'{kept} kept, ' if kept else ''}{differing} changed"


def _some(fields: Sequence[Difference], most: int, *, full: bool) -> Iterator[str]:
    shown = fields if full else [field.shortened() for field in fields[:most]]
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
