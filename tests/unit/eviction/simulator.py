"""Nodes, pods, Kueue and training jobs on fake time, and an agent that forgets everything between two plans.

Markers and requests go through their JSON; writes to a Workload hold only for the version they were planned from, as in
the API server. The agent drops, cuts off and repeats steps as `Chaos` says. Kueue frees a stopped job's quota after a
second, tells its pods to end, and starts a job that is active and has none of its pods left.
"""

from __future__ import annotations

import random
from collections import defaultdict
from dataclasses import dataclass, field, replace

from runtime.eviction.marker import asked_in, marker_from_json, marker_to_json, request_to_json
from runtime.eviction.notice import Certainty, Notice, NoticeKind
from runtime.eviction.sequence import plan, sent_on
from runtime.eviction.steps import Account, Ask, EvictPod, Mark, Step, Stop
from runtime.eviction.timing import DEFAULT_TERMS
from runtime.eviction.view import Answer, HeldWorkload, Marker, NodeView, Phase, PodView, View

START = 1_790_000_000.0


@dataclass
class SimNode:
    name: str
    slots: int = 2
    notices: list[Notice] = field(default_factory=list)
    ready: bool = True
    dies_at: float | None = None
    died_at: float | None = None
    window: float = 0.0
    """Seconds that the worst notice gave before the end; 0 where there was none."""


@dataclass
class SimPod:
    uid: str
    node: str
    starts_at: float
    asked: str = ""
    asked_at: float = 0.0
    answer: Answer | None = None
    leaves_at: float | None = None


@dataclass
class SimJob:
    name: str
    size: int
    way: str = "hook"
    """How it saves: `hook` or `file` (both answer when asked), `sigterm` (only then), `deaf` (never answers)."""
    save_seconds: float = 4.0
    grace: float = 30.0
    period: float = 600.0
    active: bool = True
    quota: bool = False
    finished: bool = False
    version: int = 0
    marker: str | None = None
    owner_stopped: bool = False
    stopping_at: float | None = None
    started_at: float | None = None
    saved_at: float | None = None
    lost_seconds: float | None = None
    pods: list[SimPod] = field(default_factory=list)
    stops: int = 0
    requeues: int = 0
    failures: int = 0
    needless_failures: int = 0
    losses: list[tuple[float, float, bool]] = field(default_factory=list)
    """For each stop: GPU-seconds truly lost, those on the marker, whether there was time."""


@dataclass(frozen=True)
class Chaos:
    """What goes wrong: probabilities for each step, and how long the agent is away at most."""

    drop: float = 0.0
    repeat: float = 0.0
    cut: float = 0.0
    outage_seconds: float = 0.0


