"""Which open attempts are over, and from when to when each of them is charged.

The ledger says which attempts are open, the Workloads which reservations still stand. What cannot be known is charged,
never forgiven: Kueue sets our check back to Pending when it evicts, so a job without a Ready may well have run before.
An attempt is free only where the Workload was never admitted at all, or lost its quota before the attempt was opened.

Invariant: an attempt whose reservation stands is never closed, so it cannot be opened a second time.
"""

from __future__ import annotations

from runtime.cost.ledger import Books, Closing, Opening, close
from runtime.routing.decision import Close
from runtime.routing.snapshot import Job, Snapshot, Stage


def endings(snapshot: Snapshot, now: float) -> tuple[Close, ...]:
    """Close every open attempt that is over; none while the ledger cannot be read."""
    if snapshot.books is None:
        return ()
    still_open = open_attempts(snapshot.books)
    if not still_open:
        return ()
    uids = {opening.attempt.workload_uid for opening in still_open}
    jobs = {job.uid: job for job in snapshot.jobs if job.uid in uids}
    found = []
    for opening in still_open:
        job = jobs.get(opening.attempt.workload_uid)
        if job is None:
            found.append(Close(close(opening, opening.opened_at, now, "workload deleted"), vanished=opening))
        elif (closing := _ending(opening, job, now)) is not None:
            found.append(Close(closing))
    return tuple(found)


def open_attempts(books: Books) -> list[Opening]:
    """Openings without a closing, in a fixed order."""
    found = [opening for attempt, opening in books.openings.items() if attempt not in books.closings]
    return sorted(found, key=lambda opening: (opening.attempt.workload_uid, opening.attempt.reserved_at))


def _ending(opening: Opening, job: Job, now: float) -> Closing | None:
    same_reservation = job.attempt == opening.attempt.reserved_at and job.flavor == opening.flavor
    if same_reservation and job.stage is not Stage.FINISHED:
        return None
    if not job.ever_admitted:
        return close(opening, opening.opened_at, opening.opened_at, "never started")
    started_at = job.ready_at if same_reservation and job.ready_at is not None else opening.opened_at
    if job.flavor is not None and not same_reservation:
        # The old reservation ended some time before the new one began.
        ended_at, reason = job.reserved_at, "reserved anew"
    else:
        ended_at, reason = job.released_quota_at, "finished" if job.stage is Stage.FINISHED else "quota released"
    return close(opening, started_at, now if ended_at is None else min(ended_at, now), reason)
