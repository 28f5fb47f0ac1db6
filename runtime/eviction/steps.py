"""The steps that an eviction takes, as plain values. What carries them out is elsewhere; none of them judges.

Each is safe to repeat and to cut off after any write, if it is carried out in the order that stands with it, and if
every write to a Workload holds only for the version that the step was planned from (a conflict means: plan anew).
"""

from __future__ import annotations

from dataclasses import dataclass

from runtime.eviction.notice import Notice, NoticeKind
from runtime.eviction.view import HeldWorkload, Marker, PodView


@dataclass(frozen=True, slots=True)
class CheckpointRequest:
    """What the pods of a job are shown: save now.

    `deadline` is by when it must be done, because the job is stopped then at the latest; None if it will not be.
    `certain` is False for a warning after which the job simply runs on.
    """

    id: str
    kind: NoticeKind
    certain: bool
    deadline: float | None


@dataclass(frozen=True, slots=True)
class Ask:
    """Write the marker if the Workload does not carry it yet, then show the request to these pods and call their hooks.

    A pod with a hook stays in here until it answered: who calls hooks knows which calls are under way, and after a
    restart makes them again with the same request.
    """

    workload: HeldWorkload
    pods: tuple[PodView, ...]
    marker: Marker
    request: CheckpointRequest


@dataclass(frozen=True, slots=True)
class Stop:
    """Make the Workload inactive and write the marker, in one patch."""

    workload: HeldWorkload
    marker: Marker


@dataclass(frozen=True, slots=True)
class Mark:
    """Write the marker, or take it away (None). `spec.active` stays as it is."""

    workload: HeldWorkload
    marker: Marker | None


@dataclass(frozen=True, slots=True)
class Resume:
    """Make the Workload active again and write the marker, in one patch: Kueue puts it back into its queue."""

    workload: HeldWorkload
    marker: Marker


@dataclass(frozen=True, slots=True)
class EvictPod:
    """Evict one pod that Kueue does not own, through the eviction API, for exactly this uid."""

    pod: PodView
    notice: Notice


@dataclass(frozen=True, slots=True)
class Account:
    """Write the loss into the ledger, named by the Workload's uid and `marker.attempts`; then write the marker.

    `owed_gpu_seconds` is of the loss before it, and goes into this one unless that stands in the ledger after all.
    """

    workload: HeldWorkload
    marker: Marker
    lost_gpu_seconds: float
    owed_gpu_seconds: float = 0.0


Step = Ask | Stop | Mark | Resume | EvictPod | Account
