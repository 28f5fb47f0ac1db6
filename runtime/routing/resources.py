"""What is left to give during one decision: room in the cloud, GPUs of each team, and money.

It answers whether a job may have them and takes them off once it was given; it does not decide who comes first, nor
look at waits. Nothing is ever given back within a decision, so what was refused once stays refused until the next.

Invariants: promised and reserved GPUs of a flavor never exceed the flavor, those of a team never its limit, and money
never a hard budget, except where the cluster was beyond them already.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable
from dataclasses import replace
from decimal import ROUND_CEILING, Decimal
from typing import Final

from runtime.cost.budget import Accounts, Shortfall
from runtime.cost.ledger import MICRO_USD, Attempt, Opening, committed_usd
from runtime.routing.local import is_local
from runtime.routing.policy import WaitRule, enforced_limit, staging_seconds
from runtime.routing.snapshot import Job, Snapshot, Stage
from runtime.routing.verdict import Code, Facts, Verdict
from stacks.agent_config import AgentConfig

GIGABYTE: Final = 10**9
"""Bytes, as providers bill them."""


class Resources:
    """Cloud room, team GPUs and money, as of one snapshot and less what this decision gave away."""

    def __init__(self, snapshot: Snapshot, config: AgentConfig, wait: WaitRule, now: float, decision_id: str) -> None:
        self._config = config
        self._now = now
        self._wait = wait
        self._decision_id = decision_id
        self._accounts = Accounts(snapshot.books, config, now) if snapshot.books is not None else None
        self._kinds: dict[tuple[str, str], frozenset[str]] = {}
        # Refusals that stand: for want of room until room is taken, for want of money for the whole decision.
        self._full: dict[tuple[tuple[str, ...], int], Verdict] = {}
        self._unpaid: dict[Hashable, Verdict] = {}
        self._room = {flavor: config.flavors[flavor].gpus for flavor in config.burst_order}
        self._team_gpus: dict[str, int] = defaultdict(int)

    def count(self, job: Job) -> None:
        """Take off what the job holds already; its team's GPUs only once it has passed the gate."""
        if job.flavor is None or is_local(job, self._config) or job.stage is Stage.FINISHED:
            return  # a flavor that left the fleet file while jobs ran on it counts as a cloud one, as it is observed
        if job.flavor in self._room:
            self._room[job.flavor] -= job.gpus
        if job.stage is not Stage.AT_GATE:
            self._team_gpus[job.team] += job.gpus

    def opening(self, job: Job, attempt: Attempt, flavor: str) -> Opening:
        """What the job would commit on the flavor, from now."""
        price = self._config.flavors[flavor].usd_per_gpu_hour
        data = self._config.data
        expected = self._wait.expected(job).seconds + staging_seconds(job, data)
        longest = enforced_limit(job) or expected
        hard = "hard" in self._budget_kinds(job)
        fixed = Decimal(job.data_bytes) / GIGABYTE * data.usd_per_gb if data and data.usd_per_gb else Decimal(0)
        fixed = fixed.quantize(MICRO_USD, rounding=ROUND_CEILING)
        return Opening(
            attempt=attempt,
            namespace=job.namespace,
            workload=job.name,
            job=job.owner_name,
            team=job.team,
            job_class=job.job_class,
            flavor=flavor,
            gpus=job.gpus,
            usd_per_gpu_hour=price,
            max_seconds=longest,
            expected_seconds=min(expected, longest),
            hard=hard,
            committed_usd=committed_usd(
                price,
                job.gpus,
                max_seconds=longest,
                expected_seconds=min(expected, longest),
                hard=hard,
                fixed_usd=fixed,
            ),
            opened_at=self._opened_at(job),
            decision_id=self._decision_id,
            project=job.project if job.project in self._config.projects else "",
            fixed_usd=fixed,
        )

    def _opened_at(self, job: Job) -> float:
        """When the quota was reserved, in the same whole seconds as the start and the end that will be charged.

        A job that stood at the gate over the end of a period is opened in the present one: budgets say what they have
        left now, never what a day had left that is over.
        """
        if job.reserved_at is None:
            return self._now
        opened_at = min(job.reserved_at, self._now)
        if job.stage is not Stage.AT_GATE or self._accounts is None:
            return opened_at
        return max(opened_at, self._accounts.earliest_opening(job.team, job.project))

    def covers(self, opening: Opening, job: Job) -> bool:
        """Whether money that was committed earlier is enough for the job as it is now."""
        longest = enforced_limit(job)
        bounded = not opening.hard or (longest is not None and longest <= opening.max_seconds)
        return bounded and opening.flavor == job.flavor and job.gpus <= opening.gpus

    def _budget_kinds(self, job: Job) -> frozenset[str]:
        """The kinds of the budgets that apply to the job: the fleet's, its team's, its project's."""
        key = (job.team, job.project)
        if (kinds := self._kinds.get(key)) is None:
            team, project = self._config.teams.get(job.team), self._config.projects.get(job.project)
            budgets = (self._config.budget, team.budget if team else None, project.budget if project else None)
            kinds = self._kinds[key] = frozenset(budget.kind for budget in budgets if budget is not None)
        return kinds

    def lacks_runtime_limit(self, job: Job) -> bool:
        """Whether a hard budget applies to a job that nothing stops."""
        return enforced_limit(job) is None and "hard" in self._budget_kinds(job)

    def refuse_team(self, job: Job) -> Verdict | None:
        """None if the team may have so many more cloud GPUs."""
        team = self._config.teams.get(job.team)
        if team is None or team.max_burst_gpus is None:
            return None
        held = self._team_gpus[job.team]
        if held + job.gpus <= team.max_burst_gpus:
            return None
        facts: Facts = {"team": job.team, "gpus": job.gpus, "held_gpus": held, "limit_gpus": team.max_burst_gpus}
        return Verdict(Code.TEAM_LIMIT, facts)

    def refuse_money(self, opening: Opening) -> Verdict | None:
        """None if every budget has room for the attempt."""
        if self._accounts is None:
            return Verdict(Code.LEDGER_DOWN, {})
        shortfall = self._accounts.fits(opening)
        return None if shortfall is None else Verdict(Code.BUDGET, _money_facts(shortfall))

    def tightest(self, opening: Opening) -> Facts:
        """What is left in the budget that has the least left, before the attempt is committed; nothing without one."""
        found = self._accounts.tightest(opening) if self._accounts is not None else None
        return {} if found is None else _money_facts(found)

    def has_room(self, flavor: str, gpus: int) -> bool:
        """Whether the flavor has so many GPUs left."""
        return self._room.get(flavor, 0) >= gpus

    def choose(self, job: Job, targets: tuple[str, ...]) -> str | Verdict:
        """Set room, GPUs and money aside on the first of the flavors that has them; or say why none has."""
        if self._accounts is None:
            return Verdict(Code.LEDGER_DOWN, {})
        if self.lacks_runtime_limit(job):
            return Verdict(Code.NO_RUNTIME_LIMIT, {})
        if (refusal := self.refuse_team(job)) is not None:
            return refusal
        if (known := self._full.get((targets, job.gpus))) is not None:
            return known
        bill = (targets, self._bill(job))
        if (known := self._unpaid.get(bill)) is not None:
            return known
        unpaid: Verdict | None = None
        for target in targets:
            if self.has_room(target, job.gpus):
                refusal = self.refuse_money(self.opening(job, Attempt(job.uid, 0), target))
                if refusal is None:
                    self.promise(job, target)
                    return target
                unpaid = unpaid or refusal
        if unpaid is not None:
            self._unpaid[bill] = unpaid
            return unpaid
        free = max((self._room.get(target, 0) for target in targets), default=0)
        facts: Facts = {"gpus": job.gpus, "free_gpus": max(0, free)}
        verdict = self._full[targets, job.gpus] = Verdict(Code.CLOUD_FULL, facts)
        return verdict

    def choose_instead(self, job: Job, targets: tuple[str, ...]) -> str | Verdict:
        """As `choose`, for a job that will give up the cloud GPUs it has: its team holds no more of them than before.

        Its money is another matter: what its present attempt has committed is not free before that is closed.
        """
        self._team_gpus[job.team] -= job.gpus
        chosen = self.choose(replace(job, flavor=None, reserved_at=None, ready_at=None, attempt=None), targets)
        if not isinstance(chosen, str):
            self._team_gpus[job.team] += job.gpus
        return chosen

    def _bill(self, job: Job) -> Hashable:
        """All that the price of a queued job depends on: its expected run time only where a budget is soft."""
        bill = (job.team, job.project, job.gpus, job.max_seconds, job.data_bytes)
        if job.max_seconds is not None and "soft" not in self._budget_kinds(job):
            return bill
        return *bill, self._wait.expected(job).seconds

    def promise(self, job: Job, target: str) -> None:
        """Set aside room, team GPUs and money for a released job that has no quota yet."""
        self._team_gpus[job.team] += job.gpus
        if target in self._room:
            self._room[target] -= job.gpus
            self._full.clear()
        if self._accounts is not None and not self.lacks_runtime_limit(job) and target in self._config.flavors:
            self._accounts.commit(self.opening(job, Attempt(job.uid, 0), target))

    def keep_room(self, flavor: str) -> None:
        """Leave the rest of a flavor to a job that has starved for it: nobody after it gets any."""
        if self._room[flavor] > 0:
            self._room[flavor] = 0
            self._full.clear()

    def grant(self, opening: Opening, *, already_committed: bool = False) -> None:
        """Give a job at the gate its team's GPUs and its money; the room it holds already."""
        self._team_gpus[opening.team] += opening.gpus
        if self._accounts is not None and not already_committed:
            self._accounts.commit(opening)

    def adopt(self, opening: Opening) -> None:
        """Count the money of a job that runs without being in the ledger; its room and its GPUs are counted already."""
        if self._accounts is not None:
            self._accounts.commit(opening)

    def keep_team(self, job: Job) -> None:
        """Count a job that was refused at the gate: it holds cloud quota until it is back in its queue."""
        self._team_gpus[job.team] += job.gpus


def _money_facts(shortfall: Shortfall) -> Facts:
    return {
        "scope": shortfall.scope,
        "period": shortfall.period,
        "limit_usd": float(shortfall.limit_usd),
        "left_usd": float(shortfall.left_usd),
        "needed_usd": float(shortfall.needed_usd),
    }
