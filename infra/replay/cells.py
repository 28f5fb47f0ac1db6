"""What the cells of a trace mean: times, durations, numbers of GPUs and names, with a plain reason when wrong."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Final, NamedTuple, TypeVar

from infra.replay.rows import shown
from stacks.quantities import parse_duration

_LONGEST_SECONDS: Final = 3_650 * 86_400.0  # ten years, as in stacks.quantities: beyond it a unit is wrong
_MOST_GPUS: Final = 100_000  # one job; the largest clusters known have about as many GPUs
_DEFAULT_MAX_FACTOR: Final = 2.0  # of the expected or, without it, the true run time
_NUMBER: Final = re.compile(r"[0-9]{1,18}(\.[0-9]{0,9})?")
_LONGEST_SLUG: Final = 24  # characters; with line and run id, pod names stay within 63

Value = TypeVar("Value")


class DefectError(ValueError):
    """A cell that cannot be used. `kind` is the same for all rows with the defect, `detail` shows the value."""

    def __init__(self, kind: str, value: str) -> None:
        super().__init__(kind)
        self.kind, self.detail = kind, shown(value)


class Moment(NamedTuple):
    """A time of arrival: seconds since the start of the trace, or since the epoch where `dated`."""

    seconds: float
    dated: bool


def cell(column: str, text: str, parse: Callable[[str], Value]) -> Value:
    """Parse a cell; the reason of a failure names the column."""
    try:
        return parse(text)
    except ValueError as error:
        raise DefectError(f"{column} {error}", text) from None


def parse_seconds(text: str) -> float:
    """Read a duration: a number of seconds, or a typed duration such as `45m`. More than zero."""
    seconds = _number_or_duration(text)
    if seconds <= 0:
        raise ValueError("must be longer than 0s")
    return seconds


def parse_moment(text: str) -> Moment:
    """Read a time of arrival: seconds or a duration from the start, or an ISO timestamp (UTC unless it has a zone)."""
    if re.match(r"\d{4}-\d", text):
        try:
            moment = datetime.fromisoformat(text)
            return Moment((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp(), True)
        except (ValueError, OverflowError):
            raise ValueError("is no timestamp; write it like 2017-10-03T09:28:41Z") from None
    return Moment(_number_or_duration(text), False)


def parse_gpus(text: str) -> int:
    """Read a number of whole GPUs, one or more."""
    if not text.isascii() or not text.isdigit() or len(text) > len(str(_MOST_GPUS)):
        raise ValueError(f"must be a whole number from 1 to {_MOST_GPUS:,}")
    if not 1 <= (gpus := int(text)) <= _MOST_GPUS:
        raise ValueError(f"must be a whole number from 1 to {_MOST_GPUS:,}")
    return gpus


def default_max(run_seconds: float, expected_seconds: float | None) -> float:
    """When a job that does not say is stopped: twice what it is expected to run, and never before its true end."""
    return _DEFAULT_MAX_FACTOR * max(run_seconds, expected_seconds or 0.0)


def job_name(text: str, line: int) -> str:
    """A Kubernetes name for the job of a line: unique in its trace whatever the name column says."""
    slug = re.sub(r"[^a-z0-9]+", "-", text.lower())[:_LONGEST_SLUG].strip("-")
    return f"{slug or 'job'}-{line}"


def _number_or_duration(text: str) -> float:
    if not text:
        raise ValueError("is empty")
    if _NUMBER.fullmatch(text):
        seconds = float(text)
    else:
        try:
            seconds = parse_duration(text).total_seconds()
        except ValueError:
            raise ValueError("is neither a number of seconds nor a duration such as 45m") from None
    if seconds > _LONGEST_SECONDS:
        raise ValueError("is longer than ten years; check its unit")
    return seconds
