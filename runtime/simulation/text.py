"""Forecasts as the text of a team's ConfigMap: written by the agent, read by `gpufleet queue` and `explain`.

A team's users may read their own namespace and nothing of the agent's, so the text also carries what they need to turn
fleet time into theirs, and what is left of the budgets that apply to them. The writer is bounded; the reader takes what
it can and leaves out what it does not know, because a newer or an older version may have written it.

Invariants: the text is at most `LONGEST_TEXT_BYTES` long, far below what Kubernetes takes; equal forecasts give equal
text; what is written reads back the same.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from decimal import Decimal, InvalidOperation
from typing import Any, Final

from runtime.routing.snapshot import Job
from runtime.simulation.told import Forecast

KEY: Final = "forecast.json"
"""The one key of the ConfigMap's data."""

VERSION: Final = 1
"""Raised only by a change that an older reader would misread."""

MOST_JOBS_TOLD: Final = 1_000
"""Jobs of one team in the text, the first in its queue: about 100 bytes each."""

LONGEST_TEXT_BYTES: Final = 256 * 1_024
"""A quarter of what etcd and Kubernetes take for a ConfigMap; names of objects may be 253 characters long."""

_LONGEST_READ_BYTES: Final = 1_048_576
_ENTRY_FIELDS: Final = 5
_LONGEST_NAME: Final = 253  # of any object in Kubernetes
_LATEST_TIME: Final = 253_402_300_799  # the end of the year 9999, the last that a date can have
_GREATEST_SPEED: Final = 1e6
_FURTHEST_PLACE: Final = 10**9
_LONGEST_AMOUNT: Final = 15  # digits before the point


@dataclass(frozen=True, slots=True)
class TeamForecast:
    """What the ConfigMap of one team says.

    `at` is when it was made in fleet time, `real_at` in real time; fleet time passes `speed` times as fast. `jobs` has
    forecasts by the Workload's name. `left_usd` has what is left by scope and period, e.g. `team vision`, `week`.
    """

    team: str
    at: float
    real_at: float
    speed: float = 1.0
    jobs: Mapping[str, Forecast] = field(default_factory=dict)
    left_usd: Mapping[str, Mapping[str, Decimal]] = field(default_factory=dict)


def team_forecast(
    team: str,
    jobs: Iterable[Job],
    forecasts: Mapping[str, Forecast],
    *,
    at: float,
    real_at: float,
    speed: float = 1.0,
    left_usd: Mapping[str, Mapping[str, Decimal]] | None = None,
) -> TeamForecast:
    """What the ConfigMap of one team should say; the first of its jobs, where there are too many.

    Args:
        team: its name.
        jobs: the snapshot's jobs, of any team.
        forecasts: by UID, from `runtime.simulation.forecast.forecast`.
        at: fleet time of the snapshot.
        real_at: real time of the snapshot.
        speed: seconds of fleet time in each real second.
        left_usd: what is left by scope and period, of the budgets that apply to the team.
    """
    found = [(forecasts[job.uid], job.name) for job in jobs if job.team == team and job.uid in forecasts]
    found.sort(key=lambda pair: (pair[0].position or 0, pair[1]))
    told = {name: one for one, name in found[:MOST_JOBS_TOLD]}
    return TeamForecast(team, round(at, 3), round(real_at, 3), speed, told, left_usd or {})


def to_data(said: TeamForecast) -> dict[str, str]:
    """The ConfigMap's `data`; where the text would be too long, jobs at the back are left out."""
    jobs = {name: _entry(one) for name, one in said.jobs.items()}
    while len(text := _text(said, jobs)) > LONGEST_TEXT_BYTES and jobs:
        jobs = dict(list(jobs.items())[: len(jobs) // 2])
    return {KEY: text}


def from_data(data: object) -> TeamForecast | None:
    """Read the ConfigMap's `data`; None for anything that is no forecast of a version that is known here."""
    text = data.get(KEY) if isinstance(data, Mapping) else None
    if not isinstance(text, str) or len(text) > _LONGEST_READ_BYTES:
        return None
    try:
        entry = json.loads(text)
    except (ValueError, RecursionError):
        return None
    if not isinstance(entry, dict) or entry.get("version") != VERSION or not isinstance(entry.get("team"), str):
        return None
    at, real_at = (_number(entry.get(name), 0, _LATEST_TIME) for name in ("at", "real_at"))
    speed = _number(entry.get("speed"), 1, _GREATEST_SPEED)
    if at is None or real_at is None or speed is None or not _short_text(entry["team"]):
        return None
    jobs = {name: one for name, value in _items(entry.get("jobs")) if (one := _forecast(value)) is not None}
    left = {scope: _amounts(value) for scope, value in _items(entry.get("left_usd"))}
    return TeamForecast(entry["team"], at, real_at, speed, jobs, left)


def _text(said: TeamForecast, jobs: Mapping[str, list[Any]]) -> str:
    entry = {
        "version": VERSION,
        "team": said.team,
        "at": said.at,
        "real_at": said.real_at,
        "speed": said.speed,
        "left_usd": {
            scope: {period: str(usd) for period, usd in sorted(left.items())}
            for scope, left in sorted(said.left_usd.items())
        },
        "jobs": jobs,
    }
    return json.dumps(entry, ensure_ascii=True, separators=(",", ":"), allow_nan=False)


def _entry(one: Forecast) -> list[Any]:
    """Position, start, flavor, reason, scope; what is empty at the end is left out."""
    entry: list[Any] = [one.position, None if one.start_at is None else round(one.start_at)]
    entry += [one.flavor, one.reason, one.scope]
    while entry and entry[-1] in ("", None):
        entry.pop()
    return entry


def _forecast(value: object) -> Forecast | None:
    if not isinstance(value, list):
        return None
    entry = [*value, *[None] * _ENTRY_FIELDS][:_ENTRY_FIELDS]
    position, start_at = _number(entry[0], 1, _FURTHEST_PLACE), _number(entry[1], 0, _LATEST_TIME)
    flavor, reason, scope = (_short_text(text) for text in entry[2:])
    return Forecast(None if position is None else int(position), start_at, flavor or None, reason, scope)


def _amounts(value: object) -> dict[str, Decimal]:
    found: dict[str, Decimal] = {}
    for period, text in _items(value):
        try:
            usd = Decimal(_short_text(text))
        except InvalidOperation:
            continue
        if usd.is_finite() and usd.adjusted() < _LONGEST_AMOUNT:
            found[period] = usd
    return found


def _items(value: object) -> Iterable[tuple[str, Any]]:
    found = value.items() if isinstance(value, dict) else ()
    return ((name, one) for name, one in found if _short_text(name))


def _short_text(value: object) -> str:
    """A name as Kubernetes takes it, or a code of ours; nothing for what a terminal should not be shown."""
    return value if isinstance(value, str) and len(value) <= _LONGEST_NAME and value.isprintable() else ""


def _number(value: object, least: float, most: float) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not least <= value <= most:
        return None
    return float(value)
