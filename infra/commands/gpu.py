"""`gpufleet gpu`: the catalogue's MIG tables and real cards. It reads cards, and changes nothing on them."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Callable, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from infra.commands.options import Json
from infra.files import write_atomically
from infra.gpus.captured import captured_of, captured_toml, differences, model_of_card, read_captured
from infra.gpus.errors import CaptureError
from runtime.gpus.nvml import Nvml
from runtime.gpus.reader import CapturedGpu, GpuReader, ReaderDown, ReadingRefused
from runtime.gpus.reader import capture as read_cards
from stacks.catalogue import MigGeometry, catalogue
from stacks.quantities import parse_gpu_name

app = typer.Typer(
    help=(
        "Read the MIG tables of real cards, and compare them with the catalogue (docs/gpu.md).\n\n"
        "Exit code: 0; 1 where it failed or something differs, and the output says what."
    ),
    no_args_is_help=True,
    add_completion=False,
)

_FILE_MODE = 0o644


@app.command()
def capture(
    gpu: Annotated[
        str | None, typer.Option(metavar="MODEL", help="The catalogue's model, where the card does not tell.")
    ] = None,
    output: Annotated[Path | None, typer.Option(help="File to write. Default: print.")] = None,
) -> None:
    """Read the MIG profiles and placements of this node's cards into an override of the catalogue (TOML).

    It needs NVIDIA's driver here, and rights to ask for placements (root). MIG may be off where the driver allows it.

    Exit code: 0; 1 where no card with MIG can be read.
    """
    cards = _cards(Nvml)
    named = [(_model(gpu) if gpu else model_of_card(card, catalogue().gpus), card) for card in cards]
    if len({model for model, _ in named}) < len(named):
        raise CaptureError("two different cards are of one model; capture each on a node of its own")
    text = captured_toml(named, datetime.now(UTC).date())
    if output is None:
        typer.echo(text, nl=False)
        return
    try:
        write_atomically(output, text, _FILE_MODE)
    except OSError as error:
        raise CaptureError(f"{output}: cannot be written: {error.strerror or error}") from None
    typer.echo(f"wrote {output}: {', '.join(model for model, _ in named)}", err=True)


@app.command()
def diff(
    file: Annotated[
        Path | None,
        typer.Argument(metavar="[FILE]", help="What `gpufleet gpu capture` wrote. Default: this node's cards."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Say where the catalogue differs from cards: profiles, placements, counts, SMs, engines, memory.

    Exit code: 0 where nothing differs; 1 where something does, or nothing can be read.
    """
    read = read_captured(file) if file is not None else _of_this_node()
    found = [one for model, geometry in read.items() for one in differences(catalogue().gpus[model], geometry)]
    if as_json:
        typer.echo(json.dumps({"models": list(read), "differences": [asdict(one) for one in found]}, indent=2))
    else:
        for one in found:
            typer.echo(str(one))
        if not found:
            typer.echo(f"the catalogue agrees with {', '.join(read)}")
    raise typer.Exit(1 if found else 0)


def _of_this_node() -> dict[str, MigGeometry]:
    named = [(model_of_card(card, catalogue().gpus), card) for card in _cards(Nvml)]
    return captured_of(tomllib.loads(captured_toml(named, datetime.now(UTC).date())), "the cards of this node")


def _cards(open_reader: Callable[[], GpuReader]) -> Sequence[CapturedGpu]:
    try:
        reader = open_reader()
        try:
            cards = read_cards(reader)
        finally:
            reader.close()
    except (ReaderDown, ReadingRefused) as error:
        raise CaptureError(str(error)) from None
    if not cards:
        raise CaptureError("no card of this node has MIG; run it on a node whose cards do")
    return cards


def _model(name: str) -> str:
    try:
        return parse_gpu_name(name)
    except ValueError as error:
        raise typer.BadParameter(f"{name!r}: {error}", param_hint="--gpu") from None
