"""`gpufleet init`: the first stack file, from answers or from a cluster that is there."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import re
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any, Final

import typer

import infra.commands.init_options as option
from infra.commands.init_file import InitError, file_text, schema_beside, summary, usual_file, write_file
from infra.commands.init_questions import DEFAULT_GPU, asked
from infra.commands.options import Json
from infra.commands.project import open_state
from infra.discovery.find import find
from infra.discovery.findings import Findings, Taken
from infra.discovery.reader import connect, read

_DEFAULT_STACK: Final = "main"
_STANDARD_OUTPUT: Final = Path("-")
_STACK_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,99}")  # Pulumi's rule
_STACK_FILE: Final = re.compile(r"(?:.*/)?Pulumi\.(.+)\.ya?ml")
_INTERRUPTED: Final = 130  # what a shell reports of a program that Ctrl-C ended


def init(
    stack: option.Stack = _DEFAULT_STACK,
    to: option.To = None,
    from_cluster: option.FromCluster = False,
    context: option.Context = None,
    embedded: option.Embedded = None,
    organization: option.Organization = None,
    cluster: option.Cluster = None,
    team: option.Teams = None,
    preset: option.Preset = None,
    gpu: option.Gpu = None,
    nodes: option.Nodes = None,
    gpus_per_node: option.GpusPerNode = None,
    usd_per_gpu_hour: option.UsdPerGpuHour = None,
    cloud: option.RentedFrom = None,
    instance_type: option.RentedType = None,
    region: option.Region = None,
    market: option.RentedBy = None,
    max_gpus: option.MaxGpus = None,
    cloud_usd_per_gpu_hour: option.CloudUsdPerGpuHour = None,
    monthly_budget: option.MonthlyBudget = None,
    force: option.Force = False,
    yes: option.Yes = False,
    as_json: Json = False,
) -> None:
    """Write the first stack file, from answers or from a cluster that is there.

    On a terminal it asks what no flag says. The file passes `gpufleet check` before it is written; nothing in a cluster
    is changed, and by default nothing may be spent.

    The file goes into stacks/ of the gpufleet checkout, where pulumi looks for it, whatever the current folder is; --to
    writes another.

    Exit code: 0; 1 where the cluster cannot be read or a file is there already; 2 for a wrong option.
    """
    target = _target(_stack_name(stack), to)
    if target is not None and target.exists() and not force:
        raise InitError(f"{target} exists already; --force overwrites it, --to writes another file")
    said = _said(
        organization=organization,
        cluster=cluster,
        context=context,
        preset=preset,
        teams=tuple(dict.fromkeys(team)) if team else None,
        gpu=gpu,
        nodes=nodes,
        gpus_per_node=gpus_per_node,
        usd_per_gpu_hour=usd_per_gpu_hour,
        cloud=cloud,
        instance_type=instance_type,
        region=region,
        market=market,
        max_gpus=max_gpus,
        cloud_usd_per_gpu_hour=cloud_usd_per_gpu_hour,
        monthly_budget=monthly_budget,
    )
    asks = not yes and not as_json and target is not None and _on_a_terminal()
    reads = from_cluster or context is not None or embedded is not None
    if asks and not reads and nodes is None:
        reads = _ask_whether_to_read(said)
    findings, heading = _found(context, embedded, gpu) if reads else (Findings(), ())
    known = _asked(said, findings, reads=reads) if asks else said
    if not reads:
        _require_model(known)
    text, reading = file_text(findings, known, heading, schema_beside(target))
    if target is not None:
        write_file(target, text, overwrite=force)
    if as_json:
        typer.echo(json.dumps(_row(findings, text, target), indent=2))
    elif target is None:
        typer.echo(text, nl=False)
    else:
        typer.echo("\n".join(summary(target, stack, text, reading)))


def _said(**options: Any) -> dict[str, Any]:
    """The fields of `Answers` that flags say."""
    return {field: value for field, value in options.items() if value is not None}


def _asked(said: Mapping[str, Any], findings: Findings, *, reads: bool) -> dict[str, Any]:
    """What flags and a person say; flags that are wrong are refused before anything is asked."""
    _try(findings, said)
    with _interruptible():
        return asked(said, findings, partial(_try, findings), reads=reads)


def _ask_whether_to_read(said: Mapping[str, Any]) -> bool:
    _try(Findings(), said)
    with _interruptible():
        return typer.confirm("Read an existing cluster (with kubectl's rights; nothing is changed)?", default=False)


@contextmanager
def _interruptible() -> Iterator[None]:
    """Ctrl-C and Ctrl-D at a question end the program as interrupted ones end."""
    try:
        yield
    except typer.Abort:
        typer.echo(err=True)  # the question has no end of line
        raise typer.Exit(_INTERRUPTED) from None


def _try(findings: Findings, said: Mapping[str, Any]) -> None:
    """Refuse flags and answers that no further answer could make right."""
    open_yet: dict[str, Any] = {"gpu": DEFAULT_GPU, "cloud_usd_per_gpu_hour": Decimal(1)}
    still_asked = {"max_gpus"} if "instance_type" not in said else set()  # how many a node has is not known yet
    file_text(
        findings, open_yet | {field: value for field, value in said.items() if field not in still_asked}, (), None
    )


def _on_a_terminal() -> bool:
    return sys.stdin.isatty() and sys.stdout.isatty()


def _target(stack: str, to: Path | None) -> Path | None:
    """Where the file goes; None is standard output."""
    if to == _STANDARD_OUTPUT:
        return None
    return to or usual_file(stack)


def _found(context: str | None, embedded: str | None, gpu: str | None) -> tuple[Findings, tuple[str, ...]]:
    """What a cluster holds, and a line that says which cluster."""
    if context is not None and embedded is not None:
        raise typer.BadParameter("--context and --stack name two clusters; give one", param_hint="--context")
    environment = {"KUBECONFIG": str(open_state(embedded).kubeconfig)} if embedded else None
    connection, name = connect(context, environment) if environment else connect(context)
    where = f"the embedded stack {embedded}" if embedded else f"the cluster of kubeconfig context {name}"

    async def read_all() -> Findings:
        async with connection:
            return find(await read(connection), unknown_gpu=gpu)

    return asyncio.run(read_all()), (f"Read from {where}.",)


def _require_model(known: Mapping[str, Any]) -> None:
    """Nodes that are only described need a model."""
    if known.get("nodes") and "gpu" not in known:
        raise typer.BadParameter(f"nodes of your own need a model, e.g. --gpu {DEFAULT_GPU}", param_hint="--gpu")


def _stack_name(name: str) -> str:
    if file := _STACK_FILE.fullmatch(name):
        raise typer.BadParameter(
            f"{name!r} names the file; the stack is {file[1]} (`gpufleet init {file[1]}`)", param_hint="STACK"
        )
    if not _STACK_NAME.fullmatch(name):
        raise typer.BadParameter(f"{name!r}: a stack name has letters, digits, '-', '_' and '.'", param_hint="STACK")
    return name


def _row(findings: Findings, text: str, target: Path | None) -> dict[str, Any]:
    """The findings for a program, with the file that they became."""
    found = dataclasses.asdict(dataclasses.replace(findings, deployed=None, taken=Taken()))
    del found["deployed"], found["taken"]
    return {"file": str(target) if target else None, "findings": found, "text": text}
