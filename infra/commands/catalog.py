"""`gpufleet catalog`: what is known of GPU models and instance types, where from, and how to renew the prices."""

from __future__ import annotations

import difflib
import json
import tempfile
from collections.abc import Collection
from dataclasses import asdict
from decimal import Decimal
from importlib import resources
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from infra.commands.catalog_text import gpu_text, instance_text, search_text
from infra.commands.options import Json
from infra.local.errors import LocalError
from infra.prices.fetch import download
from infra.prices.offer import OFFER, PriceList, PriceListError, read_offer
from infra.prices.table import with_prices
from stacks.catalogue import PROVIDERS, GpuModel, InstanceType, catalogue
from stacks.suggest import did_you_mean

app = typer.Typer(
    help="GPU models and instance types: memory, MIG profiles, networks, list prices; each with source and date.",
    no_args_is_help=True,
)

Provider = Annotated[str | None, typer.Option(help=f"Only this cloud: {' or '.join(PROVIDERS)}.")]
_NO_GCP = (
    "prices of gcp are not refreshed from here: the Cloud Billing catalog needs an API key and prices cores, memory, "
    "GPUs and disks apart, so no price of a machine type can be read from it; edit stacks/catalog/gcp.toml, with its "
    "source and as_of"
)


class NoSuchEntryError(LocalError):
    """The catalogue has nothing of that name."""


@app.command()
def show(
    name: Annotated[str, typer.Argument(help="GPU model (h100-sxm-80gb, or h100) or instance type (p5.48xlarge).")],
    as_json: Json = False,
) -> None:
    """Print all that is known of a GPU model or an instance type, with the source and date of each figure.

    Exit code: 0; 1 where the catalogue has nothing of that name.
    """
    known = catalogue()
    row = known.instance_types.get(name) or _gpu(name)
    if row is None:
        names = {*known.gpus, *known.instance_types, *(gpu.name for gpu in known.gpus.values())}
        raise NoSuchEntryError(f"{name} is not in the catalogue{did_you_mean(name, names)}")
    if as_json:
        typer.echo(_json(asdict(row)))
        return
    lines = instance_text(row) if isinstance(row, InstanceType) else gpu_text(row)
    typer.echo("\n".join(lines))


@app.command()
def search(
    text: Annotated[str, typer.Argument(help="Part of the name of the type, its GPU or its architecture.")] = "",
    gpu: Annotated[str | None, typer.Option(help="Only this GPU model, e.g. h100-sxm-80gb or h100.")] = None,
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
    if provider is not None:
        _require(provider, PROVIDERS, "--provider")
    if region is not None:
        priced_regions = {name for row in catalogue().instance_types.values() for name in row.usd_per_hour}
        _require(region, priced_regions, "--region", "has no price in the catalogue")
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
    provider: Annotated[str, typer.Option(help="Cloud whose prices to renew.")] = "aws",
    region: Annotated[str, typer.Option(help="Region whose prices to renew or to add.")] = "us-east-1",
    offer: Annotated[
        Path | None,
        typer.Option("--from", help=f"Price list offer file of {OFFER}, index.csv or index.json. Default: download."),
    ] = None,
    write: Annotated[bool, typer.Option("--write", help="Change the table as well, for a commit.")] = False,
) -> None:
    """Print how the table of list prices would change, as a diff to review.

    Nothing but this command reads a price list; deployment uses the tables as they are.

    Exit code: 0, also where nothing changes; 1 where the price list cannot be had or read.
    """
    _require(provider, PROVIDERS, "--provider")
    if provider != "aws":
        raise typer.BadParameter(_NO_GCP, param_hint="--provider")
    with tempfile.TemporaryDirectory(prefix="gpufleet-") as temporary:
        path = offer or download(region, Path(temporary), Console(stderr=True))
        prices = read_offer(path, region)
    table = _aws_table()
    before = table.read_text("utf-8")
    after = _renewed(before, prices)
    shown = f"stacks/catalog/{table.name}"
    lines = difflib.unified_diff(before.splitlines(), after.splitlines(), f"a/{shown}", f"b/{shown}", lineterm="")
    for line in lines:
        typer.echo(line)
    if write and after != before:
        _save(table, after)
        typer.echo(f"wrote {shown}; review it with git diff", err=True)
    elif after == before:
        typer.echo(f"no price of {region} has changed", err=True)
    _tell_unknown(prices)


def _aws_table() -> Path:
    return Path(str(resources.files("stacks").joinpath("catalog", "aws.toml")))


def _save(table: Path, text: str) -> None:
    try:
        table.write_text(text, "utf-8")
    except OSError as error:
        raise PriceListError(f"{table}: cannot be written ({error.strerror}); apply the diff with git apply") from error


def _renewed(before: str, prices: PriceList) -> str:
    known = [row for row in catalogue().instance_types.values() if row.provider == "aws"]
    dates = [row.price_provenance[prices.region].as_of for row in known if prices.region in row.price_provenance]
    if dates and prices.published < min(dates):
        raise PriceListError(
            f"the price list of {prices.region} is of {prices.published}, and the table has prices of {min(dates)}; "
            "take a newer list"
        )
    if not any(row.id in prices.usd_per_hour for row in known):
        raise PriceListError(f"the price list has no price of any type of the catalogue in {prices.region}")
    source = f"AWS price list {OFFER} {prices.region}, version {prices.version}"
    return with_prices(before, prices.region, prices.usd_per_hour, source, prices.published)


def _tell_unknown(prices: PriceList) -> None:
    unknown = sorted(prices.with_gpus - set(catalogue().instance_types))
    if unknown:
        names = ", ".join(unknown)
        typer.echo(f"not in the catalogue, though the list says they have a GPU: {names}", err=True)


def _gpu(name: str) -> GpuModel | None:
    gpus = catalogue().gpus
    return gpus.get(name) or next((gpu for gpu in gpus.values() if gpu.name == name), None)


def _known_gpu(name: str) -> GpuModel:
    found = _gpu(name)
    if found is None:
        message = f"GPU model {name} is not in the catalogue{did_you_mean(name, catalogue().gpus)}"
        raise typer.BadParameter(message, param_hint="--gpu")
    return found


def _require(value: str, known: Collection[str], option: str, reason: str = "is not a cloud of the catalogue") -> None:
    if value not in known:
        raise typer.BadParameter(f"{value} {reason}{did_you_mean(value, known)}", param_hint=option)


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
