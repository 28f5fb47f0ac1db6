"""Reads the rows of a CSV file of any size, plain or gzipped, and keeps count of those that cannot be used.

It knows nothing of jobs. One row is one line: a quoted line break would let a single stray quote swallow the rest of a
file. Memory is bounded by the longest line allowed, whatever the file holds.
"""

from __future__ import annotations

import csv
import gzip
import zlib
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from io import BufferedIOBase
from pathlib import Path
from typing import Final, NamedTuple

from infra.replay.errors import TraceError
from stacks.suggest import did_you_mean

_LONGEST_LINE: Final = 64 * 1024  # bytes; a row of a trace has about 80
_EXAMPLES: Final = 5  # per reason; enough to find the cause, few enough to read
_GZIP_MAGIC: Final = b"\x1f\x8b"


class Row(NamedTuple):
    """One row: its line in the file, counted from 1, and its cells by column name, stripped."""

    line: int
    cells: dict[str, str]


@dataclass(slots=True)
class RowReport:
    """What became of the rows of one file. `reasons` counts dropped rows by kind of defect."""

    file: str
    read: int = 0
    kept: int = 0
    ignored_columns: tuple[str, ...] = ()
    reasons: Counter[str] = field(default_factory=Counter)
    examples: dict[str, list[str]] = field(default_factory=dict)

    @property
    def dropped(self) -> int:
        """Rows that could not be used."""
        return self.reasons.total()

    def drop(self, line: int, kind: str, detail: str = "") -> None:
        """Count a row that cannot be used: `kind` is one for all rows with the defect, `detail` names the value."""
        self.reasons[kind] += 1
        shown = self.examples.setdefault(kind, [])
        if len(shown) < _EXAMPLES:
            shown.append(f"{self.file}:{line}: {kind}{f' ({detail})' if detail else ''}")

    def lines(self) -> list[str]:
        """The report for a person: one line per kind of defect and its first examples."""
        text = [f"{self.file}: {self.read:,} rows read, {self.kept:,} used, {self.dropped:,} dropped"]
        if unused := self.read - self.kept - self.dropped:
            text.append(f"  {unused:,} lie outside the window or beyond the limit")
        if self.ignored_columns:
            text.append(f"  columns not used: {', '.join(self.ignored_columns)}")
        for kind, count in self.reasons.most_common():
            text.append(f"  {count:,} × {kind}, first:")
            text.extend(f"    {example}" for example in self.examples[kind])
        return text


def shown(value: str) -> str:
    """A cell for a message: quoted, escaped and cut, whatever it holds."""
    return ascii(value if len(value) <= 40 else value[:37] + "...")


def read_rows(
    path: Path, required: Sequence[str], optional: Sequence[str], report: RowReport, hint: str
) -> Iterator[Row]:
    """Yield the rows of a file one by one; count in `report` those that are no rows.

    Args:
        path: The file; gzip is recognised by its content.
        required: Columns that the header must name, in any order and case.
        optional: Columns that the header may name; others are ignored and reported.
        report: Where dropped rows are counted. `kept` is the caller's to count.
        hint: What to do when the header is not as required.

    Raises:
        TraceError: when the file cannot be read or its header lacks a required column.
    """
    try:
        with path.open("rb") as raw:
            compressed = raw.peek(2)[:2] == _GZIP_MAGIC
            stream = gzip.GzipFile(fileobj=raw) if compressed else raw
            yield from _rows(stream, path, required, optional, report, hint)
    except (OSError, EOFError, zlib.error) as error:
        reason = getattr(error, "strerror", None) or error
        where = f" after row {report.read:,}" if report.read else ""
        raise TraceError(f"{path}: cannot be read{where}: {reason}") from error


def _rows(
    stream: BufferedIOBase, path: Path, required: Sequence[str], optional: Sequence[str], report: RowReport, hint: str
) -> Iterator[Row]:
    lines = _lines(stream, report)
    header: list[str] | None = None
    for number, line in lines:
        if not line.strip() or line.startswith("#"):
            continue
        cells = _cells(line)
        if header is None:
            header = _header(cells, path, required, optional, report, hint)
            continue
        report.read += 1
        if cells is None:
            report.drop(number, "not CSV: a quote is never closed or stands inside a cell")
        elif len(cells) != len(header):
            report.drop(number, "has another number of cells than the header", f"{len(cells)}, not {len(header)}")
        elif any("\udc80" <= character <= "\udcff" for character in line) and not line.isascii():
            report.drop(number, "is not UTF-8 text")
        else:
            yield Row(number, dict(zip(header, cells, strict=True)))
    if header is None:
        raise TraceError(f"{path}: is empty; {hint}")


def _lines(stream: BufferedIOBase, report: RowReport) -> Iterator[tuple[int, str]]:
    number = 0
    while raw := stream.readline(_LONGEST_LINE):
        number += 1
        if len(raw) == _LONGEST_LINE and not raw.endswith(b"\n"):
            while (rest := stream.readline(_LONGEST_LINE)) and not rest.endswith(b"\n"):
                pass
            report.read += 1
            report.drop(number, f"is longer than {_LONGEST_LINE:,} bytes")
            continue
        text = raw.decode("utf-8", errors="surrogateescape")
        yield number, text.removeprefix("\ufeff") if number == 1 else text


def _cells(line: str) -> list[str] | None:
    try:
        return [cell.strip() for cell in next(csv.reader([line], strict=True))]
    except (csv.Error, StopIteration):
        return None


def _header(
    cells: list[str] | None,
    path: Path,
    required: Sequence[str],
    optional: Sequence[str],
    report: RowReport,
    hint: str,
) -> list[str]:
    names = [cell.lower() for cell in cells or []]
    missing = [name for name in required if name not in names]
    if missing:
        strangers = [name for name in names if name not in required and name not in optional]
        near = did_you_mean(missing[0], strangers) if strangers and len(strangers) <= len(required) else ""
        found = shown(",".join(names))
        raise TraceError(f"{path}: the first row lacks the column {', '.join(missing)} (it has {found}{near}); {hint}")
    doubled = [name for name, count in Counter(names).items() if count > 1]
    if doubled:
        raise TraceError(f"{path}: the first row names the column {shown(doubled[0])} twice; name each column once")
    report.ignored_columns = tuple(name for name in names if name not in required and name not in optional)
    return names
