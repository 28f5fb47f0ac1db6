"""What one round of evictions is planned from: nodes with their notices, pods, and the jobs that hold GPUs.

Nothing here talks to a cluster or judges anything; the observer builds these values, and so does the simulator of the
tests. All times are real seconds since the epoch, because machines go by real time, also in a replay.

Invariant: a `View` and the time are all that `runtime.eviction.sequence.plan` knows, so whatever must outlive a
restart of the agent is in an object that the view is read from: a Node, a Pod, or the marker on a Workload.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from runtime.eviction.notice import Notice, NoticeKind


class Phase(StrEnum):
    """How far the eviction of a job has come, as its marker says."""

    ASKED = "asked"
    """The job was told to save; it runs on."""

    STOPPED = "stopped"
    """Stopped by us, in the same patch that wrote this phase: the only phase that makes an inactive Workload ours."""

    DONE = "done"
    """On its way again. The marker stays, as the record of what the job has lost so far."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What a pod says it saved: a complete checkpoint of the whole job, from which it can go on.

    `request` is the id of the request that it answers, empty where it saved unasked (at SIGTERM). `at` is when, by the
    pod's clock.
    """

    request: str
    step: int | None
    url: str
    at: float


@dataclass(frozen=True, slots=True)
class PodView:
    """One pod that is bound to a node.

    `gpus` are its own, and 1 where it has slices or shares alone. `workload` is the name of its Workload, empty if
    Kueue does not own it. `asked` is the id of the request that it was shown last, empty if none. `hook` is the address
    on which it takes requests, empty if none.
    `leaving` says that somebody asked for its deletion; `ended` that it succeeded or failed, and is there only for what
    it may still say. `shielded` says that whoever else drains nodes leaves it alone (karpenter.sh/do-not-disrupt).
    `managed` says that its namespace is one of ours.
    """

    uid: str
    namespace: str
    name: str
    node: str
    gpus: int
    workload: str
    running: bool
    grace_seconds: float
    asked: str
    answer: Answer | None
    hook: str
    daemon: bool
    leaving: bool = False
    ended: bool = False
    shielded: bool = False
    managed: bool = False


@dataclass(frozen=True, slots=True)
class NodeView:
    """One node. `present` is False only where the API server was asked and has no such node.

    `cleared` is what the agent wrote last: the notices for which nothing of ours is left there, empty if none.
    """

    name: str
    notices: tuple[Notice, ...]
    present: bool
    ready: bool
    flavor: str
    cleared: str = ""


@dataclass(frozen=True, slots=True)
class Marker:
    """How far the eviction of a job has come: all that is remembered of it, on the Workload itself.

    `notice`, `kind` and `noticed_at` are those of the worst notice; `certain` is False while all are only likely.
    `nodes` are those under notice that the job has pods on. `request` is the id of the request shown to its pods, empty
    where there was no time to ask. `deadline` is the earliest, by the agent's clock. `works_since` is what the last
    known checkpoint was when it was stopped, or else when it started; `answer_at`, `step` and `url` are the newest that
    its pods said. `gone_at` is when quota and pods were gone. `flavor` is the flavor lost last. `attempts` counts the
    losses so far, and names each in the ledger; `planned` are those of them that no node was to blame for, moves and
    preemptions; `lost_gpu_seconds` is what the last of them cost; `accounted` says that
    it stands in the ledger. `owed_gpu_seconds` is what those before it cost of which that was not known.
    """

    notice: str
    kind: NoticeKind
    nodes: tuple[str, ...]
    phase: Phase
    request: str = ""
    deadline: float | None = None
    asked_at: float | None = None
    stopped_at: float | None = None
    gone_at: float | None = None
    answer_at: float | None = None
    step: int | None = None
    url: str = ""
    flavor: str = ""
    attempts: int = 0
    lost_gpu_seconds: float = 0.0
    owed_gpu_seconds: float = 0.0
    certain: bool = True
    noticed_at: float | None = None
    requeued_at: float | None = None
    works_since: float | None = None
    accounted: bool = False
    planned: int = 0


@dataclass(frozen=True, slots=True)
class HeldWorkload:
    """One Workload of ours that runs, or that was stopped while it ran.

    `gpus` is the sum over its pods; 0 for one with slices or shares alone, which nobody but Kueue puts into queues and
    whose losses are in no ledger. `active` is its `spec.active`. `started_at` is when this run began;
    `last_checkpoint_at` the last one known from elsewhere than an answer. `notices` concern this job alone, wherever it
    runs (a move). `preempted_at` is when Kueue took its quota, until that is accounted. `version` is the
    resourceVersion it was seen in: every write of a step holds only for that one.
    """

    uid: str
    namespace: str
    name: str
    team: str
    job_class: str
    gpus: int
    active: bool
    holds_quota: bool
    finished: bool
    started_at: float | None
    marker: Marker | None
    last_checkpoint_at: float | None
    flavor: str
    notices: tuple[Notice, ...] = ()
    version: str = ""
    preempted_at: float | None = None


@dataclass(frozen=True, slots=True)
class View:
    """One moment. A node that is not in `nodes` is unknown, which is not the same as gone."""

    nodes: Mapping[str, NodeView]
    pods: Sequence[PodView]
    workloads: Sequence[HeldWorkload]
