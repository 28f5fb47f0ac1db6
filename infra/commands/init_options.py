"""The options of `gpufleet init`, each read as the fleet file would read it; one that is not given is None.

What is None may be asked, found in a cluster or left to a default; what is given is never asked again.
"""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Final, TypeVar

import typer

from infra.discovery.answers import Cloud
from stacks.pools import Market
from stacks.presets import PresetName
from stacks.quantities import parse_gpu_name, parse_kube_name, parse_usd

MOST_NODES: Final = 15_000  # as the fleet file takes
MOST_GPUS_PER_NODE: Final = 64
MOST_GPUS: Final = 1_000_000

Value = TypeVar("Value")


def _read_by(read: Callable[[object], Value]) -> Callable[[str], Value]:
    """A reader of the fleet file as the parser of an option: typer drops what a ValueError says."""

    def parse(value: str) -> Value:
        try:
            return read(value)
        except ValueError as error:
            raise typer.BadParameter(f"{value!r}: {error}") from None

    return parse


_NAME: Final = _read_by(parse_kube_name)
_USD: Final = _read_by(parse_usd)

Stack = Annotated[str, typer.Argument(help="Name of the stack; the file is stacks/Pulumi.<STACK>.yaml.")]
To = Annotated[
    Path | None, typer.Option(help="Another file, from the current folder; - is standard output.", show_default=False)
]
FromCluster = Annotated[bool, typer.Option("--from-cluster", help="Read nodes and queues of a cluster.")]
Context = Annotated[str | None, typer.Option(help="Kubeconfig context to read; the file will name it.")]
Embedded = Annotated[str | None, typer.Option("--stack", help="Read the embedded stack of this name.")]
Organization = Annotated[str | None, typer.Option(parser=_NAME, metavar="NAME", help="Name of the company or group.")]
Cluster = Annotated[str | None, typer.Option(parser=_NAME, metavar="NAME", help="What the file calls the cluster.")]
Teams = Annotated[
    list[str] | None, typer.Option(parser=_NAME, metavar="NAME", help="A team; may be given several times.")
]
Preset = Annotated[PresetName | None, typer.Option(help="What the defaults aim at. Default: balanced.")]
Gpu = Annotated[
    str | None,
    typer.Option(parser=_read_by(parse_gpu_name), metavar="MODEL", help="GPU of your own nodes that no label names."),
]
Nodes = Annotated[
    int | None, typer.Option(min=0, max=MOST_NODES, help="Nodes of your own, without a cluster. Default: 0.")
]
GpusPerNode = Annotated[
    int | None, typer.Option(min=1, max=MOST_GPUS_PER_NODE, help="GPUs in each of them. Default: 8.")
]
UsdPerGpuHour = Annotated[
    Decimal | None, typer.Option(parser=_USD, metavar="USD", help="What an owned GPU costs an hour.")
]
RentedFrom = Annotated[Cloud | None, typer.Option(help="Where to rent, if no rented node is found.")]
RentedType = Annotated[str | None, typer.Option(help="Instance type to rent.")]
Region = Annotated[str | None, typer.Option(help="Region to rent in.")]
RentedBy = Annotated[Market | None, typer.Option(help="How to rent. Default: on-demand.")]
MaxGpus = Annotated[
    int | None,
    typer.Option(min=0, max=MOST_GPUS, help="Most GPUs to rent. Default: one node if there is a budget, else 0."),
]
CloudUsdPerGpuHour = Annotated[
    Decimal | None, typer.Option(parser=_USD, metavar="USD", help="Most that a rented GPU-hour may cost.")
]
MonthlyBudget = Annotated[
    Decimal | None,
    typer.Option(parser=_USD, metavar="USD", help="Most to spend on the cloud each month. Default: 0."),
]
Force = Annotated[bool, typer.Option("--force", help="Overwrite a file that is there, secrets and all.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Ask nothing; flags and defaults decide.")]
