"""Which open attempts are over, and from when to when each of them is charged.

The ledger says which attempts are open, the Workloads which reservations still stand, and pods that linger on cloud
nodes what still costs. What cannot be known is charged, never forgiven: Kueue sets our check back to Pending when it
evicts, so a job without a Ready may well have run before, and it gives quota back before the pods are gone, so an
attempt that was cut short is charged until it is closed. An attempt is free only where the Workload was never admitted
at all, or lost its quota before the attempt was opened.

A job may be seen as it was a while ago, by a replica that takes over with a watch that had died unnoticed. So a
job that shows no trace of the reservation yet does not end the attempt before a full list must have come.

Invariant: an attempt whose reservation stands is never closed, so it cannot be opened a second time.
"""

from __future__ import annotations

from typing import Final

from runtime.cost.ledger import FAILED, FINISHED, NEVER_READY, NEVER_STARTED, Books, Closing, Opening, close
from runtime.routing.decision import Close
from runtime.routing.snapshot import Job, Snapshot, Stage
from stacks.kinds import LONGEST_GRACE_SECONDS

LINGER_SECONDS: Final = LONGEST_GRACE_SECONDS + 60.0
"""Real seconds after the release of quota in which pods may still be there: the longest grace that admission allows,
and a minute for a kubelet that is slow. Pods that outlive this hang on a lost node, which nobody bills for long."""

UNSEEN_SECONDS: Final = 900.0
"""Real seconds after which what is seen of a job is surely newer than an opening: caches list at least every ten
minutes (runtime.cache), and a list of 15,000 Workloads takes less than a minute."""


def endings(snapshot: Snapshot, now: float, replay_speed: float = 1.0) -> tuple[Close, ...]:
    """Close every open attempt that is over; none while the ledger cannot be read."""
    if snapshot.books is None:
        return ()
    still_open = open_attempts(snapshot.books)
    if not still_open:
        return ()
    uids = {opening.attempt.workload_uid for opening in still_open}
    jobs = {job.uid: job for job in snapshot.jobs if job.uid in uids}
    longest, unseen = LINGER_SECONDS * replay_speed, UNSEEN_SECONDS * replay_speed
    found = []
    for opening in still_open:
        job = jobs.get(opening.attempt.workload_uid)
        if job is None:
            found.append(Close(close(opening, opening.opened_at, now, "workload deleted"), vanished=opening))
        elif _shows_none_of(opening, job) and now - opening.opened_at < unseen:
            continue
        elif (closing := _ending(opening, job, now, longest, job.owner_uid in snapshot.lingering)) is not None:
            found.append(Close(closing))
    return tuple(found)


def open_attempts(books: Books) -> list[Opening]:
    """Openings without a closing, in a fixed order."""
    found = [opening for attempt, opening in books.openings.items() if attempt not in books.closings]
    return sorted(found, key=lambda opening: (opening.attempt.workload_uid, opening.attempt.reserved_at))


def _shows_none_of(opening: Opening, job: Job) -> bool:
    """Whether the job may be seen as it was before the attempt's reservation."""
    if job.stage is Stage.FINISHED:
        return False
    if job.attempt is not None:
        return job.attempt < opening.attempt.reserved_at
    return job.released_quota_at is None or job.released_quota_at < opening.opened_at


def _ending(opening: Opening, job: Job, now: float, longest: float, lingers: bool) -> Closing | None:
    same_reservation = job.attempt == opening.attempt.reserved_at and job.flavor == opening.flavor
    if same_reservation and job.stage is not Stage.FINISHED:
        return None
    if not job.ever_admitted:
        return close(opening, opening.opened_at, opening.opened_at, NEVER_STARTED)
    started_at = job.ready_at if same_reservation and job.ready_at is not None else opening.opened_at
    if job.flavor is not None and not same_reservation:
        # The old reservation ended some time before the new one began.
        return close(
            opening, started_at, now if job.reserved_at is None else min(job.reserved_at, now), "reserved anew"
        )
    released_at = now if job.released_quota_at is None else min(job.released_quota_at, now)
    if job.stage is Stage.FINISHED:
        return close(opening, started_at, released_at, FAILED if job.failed else FINISHED)
    if released_at < opening.opened_at:
        return close(opening, opening.opened_at, opening.opened_at, NEVER_STARTED)
    gone_by = min(now, released_at + longest)
    if lingers and gone_by == now:
        return None
    return close(opening, started_at, gone_by, NEVER_READY if job.never_ready else "quota released")
