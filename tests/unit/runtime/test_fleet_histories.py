"""Histories of a whole fleet: jobs, Kueue, people, reloads, a ledger that fails, and an agent that is killed anywhere.

Kueue here is the smallest that can reserve, admit, evict and finish; the agent is `decide` and the writes of
runtime.routing.carry in their order, each of which may be the last before it is killed. What it sees may be old.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from decimal import Decimal
from functools import partial
from typing import Any, Final

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from runtime.cost.exposure import Amounts, add_up
from runtime.cost.ledger import Attempt, Books, Closing, Opening, TopUp
from runtime.cost.periods import PERIOD_OF, Period, PeriodKind
from runtime.cost.scopes import budgets
from runtime.routing.decide import decide
from runtime.routing.decision import Clear, Close, Decision, Recall, Release
from runtime.routing.release import KEPT_LOCAL_SECONDS, PLACING_SECONDS
from runtime.routing.snapshot import Job, Snapshot, Stage
from runtime.routing.verdict import Code
from stacks.agent_config import AgentConfig
from tests.builders import HOUR, LOCAL, ON_DEMAND, SPOT, a_config, a_flavor, a_job, a_team

START: Final = 1_793_041_200.0
"""2026-10-26 19:00 UTC, the day after Europe's clocks were turned back, five days before its month ends."""

CLOUD: Final = {SPOT: 16, ON_DEMAND: 8}
LOCAL_GPUS: Final = 6
ZONES: Final = {"fleet": "Europe/Berlin", "team nlp": "America/New_York", "project demo": "Pacific/Kiritimati"}
LIMITS: Final[dict[PeriodKind, str]] = {"day": "daily", "week": "weekly", "month": "monthly"}
HOLDING: Final = (Stage.AT_GATE, Stage.RUNNING_CLOUD, Stage.RUNNING_LOCAL)
OCCUPYING: Final = (*HOLDING, Stage.RECALLING, Stage.EVICTED)
GONE: Final[dict[str, Any]] = {"flavor": None, "reserved_at": None, "attempt": None, "ready_at": None}
MOST_ROUNDS: Final = 12
LONGEST_BLINDNESS_SECONDS: Final = 660.0
"""Caches list at least every ten minutes, and a list takes its time."""

writes = st.none() | st.integers(0, 12)
"""After how many writes the agent is killed; None for never."""


class Killed(Exception):
    """The agent, after its last write."""


class StoreFails(Exception):
    """A write to the ledger without a clear answer."""


