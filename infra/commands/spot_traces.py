"""`gpufleet trace evictions`: what evictions cost on the nodes of a recorded spot trace, on fake time."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from infra.commands.columns import columns
from infra.commands.options import Json
from infra.evictions.nodes import SpotTrace, read_spot_trace
from infra.evictions.report import HEADING, SECONDS_PER_HOUR, available_gpu_hours, replay_evictions, rows
from infra.evictions.terms import ReplayTerms
from stacks.quantities import parse_duration

_DEFAULT = ReplayTerms()


def evictions(
    trace: Annotated[Path, typer.Argument(help="Spot trace of Oobleck (CSV) or SkyPilot (JSON); .gz is unpacked.")],
    nodes_per_job: Annotated[int, typer.Option(help="Nodes that each job needs at once.")] = _DEFAULT.nodes_per_job,
    gpus_per_node: Annotated[int, typer.Option(help="GPUs of each node.")] = _DEFAULT.gpus_per_node,
    notice: Annotated[str, typer.Option(help="Time between the notice and the end of the node.")] = "120s",
    every: Annotated[str, typer.Option(help="Time of training between two checkpoints.")] = "30m",
    save: Annotated[str, typer.Option(help="Time that one checkpoint takes.")] = "60s",
    restart: Annotated[str, typer.Option(help="Time from having nodes to the first step.")] = "120s",
    grace: Annotated[str, typer.Option(help="Time between SIGTERM and SIGKILL.")] = "30s",
    as_json: Json = False,
) -> None:
    """Replay a spot trace: what jobs lose if nobody reads notices, with plain SIGTERM, and with the agent's sequence.

    Nodes and jobs are simulated; the sequence is the agent's own code. All is in GPU-hours: LOST was trained twice,
    HELD is what jobs had while they did not train, IDLE what no job had.

    Exit code: 0; 1 where the trace cannot be used.
    """
    terms = ReplayTerms(
        nodes_per_job=nodes_per_job,
        gpus_per_node=gpus_per_node,
        notice_seconds=_seconds("--notice", notice),
        checkpoint_every_seconds=_seconds("--every", every),
        save_seconds=_seconds("--save", save),
        restart_seconds=_seconds("--restart", restart),
        grace_seconds=_seconds("--grace", grace),
    )
    nodes = read_spot_trace(trace)
    outcomes = replay_evictions(nodes, terms)
    if as_json:
        typer.echo(json.dumps({"terms": asdict(terms), "ways": [asdict(one) for one in outcomes]}, indent=2))
        return
    typer.echo(_headline(nodes, terms))
    for line in columns(HEADING, rows(outcomes)):
        typer.echo(line)


def _headline(trace: SpotTrace, terms: ReplayTerms) -> str:
    hours, available = trace.ends_at / SECONDS_PER_HOUR, available_gpu_hours(trace, terms)
    return (
        f"{trace.name}: {hours:,.1f} h, at most {trace.most_nodes:,} nodes, {trace.removals:,} taken away, "
        f"{available:,.1f} GPU-hours"
    )


def _seconds(option: str, text: str) -> float:
    try:
        return parse_duration(text).total_seconds()
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint=option) from None
