"""Our way: what `runtime.eviction.sequence.plan` says, carried out on simulated nodes and jobs.

The view is what the agent's observer would make of a real cluster. Between a step and the next look lies a round of the
agent, and every round plans from what is there then; nothing is remembered here but what objects would hold.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

from infra.evictions.cluster import Cluster
from infra.evictions.states import SimJob, SimNode, State
from infra.evictions.ways import DETECT_SECONDS
from runtime.eviction.notice import Certainty, Notice, NoticeKind
from runtime.eviction.sequence import plan, sent_on
from runtime.eviction.steps import Account, Ask, EvictPod, Mark, Step, Stop
from runtime.eviction.view import Answer, HeldWorkload, Marker, NodeView, Phase, PodView, View

ROUND_SECONDS: Final = DETECT_SECONDS
"""Between two looks of the agent while an eviction is under way."""

_EPOCH: Final = 1_700_000_000.0  # any time: the sequence counts in seconds since the epoch, traces from nought
_FLAVOR: Final = "spot"
_NAMESPACE: Final = "team"


@dataclass(slots=True)
class _Objects:
    """What Kubernetes holds of one job: its Workload, and the pods of its run."""

    active: bool = True
    marker: Marker | None = None
    run: int = 0
    shown: str = ""
    """The request that its pods were shown last."""

    answer: Answer | None = None


class Planned:
    """Runs the sequence; `accounted_gpu_seconds` is what it says that jobs lost."""

    cordons = True

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._objects = [_Objects() for _ in cluster.jobs]
        self._notices: dict[int, Notice] = {}
        self._awake = False
        self.accounted_gpu_seconds = 0.0

    def noticed(self, node: SimNode) -> None:
        """Say so on the node, and look soon."""
        at, gone_at = self._now, node.life.gone_at
        deadline = None if gone_at is None else _EPOCH + gone_at
        notice = Notice(f"spot-{node.number}", NoticeKind.SPOT, "trace", Certainty.CERTAIN, at, deadline)
        self._notices[node.number] = notice
        self._wake()

    def lost(self, job: SimJob) -> None:
        """Look soon."""
        self._wake()

    def ended(self, job: SimJob) -> None:
        """Look soon, and find what the pods said at their end: their newest checkpoint."""
        if job.checkpoint_at is not None:
            self._of(job).answer = Answer("", None, "", _EPOCH + job.checkpoint_at)
        self._wake()

    @property
    def _now(self) -> float:
        return _EPOCH + self._cluster.agenda.now

    def _wake(self) -> None:
        if not self._awake:
            self._awake = True
            self._cluster.agenda.after(ROUND_SECONDS, self._round)

    def _round(self) -> None:
        self._awake = False
        for step in plan(self._view(), self._now):
            self._carry_out(step)
        for job in self._cluster.jobs:
            objects = self._of(job)
            if (
                objects.marker is not None
                and objects.marker.phase is Phase.STOPPED
                and objects.marker.gone_at is not None
            ):
                objects.active, objects.marker = True, sent_on(objects.marker, self._now)
                self._cluster.queue(job)
        if any(_under_way(objects.marker) for objects in self._objects):
            self._wake()

    def _carry_out(self, step: Step) -> None:
        assert not isinstance(step, EvictPod), "every pod of a replay is in a Workload"
        job = self._cluster.jobs[int(step.workload.uid)]
        objects = self._of(job)
        objects.marker = step.marker
        match step:
            case Ask(request=request):
                if objects.shown != request.id:
                    objects.shown = request.id
                    self._in_this_run(job, self._cluster.terms.tell_seconds, lambda: self._tell(job, request.id))
            case Stop():
                objects.active = False
                grace = self._cluster.terms.grace_seconds
                stop = self._cluster.terms.stop_seconds
                self._in_this_run(job, stop, lambda: self._cluster.terminate(job, grace))
            case Account(lost_gpu_seconds=lost):
                self.accounted_gpu_seconds += lost
            case Mark():
                pass

    def _tell(self, job: SimJob, request: str) -> None:
        def answer() -> None:
            self._of(job).answer = Answer(request, None, "", self._now)

        self._cluster.ask(job, answer)

    def _in_this_run(self, job: SimJob, seconds: float, action: Callable[[], None]) -> None:
        """Do something later, unless the job's pods are others by then."""
        run = job.runs

        def due() -> None:
            if job.runs == run:
                action()

        self._cluster.agenda.after(seconds, due)

    # What the agent sees

    def _of(self, job: SimJob) -> _Objects:
        """The job's objects; new pods know nothing of what the former were told."""
        objects = self._objects[job.number]
        if objects.run != job.runs:
            objects.run, objects.shown, objects.answer = job.runs, "", None
        return objects

    def _view(self) -> View:
        nodes = {_host(node): self._node(node) for node in self._cluster.nodes}
        pods = [pod for job in self._cluster.jobs for pod in self._pods(job)]
        return View(nodes, pods, [self._workload(job) for job in self._cluster.jobs])

    def _node(self, node: SimNode) -> NodeView:
        notice = self._notices.get(node.number)
        notices = () if notice is None else (notice,)
        return NodeView(_host(node), notices, node.present, node.present, _FLAVOR)

    def _pods(self, job: SimJob) -> Iterator[PodView]:
        objects, ended = self._of(job), job.state is State.WAITING
        for node in job.former if ended else job.nodes:
            yield PodView(
                uid=f"{job.number}-{job.runs}-{node.number}",
                namespace=_NAMESPACE,
                name=f"job-{job.number}-{node.number}",
                node=_host(node),
                gpus=self._cluster.terms.gpus_per_node,
                workload=_name(job),
                running=not ended,
                grace_seconds=self._cluster.terms.grace_seconds,
                asked=objects.shown,
                answer=objects.answer,
                hook="",
                daemon=False,
                leaving=job.leaving,
                ended=ended,
                managed=True,
            )

    def _workload(self, job: SimJob) -> HeldWorkload:
        objects, terms = self._of(job), self._cluster.terms
        return HeldWorkload(
            uid=str(job.number),
            namespace=_NAMESPACE,
            name=_name(job),
            team=_NAMESPACE,
            job_class="",
            gpus=terms.nodes_per_job * terms.gpus_per_node,
            active=objects.active,
            holds_quota=objects.active and job.state is not State.WAITING,
            finished=False,
            started_at=None if job.placed_at is None else _EPOCH + job.placed_at,
            marker=objects.marker,
            last_checkpoint_at=None if job.checkpoint_at is None else _EPOCH + job.checkpoint_at,
            flavor=_FLAVOR,
        )


def _name(job: SimJob) -> str:
    return f"job-{job.number}"


def _host(node: SimNode) -> str:
    """A name for the node that Kubernetes would take, whatever the trace calls it."""
    return f"node-{node.number}"


def _under_way(marker: Marker | None) -> bool:
    return marker is not None and (marker.phase is not Phase.DONE or not marker.accounted)
