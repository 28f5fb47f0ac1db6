"""Where each waiting job stands and when it is expected to start, as `queue` and `explain` say it.

Places come from Kueue itself where it serves them (its visibility API), and otherwise from the same order, by priority
and age; a place counts all queues of a team, its own and its twins. Starts are the agent's forecasts, and none is shown
that is too old to be believed.
"""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any, Final, Literal

from infra.commands.cluster import Cluster, SeenJob, read_forecasts
from runtime.errors import KubeError
from runtime.kube import Resource
from runtime.routing.snapshot import QUEUED_STAGES, Job
from runtime.routing.verdict import Code
from runtime.simulation.floor import order
from runtime.simulation.forecast import positions
from runtime.simulation.text import TeamForecast
from runtime.simulation.told import BEYOND_HORIZON, FAR_BACK, Forecast
from stacks.quantities import format_duration

LONGEST_AGE_SECONDS: Final = 300.0
"""Of a forecast, in real time: the agent writes it anew every minute or so, so an older one says that nobody does."""

PlaceSource = Literal["kueue", "order"]

_VISIBILITY: Final = "visibility.kueue.x-k8s.io/v1beta2"
_MOST_SERVED: Final = 1_000
"""Jobs of a queue that Kueue's visibility API serves unless asked for more."""

_MINUTE, _HOUR, _DAY = 60, 3_600, 86_400


@dataclass(frozen=True)
class Outlook:
    """Places and forecasts by the job's UID; what is left of budgets by team, scope and period.

    `ages` has the age of a team's forecast in seconds; `stale` says why no start is shown, where none is.
    """

    places: Mapping[str, int] = field(default_factory=dict)
    sources: Mapping[str, PlaceSource] = field(default_factory=dict)
    forecasts: Mapping[str, Forecast] = field(default_factory=dict)
    left_usd: Mapping[str, Mapping[str, Mapping[str, str]]] = field(default_factory=dict)
    ages: Mapping[str, float] = field(default_factory=dict)
    stale: str = ""


async def read_outlook(cluster: Cluster, seen: Sequence[SeenJob], namespace: str | None = None) -> Outlook:
    """Places of all jobs that wait, and what the agent forecasts of them."""
    places = positions(one.job for one in seen)
    sources: dict[str, PlaceSource] = dict.fromkeys(places, "order")
    for jobs in _waiting(seen):
        if (served := await _served(cluster, jobs)) is not None:
            places |= {job.uid: place for place, job in enumerate(served, 1)}
            sources |= dict.fromkeys((job.uid for job in served), "kueue")
    forecasts, missing = await read_forecasts(cluster.kube, namespace)
    outlook = Outlook(places, sources, stale=missing)
    return _with_forecasts(outlook, forecasts, seen, cluster.clock.real_now())


def _waiting(seen: Sequence[SeenJob]) -> list[list[Job]]:
    """The jobs that wait, of one team each."""
    found: dict[str, list[Job]] = defaultdict(list)
    for one in seen:
        if one.job.stage in QUEUED_STAGES:
            found[one.job.team].append(one.job)
    return list(found.values())


def start_sentence(forecast: Forecast, now: float) -> str:
    """When and where the job is expected to start, or why that is not known; as the end of a sentence about it."""
    if forecast.start_at is None:
        return _NO_START.get(forecast.reason, _no_start(forecast))
    left = forecast.start_at - now
    when = "any moment now" if left <= _MINUTE / 2 else f"in about {rough(left)}"
    where = f", on {forecast.flavor}" if forecast.flavor else ""
    return f"starts {when}{where}{_because(forecast) if left > _MINUTE / 2 else ''}"


def rough(seconds: float) -> str:
    """A length of time as a person would say it: nobody waits for the second."""
    grain = _MINUTE if seconds < _DAY else _HOUR
    rounded = max(grain, round(seconds / grain) * grain)
    return format_duration(timedelta(seconds=rounded))


def _because(forecast: Forecast) -> str:
    start = datetime.fromtimestamp(forecast.start_at or 0.0, UTC)
    if forecast.reason == Code.BUDGET:
        return f"; not before the budget of {_whose(forecast)} has room again, on {start:%b} {start.day}"
    return "; when the window of its class opens" if forecast.reason == Code.WINDOW else ""


def _no_start(forecast: Forecast) -> str:
    if forecast.reason == Code.BUDGET:
        return f"no start in sight: the budget of {_whose(forecast)} has no room for it"
    return "no start in sight as long as that stays so"


def _whose(forecast: Forecast) -> str:
    return "the fleet" if forecast.scope in ("", "fleet") else forecast.scope


_NO_START: Final[Mapping[str, str]] = {
    FAR_BACK: "too far back in the queue to say when it starts",
    BEYOND_HORIZON: "no start in sight within five weeks",
}


def _with_forecasts(
    outlook: Outlook, told_by_namespace: Mapping[str, TeamForecast], seen: Sequence[SeenJob], real_now: float
) -> Outlook:
    """The outlook with the forecast of every namespace that is not too old."""
    forecasts: dict[str, Forecast] = {}
    left: dict[str, dict[str, dict[str, str]]] = {}
    ages: dict[str, float] = {}
    stale = outlook.stale
    uids: dict[str, dict[str, str]] = defaultdict(dict)
    for one in seen:
        uids[one.job.namespace][one.job.name] = one.job.uid
    for namespace, told in sorted(told_by_namespace.items()):
        age = real_now - told.real_at
        if age > LONGEST_AGE_SECONDS:
            stale = f"the forecast for namespace {namespace} is {rough(age)} old; does the agent run?"
            continue
        found = uids.get(namespace, {})
        forecasts |= {found[name]: forecast for name, forecast in told.jobs.items() if name in found}
        ages[told.team] = max(0.0, age)
        left[told.team] = {
            scope: {period: str(usd) for period, usd in periods.items()} for scope, periods in told.left_usd.items()
        }
    return replace(outlook, forecasts=forecasts, left_usd=left, ages=ages, stale=stale)


async def _served(cluster: Cluster, jobs: Sequence[Job]) -> list[Job] | None:
    """One team's jobs in Kueue's own order, of each of its queues; None where Kueue does not serve that."""
    by_name = {(job.namespace, job.name): job for job in jobs}
    queues: list[list[Job]] = []
    for namespace, queue in sorted({(job.namespace, job.queue) for job in jobs}):
        path = Resource(_VISIBILITY, "localqueues").path(namespace, queue, "pendingworkloads")
        try:
            items = (await cluster.kube.send("GET", path)).get("items") or []
            if len(items) >= _MOST_SERVED:
                return None
            queues.append([by_name.pop(_name(item)) for item in items if _name(item) in by_name])
        except (KubeError, KeyError, TypeError, ValueError, AttributeError):
            return None
    # Whoever was listed as waiting and is in no queue of Kueue's has just started, or is just coming back.
    return list(heapq.merge(*queues, sorted(by_name.values(), key=order), key=order))


def _name(item: dict[str, Any]) -> tuple[str, str]:
    return item["metadata"]["namespace"], item["metadata"]["name"]
