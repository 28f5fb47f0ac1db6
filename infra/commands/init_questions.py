"""What `gpufleet init` asks on a terminal, each with a default, until the answer can be read."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from functools import partial
from typing import Any, Final, TypeVar, get_args

import typer

from infra.discovery.answers import Answers
from infra.discovery.draft import DEFAULT_ORGANIZATION, DEFAULT_TEAM
from infra.discovery.findings import Findings
from stacks.presets import PresetName
from stacks.quantities import parse_gpu_name, parse_kube_name, parse_usd
from stacks.suggest import did_you_mean

MOST_NODES: Final = 15_000  # as the fleet file takes
MOST_GPUS: Final = 64
DEFAULT_GPU: Final = "h100-sxm-80gb"

Value = TypeVar("Value")


def asked(answers: Answers, findings: Findings, *, reads: bool) -> Answers:
    """The answers of a person to what no flag and no cluster says."""
    said: dict[str, Any] = {}
    if answers.organization is None:
        default = findings.organization or DEFAULT_ORGANIZATION
        said["organization"] = _prompt("Company or group", default, parse_kube_name)
    if not reads and not answers.nodes:
        said["nodes"] = _prompt("GPU nodes of your own", "0", partial(_count, most=MOST_NODES))
        if said["nodes"]:
            said["gpu"] = answers.gpu or _prompt("Their GPU model", DEFAULT_GPU, parse_gpu_name)
            default = str(answers.gpus_per_node)
            said["gpus_per_node"] = _prompt("GPUs in each of them", default, partial(_count, most=MOST_GPUS))
    if not findings.teams and not answers.teams:
        said["teams"] = tuple(_prompt("Teams, with spaces between", DEFAULT_TEAM, _names))
    if findings.deployed is None and answers.monthly_budget is None:
        said["monthly_budget"] = _prompt("Cloud budget each month, in US dollars", "0 USD", parse_usd)
    said["preset"] = _prompt("Preset (cost, balanced or performance)", answers.preset, _preset)
    return dataclasses.replace(answers, **said)


def _prompt(question: str, default: str, read: Callable[[str], Value]) -> Value:
    """Ask until the answer can be read."""
    while True:
        answer = typer.prompt(question, default=default)
        try:
            return read(answer)
        except ValueError as error:
            typer.echo(f"{answer!r}: {error}", err=True)


def _count(text: str, *, most: int) -> int:
    if not (text.isascii() and text.isdigit()) or int(text) > most:
        raise ValueError(f"a whole number up to {most:,} is needed, for example 8")
    return int(text)


def _names(text: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(parse_kube_name(name) for name in text.replace(",", " ").split())) or (DEFAULT_TEAM,)


def _preset(text: str) -> str:
    if text not in get_args(PresetName):
        raise ValueError(f"no preset{did_you_mean(text, get_args(PresetName))}")
    return text
