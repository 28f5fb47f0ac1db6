"""`gpufleet catalog`: what is known of GPU models and instance types, where from, and how to renew the prices."""

from __future__ import annotations

import json
import tempfile
from dataclasses import asdict
from decimal import Decimal
from importlib import resources
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from infra.commands.catalog_text import accelerator_text, gpu_text, instance_text, search_text
from infra.commands.options import Json
from infra.discovery.answers import Cloud, is_region
from infra.local.errors import LocalError
from infra.prices.fetch import download
from infra.prices.offer import OFFER, read_offer
from infra.prices.renewal import renewal, save
from stacks.catalogue import PROVIDERS, Accelerator, GpuModel, InstanceType, accelerator_of, catalogue
from stacks.quantities import parse_gpu_name
from stacks.suggest import did_you_mean, nearest

app = typer.Typer(
    help="GPU models and instance types: memory, MIG profiles, networks, list prices; each with source and date.",
    no_args_is_help=True,
    add_completion=False,
)

Provider = Annotated[Cloud | None, typer.Option(help="Only this cloud.")]
_NO_GCP = (
    "prices of gcp are not refreshed from here: the Cloud Billing catalog needs an API key and prices cores, memory, "
    "GPUs and disks apart, so no price of a machine type can be read from it; edit stacks/catalog/gcp.toml, with its "
    "source and as_of"
)


class NoSuchEntryError(LocalError):
    """The catalogue has nothing of that name."""


@app.command()
def show(
    name: Annotated[str, typer.Argument(help="GPU model, instance type, accelerator or resource, e.g. h100-sxm.")],
    as_json: Json = False,
) -> None:
    """Print all that is known of a GPU model or an instance type, with the source and date of each figure.

    Of a family of accelerators (nvidia, amd, intel-gaudi, aws-neuron, google-tpu), or of a resource that pods ask for
    (amd.com/gpu), it prints resources, node labels and how devices are partitioned.

    Exit code: 0; 1 where the catalogue has nothing of that name.
    """
    row = _row(name)
    if as_json:
        typer.echo(_json(asdict(row)))
        return
    if isinstance(row, InstanceType):
        lines = instance_text(row)
    else:
        lines = gpu_text(row) if isinstance(row, GpuModel) else accelerator_text(row)
    typer.echo("\n".join(lines))


@app.command()
def search(
    text: Annotated[str, typer.Argument(help="Part of the name of the type, its GPU or its architecture.")] = "",
    gpu: Annotated[str | None, typer.Option(help="Only this GPU model, e.g. h100-sxm-80gb or h100-sxm.")] = None,
    provider: Provider = None,
    region: Annotated[str | None, typer.Option(help="Only types with a known price in this region.")] = None,
    min_gpus: Annotated[int, typer.Option(min=1, help="At least so many GPUs in one instance.")] = 1,
    as_json: Json = False,
) -> None:
    """List instance types, the cheapest GPU-hour first; those without a known price come last.

    Without --region, the price is that of the cheapest region that the catalogue knows.

    Exit code: 0, also where nothing is found.
    """
    model = _known_gpu(gpu) if gpu is not None else None
    if region is not None:
        _require_prices(region, provider)
    found = [
        row
        for row in catalogue().instance_types.values()
        if (model is None or row.gpu == model.id)
        and provider in (None, row.provider)
        and (region is None or region in row.usd_per_hour)
        and row.gpus >= min_gpus
        and _matches(row, text)
    ]
    offered = sorted(((row, region or _cheapest_region(row)) for row in found), key=_by_price)
    if as_json:
        typer.echo(
            _json([asdict(row) | {"region": where, "usd_per_gpu_hour": _usd(row, where)} for row, where in offered])
        )
    elif not offered:
        typer.echo("no instance type matches", err=True)
    else:
        typer.echo("\n".join(search_text(offered)))


