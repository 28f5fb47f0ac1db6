"""The promise of a hard budget, tried against random histories that cross midnights and the end of a month."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from fractions import Fraction

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from runtime.cost.budget import Accounts
from runtime.cost.exposure import Period, day_of, exposure, month_of, spent_in
from runtime.cost.ledger import Attempt, Books, Closing, Opening, close
from stacks.agent_config import AgentConfig
from tests.builders import HOUR, a_config, a_team, an_opening

LATE_NOVEMBER = datetime(2026, 11, 29, 20, tzinfo=UTC).timestamp()


@dataclass
class Run:
    """When an attempt really ran, whatever the ledger noticed."""

    started: float
    ended: float


class HardBudgets(RuleBasedStateMachine):
    """Opens what fits and lets it start and end at any time that Kueue's run time limit allows."""

    def __init__(self) -> None:
        super().__init__()
        self.now = LATE_NOVEMBER
        self.openings: dict[Attempt, Opening] = {}
        self.closings: dict[Attempt, Closing] = {}
        self.runs: dict[Attempt, Run] = {}

    @initialize(daily=st.none() | st.integers(1, 60), monthly=st.integers(1, 60), team_daily=st.integers(1, 60))
    def set_limits(self, daily: int | None, monthly: int, team_daily: int) -> None:
        self.limits = {"fleet": (daily, monthly), "vision": (team_daily, None), "nlp": (None, monthly)}
        self.config: AgentConfig = a_config(
            budget={"daily": daily, "monthly": monthly},
            teams={
                "vision": a_team("vision", budget={"daily": team_daily}),
                "nlp": a_team("nlp", budget={"monthly": monthly}),
            },
        )

    @rule(hours=st.floats(0.01, 15))
    def time_passes(self, hours: float) -> None:
        self.now += hours * HOUR

    @rule(
        gpus=st.integers(1, 8),
        price=st.decimals("0.01", 5, places=3),
        hours=st.floats(0.01, 2) | st.floats(0.01, 70),
        team=st.sampled_from(["vision", "nlp"]),
    )
    def a_job_comes_to_the_gate(self, gpus: int, price: Decimal, hours: float, team: str) -> None:
        opening = an_opening(
            attempt=Attempt(f"job-{len(self.openings)}", 1),
            team=team,
            gpus=gpus,
            usd_per_gpu_hour=price,
            max_seconds=hours * HOUR,
            opened_at=self.now,
        )
        if Accounts(self.books(), self.config, self.now).fits(opening) is None:
            self.openings[opening.attempt] = opening

    @precondition(lambda self: len(self.openings) > len(self.closings))
    @rule(data=st.data())
    def a_job_ends(self, data: st.DataObject) -> None:
        still_open = sorted(self.openings.keys() - self.closings.keys(), key=lambda attempt: attempt.workload_uid)
        opening = self.openings[data.draw(st.sampled_from(still_open))]
        elapsed = self.now - opening.opened_at
        started = opening.opened_at + data.draw(st.floats(0, 1)) * elapsed
        longest = min(opening.max_seconds, self.now - started)
        self._end(opening, Run(started, started + data.draw(st.floats(0, 1)) * longest), data)

    def _end(self, opening: Opening, run: Run, data: st.DataObject) -> None:
        self.runs[opening.attempt] = run
        noticed = max(self.now, run.ended) if data.draw(st.integers(0, 2)) else run.ended
        self.closings[opening.attempt] = close(opening, run.started, noticed, "finished")

    def books(self) -> Books:
        return Books(self.openings, self.closings)

    def periods(self) -> list[tuple[int, Period]]:
        """Every day (0) and month (1) that anything may touch, as far as anything could still run."""
        ends = [opening.opened_at + opening.max_seconds for opening in self.openings.values()]
        ends += [closing.ended_at for closing in self.closings.values()]
        days = {day_of(LATE_NOVEMBER)}
        while (last := max(days, key=lambda day: day.end)).end <= max([self.now, *ends]):
            days.add(day_of(last.end))
        return [(0, day) for day in days] + [(1, month) for month in {month_of(day.start) for day in days}]

    @invariant()
    def committed_and_spent_stay_within_every_limit(self) -> None:
        if not self.openings:
            return
        for kind, period in self.periods():
            found = exposure(self.books(), period, self.now)
            for scope, limits in self.limits.items():
                amounts = found.fleet if scope == "fleet" else found.teams.get(scope)
                if amounts is not None and (limit := limits[kind]) is not None:
                    assert amounts.spent + amounts.committed <= limit

    def teardown(self) -> None:
        if not self.openings:
            return
        # What is still open starts at the worst moment: so that all of it falls into the day after.
        for attempt in self.openings.keys() - self.closings.keys():
            opening = self.openings[attempt]
            started = max(opening.opened_at, day_of(self.now).end - opening.max_seconds / 2)
            self.runs[attempt] = Run(started, started + opening.max_seconds)
            self.closings[attempt] = close(opening, started, started + opening.max_seconds, "finished")
        for kind, period in self.periods():
            for scope, limits in self.limits.items():
                if (limit := limits[kind]) is not None:
                    mine = [a for a, opening in self.openings.items() if scope in ("fleet", opening.team)]
                    assert sum(spent_in(self.closings[attempt], period) for attempt in mine) <= limit
                    really = sum(self._really_spent(attempt, period) for attempt in mine)
                    assert really <= limit + Fraction(len(mine), 10**6)

    def _really_spent(self, attempt: Attempt, period: Period) -> Fraction:
        run, opening = self.runs[attempt], self.openings[attempt]
        overlap = max(0.0, min(run.ended, period.end) - max(run.started, period.start))
        return Fraction(opening.usd_per_gpu_hour) * opening.gpus * Fraction(overlap) / 3_600


TestHardBudgets = HardBudgets.TestCase
TestHardBudgets.settings = settings(max_examples=40, stateful_step_count=20)
