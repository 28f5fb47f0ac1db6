"""`gpufleet submit`: a simulated job, to try the embedded stack with."""

from __future__ import annotations

import json
import secrets
from typing import Annotated

import typer

from infra.commands.options import Json, LocalStack
from infra.commands.project import load_stack_file, open_state
from infra.local.errors import KubeError, LocalError
from infra.local.kubeclient import KubeClient
from infra.replay.cells import default_max
from infra.replay.jobs import job_manifest
from infra.replay.trace import TraceJob
from stacks.fleet import Fleet
from stacks.quantities import parse_duration
from stacks.suggest import did_you_mean

_SUFFIX_BYTES = 3


class SubmitRefusedError(LocalError):
    """The cluster did not take the job."""


def submit(
    team: Annotated[str, typer.Option(help="Team of the fleet file; its queue gets the job.")],
    gpus: Annotated[int, typer.Option(min=1, max=1_024, help="GPUs the job asks for.")] = 1,
    run: Annotated[str, typer.Option(help="How long it runs, in fleet time, e.g. 20m.")] = "20m",
    longest: Annotated[str | None, typer.Option("--max", help="When it is stopped. Default: from --run.")] = None,
    job_class: Annotated[
        str | None, typer.Option("--class", help="Class of the fleet file. Default: its default.")
    ] = None,
    name: Annotated[str, typer.Option(help="Name of the job; a short suffix is added.")] = "job",
    stack: LocalStack = "local",
    as_json: Json = False,
) -> None:
    """Submit one simulated job to the embedded stack.

    Exit code: 0; 1 where the stack does not run or refuses the job; 2 for a wrong option.
    """
    fleet = load_stack_file(stack)
    if team not in fleet.teams:
        raise typer.BadParameter(f"no team {team}{did_you_mean(team, fleet.teams)}", param_hint="--team")
    seconds = _seconds(run, "--run")
    job = TraceJob(
        name=name,
        team=team,
        job_class=_class(job_class, fleet),
        gpus=gpus,
        submit_seconds=0,
        run_seconds=seconds,
        expected_seconds=seconds,
        max_seconds=_seconds(longest, "--max") if longest else default_max(seconds, seconds),
    )
    manifest = job_manifest(job, fleet, fleet.agent.replay_speed, run_id=secrets.token_hex(_SUFFIX_BYTES))
    state = open_state(stack)
    try:
        with KubeClient(state.kubeconfig) as client:
            metadata = client.create(manifest)["metadata"]
    except KubeError as error:
        hint = "does the stack run (gpufleet status)?" if error.status == 0 else "the API server gave this reason"
        raise SubmitRefusedError(f"the job was not accepted: {error}; {hint}") from None
    if as_json:
        typer.echo(json.dumps({"namespace": metadata["namespace"], "name": metadata["name"], "uid": metadata["uid"]}))
    else:
        typer.echo(f"submitted {metadata['namespace']}/{metadata['name']}")
        typer.echo(f"  gpufleet explain {metadata['name']} -n {metadata['namespace']}")
    largest = max(flavor.gpus for flavor in fleet.flavors.values())
    if gpus > largest:
        typer.echo(f"no flavor has more than {largest} GPUs, so this job will wait for ever", err=True)


def _class(wanted: str | None, fleet: Fleet) -> str:
    if wanted is None:
        return next(name for name, job_class in fleet.classes.items() if job_class.default)
    known = {name.lower(): name for name in fleet.classes}
    if wanted.lower() not in known:
        raise typer.BadParameter(f"no class {wanted}{did_you_mean(wanted, fleet.classes)}", param_hint="--class")
    return known[wanted.lower()]


def _seconds(text: str, option: str) -> float:
    try:
        seconds = parse_duration(text).total_seconds()
    except ValueError as error:
        raise typer.BadParameter(f"{text!r}: {error}", param_hint=option) from None
    if seconds <= 0:
        raise typer.BadParameter(f"{text!r}: must be longer than 0s", param_hint=option)
    return seconds
