"""`gpufleet init`: the first stack file, from answers or from a cluster that is there."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import os
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Final, TypeVar, get_args

import typer

from infra.commands.init_questions import DEFAULT_GPU, MOST_GPUS, MOST_NODES, asked
from infra.commands.options import Json
from infra.commands.project import checkout, open_state
from infra.coverage import parts_without_components
from infra.discovery.answers import Answers
from infra.discovery.draft import draft
from infra.discovery.find import find
from infra.discovery.findings import Findings, Taken
from infra.discovery.reader import connect, read
from infra.discovery.text import render
from infra.local.errors import LocalError
from infra.local.state import write_atomically
from stacks.load import Reading, read_text
from stacks.pools import Market
from stacks.presets import PresetName
from stacks.quantities import parse_gpu_name, parse_kube_name, parse_usd
from stacks.suggest import did_you_mean

_DEFAULT_STACK: Final = "main"
_STANDARD_OUTPUT: Final = Path("-")
_STACK_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,99}")  # Pulumi's rule
_FILE_MODE: Final = 0o644  # there are no secrets in it, and it belongs into version control


Value = TypeVar("Value")


class InitError(LocalError):
    """No file was written."""


def init(
    stack: Annotated[str, typer.Argument(help="Name of the stack; the file is stacks/Pulumi.<STACK>.yaml.")] = (
        _DEFAULT_STACK
    ),
    to: Annotated[Path | None, typer.Option(help="Another file; - is standard output.")] = None,
    from_cluster: Annotated[bool, typer.Option("--from-cluster", help="Read nodes and queues of a cluster.")] = False,
    context: Annotated[str | None, typer.Option(help="Kubeconfig context to read; the file will name it.")] = None,
    embedded: Annotated[str | None, typer.Option("--stack", help="Read the embedded stack of this name.")] = None,
    organization: Annotated[str | None, typer.Option(help="Name of the company or group.")] = None,
    cluster: Annotated[str, typer.Option(help="What the file calls the cluster.")] = "main",
    team: Annotated[list[str] | None, typer.Option(help="A team; may be given several times.")] = None,
    preset: Annotated[str, typer.Option(help=f"One of {', '.join(get_args(PresetName))}.")] = "balanced",
    gpu: Annotated[str | None, typer.Option(help="GPU model of your own nodes that no label names.")] = None,
    nodes: Annotated[int, typer.Option(min=0, max=MOST_NODES, help="Nodes of your own, without --from-cluster.")] = 0,
    gpus_per_node: Annotated[int, typer.Option(min=1, max=MOST_GPUS, help="GPUs in each of them.")] = 8,
    usd_per_gpu_hour: Annotated[str | None, typer.Option(help="What an owned GPU costs an hour.")] = None,
    cloud: Annotated[str | None, typer.Option(help="aws or gcp: where to rent, if no rented node is found.")] = None,
    instance_type: Annotated[str | None, typer.Option(help="Instance type to rent.")] = None,
    region: Annotated[str | None, typer.Option(help="Region to rent in.")] = None,
    market: Annotated[str, typer.Option(help="How to rent: on-demand, spot ...")] = "on-demand",
    max_gpus: Annotated[int, typer.Option(min=0, max=1_000_000, help="Most GPUs to rent.")] = 0,
    cloud_usd_per_gpu_hour: Annotated[str | None, typer.Option(help="Most that a rented GPU-hour may cost.")] = None,
    monthly_budget: Annotated[str | None, typer.Option(help="Most to spend on the cloud each month.")] = None,
    force: Annotated[bool, typer.Option("--force", help="Overwrite a file that is there, secrets and all.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Ask nothing; flags and defaults decide.")] = False,
    as_json: Json = False,
) -> None:
    """Write the first stack file, from answers or from a cluster that is there.

    On a terminal it asks what no flag says. The file passes `gpufleet check` before it is written; nothing in a cluster
    is changed, and by default nothing may be spent.

    Exit code: 0; 1 where the cluster cannot be read or a file is there already; 2 for a wrong option.
    """
    target = _target(_stack_name(stack), to)
    if target is not None and target.exists() and not force:
        raise InitError(f"{target} exists already; --force overwrites it, --to writes another file")
    answers = Answers(
        organization=_optional(organization, "--organization", parse_kube_name),
        cluster=_checked(cluster, "--cluster", parse_kube_name),
        context=context,
        preset=_one_of(preset, "--preset", get_args(PresetName)),
        teams=tuple(dict.fromkeys(_checked(name, "--team", parse_kube_name) for name in team or ())),
        gpu=_optional(gpu, "--gpu", parse_gpu_name),
        nodes=nodes,
        gpus_per_node=gpus_per_node,
        usd_per_gpu_hour=_optional(usd_per_gpu_hour, "--usd-per-gpu-hour", parse_usd),
        cloud=None if cloud is None else _one_of(cloud, "--cloud", ("aws", "gcp")),
        instance_type=instance_type,
        region=region,
        market=_one_of(market, "--market", get_args(Market)),
        max_gpus=max_gpus,
        cloud_usd_per_gpu_hour=_optional(cloud_usd_per_gpu_hour, "--cloud-usd-per-gpu-hour", parse_usd),
        monthly_budget=_optional(monthly_budget, "--monthly-budget", parse_usd),
    )
    asks = not yes and not as_json and target is not None and _on_a_terminal()
    reads = from_cluster or context is not None or embedded is not None
    if asks and not reads:
        reads = typer.confirm("Read an existing cluster (with kubectl's rights; nothing is changed)?", default=False)
    findings, heading = _found(context, embedded, answers.gpu) if reads else (Findings(), ())
    if asks:
        answers = asked(answers, findings, reads=reads)
    text, reading = _text(findings, _complete(answers, reads=reads), heading)
    if target is not None:
        _write(target, text, overwrite=force)
    if as_json:
        typer.echo(json.dumps(_row(findings, text, target), indent=2))
    elif target is None:
        typer.echo(text, nl=False)
    else:
        _tell(target, stack, text, reading)


def _on_a_terminal() -> bool:
    return sys.stdin.isatty() and sys.stdout.isatty()


def _target(stack: str, to: Path | None) -> Path | None:
    """Where the file goes; None is standard output."""
    if to == _STANDARD_OUTPUT:
        return None
    return to or checkout() / "stacks" / f"Pulumi.{stack}.yaml"


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


def _complete(answers: Answers, *, reads: bool) -> Answers:
    """Nodes that are only described need a model."""
    if reads or not answers.nodes or answers.gpu:
        return answers
    raise typer.BadParameter(f"nodes of your own need a model, e.g. --gpu {DEFAULT_GPU}", param_hint="--gpu")


def _checked(value: str, option: str, read: Callable[[object], Value]) -> Value:
    """The value of an option, as the fleet file would read it."""
    try:
        return read(value)
    except ValueError as error:
        raise typer.BadParameter(f"{value!r}: {error}", param_hint=option) from None


def _optional(value: str | None, option: str, read: Callable[[object], Value]) -> Value | None:
    return None if value is None else _checked(value, option, read)


def _one_of(value: str, option: str, known: tuple[str, ...]) -> str:
    if value not in known:
        near = did_you_mean(value, known)
        raise typer.BadParameter(f"{value!r} is none of {', '.join(known)}{near}", param_hint=option)
    return value


def _stack_name(name: str) -> str:
    if not _STACK_NAME.fullmatch(name):
        raise typer.BadParameter(f"{name!r}: a stack name has letters, digits, '-', '_' and '.'", param_hint="STACK")
    return name


def _text(findings: Findings, answers: Answers, heading: tuple[str, ...]) -> tuple[str, Reading]:
    """The file's text, and how it reads: a text that is wrong in any way is never written."""
    try:
        text = render(draft(findings, answers), heading)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None
    return text, read_text(text, "the new file")


