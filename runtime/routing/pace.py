"""What keeps acting from doing too much: a ration of verdicts for people, and a memory of what was just done.

Both live in memory alone and are lost with the process: a new one repeats at most what is safe to repeat.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from runtime.routing.decision import Clear, Hold, Move, Recall, Release, Requeue
from runtime.routing.snapshot import Job
from runtime.routing.verdict import Code

HOLDS_PER_SECOND: Final = 20.0
"""Verdicts of holding jobs are for people. A full queue of 15,000 new jobs is explained within 13 minutes, while
releases and clears, which are not rationed, keep their latency."""

HOLD_BURST: Final = 100.0
FORGET_SECONDS: Final = 5.0
"""How long the same action is taken for done; Kueue and the watch are normally milliseconds behind."""

_MOST_REMEMBERED: Final = 1_000
JobAction = Clear | Recall | Requeue | Release | Move | Hold


class Ration:
    """Tokens for verdicts of holding jobs; one pays for everything that is written about one verdict."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._tokens = HOLD_BURST
        self._at = 0.0

    def take(self) -> float:
        """Take a token; returns the seconds until it is there."""
        now = self._now()
        self._tokens = min(HOLD_BURST, self._tokens + max(0.0, now - self._at) * HOLDS_PER_SECOND) - 1.0
        self._at = now
        return max(0.0, -self._tokens / HOLDS_PER_SECOND)


@dataclass(frozen=True, slots=True)
class _Done:
    job: Job
    code: Code
    target: str | None
    until: float


class Memory:
    """What was done a moment ago, so that a copy of the cluster that is behind does not make us do it again.

    A release is the same as long as its target is, because the copy changes in between: the mark comes before the move
    is seen. Until that is seen, one to another target is the same too: a second move on top of one that Kueue is yet to
    follow would leave the job between two queues. Anything else is the same only upon the very same observation.
    """

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._done: dict[str, _Done] = {}

    def knows(self, action: JobAction) -> bool:
        """Whether the action was done a moment ago."""
        done = self._done.get(action.job.uid)
        if done is None:
            return False
        if done.until <= self._now():
            del self._done[action.job.uid]
            return False
        if done.code != action.verdict.code:
            return False
        if isinstance(action, Release) and _mark_of(done.job) == _mark_of(action.job):
            return True
        return done.target == _target(action) and (isinstance(action, Release) or done.job == action.job)

    def keep(self, action: JobAction) -> None:
        """Remember that the action was done."""
        now = self._now()
        if len(self._done) > _MOST_REMEMBERED:
            self._done = {uid: done for uid, done in self._done.items() if done.until > now}
        self._done[action.job.uid] = _Done(action.job, action.verdict.code, _target(action), now + FORGET_SECONDS)


def _mark_of(job: Job) -> tuple[str | None, float | None]:
    return job.verdict_code, job.verdict_at


def _target(action: JobAction) -> str | None:
    return action.target if isinstance(action, Release | Requeue) else None