@app.command()
def refresh(
    provider: Annotated[Cloud, typer.Option(help="Cloud whose prices to renew.")] = "aws",
    region: Annotated[str, typer.Option(help="Region whose prices to renew or to add.")] = "us-east-1",
    offer: Annotated[
        Path | None,
        typer.Option("--from", help=f"Price list offer file of {OFFER}, index.csv or index.json. Default: download."),
    ] = None,
    write: Annotated[bool, typer.Option("--write", help="Change the table as well, for a commit.")] = False,
    as_json: Json = False,
) -> None:
    """Print how the table of list prices would change, as a diff to review.

    Nothing but this command reads a price list; deployment uses the tables as they are.

    Exit code: 0, also where nothing changes; 1 where the price list cannot be had or read.
    """
    if provider != "aws":
        raise typer.BadParameter(_NO_GCP, param_hint="--provider")
    with tempfile.TemporaryDirectory(prefix="gpufleet-") as temporary:
        path = offer or download(region, Path(temporary), Console(stderr=True))
        prices = read_offer(path, region)
    table = _aws_table()
    found = renewal(table.read_text("utf-8"), prices)
    shown = f"stacks/catalog/{table.name}"
    diff = found.diff(shown)
    if as_json:
        typer.echo(_json({"changed": found.changed, "unknown": found.unknown, "diff": diff}))
    elif diff:
        typer.echo(diff)
    if write and diff:
        save(table, found.after)
        typer.echo(f"wrote {shown}; review it with git diff", err=True)
    elif not diff:
        typer.echo(f"no price of {region} has changed", err=True)
    if found.unknown and not as_json:
        typer.echo(f"not in the catalogue, though the list says they have a GPU: {', '.join(found.unknown)}", err=True)


def _aws_table() -> Path:
    return Path(str(resources.files("stacks").joinpath("catalog", "aws.toml")))


def _row(name: str) -> GpuModel | InstanceType | Accelerator:
    """The GPU model, instance type or family of accelerators of a name in any case; the family of a resource too.

    Raises:
        NoSuchEntryError: there is none, or the name can mean several.
    """
    known = catalogue()
    wanted = name.lower()
    if wanted in known.instance_types:
        return known.instance_types[wanted]
    if family := known.accelerators.get(wanted) or accelerator_of([wanted], known.accelerators):
        return family
    try:
        return known.gpus[parse_gpu_name(name)]
    except ValueError as error:
        names = (*known.gpus, *known.instance_types)
        begin_so = [one for one in names if wanted and one.startswith(wanted)]
        if begin_so:
            raise NoSuchEntryError(f"{name} can be any of {', '.join(begin_so)}; write which") from None
        if nearest(name, names):
            raise NoSuchEntryError(f"{name} is not in the catalogue{did_you_mean(name, names)}") from None
        raise NoSuchEntryError(f"{name}: no instance type, and {error}") from None


def _known_gpu(name: str) -> GpuModel:
    try:
        return catalogue().gpus[parse_gpu_name(name)]
    except ValueError as error:
        raise typer.BadParameter(f"{name!r}: {error}", param_hint="--gpu") from None


def _require_prices(region: str, provider: Cloud | None) -> None:
    """Refuse a region of which the catalogue has no price, and name one of the same cloud that is like it."""
    clouds = [provider] if provider else [cloud for cloud in PROVIDERS if is_region(cloud, region)] or PROVIDERS
    rows = [row for row in catalogue().instance_types.values() if row.provider in clouds]
    priced = {name for row in rows for name in row.usd_per_hour}
    if region in priced:
        return
    add = ""
    if "aws" in clouds and is_region("aws", region):
        add = f"; add its prices with `gpufleet catalog refresh --region {region} --write`"
    message = f"{region} has no price in the catalogue{did_you_mean(region, priced)}{add}"
    raise typer.BadParameter(message, param_hint="--region")


def _matches(row: InstanceType, text: str) -> bool:
    gpu = catalogue().gpus[row.gpu]
    return any(text.lower() in part for part in (row.id, gpu.id, gpu.name, gpu.architecture))


def _cheapest_region(row: InstanceType) -> str | None:
    return min(row.usd_per_hour, key=lambda region: (row.usd_per_hour[region], region), default=None)


def _usd(row: InstanceType, region: str | None) -> Decimal | None:
    return None if region is None else row.usd_per_gpu_hour(region)


def _by_price(offered: tuple[InstanceType, str | None]) -> tuple[bool, Decimal, str]:
    usd = _usd(*offered)
    return usd is None, usd or Decimal(), offered[0].id


def _json(value: object) -> str:
    return json.dumps(value, indent=2, default=str)
