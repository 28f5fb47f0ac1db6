"""`gpufleet render`: the objects of a stack file, as one stream or as a folder for a GitOps tool."""

from __future__ import annotations

import json
from pathlib import Path, PurePosixPath
from typing import Annotated, Any, Final

import typer

from infra.commands.options import Json
from infra.commands.planning import File, problems_as_json
from infra.coverage import parts_without_components
from infra.planning import sources
from infra.planning.folder import Rendered, RenderError, write_folder
from infra.planning.manifests import files_of, yaml_of
from infra.planning.objects import node_patches, objects_of, releases_of, without_pulumi
from stacks.fleet import Fleet
from stacks.problems import printable

Folder = Annotated[
    str | None,
    typer.Option("--to", metavar="DIR", help="Write a file for each object and a kustomization.yaml into this folder."),
]
Partial = Annotated[
    bool, typer.Option("--partial", help="Write the folder also where the file has parts that cannot be rendered yet.")
]

_LONGEST_NAME: Final = 120  # characters of a stack file's name in the files rendered from it


def render(file: File, to: Folder = None, partial: Partial = False, as_json: Json = False) -> None:
    """Print every Kubernetes object of a stack file as YAML, or keep a folder of them for GitOps.

    A folder is made equal to the file: what did not change is not touched, and what an earlier render wrote and is
    gone from the fleet is removed. Files that render did not write are never changed or removed.

    Exit code: 0; 1 if anything is wrong with the file, the folder cannot be used or, without --partial, would lack
    parts that no component makes yet.
    """
    if partial and to is None:
        raise typer.BadParameter("is for a folder; name one with --to", param_hint="--partial")
    with problems_as_json(as_json):
        fleet = sources.read(file).fleet
    manifests = [without_pulumi(manifest) for manifest in objects_of(fleet)]
    if to is None:
        items = {"apiVersion": "v1", "kind": "List", "items": manifests}
        typer.echo(json.dumps(items, indent=2) + "\n" if as_json else yaml_of(manifests), nl=False)
    elif not to:
        raise typer.BadParameter("an empty name is no folder; name one, or . for this one", param_hint="--to")
    else:
        if not partial:
            _refuse_an_incomplete_folder(fleet)
        folder = Path(to)
        origin = printable(PurePosixPath(file.rpartition(":")[2]).name, _LONGEST_NAME)
        rendered = write_folder(folder, files_of(manifests, origin), origin)
        if as_json:
            typer.echo(json.dumps(_row(folder, rendered, fleet), indent=2))
        else:
            _tell(folder, rendered)
    for notice in _left_out(fleet, for_a_folder=to is not None):
        typer.echo(notice, err=True)


def _refuse_an_incomplete_folder(fleet: Fleet) -> None:
    """A GitOps tool would take the folder for the whole fleet."""
    if parts := parts_without_components(fleet):
        raise RenderError(
            "the folder would be incomplete, as no component makes these parts yet:\n"
            + "".join(f"    {part}\n" for part in parts)
            + "nothing was written; --partial writes the rest"
        )


def _row(folder: Path, rendered: Rendered, fleet: Fleet) -> dict[str, Any]:
    return {
        "folder": str(folder),
        "written": list(rendered.written),
        "unchanged": list(rendered.unchanged),
        "removed": list(rendered.removed),
        "overwritten": list(rendered.overwritten),
        "left": list(rendered.left),
        "not_rendered": parts_without_components(fleet),
        "node_labels_left_out": len(node_patches(fleet)),
    }


def _tell(folder: Path, rendered: Rendered) -> None:
    for name in rendered.written:
        by_hand = " (its changes by hand are overwritten)" if name in rendered.overwritten else ""
        typer.echo(f"written    {name}{by_hand}")
    for name in rendered.removed:
        typer.echo(f"removed    {name}")
    for name in rendered.left:
        typer.echo(f"left       {name} (no longer rendered, but changed by hand; remove it yourself)")
    written, unchanged, removed = map(len, (rendered.written, rendered.unchanged, rendered.removed))
    typer.echo(f"{folder}: {written} written, {unchanged} unchanged, {removed} removed")


def _left_out(fleet: Fleet, *, for_a_folder: bool) -> list[str]:
    """What the objects alone do not bring about."""
    notices = [f"not rendered: {part} (no component makes it yet)" for part in parts_without_components(fleet)]
    for release in releases_of(fleet):
        chart = f"{release['chart']} {release['version']} of {release['repositoryOpts']['repo']}"
        notices.append(f"not rendered: the Helm chart {chart} (`gpufleet plan --json` has its values)")
    if nodes := len(node_patches(fleet)):
        of_nodes = f"the labels of {nodes} node{'' if nodes == 1 else 's'}"
        notices.append(f"not rendered: {of_nodes} (nodes are not ours to apply; `gpufleet plan` prints the labels)")
    if for_a_folder and fleet.on_destroy == "keep-data":
        notices.append(
            "on_destroy: keep-data is for `pulumi up`; tell your GitOps tool not to prune namespaces and volume claims"
        )
    return notices
