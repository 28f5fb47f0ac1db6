"""The promise of a hard budget, tried against random histories over changes of the clock and ends of periods."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from fractions import Fraction
from typing import Any, Final

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from runtime.cost.budget import Accounts
from runtime.cost.exposure import Amounts, add_up, at_stake_in, spent_in
from runtime.cost.ledger import Attempt, Books, Closing, Opening, TopUp, close, committed_usd
from runtime.cost.periods import PERIOD_OF, Period, PeriodKind
from runtime.cost.scopes import scopes_of
from stacks.agent_config import AgentConfig
from tests.builders import HOUR, a_config, a_team, an_opening

LATE_OCTOBER: Final = datetime(2026, 10, 23, 20, tzinfo=UTC).timestamp()
"""Two days later summer time ends in Europe and on Antarctica, then a week begins, then a month."""

ZONES: Final = ("UTC", "Europe/Berlin", "Antarctica/Troll", "America/St_Johns", "Pacific/Kiritimati")
SCOPES: Final = ("fleet", "team vision", "team nlp", "project llm")
KINDS: Final[dict[str, PeriodKind]] = {"daily": "day", "weekly": "week", "monthly": "month"}

limits = st.fixed_dictionaries(
    {"time_zone": st.sampled_from(ZONES)},
    optional={name: st.integers(1, 60) for name in KINDS},
).filter(lambda budget: len(budget) > 1)


@dataclass
class Run:
    """When an attempt really ran, whatever the ledger noticed."""

    started: float
    ended: float


class HardBudgets(RuleBasedStateMachine):
    """Opens what fits and lets it start and end at any time that Kueue's run time limit allows.

    Limits are lowered, topped up, made soft and hard again. What is promised is about the attempts that were opened
    while the scope's budget was hard; whatever else was opened may only leave less room for them.
    """

    def __init__(self) -> None:
        super().__init__()
        self.now = LATE_OCTOBER
        self.openings: dict[Attempt, Opening] = {}
        self.closings: dict[Attempt, Closing] = {}
        self.runs: dict[Attempt, Run] = {}
        self.top_ups: dict[str, TopUp] = {}
        self.under_hard: dict[str, set[Attempt]] = {scope: set() for scope in SCOPES}

    @initialize(budgets=st.fixed_dictionaries(dict.fromkeys(SCOPES, limits)))
    def set_limits(self, budgets: dict[str, dict[str, Any]]) -> None:
        self.budgets = {scope: {"kind": "hard"} | budget for scope, budget in budgets.items()}
        self.highest = {scope: dict(budget) for scope, budget in self.budgets.items()}

    @rule(hours=st.floats(0.01, 15))
    def time_passes(self, hours: float) -> None:
        self.now += hours * HOUR

    @rule(scope=st.sampled_from(SCOPES), data=st.data())
    def a_limit_is_lowered(self, scope: str, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(sorted(KINDS.keys() & self.budgets[scope].keys())))
        self.budgets[scope][name] = data.draw(st.integers(0, self.budgets[scope][name]))

    @rule(scope=st.sampled_from(SCOPES), kind=st.sampled_from(["hard", "soft"]))
    def a_budget_changes_its_kind(self, scope: str, kind: str) -> None:
        self.budgets[scope]["kind"] = kind

    @rule(scope=st.sampled_from(SCOPES), usd=st.integers(1, 60), hours=st.floats(0.01, 100))
    def a_budget_is_topped_up(self, scope: str, usd: int, hours: float) -> None:
        name = f"top-up-{len(self.top_ups)}"
        self.top_ups[name] = TopUp(name, scope, Decimal(usd), "because", "ada", self.now, self.now + hours * HOUR)

    @rule(
        gpus=st.integers(1, 8),
        price=st.decimals("0.01", 5, places=3),
        hours=st.floats(0.01, 2) | st.floats(0.01, 70),
        fixed=st.just(Decimal(0)) | st.decimals(0, 5, places=2),
        team=st.sampled_from(["vision", "nlp"]),
        project=st.sampled_from(["", "llm", "unknown"]),
        waited=st.just(0.0) | st.floats(0, 10),
    )
    def a_job_comes_to_the_gate(
        self, gpus: int, price: Decimal, hours: float, fixed: Decimal, team: str, project: str, waited: float
    ) -> None:
        accounts = Accounts(self.books(), self.config(), self.now)
        applying = [scope for scope in scopes_of(team, project) if scope in self.budgets]
        hard = any(self.budgets[scope]["kind"] == "hard" for scope in applying)
        opening = an_opening(
            attempt=Attempt(f"job-{len(self.openings)}", 1),
            team=team,
            project=project,
            gpus=gpus,
            usd_per_gpu_hour=price,
            max_seconds=hours * HOUR,
            expected_seconds=hours * HOUR / 2,
            hard=hard,
            fixed_usd=fixed,
            committed_usd=committed_usd(
                price,
                gpus,
                max_seconds=hours * HOUR,
                expected_seconds=hours * HOUR / 2,
                hard=hard,
                fixed_usd=fixed,
            ),
            opened_at=max(self.now - waited, accounts.earliest_opening(team, project)),
        )
        if accounts.fits(opening) is None:
            self.openings[opening.attempt] = opening
            for scope in applying:
                if self.budgets[scope]["kind"] == "hard":
                    self.under_hard[scope].add(opening.attempt)
                    self._is_within(scope, self.budgets)

    @precondition(lambda self: len(self.openings) > len(self.closings))
    @rule(data=st.data())
    def a_job_ends(self, data: st.DataObject) -> None:
        still_open = sorted(self.openings.keys() - self.closings.keys(), key=lambda attempt: attempt.workload_uid)
        opening = self.openings[data.draw(st.sampled_from(still_open))]
        elapsed = self.now - opening.opened_at
        started = opening.opened_at + data.draw(st.floats(0, 1)) * elapsed
        longest = min(opening.max_seconds, self.now - started)
        run = Run(started, started + data.draw(st.floats(0, 1)) * longest)
        self.runs[opening.attempt] = run
        noticed = max(self.now, run.ended) if data.draw(st.integers(0, 2)) else run.ended
        self.closings[opening.attempt] = close(opening, run.started, noticed, "finished")

    def config(self) -> AgentConfig:
        return a_config(
            budget=self.budgets["fleet"],
            teams={name: a_team(name, budget=self.budgets[f"team {name}"]) for name in ("vision", "nlp")},
            projects={"llm": {"budget": self.budgets["project llm"]}},
        )

    def books(self) -> Books:
        return Books(self.openings, self.closings, self.top_ups)

    def periods(self, scope: str) -> Iterator[tuple[str, PeriodKind, Period]]:
        """Every period of the scope that anything may touch, as far as anything could still run."""
        ends = [opening.opened_at + opening.max_seconds for opening in self.openings.values()]
        ends += [closing.ended_at for closing in self.closings.values()]
        for name, kind in KINDS.items():
            if name in self.budgets[scope]:
                period = PERIOD_OF[kind](LATE_OCTOBER, self.budgets[scope]["time_zone"])
                yield name, kind, period
                while period.end <= max([self.now, *ends]):
                    period = PERIOD_OF[kind](period.end, self.budgets[scope]["time_zone"])
                    yield name, kind, period

    def limit(self, scope: str, name: str, period: Period, budgets: dict[str, dict[str, Any]]) -> Decimal:
        mine = [one for one in self.top_ups.values() if one.scope == scope]
        added = sum((one.usd for one in mine if period.start <= one.granted_at < period.end), Decimal(0))
        return Decimal(budgets[scope][name]) + added

    @invariant()
    def committed_and_spent_stay_within_every_limit(self) -> None:
        for scope in SCOPES if self.openings else ():
            self._is_within(scope, self.highest)

    def _is_within(self, scope: str, budgets: dict[str, dict[str, Any]]) -> None:
        mine = Books({one: self.openings[one] for one in self.under_hard[scope]}, self.closings)
        periods = list(self.periods(scope))
        found = add_up(mine, lambda one: [period for *_, period in periods] if one == scope else (), self.now)
        for name, _, period in periods:
            amounts = found.get(scope, {}).get(period, Amounts())
            assert amounts.spent + amounts.committed <= self.limit(scope, name, period, budgets)

    def teardown(self) -> None:
        # What is still open starts at the worst moment: so that half of it falls into the day after.
        for attempt in self.openings.keys() - self.closings.keys():
            opening = self.openings[attempt]
            midnight = PERIOD_OF["day"](self.now, self.budgets["fleet"]["time_zone"]).end
            started = max(opening.opened_at, midnight - opening.max_seconds / 2)
            self.runs[attempt] = Run(started, started + opening.max_seconds)
            self.closings[attempt] = close(opening, started, started + opening.max_seconds, "finished")
        for scope in SCOPES if self.openings else ():
            mine = self.under_hard[scope]
            for name, _, period in self.periods(scope):
                limit = self.limit(scope, name, period, self.highest)
                assert sum(spent_in(self.openings[one], self.closings[one], period) for one in mine) <= limit
                really = sum(self._really_spent(one, period) for one in mine)
                assert really <= Fraction(limit) + Fraction(len(mine), 10**6)

    def _really_spent(self, attempt: Attempt, period: Period) -> Fraction:
        run, opening = self.runs[attempt], self.openings[attempt]
        overlap = max(0.0, min(run.ended, period.end) - max(run.started, period.start))
        fixed = opening.fixed_usd if period.start <= opening.opened_at < period.end else Decimal(0)
        return Fraction(fixed) + Fraction(opening.usd_per_gpu_hour) * opening.gpus * Fraction(overlap) / 3_600


TestHardBudgets = HardBudgets.TestCase
TestHardBudgets.settings = settings(max_examples=30, stateful_step_count=20, deadline=None)


def test_the_history_that_is_tried_covers_a_longer_day_a_week_and_a_month() -> None:
    late = LATE_OCTOBER + 2 * 24 * HOUR
    day = PERIOD_OF["day"](late, "Europe/Berlin")
    assert day.end - day.start == 25 * HOUR
    stake = at_stake_in(an_opening(max_seconds=30 * HOUR, opened_at=day.start), day, day.start)
    assert Decimal(50) <= stake <= Decimal("50.000001")
