"""What `gpufleet init` asks on a terminal, each until the answer can be read; what flags said is not asked again.

Invariant: a file can be made of what was said and answered, so that nobody answers ten questions for an error.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, get_args

import typer

from infra.commands.init_options import MOST_GPUS, MOST_GPUS_PER_NODE, MOST_NODES
from infra.discovery.answers import DEFAULT_REGIONS, Answers, Cloud, wanted_type
from infra.discovery.draft import DEFAULT_ORGANIZATION, DEFAULT_TEAM
from infra.discovery.findings import Findings
from stacks.catalogue import catalogue
from stacks.presets import PresetName
from stacks.quantities import parse_gpu_name, parse_kube_name, parse_usd
from stacks.suggest import did_you_mean

DEFAULT_GPU: Final = "h100-sxm-80gb"

_RENTING: Final = frozenset({"cloud", "instance_type", "region", "market", "max_gpus", "cloud_usd_per_gpu_hour"})
_PAID_APART: Final = ("reserved", "capacity-block")  # markets whose GPU-hours count at a price that a person says

Check = Callable[[Mapping[str, Any]], None]
"""Raises typer.BadParameter where no further answer could make a file of these."""


@dataclass(slots=True)
class _Questions:
    """What is known of the answers, by field; a field that is known is not asked."""

    known: dict[str, Any]
    check: Check

    def ask(self, field: str, question: str, default: str | None, read: Callable[[str], Any]) -> Any:
        """The field's value; asked until it can be read and a file can be made of it."""
        while field not in self.known:
            answer = typer.prompt(question, default=default)
            try:
                value = read(answer)
                self.check({**self.known, field: value})
            except typer.BadParameter as error:
                typer.echo(f"{answer!r}: {error.message}", err=True)
            except ValueError as error:
                typer.echo(f"{answer!r}: {error}", err=True)
            else:
                self.known[field] = value
        return self.known[field]


def asked(said: Mapping[str, Any], findings: Findings, check: Check, *, reads: bool) -> dict[str, Any]:
    """Fields of `Answers`: what flags said, and a person's answers to what neither flags nor the cluster say."""
    questions = _Questions(dict(said), check)
    known, ask = questions.known, questions.ask
    ask("organization", "Company or group", findings.organization or DEFAULT_ORGANIZATION, parse_kube_name)
    if not reads and ask("nodes", "GPU nodes of your own", "0", partial(_count, most=MOST_NODES)):
        ask("gpu", "Their GPU model", DEFAULT_GPU, parse_gpu_name)
        ask("gpus_per_node", "GPUs in each of them", "8", partial(_count, least=1, most=MOST_GPUS_PER_NODE))
    if not findings.teams:
        ask("teams", "Teams, with spaces between", DEFAULT_TEAM, _names)
    if findings.deployed is None:
        ask("monthly_budget", "Cloud budget each month, in US dollars", "0 USD", parse_usd)
    if (known.get("monthly_budget") or _RENTING & known.keys()) and not findings.rents:
        _ask_what_to_rent(questions, known.get("gpu") or findings.gpu)
    presets = get_args(PresetName)
    ask("preset", f"Preset ({', '.join(presets)})", "balanced", partial(_choice, known=presets))
    return known


def _ask_what_to_rent(questions: _Questions, gpu: str | None) -> None:
    known, ask = questions.known, questions.ask
    if "instance_type" not in known:
        clouds = get_args(Cloud)
        usual = wanted_type(Answers(**known), gpu)
        default = usual.provider if usual else None
        ask("cloud", f"Cloud to rent from ({' or '.join(clouds)})", default, partial(_choice, known=clouds))
        usual = wanted_type(Answers(**known), gpu)
        ask("instance_type", "Instance type", usual.id if usual else None, str)
    one = catalogue().instance_types[known["instance_type"]]
    region = ask("region", "Region", DEFAULT_REGIONS[one.provider], str)
    most = str(one.gpus if known.get("monthly_budget") else 0)
    ask("max_gpus", f"Most GPUs to rent, {one.gpus} in each node", most, partial(_count, most=MOST_GPUS))
    if region not in one.usd_per_hour or known.get("market") in _PAID_APART:
        ask("cloud_usd_per_gpu_hour", "Most that a GPU-hour may cost, in US dollars", None, parse_usd)


def _count(text: str, *, most: int, least: int = 0) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= len(str(most))) or not least <= int(text) <= most:
        raise ValueError(f"a whole number from {least} to {most:,} is needed, for example 8")
    return int(text)


def _names(text: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(parse_kube_name(name) for name in text.replace(",", " ").split())) or (DEFAULT_TEAM,)


def _choice(text: str, *, known: tuple[str, ...]) -> str:
    if text not in known:
        raise ValueError(f"there is no such choice{did_you_mean(text, known)}")
    return text
