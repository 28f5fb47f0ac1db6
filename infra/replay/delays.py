"""How long things took that should take no time: from eligible to running, and at the gate. How far off forecasts were.

All but the forecasts come from the audit log. Delays are in real seconds, because they are the control plane's and the
agent's; errors of forecasts are in fleet time, which is what people were told.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import accumulate

from infra.replay.histories import Histories
from infra.replay.history import History, Reservation, twins_of
from runtime.clock import Clock
from runtime.routing.policy import WaitRule
from runtime.routing.snapshot import Job, Stage
from runtime.routing.verdict import Code
from stacks.agent_config import agent_config
from stacks.fleet import Fleet

_WAITS = {Code.WAITING, Code.RELEASED, Code.CLEARED, Code.RECALLED}


@dataclass(frozen=True, slots=True)
class Delay:
    """Real seconds that one job was delayed by.

    `quota_free`: all that time the flavor on which it started had room for it.
    """

    job: str
    seconds: float
    quota_free: bool = True


@dataclass(frozen=True, slots=True)
class EtaError:
    """What a job was first told against what came, in fleet seconds; positive where it started later.

    `ahead_seconds` is how long before the start, as it was forecast, it was told.
    """

    job: str
    ahead_seconds: float
    error_seconds: float


@dataclass(frozen=True, slots=True)
class FirstEta:
    """The first start that a job was told, and when it was, both in fleet time."""

    told_at: float
    start_at: float


def release_delays(histories: Histories, fleet: Fleet, speed: float, since: float = 0.0) -> list[Delay]:
    """Delay of every job that the agent released and that ran: from eligible to its first pod bound to a node.

    A job is eligible when its wait is over: the wait that the agent named in its verdict, else the fleet's policy. It
    counts from the job's creation, or from when it last lost its quota. One that was held after that for another reason
    (budget, room, team's limit) becomes eligible when it is released.

    Args:
        histories: The audit log.
        fleet: Whose wait policy.
        speed: Fleet seconds in each real second.
        since: Real time; jobs released earlier are not counted.
    """
    bound, twins, rule = histories.bound_times(), twins_of(fleet), WaitRule(agent_config(fleet))
    room = _Room(histories, fleet)
    found = []
    for history in histories.jobs.values():
        key = (history.namespace, history.job or "")
        moves = histories.queues.get(key, [])
        released = next((move.at for move in moves if move.by_agent and move.queue in twins), None)
        if released is None or released < since:
            continue
        started = next((at for at in bound.get(key, []) if at >= released), None)
        run = next((one for one in reversed(history.reservations) if started is None or one.at <= started), None)
        if started is None or run is None:
            continue
        held = any(code not in _WAITS for at, code in history.verdicts if at <= released)
        waits_from = max([one.ended_at for one in history.reservations if one.ended_at and one.ended_at <= released],
                         default=history.first_seen_at)  # fmt: skip
        limit = history.wait_limit_seconds
        wait = rule.seconds(_as_job(history, speed)) if limit is None else limit
        eligible = released if held else min(waits_from + wait / speed, released)
        free = room.stayed(history, run, eligible)
        found.append(Delay(history.job or history.name, started - eligible, free))
    return found


def gate_delays(histories: Histories, fleet: Fleet, since: float = 0.0) -> list[Delay]:
    """From each cloud reservation to the agent's Ready, without those that it held for money or room."""
    cloud = {flavor.name for flavor in fleet.burst_flavors}
    return [
        Delay(history.job or history.name, run.ready_at - run.at)
        for history in histories.jobs.values()
        for run in history.reservations
        if run.flavor in cloud
        and run.at >= since
        and run.ready_at is not None
        and not any(code not in _WAITS for at, code in history.verdicts if run.at <= at <= run.ready_at)
    ]


def eta_errors(histories: Histories, told: Mapping[tuple[str, str], FirstEta], clock: Clock) -> list[EtaError]:
    """How far the first forecast of each job was off that has started since; `told` is by namespace and Workload."""
    found = []
    for history in histories.jobs.values():
        first = told.get((history.namespace, history.name))
        started = next((run.admitted_at for run in history.reservations if run.admitted_at is not None), None)
        if first is None or started is None or (at := clock.to_fleet(started)) < first.told_at:
            continue
        ahead = max(0.0, first.start_at - first.told_at)
        found.append(EtaError(history.job or history.name, ahead, at - first.start_at))
    return found


class _Room:
    """How many GPUs of each flavor were in use, over time."""

    def __init__(self, histories: Histories, fleet: Fleet) -> None:
        self._gpus = {flavor.name: flavor.gpus for flavor in fleet.flavors.values()}
        self._times: dict[str, list[float]] = {}
        self._used: dict[str, list[int]] = {}
        steps: dict[str, list[tuple[float, int]]] = {}
        for history in histories.jobs.values():
            for run in history.reservations:
                steps.setdefault(run.flavor, []).append((run.at, run.gpus))
                if run.freed_at is not None:
                    steps[run.flavor].append((run.freed_at, -run.gpus))
        for flavor, changes in steps.items():
            changes.sort()
            self._times[flavor] = [at for at, _ in changes]
            self._used[flavor] = list(accumulate(change for _, change in changes))

    def stayed(self, history: History, run: Reservation, eligible: float) -> bool:
        """Whether the job's flavor had room for it from the moment it was eligible until it reserved."""
        times, used = self._times.get(run.flavor, []), self._used.get(run.flavor, [])
        first, last = bisect_right(times, eligible) - 1, bisect_left(times, run.at)
        busiest = max(used[max(first, 0) : last], default=0)
        return self._gpus.get(run.flavor, 0) - busiest >= history.gpus


def _as_job(history: History, speed: float) -> Job:
    """What the policy needs of the job."""
    seen = history.latest
    return Job(
        uid=history.uid,
        namespace=history.namespace,
        name=history.name,
        owner_kind="Job",
        owner_name=history.job or "",
        owner_uid=history.job_uid or "",
        team=history.team,
        job_class=history.job_class,
        priority=history.priority,
        gpus=history.gpus,
        created_at=history.created_at,
        stage=Stage.QUEUED,
        expected_seconds=seen.expected_seconds,
        max_seconds=None if seen.max_real_seconds is None else seen.max_real_seconds * speed,
    )
