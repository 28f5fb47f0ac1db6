"""A trace: jobs with the time of their arrival, read from CSV in the schema of docs/traces.md.

It does not submit anything and does not judge the load. Rows that cannot be used are counted with file, line and
reason, never guessed at. Jobs larger than the fleet are kept: what becomes of them is the cluster's answer to give.

Invariants: jobs come out in the order of their arrival, and names are unique within a trace. Memory is bounded by the
sorting window, whatever the size of the file.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import Final

from rich.console import Console

from infra.replay.cells import (
    DefectError,
    Moment,
    cell,
    default_max,
    job_name,
    parse_gpus,
    parse_moment,
    parse_seconds,
)
from infra.replay.errors import TraceError
from infra.replay.mapping import class_map, spread_by_size, team_map
from infra.replay.rows import Row, RowReport, read_rows, shown
from stacks.fleet import Fleet

REQUIRED_COLUMNS: Final = ("submit", "team", "class", "gpus", "run")
OPTIONAL_COLUMNS: Final = ("expected", "max", "name")
COLUMNS: Final = REQUIRED_COLUMNS + OPTIONAL_COLUMNS
HINT: Final = (
    f"a trace starts with the row {','.join(REQUIRED_COLUMNS)}[,{','.join(OPTIONAL_COLUMNS)}]; "
    "`gpufleet trace convert --from philly IN OUT` makes one from another format"
)

_SORTED_WITHIN: Final = 50_000  # rows held back to put a file in order; about 30 MiB


@dataclass(frozen=True, slots=True)
class TraceJob:
    """One job of a trace, all times in seconds of fleet time.

    `team` and `job_class` are names of the fleet file. `submit_seconds` counts from the start of the trace.
    `run_seconds` is how long it really runs, `expected_seconds` what its owner says, `max_seconds` when it is stopped.
    """

    name: str
    team: str
    job_class: str
    gpus: int
    submit_seconds: float
    run_seconds: float
    expected_seconds: float | None
    max_seconds: float


@dataclass(frozen=True, slots=True)
class TraceOptions:
    """What to take from a file.

    `teams` and `classes` map names of the file to names of the fleet; the key `*` stands for all others. `auto_teams`
    spreads unknown teams over the fleet's by size. `limit` is the most jobs to take. `window` keeps rows that arrive
    in [start, end), both written like `submit`; the trace then starts at the window's start.
    """

    teams: Mapping[str, str] = field(default_factory=dict)
    auto_teams: bool = False
    classes: Mapping[str, str] = field(default_factory=dict)
    limit: int | None = None
    window: tuple[str, str] | None = None


class TraceReader:
    """Iterates over the jobs of one CSV file; `report` and `larger_than_fleet` are complete when that ends."""

    def __init__(self, path: Path, fleet: Fleet, options: TraceOptions | None = None) -> None:
        """Check the options against the fleet; the file is opened when the iteration starts.

        Raises:
            TraceError: when an option names an unknown team or class, a limit below 1, or a window that is none.
        """
        self._path, self._fleet, self._options = path, fleet, options or TraceOptions()
        if self._options.limit is not None and self._options.limit < 1:
            raise TraceError(f"--limit {self._options.limit}: must be 1 or more jobs")
        self._teams = team_map(fleet, self._options.teams)
        self._classes = class_map(fleet, self._options.classes)
        self._window = _window(self._options.window) if self._options.window else None
        self._largest = max(flavor.gpus for flavor in fleet.flavors.values())
        self.report = RowReport(str(path))
        self.larger_than_fleet = 0

    def __iter__(self) -> Iterator[TraceJob]:
        """Yield the jobs in the order of their arrival, the first at 0 where the file has timestamps.

        Raises:
            TraceError: when the file cannot be read, or holds no usable job at all.
        """
        self.report, self.larger_than_fleet = RowReport(str(self._path)), 0
        if self._options.auto_teams:
            self._teams = team_map(self._fleet, {**spread_by_size(self._fleet, self._sizes()), **self._options.teams})
        yield from islice(self._in_order(), self._options.limit)
        if not self.report.kept:
            where = " in the window" if self._window and not self.report.dropped else ""
            text = [f"{self._path}: holds no usable job{where}", *self.report.lines()]
            raise TraceError("\n".join(text))

    def lines(self) -> list[str]:
        """What was kept and dropped, for a person."""
        large = f"  {self.larger_than_fleet:,} jobs ask for more GPUs than any flavor has; they will wait for ever"
        return [*self.report.lines(), *([large] if self.larger_than_fleet else [])]

    def _in_order(self) -> Iterator[TraceJob]:
        start = self._window[0].seconds if self._window else None
        last = 0.0
        for moment, line, job in _sorted_within(self._jobs()):
            if start is None:
                start = moment.seconds if moment.dated else 0.0
            submit = moment.seconds - start
            if submit < last:
                self.report.drop(line, f"arrives before a row that stands {_SORTED_WITHIN:,} rows above; sort the file")
                continue
            last = submit
            self.report.kept += 1
            self.larger_than_fleet += job.gpus > self._largest
            yield replace(job, submit_seconds=submit)

    def _jobs(self) -> Iterator[tuple[Moment, int, TraceJob]]:
        dated = self._window[0].dated if self._window else None
        for row in self._rows(self.report):
            try:
                moment = cell("submit", row.cells["submit"], parse_moment)
                if dated not in (None, moment.dated):
                    of = "the window" if self._window else "the rows above"
                    raise DefectError(
                        f"submit must be of the same kind as {of}: time or timestamp", row.cells["submit"]
                    )
                job = self._job(row)
            except DefectError as defect:
                self.report.drop(row.line, defect.kind, defect.detail)
                continue
            dated = moment.dated
            if not self._window or self._window[0] <= moment < self._window[1]:
                yield moment, row.line, job

    def _job(self, row: Row) -> TraceJob:
        cells = row.cells
        team = self._teams.find(cells["team"])
        if team is None:
            raise DefectError("team is not in the fleet; use --map-team, or --map-team auto", cells["team"])
        job_class = self._classes.find(cells["class"])
        if job_class is None:
            raise DefectError("class is not in the fleet; use --map-class", cells["class"])
        gpus = cell("gpus", cells["gpus"], parse_gpus)
        run = cell("run", cells["run"], parse_seconds)
        expected = cell("expected", cells["expected"], parse_seconds) if cells.get("expected") else None
        longest = cell("max", cells["max"], parse_seconds) if cells.get("max") else default_max(run, expected)
        return TraceJob(job_name(cells.get("name", ""), row.line), team, job_class, gpus, 0.0, run, expected, longest)

    def _sizes(self) -> dict[str, float]:
        """GPU-seconds of every team of the file that is no team of the fleet."""
        sizes: dict[str, float] = {}
        for row in self._rows(RowReport(str(self._path))):
            team = row.cells["team"]
            if not team or self._teams.find(team) is not None:
                continue
            try:
                sizes[team] = sizes.get(team, 0.0) + parse_gpus(row.cells["gpus"]) * parse_seconds(row.cells["run"])
            except ValueError:
                continue  # the second reading counts the row and says why
        return sizes

    def _rows(self, report: RowReport) -> Iterator[Row]:
        return read_rows(self._path, REQUIRED_COLUMNS, OPTIONAL_COLUMNS, report, HINT)


def read_trace(
    path: Path, fleet: Fleet, options: TraceOptions | None = None, *, console: Console | None = None
) -> list[TraceJob]:
    """Read a whole trace into memory, in the order of arrival, and say on the console what was kept and dropped.

    Raises:
        TraceError: when an option is wrong, the file cannot be read, or it holds no usable job at all.
    """
    reader = TraceReader(path, fleet, options)
    jobs = list(reader)
    if console is not None:
        for text in reader.lines():
            console.print(text, highlight=False, markup=False, soft_wrap=True)
    return jobs


def _sorted_within(jobs: Iterator[tuple[Moment, int, TraceJob]]) -> Iterator[tuple[Moment, int, TraceJob]]:
    """Sort as far as a bounded memory can; equal arrivals stay in the order of the file."""
    held: list[tuple[Moment, int, TraceJob]] = []
    for item in jobs:  # the line is unique, so that two jobs are never compared
        if len(held) < _SORTED_WITHIN:
            heapq.heappush(held, item)
        else:
            yield heapq.heappushpop(held, item)
    while held:
        yield heapq.heappop(held)


def _window(window: tuple[str, str]) -> tuple[Moment, Moment]:
    written = "..".join(window)
    try:
        start, end = (parse_moment(text.strip()) for text in window)
    except ValueError as error:
        raise TraceError(
            f"--window {shown(written)}: {error}; write it like 0h..24h or 2017-10-02..2017-10-03"
        ) from None
    if start.dated != end.dated or start >= end:
        raise TraceError(f"--window {shown(written)}: must end after it starts, both as times or both as timestamps")
    return start, end
