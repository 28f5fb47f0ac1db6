"""How reliable the fleet was for its jobs: evictions, lost work, resumes, attempts and ends, by team and class.

Everything follows from the ledger, which has cloud attempts and every eviction; a job that only ever ran on local GPUs
and was never evicted is not in it. `runs_since` adds what only the cluster knows: that a job which was evicted runs
again on local GPUs. Pure.

Invariants: the share, rate and mean of nothing are None, never 0; adding up the rows of two disjoint sets of jobs gives
the row of both.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from typing import Final

from runtime.cost.ledger import (
    FAILED,
    FINISHED,
    NEVER_READY,
    NEVER_STARTED,
    SECONDS_PER_HOUR,
    Attempt,
    Books,
    Opening,
)
from runtime.cost.losses import Loss
from runtime.cost.periods import Period

_DID_NOT_RUN: Final = frozenset({NEVER_STARTED, NEVER_READY})
_NOBODY_RUNS: Final[Mapping[str, float]] = {}


@dataclass(slots=True)
class Reliability:
    """What is known of some jobs in a period.

    An attempt is a stretch in which a job held GPUs: one in the cloud that ran, by when it was opened, or one on local
    GPUs that an eviction ended, by when it did. `jobs` are those with an attempt. A loss counts when its job was
    stopped; it is `resumed` once the job is known to have run again, whenever that was. `finished` and `failed` are
    jobs that ended by themselves, in the cloud.
    """

    jobs: int = 0
    attempts: int = 0
    evictions: int = 0
    answered: int = 0
    resumed: int = 0
    lost_gpu_seconds: float = 0.0
    finished: int = 0
    failed: int = 0

    @property
    def answered_share(self) -> float | None:
        """The share of evictions before which the job said that it had saved."""
        return _share(self.answered, self.evictions)

    @property
    def lost_gpu_hours(self) -> float:
        """Work since the last known checkpoints."""
        return self.lost_gpu_seconds / SECONDS_PER_HOUR

    @property
    def attempts_per_job(self) -> float | None:
        """How often a job was started."""
        return _share(self.attempts, self.jobs)

    @property
    def success_rate(self) -> float | None:
        """The share of jobs that succeeded, of those that ended by themselves."""
        return _share(self.finished, self.finished + self.failed)


def reliability(
    books: Books, period: Period, runs_since: Mapping[str, float] = _NOBODY_RUNS
) -> dict[tuple[str, str], Reliability]:
    """By team and class, in the order of both. `runs_since` has since when jobs run that run now, by Workload UID."""
    found: defaultdict[tuple[str, str], Reliability] = defaultdict(Reliability)
    jobs: defaultdict[tuple[str, str], set[str]] = defaultdict(set)
    ran = {attempt: one for attempt, one in books.openings.items() if _ran(attempt, books)}
    openings: defaultdict[str, list[Opening]] = defaultdict(list)
    for attempt, opening in ran.items():
        openings[attempt.workload_uid].append(opening)
        if _within(opening.opened_at, period):
            key = opening.team, opening.job_class
            found[key].attempts += 1
            jobs[key].add(attempt.workload_uid)
    last_seen = _last_seen(books, ran.values(), runs_since)
    for loss in books.losses.values():
        if not _within(loss.stopped_at, period):
            continue
        key = loss.team, loss.job_class
        row = found[key]
        row.evictions += 1
        row.answered += loss.answered
        row.resumed += last_seen[loss.workload_uid] > loss.stopped_at
        row.lost_gpu_seconds += loss.lost_gpu_seconds
        if not any(_holds(opening, loss, books) for opening in openings[loss.workload_uid]):
            row.attempts += 1
            jobs[key].add(loss.workload_uid)
    for attempt, closing in books.closings.items():
        closed = books.openings.get(attempt)
        if closed is not None and _within(closing.ended_at, period):
            row = found[closed.team, closed.job_class]
            row.finished += closing.reason == FINISHED
            row.failed += closing.reason == FAILED
    for key, uids in jobs.items():
        found[key].jobs = len(uids)
    return {key: found[key] for key in sorted(found) if found[key] != Reliability()}


def added_up(rows: Iterable[Reliability]) -> Reliability:
    """The row of all jobs of these rows."""
    total = Reliability()
    for row in rows:
        for field in fields(Reliability):
            setattr(total, field.name, getattr(total, field.name) + getattr(row, field.name))
    return total


def _ran(attempt: Attempt, books: Books) -> bool:
    closing = books.closings.get(attempt)
    return closing is None or closing.reason not in _DID_NOT_RUN


def _holds(opening: Opening, loss: Loss, books: Books) -> bool:
    """Whether the loss cut this attempt off: it was open when its job was stopped, on the same flavor."""
    closing = books.closings.get(opening.attempt)
    open_then = closing is None or loss.stopped_at <= closing.ended_at
    return opening.flavor == loss.flavor and opening.opened_at <= loss.stopped_at and open_then


def _last_seen(books: Books, ran: Iterable[Opening], runs_since: Mapping[str, float]) -> defaultdict[str, float]:
    """When each job was last known to be starting, or to be running, by Workload UID."""
    found: defaultdict[str, float] = defaultdict(lambda: float("-inf"))
    moments = [(opening.attempt.workload_uid, opening.opened_at) for opening in ran]
    moments += [(loss.workload_uid, loss.stopped_at) for loss in books.losses.values()]
    for uid, at in [*moments, *runs_since.items()]:
        found[uid] = max(found[uid], at)
    return found


def _within(at: float, period: Period) -> bool:
    return period.start <= at < period.end


def _share(part: int, whole: int) -> float | None:
    return part / whole if whole else None
