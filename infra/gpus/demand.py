"""What is asked for: instances by profile, from text, from a list of jobs, or from a trace.

A job that says what memory and SMs it needs is given the smallest profile that has both. Jobs that need more than the
largest profile, or several GPUs, are no demand for instances: they are counted apart, never cut down. One that needs
more than a GPU has cannot run on it at all, and its row is refused.

Invariants: rows that cannot be used are counted with file, line and reason, as in every trace.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from infra.gpus.errors import DemandError
from infra.gpus.sizing import exceeds, smallest_profile
from infra.replay.cells import DefectError, cell, parse_gpus, parse_moment, parse_seconds
from infra.replay.rows import Row, RowReport, read_rows, shown
from stacks.catalogue import GpuModel
from stacks.mig import require_profiles
from stacks.quantities import parse_memory, parse_mig_item, parse_mig_profile_name

JOB_COLUMNS: Final = ("memory", "sms", "profile", "count", "name")
_TRACE_COLUMNS: Final = ("submit", "run")
_TRACE_OPTIONAL: Final = ("gpus", "memory", "sms", "profile", "team", "class", "expected", "max", "name")
_JOBS_HINT: Final = "a list of jobs has the columns memory or profile, and if you like sms, count and name"
_TRACE_HINT: Final = "a trace has the columns submit and run; jobs for MIG have memory, sms or a profile too"

_MOST_INSTANCES: Final = 100_000  # more than any cluster known has GPUs; beyond it a unit is wrong
_MIB: Final = 2**20


@dataclass(frozen=True, slots=True)
class Wanted:
    """A demand, and what could not become part of it."""

    demand: dict[str, int]
    """Instances by profile."""

    whole: int = 0
    """Jobs (of a trace: GPUs at once) that need whole GPUs."""

    report: RowReport | None = field(default=None, compare=False)
    """What became of the rows of the file; None where there was none."""

    note: str = ""
    """How the demand follows from the file."""


def parse_demand(gpu: GpuModel, text: str) -> Wanted:
    """Read `3g.40gb=10,1g.10gb=50`, or `10x3g.40gb, 50x1g.10gb`.

    Raises:
        DemandError: a part cannot be read, is not a profile of the model, or there are too many.
    """
    demand: Counter[str] = Counter()
    for part in filter(None, map(str.strip, text.split(","))):
        try:
            name, count = _entry(part)
            require_profiles(gpu, [name])
        except ValueError as error:
            raise DemandError(f"--demand {shown(part)}: {error}") from None
        demand[name] += count
    if not demand:
        raise DemandError(f"--demand {shown(text)}: asks for nothing; write PROFILE=COUNT, e.g. 3g.40gb=10,1g.10gb=50")
    return Wanted(_countable(dict(demand), "--demand"))


def _entry(text: str) -> tuple[str, int]:
    name, equals, count = (part.strip() for part in text.partition("="))
    if not equals:
        item = parse_mig_item(text)
        return item.profile, item.count
    if not (count.isascii() and count.isdigit() and len(count) <= len(str(_MOST_INSTANCES)) and int(count)):
        raise ValueError(f"the count must be a whole number from 1 to {_MOST_INSTANCES:,}, e.g. {name}=10")
    return parse_mig_profile_name(name), int(count)


def read_jobs(gpu: GpuModel, path: Path) -> Wanted:
    """Read a CSV of jobs that run at the same time: each needs `memory` and, if it likes, `sms`, or names a `profile`.

    Raises:
        DemandError: the GPU has no MIG, or no row can be used.
        TraceError: the file cannot be read.
    """
    report = RowReport(str(path))
    demand: Counter[str] = Counter()
    whole = 0
    for row in read_rows(path, (), JOB_COLUMNS, report, _JOBS_HINT):
        try:
            count = cell("count", row.cells["count"], parse_gpus) if row.cells.get("count") else 1
            profile = _profile(gpu, row)
        except DefectError as defect:
            report.drop(row.line, defect.kind, defect.detail)
            continue
        report.kept += 1
        if profile is None:
            whole += count
        else:
            demand[profile] += count
    return _read(path, report, demand, whole, "all jobs of the file at once")


def read_trace_demand(gpu: GpuModel, path: Path) -> Wanted:
    """Read a trace: for each profile, the most jobs that ran at once, had each started when it came.

    Raises:
        DemandError: the GPU has no MIG, or no row can be used.
        TraceError: the file cannot be read.
    """
    report = RowReport(str(path))
    jobs: list[tuple[float, float, str | None, int]] = []
    for row in read_rows(path, _TRACE_COLUMNS, _TRACE_OPTIONAL, report, _TRACE_HINT):
        try:
            start = cell("submit", row.cells["submit"], parse_moment).seconds
            run = cell("run", row.cells["run"], parse_seconds)
            gpus = cell("gpus", row.cells["gpus"], parse_gpus) if row.cells.get("gpus") else 1
            profile = None if gpus > 1 or not _says_need(row) else _profile(gpu, row)
        except DefectError as defect:
            report.drop(row.line, defect.kind, defect.detail)
            continue
        report.kept += 1
        jobs.append((start, run, profile, gpus))
    peaks = _peaks(jobs)
    demand = Counter({name: count for name, count in peaks.items() if name is not None})
    return _read(path, report, demand, peaks[None], "for each profile the most jobs that ran at once")


def _peaks(jobs: Iterable[tuple[float, float, str | None, int]]) -> Counter[str | None]:
    running: Counter[str | None] = Counter()
    peaks: Counter[str | None] = Counter()
    ends: list[tuple[float, int, str | None, int]] = []
    for number, (start, run, profile, gpus) in enumerate(sorted(jobs, key=lambda job: job[0])):
        while ends and ends[0][0] <= start:
            _, _, ended, freed = heapq.heappop(ends)
            running[ended] -= freed
        heapq.heappush(ends, (start + run, number, profile, gpus))
        running[profile] += gpus
        peaks[profile] = max(peaks[profile], running[profile])
    return peaks


def _says_need(row: Row) -> bool:
    return any(row.cells.get(column) for column in ("profile", "memory", "sms"))


def _profile(gpu: GpuModel, row: Row) -> str | None:
    """The profile that the row's job needs; None for whole GPUs."""
    if named := row.cells.get("profile"):
        return cell("profile", named, lambda text: _known(gpu, text))
    if not _says_need(row):
        raise DefectError("says neither memory nor sms nor profile", "")
    memory = cell("memory", row.cells["memory"], parse_memory) / _MIB if row.cells.get("memory") else 0.0
    sms = cell("sms", row.cells["sms"], parse_gpus) if row.cells.get("sms") else 0
    if more := exceeds(gpu, memory, sms):
        raise DefectError(
            f"needs more than a {gpu.id} has, {more}", row.cells.get("memory") or row.cells.get("sms") or ""
        )
    found = smallest_profile(gpu, memory, sms)
    return None if found is None else found.name


def _known(gpu: GpuModel, text: str) -> str:
    name = parse_mig_profile_name(text)
    require_profiles(gpu, [name])
    return name


def _read(path: Path, report: RowReport, demand: Counter[str], whole: int, note: str) -> Wanted:
    if not report.kept:
        raise DemandError("\n".join([f"{path}: holds no usable job", *report.lines()]))
    return Wanted(_countable(dict(demand), str(path)), whole, report, note)


def _countable(demand: dict[str, int], where: str) -> dict[str, int]:
    total = sum(demand.values())
    if total > _MOST_INSTANCES:
        raise DemandError(f"{where}: asks for {total:,} instances; {_MOST_INSTANCES:,} is the most that can be planned")
    return demand
