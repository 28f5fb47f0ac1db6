"""What the agent sees at one moment: plain frozen values that can be written to a file and decided upon again.

All times are seconds since the epoch in fleet time, all durations seconds of fleet time (see runtime.clock). Nothing
here talks to a cluster; runtime.routing.observe builds these values, the replay builds them too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from runtime.cost.ledger import Books
from runtime.eviction.view import Marker
from runtime.eviction.wish import MoveWish
from runtime.routing.history import NO_HISTORY, History


class Stage(StrEnum):
    """Where a job stands between its queue and its end. Derived from the Workload alone, never remembered."""

    QUEUED = "queued"
    """In its team's queue, no quota reserved."""

    RELEASED = "released"
    """In the burst twin, no quota reserved: it takes local or cloud GPUs, whichever Kueue finds first."""

    AT_GATE = "at-gate"
    """Holds cloud quota and waits for our check; no pod exists."""

    RUNNING_LOCAL = "running-local"
    """Admitted (or reserved, with no check of ours) on a local flavor."""

    RUNNING_CLOUD = "running-cloud"
    """Our check is Ready and it holds cloud quota."""

    RECALLING = "recalling"
    """Deactivated by us, on its way back to its team's queue."""

    EVICTED = "evicted"
    """Deactivated by us because its nodes go; sent on once its quota and its pods are gone."""

    STOPPED = "stopped"
    """Deactivated by somebody else: not ours to touch."""

    FINISHED = "finished"
    """Done; kept only until its ledger entry is closed."""


QUEUED_STAGES: Final = (Stage.QUEUED, Stage.RELEASED, Stage.RECALLING, Stage.EVICTED)
"""Where a job can be that has a place in a queue."""

WAITING_STAGES: Final = (*QUEUED_STAGES, Stage.AT_GATE)
"""Where a job can be that has yet to start."""


@dataclass(frozen=True, slots=True)
class Job:
    """One Workload of Kueue, reduced to what a decision needs.

    `uid`, `namespace` and `name` are the Workload's; `owner_kind`, `owner_name` and `owner_uid` those of the object the
    user submitted. `gpus` is the sum over all pods. `flavor` is set while quota is reserved. `reserved_at` is when it
    was; `attempt` is the same moment in whole seconds of real time, which names the attempt in the ledger. `ready_at`
    is when Kueue admitted it in this reservation, or, before it did, when our check was answered Ready.
    `released_quota_at` is when the last reservation ended, or the job finished, where that is known. `verdict_code` is
    the code of the verdict written on the Workload last, `verdict_at` when it was given. `pod_gpus` are those of the
    largest pod.
    `ever_admitted` is False only if the Workload has never had the condition Admitted, that is, surely never ran.

    `target` is the cloud flavor of the twin it stands in, None in its team's own queue; `queue` is that LocalQueue.
    `waiting_since` is its creation, or when it last lost its quota: what it ran is no wait. `gpu` is the model it
    insists on. `data_bytes` must be copied to the cloud first. `returns` counts how often somebody else took it back to
    its team's queue after a release. `never_ready` says that its last reservation ended because its pods did not
    become ready. `recall_reason` is what an administrator wrote who wants it out of the cloud. `owner_version` is the
    owner's apiVersion; `project` is empty where it names none. `ran_seconds` is how long a finished job ran, where it
    succeeded. `pods_ready_at` is when its pods became ready in this reservation, where Kueue watches that. `eviction`
    is how far the eviction from its nodes has come, or the last one that it survived. `failed` says that it finished
    because its pods failed. `move` is an administrator's wish that it goes on on another cloud flavor. `preempted_at`
    is when Kueue preempted its present or last run, as long as it has not started again; `run_began_at` when that run
    began, where the Workload itself still says so.
    """

    uid: str
    namespace: str
    name: str
    owner_kind: str
    owner_name: str
    owner_uid: str
    team: str
    job_class: str
    priority: int
    gpus: int
    created_at: float
    stage: Stage
    expected_seconds: float | None = None
    max_seconds: float | None = None
    flavor: str | None = None
    reserved_at: float | None = None
    ready_at: float | None = None
    released_quota_at: float | None = None
    verdict_code: str | None = None
    verdict_at: float | None = None
    pod_gpus: int = 0
    attempt: int | None = None
    ever_admitted: bool = True
    owner_version: str = "batch/v1"
    queue: str = ""
    target: str | None = None
    waiting_since: float | None = None
    project: str = ""
    gpu: str | None = None
    data_bytes: int = 0
    returns: int = 0
    never_ready: bool = False
    recall_reason: str | None = None
    ran_seconds: float | None = None
    pods_ready_at: float | None = None
    eviction: Marker | None = None
    failed: bool = False
    move: MoveWish | None = None
    preempted_at: float | None = None
    run_began_at: float | None = None

    @property
    def waits_since(self) -> float:
        """When its present wait began."""
        return self.created_at if self.waiting_since is None else self.waiting_since


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Everything one decision is made from.

    `jobs` is complete: an open attempt whose Workload is missing gets closed. `books` is None while the ledger cannot
    be read: no money may move. `history` is what is known of run times. `capacity` has the GPUs of ready local nodes by
    flavor; a flavor that is not in it is as large as the fleet file says. `broken_queues` has the burst twins that
    cannot take jobs (missing or not active), by name. `held_queues` has the LocalQueues of windows that are held now.
    `lingering` has the UIDs of owners whose pods are still on cloud nodes.
    """

    jobs: Sequence[Job]
    books: Books | None
    history: History = NO_HISTORY
    capacity: Mapping[str, int] = field(default_factory=dict)
    broken_queues: frozenset[str] = frozenset()
    held_queues: frozenset[str] = frozenset()
    lingering: frozenset[str] = frozenset()
