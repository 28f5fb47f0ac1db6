"""Invariants of decisions over random histories, with the smallest Kueue that can reserve, run, evict and finish."""

from __future__ import annotations

import random
from dataclasses import replace
from itertools import pairwise
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from runtime.cost.exposure import day_of, exposure, month_of
from runtime.cost.ledger import Attempt, Closing, Opening
from runtime.routing.decide import decide
from runtime.routing.decision import Decision
from runtime.routing.snapshot import Job, Snapshot, Stage
from runtime.routing.verdict import Code
from stacks.agent_config import AgentConfig
from tests.builders import HOUR, LOCAL, NOON, ON_DEMAND, SPOT, a_config, a_job, a_snapshot, a_team, some_books

CLOUD = {SPOT: 16, ON_DEMAND: 8}
EVENING = NOON + 10 * HOUR

configs = st.builds(
    lambda daily, monthly, gpus, policy, class_policy: a_config(
        budget={"daily": daily, "monthly": monthly},
        teams={
            "vision": a_team("vision", max_burst_gpus=gpus, window_queues={"night": "vision-window-night"}),
            "nlp": a_team("nlp", budget={"daily": daily / 2}, window_queues={"night": "nlp-window-night"}),
        },
        projects={"demo": {"budget": {"monthly": monthly / 4}, "teams": ["vision"]}},
        classes={
            "p0": {"max_wait": "5m", "burst": "allowed", "expected_runtime": "1h", "policy": class_policy},
            "p1": {"burst": "allowed", "expected_runtime": "1h"},
            "p2": {"burst": "never", "expected_runtime": "1h"},
            "safe": {"burst": "allowed", "expected_runtime": "1h", "markets": ["onprem", "on-demand"]},
            "night": {"burst": "allowed", "expected_runtime": "1h", "window": "23:00-05:00 Europe/Berlin"},
        },
        policy=policy,
        data={"bandwidth": "1 Gbps", "max_staging": "10m", "usd_per_gb": "0.02"},
    ),
    st.integers(1, 80),
    st.integers(1, 120),
    st.none() | st.integers(0, 12),
    st.sampled_from(
        [
            {"kind": "constant", "wait": "20m"},
            {"kind": "compute-wait", "wait_per_gpu_hour": "4m", "bounds": ["2m", "2h"]},
            {"kind": "per-gpu", "wait_per_gpu": "4m", "bounds": ["2m", "2h"]},
            {"kind": "always"},
            {"kind": "never"},
        ]
    ),
    st.none() | st.just({"kind": "always"}),
)


def some_jobs(chance: random.Random, count: int) -> list[Job]:
    return [
        a_job(
            f"job-{number:03}",
            team=chance.choice(["vision", "nlp"]),
            job_class=chance.choice(["p0", "p1", "p1", "p2", "safe", "night"]),
            priority=chance.choice([0, 0, 100]),
            gpus=chance.choice([1, 1, 2, 2, 4, 8, 16, 32]),
            created_at=EVENING - chance.choice([60.0, HOUR, 3 * HOUR]),
            expected_seconds=chance.choice([None, 600.0, 4 * HOUR]),
            max_seconds=chance.choice([None, 600.0, HOUR / 2, 2 * HOUR, 9 * HOUR]),
            project=chance.choice(["", "", "demo", "typo"]),
            gpu=chance.choice([None, None, "h100", "h200"]),
            data_bytes=chance.choice([0, 0, 10**10, 10**12]),
        )
        for number in range(count)
    ]