def _write(target: Path, text: str, *, overwrite: bool) -> None:
    """Write the file as a whole; without `overwrite` never one that appeared in the meantime."""
    try:
        if overwrite:
            write_atomically(target, text, _FILE_MODE)
        else:
            with target.open("x", encoding="utf-8", newline="\n") as stream:
                stream.write(text)
    except FileExistsError:
        raise InitError(f"{target} exists already; --force overwrites it, --to writes another file") from None
    except OSError as error:
        raise InitError(f"{target} cannot be written: {error.strerror or error}") from None


def _row(findings: Findings, text: str, target: Path | None) -> dict[str, Any]:
    """The findings for a program, with the file that they became."""
    found = dataclasses.asdict(dataclasses.replace(findings, deployed=None, taken=Taken()))
    del found["deployed"], found["taken"]
    return {"file": str(target) if target else None, "findings": found, "text": text}


def _tell(target: Path, stack: str, text: str, reading: Reading) -> None:
    near = Path(os.path.relpath(target))
    shown = target if near.parts[0] == ".." else near
    pools, teams = len(reading.fleet.pools), len(reading.fleet.teams)
    typer.echo(f"wrote {shown}: {pools} pool{'s'[: pools != 1]}, {teams} team{'s'[: teams != 1]}")
    if reviews := text.count("REVIEW:"):
        typer.echo(f"  {reviews} comment{'s'[: reviews != 1]} marked REVIEW ask for your decision")
    if warnings := len(reading.warnings):
        typer.echo(f"  `gpufleet check` warns of {warnings} thing{'s'[: warnings != 1]}")
    for missing in parts_without_components(reading.fleet):
        typer.echo(f"  {missing} can be checked and planned, but not deployed yet")
    typer.echo("next:")
    elsewhere = "" if target == _target(stack, None) else f" --config-file {shown}"
    for command in ("gpufleet check", "gpufleet plan"):
        typer.echo(f"  {command} {shown}")
    typer.echo(f"  pulumi stack select --create {stack}")
    typer.echo(f"  pulumi preview --stack {stack}{elsewhere}")
