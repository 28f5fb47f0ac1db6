"""How the time between a notice and its deadline is shared out among asking, stopping and what comes after.

It reads no clock. Deadlines come from the clocks of providers and nodes, so a notice that is dated after `now` shows
that our clock is behind, and its deadline is taken to be as much earlier.

Invariant: with a deadline, a job is stopped early enough that its pods have their whole grace period before it, or at
once where that has become impossible.
"""

from __future__ import annotations

from dataclasses import dataclass

from runtime.eviction.notice import Certainty, Notice


@dataclass(frozen=True, slots=True)
class EvictionTerms:
    """The shares of the time, in seconds."""

    reserve_seconds: float = 5.0
    """Kept from every deadline for the API server, Kueue and the kubelet: Kueue frees the quota of a stopped Workload
    in about one second, and its pods are told to end in the next."""

    least_end_seconds: float = 10.0
    """Kept for the end of pods whose grace period is shorter: with the reserve, an agent that fails just before the
    stop is replaced in time."""

    least_ask_seconds: float = 10.0
    """Below this there is no asking: to be told, to save and to answer takes a job at least about as long."""

    patience_seconds: float = 120.0
    """What a job gets to save where nobody says when its node goes: as much as the longest notice of a spot machine."""

    lead_seconds: float = 600.0
    """A notice further ahead than this only keeps new jobs away: what runs may end by itself. Longer than any notice of
    a spot machine, so those are always acted on at once."""

    renew_seconds: float = 60.0
    """A job that was warned longer ago than this, and is now really to go, is asked once more; before, it may still be
    at work on the first request."""

    doubt_seconds: float = 600.0
    """A deadline that lies further than this in the past, and as far before its own notice, is nonsense, and so is a
    clock this far ahead."""

    stuck_seconds: float = 300.0
    """How much longer than its grace period a pod of a stopped job may take to go, before the job goes on without it:
    pods with a hung driver or a foreign finalizer never go."""

    hop_seconds: float = 600.0
    """A job that came back to a node under the same notice, and without a deadline, stays there this long: the node
    takes new pods, so it would only go round and round."""


DEFAULT_TERMS = EvictionTerms()


def local_deadline(notice: Notice, now: float, terms: EvictionTerms) -> float | None:
    """The notice's deadline by our clock."""
    if notice.deadline is None:
        return None
    behind = notice.noticed_at - now
    return notice.deadline - behind if 0 < behind <= terms.doubt_seconds else notice.deadline


def bears(notice: Notice, now: float, terms: EvictionTerms) -> bool:
    """Whether the notice is to be acted on now: it is neither far ahead nor nonsense."""
    if notice.certainty is Certainty.LIKELY or notice.deadline is None:
        return True
    if notice.deadline < min(notice.noticed_at, now) - terms.doubt_seconds:
        return False
    deadline = local_deadline(notice, now, terms)
    return deadline is None or deadline - now <= terms.lead_seconds


def stop_by(deadline: float | None, asked_at: float, grace_seconds: float, terms: EvictionTerms) -> float:
    """When a job that was asked is stopped at the latest."""
    if deadline is None:
        return asked_at + terms.patience_seconds
    return deadline - terms.reserve_seconds - max(terms.least_end_seconds, grace_seconds)