class SmallKueue:
    """Jobs that change as decisions and chance say; it loses writes and forgets Readys as a real cluster does."""

    def __init__(self, config: AgentConfig, chance: random.Random) -> None:
        self.config, self.chance = config, chance
        self.jobs = {job.uid: job for job in some_jobs(chance, 30)}
        self.openings: dict[Attempt, Opening] = {}
        self.closings: dict[Attempt, Closing] = {}
        self.now = EVENING

    def snapshot(self) -> Snapshot:
        return a_snapshot(
            *self.jobs.values(), books=some_books(*self.openings.values(), closings=tuple(self.closings.values()))
        )

    def act(self, decision: Decision) -> None:
        for closed in decision.closes:
            if not self._lost():
                self.closings[closed.closing.attempt] = closed.closing
        for clear in decision.clears:
            if self._lost():
                continue
            self.openings.setdefault(clear.opening.attempt, clear.opening)
            if not self._lost():
                self._set(clear.job, stage=Stage.RUNNING_CLOUD, ready_at=self.now, ever_admitted=True)
        for recall in decision.recalls:
            self._release_quota(self.jobs[recall.job.uid], Stage.QUEUED)
        for release in decision.releases:
            said = {"verdict_code": release.verdict.code.value, "verdict_at": self.now}
            self._set(
                release.job, **({} if self._lost() else {"stage": Stage.RELEASED, "target": release.target}), **said
            )
        for hold in decision.holds:
            self._set(hold.job, verdict_code=hold.verdict.code.value, verdict_at=self.now)

    def live(self) -> None:
        """Time passes; jobs start, end, are evicted or deleted. The run time limit is enforced to the second."""
        start, self.now = self.now, self.now + self.chance.choice([10.0, HOUR / 2, 2 * HOUR])
        for job in list(self.jobs.values()):
            dice = self.chance.random()
            if job.stage is Stage.RELEASED:
                self._reserve(job)
            elif job.stage is Stage.RUNNING_CLOUD and job.ready_at is not None and job.max_seconds is not None:
                ended_at = job.ready_at + job.max_seconds
                if ended_at <= self.now:
                    self._set(job, stage=Stage.FINISHED, released_quota_at=ended_at)
                elif dice < 0.1:
                    self._set(job, stage=Stage.FINISHED, released_quota_at=max(start, job.ready_at))
                elif dice < 0.2:
                    self._release_quota(job, Stage.RELEASED)
                elif dice < 0.25:
                    del self.jobs[job.uid]

    def _reserve(self, job: Job) -> None:
        held = dict.fromkeys(CLOUD, 0)
        for other in self.jobs.values():
            if other.flavor in held and other.stage is not Stage.FINISHED:
                held[other.flavor] += other.gpus
        target = job.target or ""
        if held[target] + job.gpus <= CLOUD[target] and self.chance.random() < 0.7:
            at = {"reserved_at": self.now, "attempt": int(self.now)}
            self._set(job, stage=Stage.AT_GATE, flavor=target, ready_at=None, **at)
        elif job.gpu != "h200" and job.gpus <= 16 and self.chance.random() < 0.2:
            self._set(job, stage=Stage.RUNNING_LOCAL, flavor=LOCAL, ever_admitted=True, reserved_at=self.now)

    def _release_quota(self, job: Job, stage: Stage) -> None:
        gone: dict[str, Any] = {"flavor": None, "reserved_at": None, "attempt": None, "ready_at": None}
        target = job.target if stage is Stage.RELEASED else None
        never_ready = stage is Stage.RELEASED and self.chance.random() < 0.3
        self._set(
            job,
            stage=stage,
            released_quota_at=self.now,
            target=target,
            never_ready=never_ready,
            verdict_code=None,
            **gone,
        )

    def _set(self, job: Job, **changes: Any) -> None:
        self.jobs[job.uid] = replace(self.jobs[job.uid], **changes)

    def _lost(self) -> bool:
        return self.chance.random() < 0.15


def check_money(kueue: SmallKueue) -> None:
    budgets = {team: settings.budget for team, settings in kueue.config.teams.items()} | {"fleet": kueue.config.budget}
    books = kueue.snapshot().books
    assert books is not None
    for offset in range(-1, 3):
        at = kueue.now + offset * 24 * HOUR
        for period, limit_name in ((day_of(at), "daily"), (month_of(at), "monthly")):
            found = exposure(books, period, kueue.now)
            for scope, budget in budgets.items():
                limit = getattr(budget, limit_name, None)
                amounts = found.fleet if scope == "fleet" else found.teams.get(scope)
                if limit is not None and amounts is not None:
                    assert amounts.spent + amounts.committed <= limit


def check_fates(kueue: SmallKueue, decision: Decision) -> None:
    """Every job is in exactly one place: it runs, waits with a reason that stands, is refused with one, or moves."""
    moving = {
        action.job.uid for actions in (decision.clears, decision.recalls, decision.releases) for action in actions
    }
    told = {hold.job.uid: hold.verdict.code for hold in decision.holds}
    assert not moving & told.keys()
    for job in kueue.jobs.values():
        if job.stage is Stage.QUEUED and job.uid not in moving:
            code = told.get(job.uid, job.verdict_code)
            assert code is not None
            assert code not in (Code.CLEARED, Code.RECALLED)
            assert (code == Code.NEVER_FITS) <= (job.gpus > 16 or job.gpu == "h200")
        if job.stage is Stage.AT_GATE:
            assert job.uid in moving


