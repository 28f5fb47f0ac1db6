"""Histories of a fleet in which people move jobs and drain nodes, Kueue preempts, and the agent is killed anywhere.

To the fleet of tests.unit.runtime.test_fleet_histories it adds nodes, pods, and the plan of evictions with its writes,
which are guarded as in runtime.eviction.act and runtime.routing.carry: each may be the last before a kill.
"""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import Any, Final

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, precondition, rule

from runtime.clock import Clock
from runtime.eviction.drains import KINDS, Drain, drains_of
from runtime.eviction.marker import marker_from_json, marker_to_json
from runtime.eviction.notice import NoticeKind
from runtime.eviction.observe import Run, Scout, evictions_under_way, run_of
from runtime.eviction.pods import SeenPod
from runtime.eviction.sequence import plan, sent_on
from runtime.eviction.steps import Account, Ask, EvictPod, Resume, Step, Stop
from runtime.eviction.view import Answer, HeldWorkload, Marker, NodeView, Phase, PodView, View
from runtime.eviction.wish import MoveWish
from runtime.routing.decision import Decision, Move, Requeue
from runtime.routing.snapshot import Job, Stage
from runtime.routing.verdict import Code
from stacks.agent_config import AgentConfig
from stacks.labels import AGENT_DRAIN_TAINT, DRAIN_TAINT
from tests.builders import HOUR, LOCAL, ON_DEMAND, SPOT
from tests.unit.runtime.test_fleet_histories import GONE, START, Fleet, Killed, StoreFails

RUNNING: Final = (Stage.RUNNING_CLOUD, Stage.RUNNING_LOCAL)
NODES: Final = tuple(f"{flavor}-{number}" for flavor in (LOCAL, SPOT, ON_DEMAND) for number in (1, 2))
TWINS: Final = frozenset(f"{team}-burst-{flavor}" for team in ("vision", "nlp") for flavor in (SPOT, ON_DEMAND))
GRACE_SECONDS: Final = 30.0
END_SECONDS: Final = 20.0
"""Between two looks of an agent that is left alone."""

MOST_LOOKS: Final = 40
"""Enough for two evictions in a row of a job that never answers, and for a pod that never goes."""


