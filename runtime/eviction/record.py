"""The entry of the ledger for a job that was stopped and has gone, from the step that accounts it.

It writes nothing. A loss before this one that could not be recorded at its time is part of it, unless the ledger has it
after all.
"""

from __future__ import annotations

from runtime.clock import Clock
from runtime.cost.ledger import Books
from runtime.cost.losses import Loss, LossKey
from runtime.eviction.steps import Account
from runtime.eviction.view import Marker
from runtime.routing.snapshot import Job


def loss_of(step: Account, job: Job, books: Books | None, clock: Clock, replay_speed: float) -> Loss:
    """What the eviction cost the job, in fleet time."""
    marker, now = step.marker, clock.real_now()
    stopped_at = now if marker.stopped_at is None else marker.stopped_at
    former = LossKey(job.uid, marker.attempts - 1)
    owed = 0.0 if books is not None and former in books.losses else step.owed_gpu_seconds
    known = [at for at in (marker.answer_at, step.workload.last_checkpoint_at) if at is not None]
    saved_at = max(known, default=None)
    return Loss(
        workload_uid=job.uid,
        request=marker.request,
        namespace=job.namespace,
        job=job.owner_name,
        workload=job.name,
        team=job.team,
        job_class=job.job_class,
        flavor=marker.flavor,
        gpus=job.gpus,
        kind=marker.kind.value,
        notice=marker.notice,
        nodes=marker.nodes,
        noticed_at=clock.to_fleet(marker.noticed_at if marker.noticed_at is not None else stopped_at),
        stopped_at=clock.to_fleet(stopped_at),
        gone_at=clock.to_fleet(now if marker.gone_at is None else marker.gone_at),
        answered=was_answered(marker),
        step=marker.step,
        url=marker.url,
        checkpoint_at=None if saved_at is None else clock.to_fleet(saved_at),
        lost_gpu_seconds=(step.lost_gpu_seconds + owed) * replay_speed,
        number=max(1, marker.attempts),
    )


def was_answered(marker: Marker) -> bool:
    """Whether a pod told of a checkpoint after it was asked."""
    return marker.answer_at is not None and marker.asked_at is not None and marker.answer_at >= marker.asked_at