def check_decision(kueue: SmallKueue, decision: Decision) -> None:
    check_fates(kueue, decision)
    for clear in decision.clears:
        assert clear.job.flavor == clear.opening.flavor == clear.job.target
        assert kueue.config.classes[clear.job.job_class].burst == "allowed"
        assert clear.job.job_class != "safe" or clear.opening.flavor == ON_DEMAND
        assert clear.job.project != "typo"
        assert clear.job.data_bytes < 10**12
        assert (clear.job.uid, clear.job.attempt) == (
            clear.opening.attempt.workload_uid,
            clear.opening.attempt.reserved_at,
        )
        assert clear.opening.attempt not in kueue.closings
    acted = [action.job.uid for actions in (decision.clears, decision.recalls, decision.releases) for action in actions]
    assert len(acted) == len(set(acted))
    held = sum(j.gpus for j in kueue.jobs.values() if j.flavor in CLOUD and j.stage is not Stage.FINISHED)
    assert held + sum(release.job.gpus for release in decision.releases) <= sum(CLOUD.values())
    leaving = [release.job for release in decision.releases if release.job.stage is Stage.QUEUED]
    order = [(-job.priority, job.created_at, job.uid) for job in leaving]
    assert all(first < second for first, second in pairwise(order))
    standing = {(j.uid, j.attempt) for j in kueue.jobs.values() if j.flavor in CLOUD and j.stage is not Stage.FINISHED}
    closed = {(c.closing.attempt.workload_uid, c.closing.attempt.reserved_at) for c in decision.closes}
    assert not closed & standing


@settings(max_examples=60)
@given(configs, st.integers(0, 2**32))
def test_no_history_of_lost_writes_and_evictions_breaks_a_hard_budget(config: AgentConfig, seed: int) -> None:
    kueue = SmallKueue(config, random.Random(seed))
    for step in range(12):
        decision = decide(kueue.snapshot(), config, kueue.now, f"d-{step}")
        check_decision(kueue, decision)
        kueue.act(decision)
        check_money(kueue)
        kueue.live()


@settings(max_examples=60)
@given(configs, st.integers(0, 2**32))
def test_a_decision_depends_on_nothing_but_the_snapshot_not_even_its_order(config: AgentConfig, seed: int) -> None:
    kueue = SmallKueue(config, random.Random(seed))
    for step in range(4):
        snapshot = kueue.snapshot()
        decision = decide(snapshot, config, kueue.now, f"d-{step}")
        shuffled = random.Random(seed + 1).sample(list(snapshot.jobs), len(snapshot.jobs))
        assert decide(replace(snapshot, jobs=shuffled), config, kueue.now, f"d-{step}") == decision
        kueue.act(decision)
        kueue.live()


@settings(max_examples=60)
@given(configs, st.integers(0, 2**32))
def test_a_younger_job_never_leaves_before_an_older_one_of_its_shape(config: AgentConfig, seed: int) -> None:
    jobs = some_jobs(random.Random(seed), 40)
    left = {release.job.uid for release in decide(a_snapshot(*jobs), config, EVENING, "d").releases}
    for young in (job for job in jobs if job.uid in left):
        for old in (job for job in jobs if job.uid not in left):
            same = (old.team, old.job_class, old.priority) == (young.team, young.job_class, young.priority)
            no_larger = old.gpus <= young.gpus and old.expected_seconds == young.expected_seconds
            alike = (old.project, old.gpu, old.data_bytes) == (young.project, young.gpu, young.data_bytes)
            if same and no_larger and alike and old.max_seconds == young.max_seconds:
                assert (young.created_at, young.uid) < (old.created_at, old.uid)


def test_the_histories_do_spend_money() -> None:
    config = a_config(budget={"daily": 80, "monthly": 500})
    kueue = SmallKueue(config, random.Random(1))
    for step in range(12):
        kueue.act(decide(kueue.snapshot(), config, kueue.now, f"d-{step}"))
        kueue.live()
    assert len(kueue.openings) >= 4
    assert sum(closing.usd for closing in kueue.closings.values()) > 0
