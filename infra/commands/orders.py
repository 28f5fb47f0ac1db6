"""What `recall`, `move` and `drain` have in common: an administrator writes down a wish, and the agent carries it out.

It finds the job that is meant, reads reasons and times, and asks before what runs is stopped. It writes nothing.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from datetime import timedelta
from typing import Any, Final

import typer

from infra.commands.cluster import Cluster, SeenJob
from infra.local.errors import LocalError
from stacks.quantities import format_duration, parse_duration
from stacks.suggest import did_you_mean

LONGEST_REASON: Final = 200
"""Characters of a reason that the agent keeps."""

POLL_SECONDS: Final = 1.0
"""Between two looks of one who waits."""


class OrderError(LocalError):
    """What is wanted cannot be, or did not come about in time."""


async def find_job(cluster: Cluster, namespace: str, name: str, rank: Callable[[SeenJob], Any]) -> SeenJob:
    """The job of that name, its own or its Workload's; of several Workloads that had it, the first by rank.

    Raises:
        OrderError: when there is none.
    """
    seen = await cluster.jobs(namespace)
    found = [one for one in seen if name in (one.job.owner_name, one.job.name)]
    if not found:
        near = did_you_mean(name, {one.job.owner_name for one in seen})
        raise OrderError(f"no job {name} in namespace {namespace}{near}")
    return min(found, key=lambda one: (rank(one), one.job.uid))


def one_line(reason: str, *, needed: bool = False) -> str:
    """A reason on one line.

    Raises:
        BadParameter: when it is too long, or is needed and empty.
    """
    because = " ".join(reason.split())
    if len(because) > LONGEST_REASON or (needed and not because):
        most = f"1 to {LONGEST_REASON}" if needed else f"at most {LONGEST_REASON}"
        raise typer.BadParameter(f"write {most} characters", param_hint="--reason")
    return because


def seconds_within(text: str, longest_seconds: float) -> float:
    """A time for something to be done.

    Raises:
        BadParameter: when it is none, or too long.
    """
    try:
        seconds = parse_duration(text).total_seconds()
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--within") from None
    if not 0 < seconds <= longest_seconds:
        longest = format_duration(timedelta(seconds=longest_seconds))
        raise typer.BadParameter(f"{text} is not between 0s and {longest}", param_hint="--within")
    return seconds


def confirm(question: str, without: str) -> None:
    """Ask on a terminal; `without` says what stands in the way where there is none.

    Raises:
        OrderError: when the answer is no, or nobody can answer.
    """
    if not sys.stdin.isatty():
        raise OrderError(without)
    if not typer.confirm(question, default=False, err=True):
        raise OrderError("nothing was changed")


def say(text: str, quiet: bool) -> None:
    """A line for people, unless what is written is for machines."""
    if not quiet:
        typer.echo(text)
