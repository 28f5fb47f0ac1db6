"""What is left to give during one decision: room in the cloud, GPUs of each team, and money.

It answers whether a job may have them and takes them off once it was given; it does not decide who comes first, nor
look at waits. Nothing is ever given back within a decision, so what was refused once stays refused until the next.

Invariants: promised and reserved GPUs of a flavor never exceed the flavor, those of a team never its limit, and money
never a hard budget, except where the cluster was beyond them already.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable
from decimal import Decimal

from runtime.cost.budget import Accounts, hard_budget_applies, only_hard_budgets_apply
from runtime.cost.ledger import Attempt, Opening, committed_usd
from runtime.routing.policy import enforced_limit, expected_seconds
from runtime.routing.snapshot import Job, Snapshot, Stage
from runtime.routing.verdict import Code, Facts, Verdict
from stacks.agent_config import AgentConfig


class Resources:
    """Cloud room, team GPUs and money, as of one snapshot and less what this decision gave away."""

    def __init__(self, snapshot: Snapshot, config: AgentConfig, now: float, decision_id: str) -> None:
        self._config = config
        self._now = now
        self._decision_id = decision_id
        self._accounts = Accounts(snapshot.books, config, now) if snapshot.books is not None else None
        self._hard = {team: hard_budget_applies(config, team) for team in config.teams}
        self._all_hard = {team: only_hard_budgets_apply(config, team) for team in config.teams}
        self._usual = {name: settings.expected_runtime.total_seconds() for name, settings in config.classes.items()}
        self._dearest: dict[int, str | None] = {}
        # Refusals that stand: of so many GPUs until room is taken, of a bill for the whole decision.
        self._full: dict[int, Verdict] = {}
        self._unpaid: dict[Hashable, Verdict] = {}
        self._room = {flavor: config.flavors[flavor].gpus for flavor in config.burst_order}
        self._team_gpus: dict[str, int] = defaultdict(int)
        self.largest_gpus = max(self._room.values(), default=0)
        self.largest_node_gpus = max((config.flavors[flavor].gpus_per_node for flavor in config.burst_order), default=0)

    def count(self, job: Job) -> None:
        """Take off what the job holds already; its team's GPUs only once it has passed the gate."""
        flavor = self._config.flavors.get(job.flavor) if job.flavor is not None else None
        if job.flavor is None or flavor is None or not flavor.cloud or job.stage is Stage.FINISHED:
            return
        if job.flavor in self._room:
            self._take_room(job.flavor, job.gpus)
        if job.stage is not Stage.AT_GATE:
            self._team_gpus[job.team] += job.gpus

    def opening(self, job: Job, attempt: Attempt, flavor: str) -> Opening:
        """What the job would commit on the flavor, from now."""
        return self._opening(job, attempt, flavor, self._config.flavors[flavor].usd_per_gpu_hour)

    def prospect(self, job: Job) -> Opening | None:
        """What the job would commit at most, wherever it lands; None if it cannot land in the cloud at all."""
        if job.gpus not in self._dearest:
            self._dearest[job.gpus] = self._dearest_landing(job.gpus)
        dearest = self._dearest[job.gpus]
        if dearest is None or self.lacks_runtime_limit(job):
            return None
        return self.opening(job, Attempt(job.uid, 0), dearest)

    def _dearest_landing(self, gpus: int) -> str | None:
        flavors = self._config.flavors
        landings = [flavor for flavor in self._config.burst_order if flavors[flavor].gpus >= gpus]
        return max(landings, key=lambda flavor: flavors[flavor].usd_per_gpu_hour, default=None)

    def _opening(self, job: Job, attempt: Attempt, flavor: str, price: Decimal) -> Opening:
        usual = self._usual.get(job.job_class)
        expected = expected_seconds(job, self._usual[self._config.default_class] if usual is None else usual)
        longest = enforced_limit(job) or expected
        hard = self._is_hard(job)
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
            expected_seconds=expected,
            hard=hard,
            committed_usd=committed_usd(price, job.gpus, max_seconds=longest, expected_seconds=expected, hard=hard),
            # When the quota was reserved, in the same whole seconds as the start and the end that will be charged.
            opened_at=self._now if job.reserved_at is None else min(job.reserved_at, self._now),
            decision_id=self._decision_id,
        )

    def covers(self, opening: Opening, job: Job) -> bool:
        """Whether money that was committed earlier is enough for the job as it is now."""
        longest = enforced_limit(job)
        bounded = not opening.hard or (longest is not None and longest <= opening.max_seconds)
        return bounded and opening.flavor == job.flavor and job.gpus <= opening.gpus

    def _is_hard(self, job: Job) -> bool:
        hard = self._hard.get(job.team)
        return hard_budget_applies(self._config, job.team) if hard is None else hard

    def lacks_runtime_limit(self, job: Job) -> bool:
        """Whether a hard budget applies to a job that nothing stops."""
        return enforced_limit(job) is None and self._is_hard(job)

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

    def refuse_room(self, job: Job) -> Verdict | None:
        """None if some cloud flavor has room for the job."""
        if (known := self._full.get(job.gpus)) is not None:
            return known
        free = max(self._room.values(), default=0)
        if job.gpus <= free:
            return None
        refusal = self._full[job.gpus] = Verdict(Code.CLOUD_FULL, {"gpus": job.gpus, "free_gpus": max(0, free)})
        return refusal

    def refuse_money(self, opening: Opening) -> Verdict | None:
        """None if every budget has room for the attempt."""
        if self._accounts is None:
            return Verdict(Code.LEDGER_DOWN, {})
        shortfall = self._accounts.fits(opening)
        if shortfall is None:
            return None
        facts: Facts = {
            "scope": shortfall.scope,
            "period": shortfall.period,
            "limit_usd": float(shortfall.limit_usd),
            "left_usd": float(shortfall.left_usd),
            "needed_usd": float(shortfall.needed_usd),
        }
        return Verdict(Code.BUDGET, facts)

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

    def promise(self, job: Job) -> None:
        """Set aside room, team GPUs and money for a job that was released before."""
        self._set_aside(job, self.prospect(job))

    def promise_or_refuse(self, job: Job) -> Verdict | None:
        """Set the same aside for a job that is released now, unless a budget has no room for it."""
        bill = self._bill(job)
        if (known := self._unpaid.get(bill)) is not None:
            return known
        prospect = self.prospect(job)
        refusal = self.refuse_money(prospect) if prospect is not None else None
        if refusal is None:
            self._set_aside(job, prospect)
        else:
            self._unpaid[bill] = refusal
        return refusal

    def _bill(self, job: Job) -> Hashable:
        """All that the price of a queued job depends on: its expected run time only where a budget is soft."""
        if job.max_seconds is not None and self._all_hard.get(job.team):
            return job.team, job.gpus, job.max_seconds
        return job.team, job.gpus, job.max_seconds, job.job_class, job.expected_seconds

    def _set_aside(self, job: Job, prospect: Opening | None) -> None:
        self._team_gpus[job.team] += job.gpus
        if (flavor := self._flavor_with_room(job.gpus)) is not None:
            self._take_room(flavor, job.gpus)
        if self._accounts is not None and prospect is not None:
            self._accounts.commit(prospect)

    def _take_room(self, flavor: str, gpus: int) -> None:
        self._room[flavor] -= gpus
        self._full.clear()

    def _flavor_with_room(self, gpus: int) -> str | None:
        return next((flavor for flavor, free in self._room.items() if free >= gpus), None)
