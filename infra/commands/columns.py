"""Plain columns for a terminal or a pipe: a heading, and one line for each row.

No borders and no colours, so that `grep`, `awk` and eyes read the same. A cell is never shortened: one that is too
long for the terminal makes its line longer, and nothing else.
"""

from __future__ import annotations

import shutil
import sys
import textwrap
from collections.abc import Iterable, Sequence

ABSENT = "-"
"""Stands in an empty cell, so that every line has as many words as the heading."""

_GAP = "  "
NOTE_INDENT = 4
_NARROWEST_CHARACTERS = 40  # a terminal that says it is narrower than this has no known width


def columns(heading: Sequence[str], rows: Iterable[Sequence[object]]) -> list[str]:
    """One line for the heading and one for each row; a column of numbers is aligned to the right."""
    cells = [[ABSENT if cell is None or cell == "" else str(cell) for cell in row] for row in rows]
    numbers = [
        any(row[at].isdecimal() for row in cells) and all(row[at].isdecimal() or row[at] == ABSENT for row in cells)
        for at in range(len(heading))
    ]
    widths = [max(len(row[at]) for row in [list(heading), *cells]) for at in range(len(heading))]
    return [
        _GAP.join(
            cell.rjust(width) if number else cell.ljust(width)
            for cell, width, number in zip(row, widths, numbers, strict=True)
        ).rstrip()
        for row in [list(heading), *cells]
    ]


def note(text: str, indent: int = NOTE_INDENT) -> list[str]:
    """A text indented under its row: wrapped on a terminal, in one line elsewhere."""
    margin = " " * indent
    if not sys.stdout.isatty():
        return [margin + text]
    width = max(shutil.get_terminal_size().columns, _NARROWEST_CHARACTERS)
    return textwrap.wrap(
        text,
        width,
        initial_indent=margin,
        subsequent_indent=margin,
        break_long_words=False,
        break_on_hyphens=False,
    )
