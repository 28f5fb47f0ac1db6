"""Turns job traces of other formats into ours, row by row.

It invents nothing: what a source does not record (expected run time, class) stays empty, and the reader's defaults
apply. A new format is one `Format` in FORMATS.
"""

from __future__ import annotations

import csv
import gzip
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TextIO

from infra.replay.cells import DefectError, cell, parse_gpus, parse_moment, parse_seconds
from infra.replay.errors import TraceError
from infra.replay.rows import RowReport, read_rows
from infra.replay.trace import REQUIRED_COLUMNS
from stacks.suggest import did_you_mean

Cells = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Format:
    """A source format: the columns it must and may have, and how a row of it becomes one of ours.

    `row` raises DefectError for a row that cannot be used.
    """

    name: str
    required: tuple[str, ...]
    optional: tuple[str, ...]
    row: Callable[[Cells], dict[str, str]]


def _philly_row(cells: Cells) -> dict[str, str]:
    moment = cell("timestamp", cells["timestamp"], parse_moment)
    if not moment.dated:
        raise DefectError("timestamp is no date and time", cells["timestamp"])
    cell("duration", cells["duration"], parse_seconds)
    cell("num_gpus", cells["num_gpus"], parse_gpus)
    if not cells["cluster"]:
        raise DefectError("cluster is empty", "")
    submit = cells["timestamp"].replace(" ", "T")
    return {
        "submit": submit,
        "team": cells["cluster"],
        "class": "",
        "gpus": cells["num_gpus"],
        "run": cells["duration"],
    }


PHILLY: Final = Format("philly", ("timestamp", "duration", "num_gpus", "cluster"), ("gpu_time",), _philly_row)
"""Microsoft's Philly trace as the CSV that ElasticFlow and AdaptDL ship; its times name no zone and are read as UTC."""

FORMATS: Final[Mapping[str, Format]] = {PHILLY.name: PHILLY}
"""Every format that can be converted, by name."""


def rows_of(source: Path, form: Format, report: RowReport) -> Iterator[dict[str, str]]:
    """Yield our rows for those of `source`; rows that cannot be used are counted in `report`.

    Raises:
        TraceError: when the file cannot be read or is not of this format.
    """
    hint = f"the format {form.name} has the columns {','.join(form.required)}"
    for row in read_rows(source, form.required, form.optional, report, hint):
        try:
            converted = form.row(row.cells)
        except DefectError as defect:
            report.drop(row.line, defect.kind, defect.detail)
            continue
        report.kept += 1
        yield converted


def from_philly(source: Path) -> Iterator[dict[str, str]]:
    """Yield the rows of a Philly CSV, plain or gzipped, as rows of ours; unusable ones are left out.

    Raises:
        TraceError: when the file cannot be read or is not of this format.
    """
    return rows_of(source, PHILLY, RowReport(str(source)))


def convert(source: Path, destination: Path, form: str) -> RowReport:
    """Write `source` as a trace of ours, gzipped where the destination ends with .gz.

    The destination appears only when all is written; an older file there is replaced.

    Raises:
        TraceError: for an unknown format, a file that cannot be read or written, or one without any usable row.
    """
    if form not in FORMATS:
        raise TraceError(f"--from {form}: no such format{did_you_mean(form, FORMATS)}")
    report = RowReport(str(source))
    partial = destination.with_name(f".{destination.name}.{os.getpid()}.partial")
    try:
        try:
            with _writer(partial, destination.suffix == ".gz") as stream:
                table = csv.DictWriter(stream, REQUIRED_COLUMNS, lineterminator="\n")
                table.writeheader()
                table.writerows(rows_of(source, FORMATS[form], report))
            if not report.kept:
                raise TraceError("\n".join([f"{source}: holds no usable row", *report.lines()]))
            partial.replace(destination)
        finally:
            partial.unlink(missing_ok=True)
    except OSError as error:
        raise TraceError(f"{destination}: cannot be written: {error.strerror or error}") from error
    return report


def _writer(path: Path, compressed: bool) -> TextIO:
    if compressed:
        return gzip.open(path, "wt", encoding="utf-8", newline="")
    return path.open("w", encoding="utf-8", newline="")