class Fleet(RuleBasedStateMachine):
    """One fleet. `jobs` is the cluster's truth, `openings`, `closings` and `top_ups` what stands in the store."""

    def __init__(self) -> None:
        super().__init__()
        self.now = START
        self.jobs: dict[str, Job] = {}
        self.before: tuple[Job, ...] = ()
        self.openings: dict[Attempt, Opening] = {}
        self.closings: dict[Attempt, Closing] = {}
        self.top_ups: dict[str, TopUp] = {}
        self.cleared: set[Attempt] = set()
        self.clock_was_right = True
        self.in_doubt = False
        self.store_fails = 0
        self.left: int | None = None
        self.absent: set[str] = set()
        self.broken: frozenset[str] = frozenset()
        self.made = 0

    @initialize(
        daily=st.integers(8, 90), weekly=st.integers(20, 120), project=st.integers(5, 60), jobs=st.integers(0, 8)
    )
    def begin(self, daily: int, weekly: int, project: int, jobs: int) -> None:
        for number in range(jobs):
            team, named = ("vision", "nlp")[number % 2], ("", "", "demo")[number % 3]
            self.a_job_is_submitted(2 ** (number % 4), team, 1.0 + number, project=named)
        self.limits: dict[str, dict[str, int]] = {
            "fleet": {"daily": daily, "monthly": daily * 3},
            "team nlp": {"weekly": weekly},
            "project demo": {"daily": project},
        }
        self.highest = {scope: dict(limits) for scope, limits in self.limits.items()}
        self.policy: dict[str, Any] = {"kind": "always"}

    # What people do

    @rule(
        gpus=st.sampled_from([0, 1, 2, 2, 4, 4, 8, 16, 32]),
        team=st.sampled_from(["vision", "nlp"]),
        hours=st.sampled_from([None, 0.2, 1.0, 1.0, 5.0, 30.0]),
        project=st.sampled_from(["", "", "", "demo", "demo", "typo"]),
        job_class=st.sampled_from(["p0", "p1", "p1", "p1", "p2", "night"]),
        data_bytes=st.sampled_from([0, 0, 10**11]),
    )
    def a_job_is_submitted(self, gpus: int, team: str, hours: float | None, **wishes: Any) -> None:
        self.made += 1
        limit = None if hours is None else hours * HOUR
        uid = f"job-{self.made:03}"
        self.jobs[uid] = a_job(uid, gpus=gpus, team=team, max_seconds=limit, created_at=self.now, **wishes)

    @rule(scope=st.sampled_from(sorted(ZONES)), share=st.floats(0, 1))
    def a_limit_is_lowered(self, scope: str, share: float) -> None:
        self.limits[scope] = {name: int(usd * share) for name, usd in self.limits[scope].items()}

    @rule(scope=st.sampled_from(sorted(ZONES)))
    def a_limit_is_set_back(self, scope: str) -> None:
        self.limits[scope] = dict(self.highest[scope])

    @rule(scope=st.sampled_from(sorted(ZONES)), usd=st.integers(1, 50), hours=st.floats(0.1, 60))
    def a_budget_is_topped_up(self, scope: str, usd: int, hours: float) -> None:
        name = f"t-{len(self.top_ups)}"
        self.top_ups[name] = TopUp(name, scope, Decimal(usd), "because", "ada", self.now, self.now + hours * HOUR)

    @rule(kind=st.sampled_from(["constant", "constant", "always", "always", "never"]))
    def the_policy_changes(self, kind: str) -> None:
        self.policy = {"kind": kind} | ({"wait": "20m"} if kind == "constant" else {})

    @rule(name=st.sampled_from(["vision", SPOT, "demo", "night"]))
    def something_leaves_the_fleet_file_or_comes_back(self, name: str) -> None:
        self.absent ^= {name}

    @rule(twins=st.frozensets(st.sampled_from(["vision-burst-h100-spot", "nlp-burst-h100-spot"])))
    def twins_break_or_are_mended(self, twins: frozenset[str]) -> None:
        self.broken = twins

    @precondition(lambda self: self.jobs)
    @rule(data=st.data())
    def an_administrator_wants_a_job_back(self, data: st.DataObject) -> None:
        self._change(self._any(data), recall_reason="licence")

    @precondition(lambda self: any(job.stage is Stage.RELEASED for job in self.jobs.values()))
    @rule(data=st.data())
    def somebody_takes_a_released_job_back(self, data: st.DataObject) -> None:
        self._change(self._any(data, Stage.RELEASED), stage=Stage.QUEUED, target=None)

    # What the cluster does

    @rule(hours=st.sampled_from([0.003, 0.02, 0.2, 1.0, 7.0, 30.0]))
    def time_passes(self, hours: float) -> None:
        """Run time limits are enforced to the second."""
        self.now += hours * HOUR
        for job in list(self.jobs.values()):
            if job.ready_at is not None and job.max_seconds is not None:
                end = job.ready_at + job.max_seconds
                if end <= self.now and job.stage in HOLDING:
                    self._change(job, stage=Stage.FINISHED, released_quota_at=end)

    @rule(seconds=st.sampled_from([5.0, HOUR, 30 * HOUR]))
    def the_agents_clock_was_ahead(self, seconds: float) -> None:
        """Everything written so far bears times of the future; no old sight of it can be told from a new one."""
        if not self.openings and not self.before:
            self.clock_was_right = False
            self.now = max(START, self.now - seconds)

    @rule(order=st.randoms(use_true_random=False), local_is_useless=st.booleans())
    def kueue_gives_out_quota(self, order: Any, local_is_useless: bool) -> None:
        """Local GPUs first, unless they are spread over nodes in a way that helps nobody."""
        waiting = [job for job in self.jobs.values() if job.stage in (Stage.QUEUED, Stage.RELEASED)]
        order.shuffle(waiting)
        for job in waiting:
            flavors = [] if local_is_useless or job.gpus > 4 else [LOCAL]
            flavors += [] if job.target is None else [job.target]
            room = {LOCAL: LOCAL_GPUS, **CLOUD}
            for flavor in flavors:
                held = sum(one.gpus for one in self.jobs.values() if one.flavor == flavor and one.stage in OCCUPYING)
                if held + job.gpus <= room[flavor]:
                    self._reserve(job, flavor)
                    break

    def _reserve(self, job: Job, flavor: str) -> None:
        self.now += 1.0
        reserved: dict[str, Any] = {"flavor": flavor, "reserved_at": self.now, "attempt": int(self.now)}
        reserved["preempted_at"] = None
        if flavor == LOCAL:
            self._change(job, stage=Stage.RUNNING_LOCAL, ever_admitted=True, ready_at=self.now, **reserved)
        else:
            self._change(job, stage=Stage.AT_GATE, ready_at=None, **reserved)

    @precondition(lambda self: any(job.stage in HOLDING for job in self.jobs.values()))
    @rule(data=st.data(), how=st.sampled_from(["finished", "preempted", "never ready", "deleted"]))
    def a_job_loses_its_quota(self, data: st.DataObject, how: str) -> None:
        job = self._any(data, *HOLDING)
        if how == "deleted":
            del self.jobs[job.uid]
        elif how == "finished" and job.stage is not Stage.AT_GATE:
            self._change(job, stage=Stage.FINISHED, released_quota_at=self.now)
        else:
            stage = Stage.QUEUED if job.target is None else Stage.RELEASED
            ran = {"waiting_since": self.now} if job.stage is not Stage.AT_GATE else {}
            if ran and how == "preempted":
                ran["preempted_at"] = self.now
            never = how == "never ready" and job.stage is Stage.RUNNING_CLOUD
            self._change(job, stage=stage, released_quota_at=self.now, never_ready=never, **GONE, **ran)

    def _kueue_ends_what_was_stopped(self) -> None:
        for job in self.jobs.values():
            if job.stage is Stage.RECALLING and job.flavor is not None:
                self._change(job, released_quota_at=self.now, **GONE)

    # What the agent does

    @rule(killed_after=writes, store_fails=st.sampled_from([0, 0, 0, 1, 2, 3]))
    def the_agent_decides(self, killed_after: int | None, store_fails: int) -> None:
        """`store_fails`: 1 loses a write, 2 the answer to a write, 3 is an outage."""
        self.store_fails = store_fails
        self._tick(self._seen(), killed_after)
        self.store_fails = 0

    @rule(killed_after=writes)
    def a_replica_that_saw_nothing_lately_takes_over(self, killed_after: int | None) -> None:
        if self.before and self.clock_was_right and self.now - self.seen_at < LONGEST_BLINDNESS_SECONDS:
            self._tick(self.before, killed_after)

    @rule(order=st.randoms(use_true_random=False), killed_after=writes)
    def everybody_does_what_is_usual(self, order: Any, killed_after: int | None) -> None:
        self._tick(self._seen(), None)
        self.kueue_gives_out_quota(order, local_is_useless=True)
        self._tick(self._seen(), killed_after)
        self._kueue_ends_what_was_stopped()

    @rule()
    def the_replicas_watches_are_fresh(self) -> None:
        self.before = self._seen()
        self.seen_at = self.now

    @precondition(lambda self: bool(self.jobs))
    @rule()
    def left_alone_the_agent_comes_to_rest(self) -> None:
        """Deciding again on what was done yields nothing new."""
        for _ in range(MOST_ROUNDS):
            self._kueue_ends_what_was_stopped()
            decision = self._tick(self._seen(), None)
            actions = (decision.clears, decision.recalls, decision.releases, decision.holds, decision.adoptions)
            ends = [one for one in decision.closes if one.vanished is None or one.vanished.attempt in self.closings]
            if not any(actions) and not ends:
                return
        raise AssertionError(f"still acts after {MOST_ROUNDS} rounds: {decision}")

    def _seen(self) -> tuple[Job, ...]:
        return tuple(job for job in self.jobs.values() if job.team not in self.absent)

    def _tick(self, seen: tuple[Job, ...], killed_after: int | None) -> Decision:
        config, down = self.config(), self.store_fails == 3
        self.in_doubt = self.in_doubt and down
        books = None if self.in_doubt or down else Books(dict(self.openings), dict(self.closings), dict(self.top_ups))
        around: dict[str, Any] = {"books": books, "broken_queues": self.broken, "capacity": {LOCAL: LOCAL_GPUS}}
        decision = decide(Snapshot(seen, **around), config, self.now, "d")
        assert decide(Snapshot(seen[::-1], **around), config, self.now, "d") == decision
        if seen is not self.before:
            self._check_fates(decision, config)
        self.left = killed_after
        try:
            self._act(decision, config)
        except Killed:
            self.in_doubt = False
        return decision

    def _act(self, decision: Decision, config: AgentConfig) -> None:
        steps: list[tuple[Callable[[Any, AgentConfig], None], tuple[Any, ...]]] = [
            (self._close, decision.closes),
            (lambda adopt, _: self._write(self.openings, adopt.opening), decision.adoptions),
            (self._clear, decision.clears),
            (self._recall, decision.recalls),
            (self._release, decision.releases),
        ]
        for step, actions in steps:
            for action in actions:
                try:
                    step(action, config)
                except StoreFails:
                    self.in_doubt = True
        for hold in decision.holds:
            if hold.job.uid in self.jobs and self.jobs[hold.job.uid].stage not in (Stage.FINISHED, Stage.RECALLING):
                self._mark(hold.job, hold.verdict.code, int(hold.verdict.facts.get("returns", 0)))

    def _close(self, close: Close, _: AgentConfig) -> None:
        if close.vanished is None or close.closing.attempt.workload_uid not in self.jobs:
            self._write(self.closings, close.closing)

    def _clear(self, clear: Clear, _: AgentConfig) -> None:
        if self.jobs.get(clear.job.uid) != clear.job:
            return
        self._write(self.openings, clear.opening)
        self._mark(clear.job, Code.CLEARED)
        self.cleared.add(clear.opening.attempt)
        self._wrote()
        self._change(self.jobs[clear.job.uid], stage=Stage.RUNNING_CLOUD, ready_at=self.now, ever_admitted=True)

    def _recall(self, recall: Recall, config: AgentConfig) -> None:
        job = self.jobs.get(recall.job.uid)
        if job is None or job != recall.job or (job.stage is Stage.RECALLING and job.flavor is not None):
            return
        self._mark(job, Code.RECALLED)
        if job.flavor is not None:
            self._change(self.jobs[job.uid], stage=Stage.RECALLING)
            return
        self._wrote()
        stays = Stage.RECALLING if job.stage is Stage.RECALLING else Stage.QUEUED
        self._change(self.jobs[job.uid], target=None, stage=stays)
        self._wrote()
        kept = {"verdict_code": Code.KEPT_LOCAL.value, "verdict_at": self.now}
        told = kept if job.recall_reason is not None else {"verdict_code": None, "verdict_at": None}
        self._change(self.jobs[job.uid], stage=Stage.QUEUED, recall_reason=None, returns=0, **told)

    def _release(self, release: Release, _: AgentConfig) -> None:
        job = self.jobs.get(release.job.uid)
        if job is None or job.stage not in (Stage.QUEUED, Stage.RELEASED):
            return
        self._wrote()
        self._change(job, stage=Stage.RELEASED, target=release.target)
        self._mark(job, Code.RELEASED, int(release.verdict.facts.get("returns", 0)))

    def _mark(self, job: Job, code: Code, returns: int = 0) -> None:
        self._wrote()
        self._change(self.jobs[job.uid], verdict_code=code.value, verdict_at=self.now, returns=returns)

    def _write(self, entries: dict[Attempt, Any], entry: Any) -> None:
        self._wrote()
        if self.in_doubt or self.store_fails in (1, 3):
            raise StoreFails
        entries.setdefault(entry.attempt, entry)
        if self.store_fails == 2:
            raise StoreFails

    def _wrote(self) -> None:
        if self.left is not None:
            self.left -= 1
            if self.left < 0:
                raise Killed

    def _change(self, job: Job, **changes: Any) -> None:
        self.jobs[job.uid] = replace(self.jobs[job.uid], **changes)

    def _any(self, data: st.DataObject, *stages: Stage) -> Job:
        return self.jobs[
            data.draw(st.sampled_from([n for n, j in self.jobs.items() if not stages or j.stage in stages]))
        ]

    def config(self) -> AgentConfig:
        usual: dict[str, Any] = {"burst": "allowed", "expected_runtime": "1h"}
        window = {} if "night" in self.absent else {"window": "22:00-06:00 Europe/Berlin"}

        def budget(scope: str) -> dict[str, Any]:
            return {"kind": "hard", "time_zone": ZONES[scope]} | self.limits[scope]

        flavors = {LOCAL: a_flavor("onprem", LOCAL_GPUS, "0"), ON_DEMAND: a_flavor("on-demand", CLOUD[ON_DEMAND], "4")}
        if SPOT not in self.absent:
            flavors[SPOT] = a_flavor("spot", CLOUD[SPOT], "2")
        teams = {"vision": a_team("vision", max_burst_gpus=12), "nlp": a_team("nlp", budget=budget("team nlp"))}
        return a_config(
            budget=budget("fleet"),
            flavors=flavors,
            burst_order=tuple(name for name in CLOUD if name in flavors),
            teams={name: team for name, team in teams.items() if name not in self.absent},
            projects={} if "demo" in self.absent else {"demo": {"budget": budget("project demo")}},
            classes={"p0": {"max_wait": "5m", **usual}, "p1": usual, "p2": {**usual, "burst": "never"}}
            | {"night": {**usual, **window}},
            policy=self.policy,
            data={"bandwidth": "10 Gbps", "max_staging": "30m", "usd_per_gb": "0.02"},
        )

    # What is promised

    def _check_fates(self, decision: Decision, config: AgentConfig) -> None:
        acts = (decision.clears, decision.recalls, decision.releases, decision.holds)
        acted = [action.job.uid for actions in acts for action in actions]
        assert len(acted) == len(set(acted))
        for job in self._seen():
            if job.stage is Stage.AT_GATE and job.uid not in acted:
                assert job.verdict_code == Code.LEDGER_DOWN
            if job.stage in (Stage.QUEUED, Stage.RELEASED) and job.uid not in acted:
                is_new = 0 <= self.now - job.waits_since < PLACING_SECONDS
                assert is_new or job.verdict_code not in (None, Code.CLEARED, Code.RECALLED)
        for release in decision.releases:
            job = release.job
            assert config.classes[job.job_class].burst == "allowed"
            assert job.verdict_code != Code.KEPT_LOCAL or abs(self.now - (job.verdict_at or 0)) >= KEPT_LOCAL_SECONDS

    @invariant()
    def every_cloud_start_is_paid_and_told(self) -> None:
        for job in self.jobs.values():
            if job.stage is Stage.RUNNING_CLOUD:
                attempt = Attempt(job.uid, job.attempt or 0)
                assert self.openings[attempt].flavor == job.flavor
                assert attempt not in self.closings
                assert attempt in self.cleared

    @invariant()
    def no_limit_is_broken(self) -> None:
        """Each against the highest that its limit ever was, with every top-up of the period."""
        if not self.openings:
            return
        books = Books(self.openings, self.closings)
        ends = [opening.opened_at + opening.max_seconds for opening in self.openings.values()]
        for scope, zone in ZONES.items():
            wanted = {
                period: self.highest[scope][name]
                for kind, name in LIMITS.items()
                if name in self.highest[scope]
                for period in _periods(kind, zone, max(self.now, *ends))
            }
            found = add_up(books, partial(_only, scope, wanted), self.now)
            for period, usd in wanted.items():
                amounts = found.get(scope, {}).get(period, Amounts())
                mine = [one for one in self.top_ups.values() if one.scope == scope]
                added = sum((one.usd for one in mine if period.start <= one.granted_at < period.end), Decimal(0))
                assert amounts.spent + amounts.committed <= usd + added


def _only(scope: str, periods: Iterable[Period], one: str) -> Iterable[Period]:
    return periods if one == scope else ()


def _periods(kind: PeriodKind, zone: str, until: float) -> list[Period]:
    found = [PERIOD_OF[kind](START, zone)]
    while found[-1].end <= until:
        found.append(PERIOD_OF[kind](found[-1].end, zone))
    return found


TestFleet = Fleet.TestCase
TestFleet.settings = settings(max_examples=30, stateful_step_count=40, deadline=None)


@pytest.mark.long
class TestFleetForLong(Fleet.TestCase):  # type: ignore[misc,valid-type]
    settings = settings(max_examples=2_000, stateful_step_count=50, deadline=None)


def test_the_budgets_of_the_histories_are_of_three_zones() -> None:
    fleet = Fleet()
    fleet.begin(10, 20, 5, 0)
    assert {scope: budget.time_zone for scope, budget in budgets(fleet.config()).items()} == ZONES