class PlannedFleet(Fleet):
    """`taints` are those of nodes, `pods` every pod that has not gone, `losses` what the ledger has of evictions."""

    def __init__(self) -> None:
        super().__init__()
        self.taints: dict[str, dict[str, str]] = {name: {} for name in NODES}
        self.pods: dict[str, PodView] = {}
        self.losses: dict[tuple[str, int], float] = {}
        self.runs: dict[str, Run] = {}
        self.may_leave: Any = None
        self.stops: dict[str, int] = {}
        self.sent: dict[str, int] = {}

    @initialize(
        daily=st.integers(8, 90),
        weekly=st.integers(20, 120),
        project=st.integers(5, 60),
        jobs=st.integers(0, 6),
        running=st.booleans(),
        drained=st.booleans(),
    )
    def begin(
        self, daily: int, weekly: int, project: int, jobs: int, running: bool = False, drained: bool = False
    ) -> None:
        """Every other job was stopped before; all that fit run in the cloud already, or none does."""
        super().begin(daily, weekly, project, jobs)
        for number, job in enumerate(list(self.jobs.values())):
            if number % 2:
                marker = Marker("old", NoticeKind.SPOT, (), Phase.DONE, stopped_at=START - HOUR, gone_at=START - HOUR)
                self._change(job, eviction=replace(marker, attempts=1, accounted=True, requeued_at=START - HOUR))
                self.losses[job.uid, 1] = 0.0
                self.stops[job.uid] = self.sent[job.uid] = 1
        if drained:
            self.a_node_is_to_be_emptied(f"{SPOT}-1", NoticeKind.UPGRADE, 300.0, DRAIN_TAINT)
        if running:
            for _ in range(2):
                self._tick(self._seen(), None)
                self.kueue_gives_out_quota(Random(0), local_is_useless=True)
            self._tick(self._seen(), None)
            self._pods_go_on(answering=False, ending=False)

    # What people do

    @precondition(lambda self: any(job.stage in RUNNING for job in self.jobs.values()))
    @rule(
        data=st.data(),
        to=st.sampled_from(["", "spot", "on-demand", "on-demand", SPOT, ON_DEMAND, "typo"]),
        seconds=st.sampled_from([60.0, 3_600.0, 86_400.0]),
    )
    def an_administrator_wants_a_job_elsewhere(self, data: st.DataObject, to: str, seconds: float) -> None:
        self._want_elsewhere(self._any(data, *RUNNING), to, seconds)

    def _want_elsewhere(self, job: Job, to: str, seconds: float) -> None:
        self.made += 1
        self._change(job, move=MoveWish(f"move-{self.made}", to, self.now, self.now + seconds))

    @precondition(lambda self: any(job.stage is Stage.RUNNING_CLOUD for job in self.jobs.values()))
    @rule(data=st.data(), order=st.randoms(use_true_random=False))
    def what_a_job_is_moved_to_goes_and_comes_back(self, data: st.DataObject, order: Any) -> None:
        job = self._any(data, Stage.RUNNING_CLOUD)
        self._want_elsewhere(job, "", 86_400.0)
        for broken in (frozenset(), TWINS, frozenset()):
            self.broken = broken
            for _ in range(2):
                self._tick(self._seen(), None)
        self.left_alone_all_that_was_begun_comes_to_an_end(order)

    @precondition(lambda self: any(job.move for job in self.jobs.values()))
    @rule(data=st.data(), garbage=st.booleans())
    def a_wish_is_taken_back_or_becomes_garbage(self, data: st.DataObject, garbage: bool) -> None:
        uid = data.draw(st.sampled_from([uid for uid, job in self.jobs.items() if job.move]))
        wish = MoveWish("unreadable", "", 0.0, 0.0, problem="no JSON") if garbage else None
        self._change(self.jobs[uid], move=wish)

    @rule(
        node=st.sampled_from(NODES),
        kind=st.sampled_from(KINDS),
        seconds=st.sampled_from([None, -300.0, 60.0, 300.0, 1_800.0]),
        key=st.sampled_from([DRAIN_TAINT, AGENT_DRAIN_TAINT]),
    )
    def a_node_is_to_be_emptied(self, node: str, kind: NoticeKind, seconds: float | None, key: str) -> None:
        until = None if seconds is None else self.now + seconds
        self.taints[node][key] = Drain(kind, self.now, until).value

    @rule(node=st.sampled_from(NODES), value=st.sampled_from(["", "maintenance", "move.1.2", "x" * 300]))
    def somebody_sets_a_taint_by_hand(self, node: str, value: str) -> None:
        self.taints[node][DRAIN_TAINT] = value

    @rule(node=st.sampled_from(NODES))
    def a_node_is_let_go(self, node: str) -> None:
        self.taints[node].clear()

    @precondition(lambda self: any(job.stage in RUNNING for job in self.jobs.values()))
    @rule(data=st.data())
    def an_owner_stops_a_job(self, data: st.DataObject) -> None:
        self._change(self._any(data, *RUNNING), stage=Stage.STOPPED, released_quota_at=self.now, **GONE)

    @precondition(lambda self: any(job.stage is Stage.STOPPED for job in self.jobs.values()))
    @rule(data=st.data())
    def an_owner_lets_it_go_on(self, data: st.DataObject) -> None:
        job = self._any(data, Stage.STOPPED)
        self._change(job, stage=Stage.QUEUED if job.target is None else Stage.RELEASED)

    # What the cluster does

    @rule(answering=st.booleans())
    def pods_go_on(self, answering: bool) -> None:
        self.now += 5.0
        self._pods_go_on(answering=answering, ending=True)

    def _pods_go_on(self, *, answering: bool, ending: bool) -> None:
        """Each running job has the pod of its attempt; one of an earlier attempt, or of a stopped job, ends."""
        wanted = {f"{job.uid}/{job.attempt}": job for job in self.jobs.values() if job.stage in RUNNING}
        for uid, job in wanted.items():
            if uid not in self.pods:
                free = [name for name in NODES if name.startswith(str(job.flavor)) and not self.taints[name]]
                self.pods[uid] = PodView(
                    uid=uid, namespace=job.namespace, name=uid, node=(free or [f"{job.flavor}-1"])[0], gpus=job.gpus,
                    workload=job.name, running=True, grace_seconds=GRACE_SECONDS, asked="", answer=None, hook="",
                    daemon=False, managed=True,
                )  # fmt: skip
            elif answering and (asked := self.pods[uid].asked):
                self.pods[uid] = replace(self.pods[uid], answer=Answer(asked, 1, "s3://b/1", self.now))
        if ending:
            self.pods = {uid: pod for uid, pod in self.pods.items() if uid in wanted}

    def _kueue_ends_what_was_stopped(self) -> None:
        super()._kueue_ends_what_was_stopped()
        for job in self.jobs.values():
            if job.stage is Stage.EVICTED and job.flavor is not None:
                self._change(job, released_quota_at=self.now, waiting_since=self.now, **GONE)
        self._pods_go_on(answering=False, ending=True)

    # What the agent does

    def _tick(self, seen: tuple[Job, ...], killed_after: int | None) -> Decision:
        self.left = killed_after
        try:
            self._evict(seen)
        except Killed:
            self._forget()
        decision = super()._tick(seen, self.left if killed_after is not None else None)
        if self.left is not None and self.left < 0:
            self._forget()
        else:
            self.may_leave = decision.may_leave
        return decision

    def _forget(self) -> None:
        self.in_doubt = False
        self.runs, self.may_leave = {}, None

    def _evict(self, seen: tuple[Job, ...]) -> None:
        config, now = self.config(), self.now
        seen = tuple(job for job in seen if job.gpus)
        scout = Scout(config, Clock(real_now=lambda: now))
        nodes = [NodeView(name, self._notices(name), present=True, ready=True, flavor=name[:-2]) for name in NODES]
        pods = [SeenPod(pod, "") for pod in self.pods.values()]
        self.runs |= {job.uid: run for job in seen if (run := run_of(job)) is not None}
        leaving = self.may_leave or frozenset()
        view, other = (
            scout.view(nodes[::way], pods[::way], seen[::way], may_leave=leaving, runs=self.runs) for way in (1, -1)
        )
        if self.may_leave is None:
            view, other = (replace(one, workloads=_not_being_moved(one)) for one in (view, other))
        steps = plan(view, now)
        assert plan(other, now) == steps
        for step in steps:
            assert not isinstance(step, EvictPod | Resume), "every pod is of a job of Kueue's, with whole GPUs"
            try:
                self._carry_out(step)
            except StoreFails:
                self.in_doubt = True

    def _notices(self, node: str) -> Any:
        taints = [{"key": key, "value": value, "effect": "NoSchedule"} for key, value in self.taints[node].items()]
        return drains_of({"metadata": {"name": node}, "spec": {"taints": taints}}, self.now)

    def _carry_out(self, step: Step) -> None:
        assert not isinstance(step, EvictPod)
        job = self.jobs.get(step.workload.uid)
        inactive = (Stage.STOPPED, Stage.EVICTED, Stage.RECALLING)
        if isinstance(step, Account):
            self._lose(step)
        if job is None or (job.stage not in inactive) != step.workload.active or job.eviction != step.workload.marker:
            return
        if not isinstance(step, Ask) or step.workload.marker != step.marker:
            self._wrote()
            self._mark_eviction(job, step.marker)
        if isinstance(step, Stop):
            assert job.stage in RUNNING, "only a running job is stopped"
            self.stops[job.uid] = self.stops.get(job.uid, 0) + 1
            self._change(job, stage=Stage.EVICTED)
        if isinstance(step, Ask):
            for pod in step.pods:
                self._wrote()
                self.pods[pod.uid] = replace(self.pods[pod.uid], asked=step.request.id)

    def _mark_eviction(self, job: Job, marker: Marker | None) -> None:
        """As it is read back."""
        before = self.jobs[job.uid].eviction
        if marker is None:
            assert before is None or not before.attempts, "a count of losses is never forgotten"
        elif before is not None:
            assert before.attempts <= marker.attempts <= before.attempts + 1
        self._change(job, eviction=None if marker is None else marker_from_json(marker_to_json(marker)))

    def _lose(self, step: Account) -> None:
        self._wrote()
        if self.in_doubt or self.store_fails in (1, 3):
            raise StoreFails
        key = (step.workload.uid, step.marker.attempts)
        self.losses.setdefault(key, step.lost_gpu_seconds)
        if self.store_fails == 2:
            raise StoreFails

    def _act(self, decision: Decision, config: AgentConfig) -> None:
        super()._act(decision, config)
        for requeue in decision.requeues:
            self._requeue(requeue, config)
        for move in decision.moves:
            self._move(move)

    def _requeue(self, requeue: Requeue, config: AgentConfig) -> None:
        job, judged = self.jobs.get(requeue.job.uid), requeue.job
        if job is None or not _alike(job, judged) or job.stage is not Stage.EVICTED or job.eviction is None:
            return
        former = judged.eviction
        if former is None or (job.eviction.attempts, job.eviction.gone_at) != (former.attempts, former.gone_at):
            return
        assert requeue.target is None or requeue.target in config.burst_order
        self._wrote()  # the label, which Kueue does not follow for a job that was evicted
        self._wrote()
        self.sent[job.uid] = self.sent.get(job.uid, 0) + 1
        self._change(
            job,
            stage=Stage.QUEUED if requeue.target is None else Stage.RELEASED,
            target=requeue.target,
            move=None if requeue.moved else job.move,
            eviction=marker_from_json(marker_to_json(sent_on(job.eviction, self.now))),
            verdict_code=requeue.verdict.code.value,
            verdict_at=self.now,
            returns=0,
        )

    def _move(self, move: Move) -> None:
        job = self.jobs.get(move.job.uid)
        if job is None or not _alike(job, move.job):
            return
        self._wrote()
        runs = job.stage in RUNNING
        told = {"verdict_code": move.verdict.code.value, "verdict_at": self.now} if runs else {}
        wish = None
        if job.move is not None and not move.over:
            wish = replace(job.move, told=str(move.verdict.facts.get("cause", "")))
        self._change(job, move=wish, **told)

    def _mark(self, job: Job, code: Code, returns: int = 0) -> None:
        super()._mark(job, code, returns)
        if (wish := self.jobs[job.uid].move) is not None:
            self._change(job, move=replace(wish, told=""))

    # What is promised

    @rule(order=st.randoms(use_true_random=False))
    def left_alone_all_that_was_begun_comes_to_an_end(self, order: Any) -> None:
        leaving: dict[str, int] = {}
        for _ in range(MOST_LOOKS):
            self.now += END_SECONDS
            decision = self._tick(self._seen(), None)
            self._kueue_ends_what_was_stopped()
            leaving = {uid: leaving.get(uid, 0) + 1 for uid in {str(one) for one in decision.may_leave}}
            assert max(leaving.values(), default=0) < MOST_LOOKS / 2, f"never leaves: {leaving}"
        for job in self._seen():
            assert job.stage is not Stage.EVICTED, f"{job.uid} is not sent on"
            if job.eviction is not None and job.eviction.phase is not Phase.DONE:
                assert job.stage in (*RUNNING, Stage.FINISHED), f"{job.uid} is not running, and under notice"
            assert job.stage is not Stage.FINISHED or not evictions_under_way((), [job])
            if job.eviction is not None and job.eviction.attempts and job.eviction.phase is Phase.DONE:
                assert job.eviction.accounted
            if job.move is not None and job.stage not in (Stage.STOPPED, Stage.FINISHED):
                assert not job.move.problem
                assert job.move.until > self.now

    @invariant()
    def what_is_stopped_is_sent_on_as_often(self) -> None:
        for uid, job in self.jobs.items():
            ours = job.stage is Stage.EVICTED or job.stage is Stage.FINISHED
            assert self.stops.get(uid, 0) - self.sent.get(uid, 0) in ((0, 1) if ours else (0,))

    @invariant()
    def every_loss_is_in_the_ledger_once_and_none_that_was_not(self) -> None:
        for uid, job in self.jobs.items():
            numbers = [number for one, number in self.losses if one == uid]
            attempts = 0 if job.eviction is None else job.eviction.attempts
            assert max(numbers, default=0) <= attempts
            assert attempts >= self.stops.get(uid, 0)
            if job.eviction is not None and job.eviction.accounted:
                assert attempts in numbers


def _not_being_moved(view: View) -> list[HeldWorkload]:
    """As runtime.evictions leaves them out before anything was decided."""
    return [
        one
        for one in view.workloads
        if one.marker is None or one.marker.kind is not NoticeKind.MOVE or one.marker.phase is not Phase.ASKED
    ]


def _alike(job: Job, judged: Job) -> bool:
    names = ("stage", "attempt", "flavor", "target")
    same = all(getattr(job, name) == getattr(judged, name) for name in names)
    return same and (job.move and job.move.id) == (judged.move and judged.move.id)


TestPlannedFleet = PlannedFleet.TestCase
TestPlannedFleet.settings = settings(max_examples=25, stateful_step_count=40, deadline=None)


@pytest.mark.long
class TestPlannedFleetForLong(PlannedFleet.TestCase):  # type: ignore[misc,valid-type]
    settings = settings(max_examples=2_000, stateful_step_count=50, deadline=None)
