"""Every metric of the agent, declared once, and the gauges that are set from a whole snapshot.

Labels are bounded: teams, classes and flavors of the fleet file, and the agent's own codes. No job has a label.
"""

from __future__ import annotations

from collections import Counter as Tally
from collections.abc import Iterable
from typing import Final

from prometheus_client import Counter, Gauge, Histogram

from runtime.cost.budget import FLEET, ScopeSummary, summary, team_scope
from runtime.cost.ledger import Books
from runtime.routing.snapshot import Job, Stage
from runtime.routing.verdict import Code
from stacks.agent_config import AgentConfig

_DECISION_BUCKETS: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5)
_DELAY_BUCKETS: Final = (1, 2, 5, 10, 30, 60, 120, 300, 600, 1_800, 3_600)
"""Fleet seconds: from one reaction of Kueue to a long wait for room or money."""

releases: Final = Counter("gpufleet_releases_total", "Jobs sent to the burst twin.", ["team", "job_class"])
clears: Final = Counter("gpufleet_clears_total", "Jobs let through the gate.", ["team", "job_class", "flavor"])
recalls: Final = Counter("gpufleet_recalls_total", "Steps of taking a job back.", ["team", "job_class"])
adoptions: Final = Counter("gpufleet_adoptions_total", "Running cloud jobs that the ledger did not know.", ["team"])
closes: Final = Counter("gpufleet_closes_total", "Attempts whose cost was recorded.")
jobs_by_code: Final = Gauge("gpufleet_jobs_by_verdict", "Jobs by the verdict written on them last.", ["team", "code"])
jobs_by_stage: Final = Gauge("gpufleet_jobs_by_stage", "Jobs by where they stand.", ["team", "stage"])
skipped_workloads: Final = Counter("gpufleet_workloads_skipped_total", "Workloads that could not be read.", ["reason"])

spent_usd: Final = Gauge("gpufleet_spent_usd", "Cost of ended attempts in the period.", ["scope", "period"])
committed_usd: Final = Gauge("gpufleet_committed_usd", "Most that open attempts may cost.", ["scope", "period"])
limit_usd: Final = Gauge("gpufleet_limit_usd", "Budget of the period.", ["scope", "period"])

decision_seconds: Final = Histogram("gpufleet_decision_seconds", "Time to decide.", buckets=_DECISION_BUCKETS)
eligible_to_cleared_seconds: Final = Histogram(
    "gpufleet_eligible_to_cleared_seconds",
    "From the end of a job's wait to the gate's answer, in fleet time; Kueue measures the rest, until pods are ready.",
    ["team"],
    buckets=_DELAY_BUCKETS,
)
relists: Final = Counter("gpufleet_watch_relists_total", "Times a watch ended.", ["resource"])
errors: Final = Counter("gpufleet_errors_total", "Errors by kind of runtime.errors.", ["kind"])
last_tick: Final = Gauge("gpufleet_last_tick_timestamp_seconds", "When the loop last completed, in real time.")
is_leader: Final = Gauge("gpufleet_is_leader", "1 while this replica leads.")
ledger_up: Final = Gauge("gpufleet_ledger_up", "1 while the ledger can be read and written.")
corrupt_entries: Final = Gauge("gpufleet_ledger_corrupt_entries", "Entries of the ledger that cannot be read.")


def publish(jobs: Iterable[Job], books: Books | None, config: AgentConfig, now: float) -> None:
    """Set the gauges that follow from one snapshot; those of money keep their value while the ledger is down."""
    stages: Tally[tuple[str, str]] = Tally()
    codes: Tally[tuple[str, str]] = Tally()
    for job in jobs:
        stages[job.team, job.stage.value] += 1
        if job.verdict_code is not None and job.stage is not Stage.FINISHED:
            codes[job.team, job.verdict_code] += 1
    for team in config.teams:
        for stage in Stage:
            jobs_by_stage.labels(team=team, stage=stage.value).set(stages[team, stage.value])
        for code in Code:
            jobs_by_code.labels(team=team, code=code.value).set(codes[team, code.value])
    if books is not None:
        standing = summary(books, config, now)
        _publish_scope(FLEET, standing.fleet)
        for team, scope in standing.teams.items():
            _publish_scope(team_scope(team), scope)


def _publish_scope(name: str, scope: ScopeSummary) -> None:
    for period, standing in (("day", scope.day), ("month", scope.month)):
        spent_usd.labels(scope=name, period=period).set(float(standing.spent))
        committed_usd.labels(scope=name, period=period).set(float(standing.committed))
        if standing.limit is not None:
            limit_usd.labels(scope=name, period=period).set(float(standing.limit))
