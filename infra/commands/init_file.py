"""The text of the file that `gpufleet init` writes: it passes `gpufleet check`, or the wrong option is named."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import typer

from infra.commands.places import checkout
from infra.coverage import parts_without_components
from infra.discovery.answers import Answers
from infra.discovery.draft import draft
from infra.discovery.findings import Findings
from infra.discovery.text import render
from infra.files import write_atomically
from infra.local.errors import LocalError
from stacks.load import Reading, read_text
from stacks.problems import ConfigError

_SCHEMA: Final = "fleet.schema.json"
_FILE_MODE: Final = 0o644  # there are no secrets in it, and it belongs into version control

_FIELDS: Final[Mapping[str, str]] = {
    "instance_types": "instance_type",
    "machine_type": "instance_type",
    "usd_per_gpu_hour": "cloud_usd_per_gpu_hour",  # of a rented pool; no price of owned GPUs is wrong that can be read
    "budget": "monthly_budget",
    "clusters": "cluster",
    "kubeconfig": "context",
}
"""Settings of the file that another field of the answers decides than that of their name."""
_OPTIONS: Final[Mapping[str, str]] = {"teams": "--team"}
"""Fields of the answers whose option has another name than theirs."""


class InitError(LocalError):
    """No file was written."""


def usual_file(stack: str) -> Path:
    """Where pulumi looks for the file of a stack."""
    return checkout() / "stacks" / f"Pulumi.{stack}.yaml"


def schema_beside(target: Path | None) -> str | None:
    """The path from the file to the JSON schema; None where it is not known or on another drive."""
    if target is None:
        return None
    try:
        return Path(os.path.relpath(checkout() / "stacks" / _SCHEMA, target.resolve().parent)).as_posix()
    except ValueError:
        return None


def file_text(
    findings: Findings, known: Mapping[str, Any], heading: tuple[str, ...], schema: str | None
) -> tuple[str, Reading]:
    """The file's text, and how it reads: a text that is wrong in any way is never written."""
    try:
        text = render(draft(findings, Answers(**known)), heading, schema)
    except ValueError as error:
        setting, _, reason = str(error).partition(": ")
        field = _FIELDS.get(setting, setting)
        if field not in Answers.__dataclass_fields__:
            raise typer.BadParameter(str(error)) from None
        raise typer.BadParameter(reason, param_hint=_option(field)) from None
    try:
        return text, read_text(text, "the new file")
    except ConfigError as error:
        for problem in error.problems:
            for setting in reversed(problem.path.split(".")):
                if (field := _FIELDS.get(setting, setting)) in known:
                    raise typer.BadParameter(problem.message, param_hint=_option(field)) from None
        reasons = "\n".join(f"  {problem.path}: {problem.message}" for problem in error.problems)
        raise InitError(f"what was found makes no file that passes `gpufleet check`:\n{reasons}") from None


def _option(field: str) -> str:
    return _OPTIONS.get(field, f"--{field.replace('_', '-')}")


def write_file(target: Path, text: str, *, overwrite: bool) -> None:
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


def summary(target: Path, stack: str, text: str, reading: Reading) -> Iterator[str]:
    """What was written, what to look at in it, and the next commands."""
    near = Path(os.path.relpath(target))
    shown = target if near.parts[0] == ".." else near
    pools, teams = len(reading.fleet.pools), len(reading.fleet.teams)
    yield f"wrote {shown}: {pools} pool{'s'[: pools != 1]}, {teams} team{'s'[: teams != 1]}"
    if reviews := text.count("REVIEW:"):
        yield f"  {reviews} comment{'s'[: reviews != 1]} marked REVIEW ask for your decision"
    budget = reading.fleet.burst.budget
    if budget and budget.monthly and not any(pool.gpus for pool in reading.fleet.cloud_pools.values()):
        yield "  the budget cannot be spent: max_gpus of every rented pool is 0"
    if warnings := len(reading.warnings):
        yield f"  `gpufleet check` warns of {warnings} thing{'s'[: warnings != 1]}"
    for missing in parts_without_components(reading.fleet):
        yield f"  {missing} can be checked and planned, but not deployed yet"
    yield "next:"
    elsewhere = "" if target == usual_file(stack) else f" --config-file {shown}"
    for command in ("gpufleet check", "gpufleet plan"):
        yield f"  {command} {shown}"
    yield f"  pulumi stack select --create {stack}"
    yield f"  pulumi preview --stack {stack}{elsewhere}"
