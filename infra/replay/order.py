"""How exactly the queues were served: local room missed, and older jobs passed over. See infra.replay.delays for time.

All from the histories, ordered by resource version. These measure quality, not money: unlike the gate's proof, a count
above zero is possible, since Kueue decides in cycles and batches its requeues at about a second.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass

from infra.replay.histories import Histories
from infra.replay.history import Change, History, Reservation, twins_of
from infra.replay.quota import LocalQuota
from stacks.fleet import Fleet

LASTING_SECONDS = 1.0
"""Real seconds that a missed chance lasts to count as lasting: Kueue batches requeues at about a second."""

WRITING_SECONDS = 0.25
"""Real seconds within which two reservations count as made at once: Kueue decides one after the other but writes them
side by side, and the log has the order of the writes."""


@dataclass(frozen=True, slots=True)
class Missed:
    """A job that went to the cloud although it fitted locally, or an older job that was passed over.

    `lasted_seconds` is real: how long it had fitted by then, or how long the older job went on waiting. `alike` says
    that both are of one class and size, where nothing but their age tells them apart. `waited_seconds` is for how long
    the older job had stood in its queue, in real time.
    """

    at: float
    namespace: str
    job: str
    other: str | None
    lasted_seconds: float
    alike: bool = False
    waited_seconds: float = 0.0

    @property
    def unfair(self) -> bool:
        """Whether Kueue had both in its queues, alike in all but age, and chose the younger.

        A job that was preempted a moment ago is not in its queue yet, and one that reserves at the same moment was not
        passed over.
        """
        return self.alike and self.waited_seconds >= LASTING_SECONDS and self.lasted_seconds >= WRITING_SECONDS


@dataclass(frozen=True, slots=True)
class _Step:
    version: int
    at: float
    team: str
    flavor: str
    gpus: int


_NEVER = sys.maxsize
_END = _Step(_NEVER, 0.0, "", "", 0)


def missed_local(histories: Histories, fleet: Fleet, since: float = 0.0) -> list[Missed]:
    """Cloud reservations at whose moment the job fitted the local quota.

    Rule: at the version of the reservation, after everything before it and nothing after, some local flavor had as many
    GPUs available to the team as the job asks for (LocalQuota: quota, borrowing and lending; no preemption, no nodes,
    no cores). Jobs ahead in the queue are not considered. It lasted since the quota last became enough or the job was
    created, whichever is later.
    """
    quota = LocalQuota(fleet)
    local = set(quota.flavors)
    bursts = [pair for pair in _reservations(histories) if pair[1].flavor not in local and pair[1].at >= since]
    fitted: dict[tuple[str, int], float | None] = {}
    usage: dict[tuple[str, str], int] = {}
    for history, _ in bursts:
        fitted[history.team, history.gpus] = 0.0 if quota.fits(history.team, history.gpus, usage) else None
    steps = iter([*_steps(histories, local), _END])
    step = next(steps)
    found = []
    for history, reservation in bursts:
        while step.version < reservation.version:
            usage[step.team, step.flavor] = usage.get((step.team, step.flavor), 0) + step.gpus
            for shape, before in fitted.items():
                fits = quota.fits(*shape, usage)
                fitted[shape] = (step.at if before is None else before) if fits else None
            step = next(steps)
        fitted_since = fitted[history.team, history.gpus]
        if fitted_since is not None:
            lasted = max(0.0, reservation.at - max(fitted_since, history.first_seen_at))
            found.append(Missed(reservation.at, history.namespace, history.job or history.name, None, lasted))
    return found


def inversions(histories: Histories, fleet: Fleet, since: float = 0.0) -> list[Missed]:
    """Reservations that passed over an older job of the same team.

    Rule: when a job reserved a flavor, another Workload of the same team and priority, created in an earlier second
    (Kueue orders by creation time, which has whole seconds), asking for as many GPUs or fewer, could be admitted and
    was not; for a cloud flavor it also had to be released, to whichever flavor. It lasted until that job reserved quota
    itself, ended or the log does.
    """
    twins = twins_of(fleet)
    local = {flavor.name for flavor in fleet.flavors.values() if not flavor.cloud}
    end = max((change.at for one in histories.jobs.values() for change in one.changes), default=0.0)
    pending: dict[tuple[str, int], dict[str, tuple[History, Change]]] = {}
    changes = iter(_changes(histories))
    if not histories.jobs:
        return []
    version, owner, change = next(changes)
    found = []
    for younger, reservation in _reservations(histories):
        while version < reservation.version:
            waiting = pending.setdefault((owner.team, owner.priority), {})
            if change.open:
                waiting[owner.uid] = owner, change
            else:
                waiting.pop(owner.uid, None)
            version, owner, change = next(changes)
        if reservation.at < since:
            continue
        for older, entered in pending.get((younger.team, younger.priority), {}).values():
            if older.created_at >= younger.created_at or older.gpus > younger.gpus:
                continue
            if reservation.flavor in local or entered.queue in twins:
                until = next((one.at for one in older.changes if one.version > reservation.version), end)
                names = (younger.job or younger.name, older.job or older.name)
                lasted = max(0.0, until - reservation.at)
                alike = (older.job_class, older.gpus) == (younger.job_class, younger.gpus)
                waited = max(0.0, reservation.at - entered.at)
                found.append(Missed(reservation.at, younger.namespace, *names, lasted, alike, waited))
    return found


def unfair_share(found: list[Missed], histories: Histories, since: float = 0.0) -> float:
    """The share of all reservations that unfairly passed over an older job."""
    passed = {(one.namespace, one.job, one.at) for one in found if one.unfair}
    reservations = sum(reservation.at >= since for _, reservation in _reservations(histories))
    return len(passed) / reservations if reservations else 0.0


def _reservations(histories: Histories) -> list[tuple[History, Reservation]]:
    pairs = [(history, one) for history in histories.jobs.values() for one in history.reservations]
    return sorted(pairs, key=lambda pair: pair[1].version)


def _steps(histories: Histories, local: set[str]) -> list[_Step]:
    """Every change of the local usage, in order."""
    steps = []
    for history, one in _reservations(histories):
        if one.flavor in local:
            steps.append(_Step(one.version, one.at, history.team, one.flavor, one.gpus))
            if one.freed_version is not None and one.freed_at is not None:
                steps.append(_Step(one.freed_version, one.freed_at, history.team, one.flavor, -one.gpus))
    return sorted(steps, key=lambda step: step.version)


def _changes(histories: Histories) -> list[tuple[int, History, Change]]:
    """Every change of every job in order, and a last one that never comes."""
    changes = [(change.version, history, change) for history in histories.jobs.values() for change in history.changes]
    changes.sort(key=lambda item: item[0])
    return [*changes, (_NEVER, changes[-1][1], changes[-1][2])] if changes else []