class World:
    def __init__(self, seed: int, nodes: int, jobs: list[SimJob], chaos: Chaos = Chaos(), tick: float = 1.0) -> None:
        self.rng = random.Random(seed)
        self.now = START
        self.tick = tick
        self.chaos = chaos
        self.nodes = {name: SimNode(name) for name in (f"node-{number}" for number in range(nodes))}
        self.jobs = {job.name: job for job in jobs}
        self.ledger: dict[tuple[str, int], float] = {}
        self.evicted: list[str] = []
        self.away_until = 0.0
        self.writes = 0
        self._serial = nodes

    # What the tests do to it

    def notify(self, name: str, window: float, kind: NoticeKind = NoticeKind.SPOT, *, kills: bool = True) -> None:
        node = self.nodes[name]
        self._serial += 1
        likely = kind is NoticeKind.REBALANCE
        certainty = Certainty.LIKELY if likely else Certainty.CERTAIN
        deadline = None if likely else self.now + window
        node.notices.append(Notice(f"{kind}-{self._serial}", kind, "test", certainty, self.now, deadline))
        if kills and not likely:
            node.dies_at = min(self.now + window, node.dies_at or self.now + window)
            node.window = max(node.window, window)

    def cancel(self, name: str) -> None:
        self.nodes[name].notices.clear()
        self.nodes[name].dies_at = None
        self.nodes[name].window = 0.0

    def stop_by_owner(self, job: SimJob) -> None:
        if job.active and not job.finished:
            job.active, job.owner_stopped, job.version = False, True, job.version + 1

    def start_by_owner(self, job: SimJob) -> None:
        if job.owner_stopped:
            job.active, job.owner_stopped, job.version = True, False, job.version + 1

    def preempt(self, job: SimJob) -> None:
        if job.quota and job.active:
            self._free(job)

    def finish(self, job: SimJob) -> None:
        if job.quota and job.active:
            job.finished, job.quota, job.pods, job.version = True, False, [], job.version + 1

    # One tick

    def run(self, seconds: float) -> None:
        until = self.now + seconds
        while self.now < until:
            self.step()

    def step(self) -> None:
        self.now = round(self.now + self.tick, 3)
        self._machines()
        for job in self.jobs.values():
            self._training(job)
            self._kueue(job)
        if self.now >= self.away_until and (any(node.notices for node in self.nodes.values()) or self._under_way()):
            self._agent()

    def settle(self, longest: float = 3_600.0) -> None:
        """Let everything come to rest, without further chaos."""
        self.chaos = Chaos()
        for name in list(self.nodes):
            if self.nodes[name].died_at is None:
                self.cancel(name)
        until = self.now + longest
        while self.now < until:
            self.step()
            if not self._under_way() and all(job.quota or not job.active or job.finished for job in self.jobs.values()):
                return
        raise AssertionError(f"not at rest: {[job for job in self.jobs.values() if not job.quota]}")

    def _under_way(self) -> bool:
        markers = (marker_from_json(job.marker) for job in self.jobs.values() if job.marker)
        return any(marker.phase is not Phase.DONE or not marker.accounted for marker in markers)

    def _machines(self) -> None:
        for node in list(self.nodes.values()):
            if node.died_at is None and node.dies_at is not None and self.now >= node.dies_at:
                node.died_at = self.now
            if node.died_at is None:
                continue
            dead = self.now - node.died_at
            node.ready = dead < 2
            if dead >= 5 and not any(notice.kind is NoticeKind.LOSS for notice in node.notices):
                node.notices.append(
                    Notice(f"loss-{node.name}", NoticeKind.LOSS, "nodes", Certainty.CERTAIN, self.now, None)
                )
            if dead >= (0 if node.window else 20):
                self._lose_pods(node)
            if dead >= 40:
                del self.nodes[node.name]
                self._serial += 1
                self.nodes[f"node-{self._serial}"] = SimNode(f"node-{self._serial}")

    def _lose_pods(self, node: SimNode) -> None:
        for job in self.jobs.values():
            lost = [pod for pod in job.pods if pod.node == node.name]
            if not lost:
                continue
            job.pods = [pod for pod in job.pods if pod.node != node.name]
            if job.active and job.quota and any(pod.leaves_at is None for pod in lost):
                job.failures += 1
                job.needless_failures += node.window >= 30
                # The job's own controller begins the gang anew.
                self._free(job)

    def _training(self, job: SimJob) -> None:
        if job.started_at is None and job.quota and job.pods and all(self.now >= pod.starts_at for pod in job.pods):
            job.started_at = job.saved_at = self.now
        if job.started_at is None:
            return
        if job.active and job.quota and job.saved_at is not None and self.now - job.saved_at >= job.period:
            job.saved_at = self.now
        if job.way not in ("hook", "file"):
            return
        requests = {pod.asked for pod in job.pods}
        if len(requests) > 1 or any(pod.leaves_at is not None for pod in job.pods):
            return  # a checkpoint is complete when every rank has saved, so all are waited for
        request = next(iter(requests))
        answered = all(pod.answer is not None and pod.answer.request == request for pod in job.pods)
        if request and not answered and self.now >= max(pod.asked_at for pod in job.pods) + job.save_seconds:
            job.saved_at = self.now
            for pod in job.pods:
                pod.answer = Answer(request, int(self.now - START), f"s3://b/{job.name}", self.now)

    def _kueue(self, job: SimJob) -> None:
        job.pods = [pod for pod in job.pods if pod.leaves_at is None or self.now < pod.leaves_at]
        if not job.active and job.quota:
            job.stopping_at = job.stopping_at or self.now
            if self.now >= job.stopping_at + 1:
                self._free(job)
        if job.active and not job.quota and not job.pods and not job.finished:
            self._admit(job)

    def _free(self, job: SimJob) -> None:
        job.quota, job.stopping_at, job.version = False, None, job.version + 1
        for pod in job.pods:
            if pod.leaves_at is None:
                pod.leaves_at = self.now + (min(job.grace, job.save_seconds) if job.way != "deaf" else 1.0)
                if job.way == "sigterm" and job.save_seconds <= job.grace:
                    pod.answer = Answer("", None, "s3://b/at-the-end", self.now)
                    job.saved_at = self.now
        if job.started_at is not None and job.saved_at is not None:
            job.lost_seconds = self.now - job.saved_at
        job.started_at = None

    def _admit(self, job: SimJob) -> None:
        used: dict[str, int] = defaultdict(int)
        for other in self.jobs.values():
            for pod in other.pods:
                used[pod.node] += 1
        places = [
            node.name
            for node in self.nodes.values()
            if node.ready and node.died_at is None and not node.notices
            for _ in range(node.slots - used[node.name])
        ]
        if len(places) < job.size:
            return
        self.rng.shuffle(places)
        job.quota, job.version = True, job.version + 1
        for place in places[: job.size]:
            self._serial += 1
            job.pods.append(SimPod(f"pod-{self._serial}", place, self.now + self.rng.choice((1, 2, 3))))

    # The agent

    def view(self) -> View:
        nodes = {
            node.name: NodeView(node.name, tuple(node.notices), True, node.ready, "spot")
            for node in self.nodes.values()
        }
        pods = [self._pod(job, pod) for job in self.jobs.values() for pod in job.pods]
        for pod in pods:
            nodes.setdefault(pod.node, NodeView(pod.node, (), False, False, ""))
        return View(nodes, pods, [self.held(job) for job in self.jobs.values()])

    def held(self, job: SimJob) -> HeldWorkload:
        marker = None if job.marker is None else marker_from_json(job.marker)
        seen = None if job.way == "deaf" else job.saved_at
        return HeldWorkload(
            uid=f"uid-{job.name}",
            namespace="team",
            name=job.name,
            team="team",
            job_class="P1",
            gpus=job.size,
            active=job.active,
            holds_quota=job.quota,
            finished=job.finished,
            started_at=job.started_at,
            marker=marker,
            last_checkpoint_at=seen if job.started_at is not None else None,
            flavor="spot",
            version=str(job.version),
        )

    def _pod(self, job: SimJob, pod: SimPod) -> PodView:
        return PodView(
            uid=pod.uid,
            namespace="team",
            name=pod.uid,
            node=pod.node,
            gpus=1,
            workload=job.name,
            running=self.now >= pod.starts_at,
            grace_seconds=job.grace,
            asked=pod.asked,
            answer=pod.answer,
            hook="http://10.0.0.1:8080/" if job.way == "hook" else "",
            daemon=False,
            leaving=pod.leaves_at is not None,
            managed=True,
        )

    def _agent(self) -> None:
        chaos, rng = self.chaos, self.rng
        steps = plan(self.view(), self.now)
        names = [step.workload.name for step in steps if not isinstance(step, EvictPod)]
        assert len(names) == len(set(names)), "more than one step for a job"
        for step in steps:
            if rng.random() < chaos.drop:
                continue
            self.carry_out(step)
            if rng.random() < chaos.repeat:
                self.carry_out(step)
        for job in self.jobs.values():
            if rng.random() >= chaos.drop:
                self._requeue(job)
        if chaos.outage_seconds and rng.random() < 0.02:
            self.away_until = self.now + rng.random() * chaos.outage_seconds

    def carry_out(self, step: Step) -> None:
        match step:
            case EvictPod():
                self.evicted.append(step.pod.uid)
            case Ask():
                self._ask(step)
            case Stop():
                job = self.jobs[step.workload.name]
                if self._write(step.workload, step.marker, active=False):
                    job.stops += 1
                    job.lost_seconds = None
            case Mark():
                settled = step.marker is not None and step.marker.gone_at is not None
                if self._write(step.workload, step.marker) and settled and step.marker is not None:
                    self._note_loss(self.jobs[step.workload.name], step.marker)
            case Account():
                key = (step.workload.uid, step.marker.attempts)
                assert self.ledger.setdefault(key, step.lost_gpu_seconds) == step.lost_gpu_seconds
                if self.rng.random() >= self.chaos.cut:
                    self._write(step.workload, step.marker)

    def _ask(self, step: Ask) -> None:
        job = self.jobs[step.workload.name]
        if step.marker != step.workload.marker and not self._write(step.workload, step.marker):
            return
        pods = {pod.uid: pod for pod in job.pods}
        for view in step.pods:
            if self.rng.random() < self.chaos.cut:
                return
            if view.uid in pods and pods[view.uid].asked != step.request.id:
                pods[view.uid].asked = asked_in(request_to_json(step.request))
                pods[view.uid].asked_at = self.now
                self.writes += 1

    def _write(self, workload: HeldWorkload, marker: Marker | None, *, active: bool | None = None) -> bool:
        job = self.jobs[workload.name]
        if str(job.version) != workload.version:
            return False
        job.marker = None if marker is None else marker_to_json(marker)
        job.active = job.active if active is None else active
        job.version += 1
        self.writes += 1
        return True

    def _requeue(self, job: SimJob) -> None:
        marker = None if job.marker is None else marker_from_json(job.marker)
        if marker is None or marker.phase is not Phase.STOPPED or marker.gone_at is None:
            return
        if job.active or job.quota or job.finished:
            return
        assert not [pod for pod in job.pods if self.nodes.get(pod.node) and self.nodes[pod.node].ready]
        if self._write(self.held(job), sent_on(marker, self.now), active=True):
            job.requeues += 1

    def _note_loss(self, job: SimJob, marker: Marker) -> None:
        if job.lost_seconds is None:
            return
        windows = [self.nodes[name].window for name in marker.nodes if name in self.nodes]
        in_time = bool(windows) and min(windows) >= 60 and marker.kind is not NoticeKind.LOSS
        job.losses.append((job.lost_seconds * job.size, marker.lost_gpu_seconds, in_time))


def shuffled(view: View, seed: int) -> View:
    """The same view, everything in another order."""
    rng = random.Random(seed)
    nodes, pods, workloads = list(view.nodes.items()), list(view.pods), list(view.workloads)
    for each in (nodes, pods, workloads):
        rng.shuffle(each)
    turned = {name: replace(node, notices=tuple(reversed(node.notices))) for name, node in nodes}
    return View(turned, pods, workloads)


RESERVE = DEFAULT_TERMS.reserve_seconds
