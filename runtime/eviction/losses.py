"""What an eviction cost a job: the GPU-seconds since the last checkpoint that anybody knows of.

A checkpoint that is dated in the future, by a pod whose clock is ahead, counts as saved now.

Invariant: the cost is never negative, and never more than the run that was cut off.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Final

from runtime.eviction.view import Answer, HeldWorkload, Marker, PodView

WORTH_A_WRITE_SECONDS: Final = 5.0
"""A newer answer than the recorded one by less than this is not written while the pods go: each pod of a gang gives its
own a moment after the other."""


def newest_answer(pods: Iterable[PodView]) -> Answer | None:
    """The answer that was given last, whatever request it is for: each says that there is a complete checkpoint."""
    answers = (pod.answer for pod in pods if pod.answer is not None)
    return max(answers, key=lambda answer: (answer.at, answer.step or 0, answer.url, answer.request), default=None)


def with_answers(marker: Marker, pods: Iterable[PodView], now: float, worth_seconds: float = 0.0) -> Marker:
    """The marker with the newest answer, if it is newer than what the marker has by more than `worth_seconds`."""
    answer = newest_answer(pods)
    if answer is None:
        return marker
    at = min(answer.at, now)
    if marker.answer_at is not None and at <= marker.answer_at + worth_seconds:
        return marker
    return replace(marker, answer_at=at, step=answer.step, url=answer.url)


def works_since(workload: HeldWorkload, now: float) -> float | None:
    """Since when the job's work is in no checkpoint, as far as is known without its answers; None if it never ran."""
    if workload.started_at is None:
        return None
    return min(now, max(workload.started_at, workload.last_checkpoint_at or workload.started_at))


def lost_gpu_seconds(workload: HeldWorkload, marker: Marker) -> float:
    """GPU-seconds between the last known checkpoint and the stop."""
    if marker.stopped_at is None or marker.works_since is None:
        return 0.0
    saved = (marker.works_since, marker.answer_at, workload.last_checkpoint_at)
    return workload.gpus * max(0.0, marker.stopped_at - max(at for at in saved if at is not None))
