"""`gpufleet mig`: which MIG layouts a demand needs, and what a layout comes to. It changes no GPU."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from infra.commands.mig_explained import explained, explained_document
from infra.commands.mig_planning import (
    Terms,
    chosen_pool,
    known_model,
    plan_for_gpus,
    plan_for_pool,
    print_json,
    print_lines,
    wanted_of,
)
from infra.commands.options import Json
from infra.commands.places import stack_files
from infra.gpus.plan import Solver

app = typer.Typer(
    help=(
        "Plan MIG layouts from demand, and explain them (docs/gpu.md). Nothing here changes a GPU.\n\n"
        "Exit code: 0; 1 where there is no such plan or layout, and standard error says why."
    ),
    no_args_is_help=True,
    add_completion=False,
)

Gpu = Annotated[str | None, typer.Option(metavar="MODEL", help="GPU model, e.g. h100-sxm-80gb or h100-sxm.")]
AnyPlacement = Annotated[
    bool, typer.Option("--any-placement", help="Allow layouts that mig-parted is not believed to reach.")
]


@app.command()
def plan(
    gpu: Gpu = None,
    demand: Annotated[
        str | None, typer.Option(metavar="PROFILE=COUNT,…", help="Instances wanted, e.g. 3g.40gb=10,1g.10gb=50.")
    ] = None,
    jobs: Annotated[
        Path | None, typer.Option(help="CSV of jobs that run at once: memory, sms or profile, count, name.")
    ] = None,
    trace: Annotated[
        Path | None, typer.Option(help="Trace whose jobs have memory, sms or profile: its peaks are the demand.")
    ] = None,
    pool: Annotated[str | None, typer.Option(help="Pool of the stack file to plan for; its nodes are equal.")] = None,
    file: Annotated[
        str, typer.Option(metavar="FILE", help="Stack file, or name of a stack.", autocompletion=stack_files)
    ] = "local",
    keep: Annotated[
        Path | None, typer.Option(help="GPUs that are there, with live instances as PROFILE@START (YAML or JSON).")
    ] = None,
    leave_live: Annotated[bool, typer.Option("--leave-live", help="Add nothing on GPUs with live instances.")] = False,
    any_placement: AnyPlacement = False,
    gpus_per_node: Annotated[int, typer.Option(min=1, max=64, help="GPUs of each node, without --pool.")] = 8,
    solver: Annotated[Solver, typer.Option(help="exact: HiGHS, proven; heuristic: first fit, with its gap.")] = "auto",
    write: Annotated[bool, typer.Option("--write", help="Put the layout into the pool; comments stay.")] = False,
    as_json: Json = False,
) -> None:
    """Plan the fewest GPUs for a demand, then the most SMs, least stranded memory and fewest reconfigurations.

    Prints what to paste into a pool, and a picture of each layout on its line of memory units.

    Exit code: 0; 1 where the demand cannot be met, or the file is or would be wrong.
    """
    if sum(source is not None for source in (demand, jobs, trace)) != 1:
        raise typer.BadParameter("give exactly one of --demand, --jobs and --trace", param_hint="--demand")
    terms = Terms(solver, any_placement, leave_live)
    if pool is not None:
        if keep or leave_live:
            message = "live instances are of single GPUs, and a pool's nodes are equal; plan without --pool"
            raise typer.BadParameter(message, param_hint="--keep")
        chosen = chosen_pool(file, pool, gpu)
        plan_for_pool(chosen, wanted_of(chosen.model, demand, jobs, trace), terms, write, as_json)
        return
    if write:
        raise typer.BadParameter("needs the pool to write to: add --pool NAME", param_hint="--write")
    model = known_model(gpu)
    plan_for_gpus(model, wanted_of(model, demand, jobs, trace), keep, terms, gpus_per_node, as_json)


@app.command()
def explain(
    layout: Annotated[
        str, typer.Argument(metavar="LAYOUT", help="Profiles of one GPU: 3g.40gb,4x1g.10gb or 3g.40gb@4,1g.10gb@0.")
    ],
    gpu: Gpu = None,
    as_json: Json = False,
) -> None:
    """Say why a layout is illegal, or what it exposes and strands, and how it comes about.

    Exit code: 0; 1 where it is illegal.
    """
    model = known_model(gpu)
    if as_json:
        document = explained_document(model, layout)
        print_json(document)
        raise typer.Exit(0 if document["legal"] else 1)
    print_lines(explained(model, layout))
