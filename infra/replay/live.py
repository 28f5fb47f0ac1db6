"""Shows a replay while it runs: a table that redraws itself on a terminal, plain lines at intervals elsewhere."""

from __future__ import annotations

from datetime import timedelta
from types import TracebackType
from typing import Final

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from infra.replay.observe import Money, View
from stacks.quantities import format_duration, format_usd

_PLAIN_EVERY_SECONDS: Final = 5.0  # real; a log of a replay stays readable
_REDRAWS_PER_SECOND: Final = 4


class LiveTable:
    """Use in a `with` block; `show` takes each new view."""

    def __init__(self, console: Console, title: str) -> None:
        self._console, self._title = console, title
        self._live: Live | None = None
        self._next_line_at = 0.0

    def __enter__(self) -> LiveTable:
        if self._console.is_terminal:
            self._live = Live(console=self._console, refresh_per_second=_REDRAWS_PER_SECOND, transient=False)
            self._live.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        if self._live is not None:
            self._live.stop()

    def show(self, view: View, real_elapsed: float, progress: str) -> None:
        """Show a view; `progress` says how far the submission is."""
        if self._live is not None:
            self._live.update(render(view, self._title, real_elapsed, progress))
        elif real_elapsed >= self._next_line_at:
            self._next_line_at = real_elapsed + _PLAIN_EVERY_SECONDS
            self._console.print(Text(line(view, real_elapsed, progress)), soft_wrap=True)


def line(view: View, real_elapsed: float, progress: str) -> str:
    """A view in one line."""
    queued = " ".join(f"{team.name}={team.queued}" for team in view.teams)
    gpus = " ".join(f"{name}={used}/{total}" for name, (used, total) in view.flavors.items())
    parts = [f"{real_elapsed:5.1f}s", progress, f"queued {queued}", f"gpus {gpus}", f"spend {_usd(view.money)}"]
    if view.decisions:
        last = view.decisions[0]
        parts.append(f"last: {last.namespace}/{last.job} {last.code}")
    return " | ".join(parts)


def render(view: View, title: str, real_elapsed: float, progress: str) -> Group:
    """A view as tables."""
    gpus = ", ".join(f"{name} {used}/{total}" for name, (used, total) in view.flavors.items())
    teams = Table(
        title=Text(f"{title}: {progress}, {real_elapsed:.0f} s"), caption=Text(f"GPUs: {gpus}"), title_justify="left"
    )
    teams.add_column("team")
    for heading in ("queued", "at gate", "local GPUs", "cloud GPUs", "done", "oldest wait", "mean wait"):
        teams.add_column(heading, justify="right")
    teams.add_column("spent + committed of budget", justify="right")
    for team in view.teams:
        teams.add_row(
            team.name,
            *map(str, (team.queued, team.at_gate, team.local_gpus, team.cloud_gpus, team.finished)),
            _duration(team.oldest_wait_seconds),
            _duration(team.mean_wait_seconds),
            _usd(team.money),
        )
    teams.add_section()
    sums = [
        sum(getattr(team, name) for team in view.teams)
        for name in ("queued", "at_gate", "local_gpus", "cloud_gpus", "finished")
    ]
    teams.add_row("fleet", *map(str, sums), "", "", _usd(view.money), style="bold")
    decisions = Table(title="last decisions", title_justify="left", show_header=False, box=None)
    for decided in view.decisions:
        decisions.add_row(
            Text(f"{decided.namespace}/{decided.job}"), Text(decided.code, style="bold"), Text(decided.text)
        )
    return Group(teams, decisions)


def _usd(money: Money) -> str:
    limit = f" of {format_usd(money.limit)}" if money.limit is not None else ""
    return f"{format_usd(money.spent)} + {format_usd(money.committed)}{limit}"


def _duration(seconds: float | None) -> str:
    return "" if seconds is None else format_duration(timedelta(seconds=round(seconds)))
