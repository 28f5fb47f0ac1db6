"""Progress of long steps: live bars on a terminal, plain lines elsewhere.

It never decides anything, and a step's outcome does not depend on it.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Protocol

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from infra.local.errors import LocalError

_PLAIN_LINE_SECONDS = 15.0  # between two plain lines of one step: a log of a ten-minute build stays readable


class Step(Protocol):
    """What the work reports to."""

    def update(self, done: float, total: float | None, detail: str = "") -> None:
        """Say how much is done of how much (None where unknown), and what is being done."""


@contextmanager
def step(console: Console, title: str) -> Iterator[Step]:
    """Show one step while the block runs, and its duration at the end."""
    began = time.monotonic()
    try:
        with _shown(console, title) as shown:
            yield shown
    except LocalError as error:
        reason = str(error).splitlines()[0]
        console.print(f"{title}: not possible: {reason}", markup=False, highlight=False, soft_wrap=True)
        raise
    seconds = time.monotonic() - began
    console.print(f"{title}: done in {seconds:.0f} s", markup=False, highlight=False, soft_wrap=True)


@contextmanager
def _shown(console: Console, title: str) -> Iterator[Step]:
    if console.is_terminal:
        columns = (
            TextColumn("{task.description}"),
            BarColumn(bar_width=30),
            TextColumn("{task.fields[counts]}"),
            TimeElapsedColumn(),
            TextColumn("[dim]{task.fields[detail]}"),
        )
        with Progress(*columns, console=console, transient=True) as progress:
            yield _BarStep(progress, progress.add_task(escape(title), total=None, counts="", detail=""))
    else:
        console.print(f"{title} …", markup=False, highlight=False, soft_wrap=True)
        yield _PlainStep(console, title)


@dataclass
class _BarStep:
    progress: Progress
    task: TaskID

    def update(self, done: float, total: float | None, detail: str = "") -> None:
        counts = "" if total is None else f"{done:.0f}/{total:.0f}"
        self.progress.update(self.task, completed=done, total=total, counts=counts, detail=escape(detail[-60:]))


@dataclass
class _PlainStep:
    console: Console
    title: str
    began: float = field(default_factory=time.monotonic)
    last: float = field(default_factory=time.monotonic)

    def update(self, done: float, total: float | None, detail: str = "") -> None:
        now = time.monotonic()
        if now - self.last < _PLAIN_LINE_SECONDS:
            return
        self.last = now
        counts = f"{done:.0f}" if total is None else f"{done:.0f}/{total:.0f}"
        line = f"{self.title}: {counts} {detail} ({now - self.began:.0f} s)"
        self.console.print(line, markup=False, highlight=False, soft_wrap=True)
