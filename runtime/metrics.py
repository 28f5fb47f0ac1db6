"""Every metric of the agent, declared once, and the gauges that are set from a whole snapshot.

Labels are bounded: teams, projects, classes and flavors of the fleet file, and the agent's own codes. No job has a
label. Series of a team or project that left the fleet are taken away.
"""

from __future__ import annotations

from collections import Counter as Tally
from collections.abc import Collection, Iterable
from typing import Final

from prometheus_client import Counter, Gauge, Histogram

from runtime.cost.losses import Loss
from runtime.cost.scopes import budgets, project_scope, team_scope
from runtime.cost.standing import Reached, Summary
from runtime.routing.alarms import Alarm, AlarmKind
from runtime.routing.snapshot import Job, Stage
from runtime.routing.verdict import Code
from stacks.agent_config import AgentConfig

_DECISION_BUCKETS: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5)
_DELAY_BUCKETS: Final = (1, 2, 5, 10, 30, 60, 120, 300, 600, 1_800, 3_600)
"""Fleet seconds: from one reaction of Kueue to a long wait for room or money."""
_NOTICE_BUCKETS: Final = (0.1, 0.25, 0.5, 1, 2, 5, 10, 20, 30, 60, 120, 300)
"""Seconds within the notice that providers give: two minutes at most for a spot machine, and none to half a minute."""

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
limit_usd: Final = Gauge("gpufleet_limit_usd", "Budget of the period, without top-ups.", ["scope", "period"])
topped_up_usd: Final = Gauge("gpufleet_topped_up_usd", "What was added to the period's budget.", ["scope", "period"])
threshold_reached: Final = Gauge(
    "gpufleet_budget_threshold_reached",
    "1 while spent and committed money reach this share of a budget.",
    ["scope", "period", "threshold"],
)
top_ups: Final = Counter("gpufleet_top_ups_total", "Top-ups written into the ledger.")
bad_top_ups: Final = Gauge("gpufleet_bad_top_ups", "Entries of the ConfigMap of top-ups that are refused.")

decision_seconds: Final = Histogram("gpufleet_decision_seconds", "Time to decide.", buckets=_DECISION_BUCKETS)
eligible_to_cleared_seconds: Final = Histogram(
    "gpufleet_eligible_to_cleared_seconds",
    "From the end of a job's wait to the gate's answer, in fleet time; Kueue measures the rest, until pods are ready.",
    ["team"],
    buckets=_DELAY_BUCKETS,
)
eligible_to_running_seconds: Final = Histogram(
    "gpufleet_eligible_to_running_seconds",
    "From the moment a job might leave to pods that are ready in the cloud (or to its admission, where Kueue does not "
    "watch pods), in fleet time.",
    ["team"],
    buckets=_DELAY_BUCKETS,
)
cloud_starts_with_local_room: Final = Counter(
    "gpufleet_cloud_starts_with_local_room_total",
    "Jobs let through the gate while they would have fitted on local GPUs, by the agent's own reckoning.",
    ["team"],
)
misroutes: Final = Counter(
    "gpufleet_misroutes_total", "Jobs that run on another cloud flavor than they were sent to.", ["team", "flavor"]
)
fifo_inversions: Final = Counter(
    "gpufleet_fifo_inversions_total",
    "Jobs that started before an older one of the same team, class, priority and size that could have.",
    ["team", "place"],
)
forecast_error_seconds: Final = Histogram(
    "gpufleet_forecast_error_seconds",
    "How far the first forecast of a job's start was from its start, in fleet time.",
    buckets=_DELAY_BUCKETS,
)
forecast_seconds: Final = Histogram("gpufleet_forecast_seconds", "Time to forecast.", buckets=_DECISION_BUCKETS)

evictions: Final = Counter(
    "gpufleet_evictions_total",
    "Jobs that were stopped because their nodes went, each recorded in the ledger.",
    ["team", "job_class", "kind", "answered"],
)
lost_gpu_seconds: Final = Counter(
    "gpufleet_lost_gpu_seconds_total",
    "Work since the last known checkpoint of jobs that were evicted, in fleet time.",
    ["team", "job_class", "kind"],
)
notice_to_asked_seconds: Final = Histogram(
    "gpufleet_eviction_notice_to_asked_seconds",
    "From the notice that a node goes until the job was asked to save, in fleet time.",
    ["kind"],
    buckets=_NOTICE_BUCKETS,
)
asked_to_answered_seconds: Final = Histogram(
    "gpufleet_eviction_asked_to_answered_seconds",
    "From the request to save until the job said that it had, in fleet time.",
    ["kind"],
    buckets=_NOTICE_BUCKETS,
)
notice_to_stopped_seconds: Final = Histogram(
    "gpufleet_eviction_notice_to_stopped_seconds",
    "From the notice that a node goes until the job was stopped, in fleet time.",
    ["kind"],
    buckets=_NOTICE_BUCKETS,
)
stopped_to_running_seconds: Final = Histogram(
    "gpufleet_eviction_stopped_to_running_seconds",
    "From the stop of an evicted job until it ran again, in fleet time.",
    ["kind"],
    buckets=_DELAY_BUCKETS,
)
unreadable_notices: Final = Counter(
    "gpufleet_unreadable_notices_total", "Notices on a Node that could not be read, each counted once."
)

layout_nodes: Final = Gauge(
    "gpufleet_layout_nodes", "Nodes by how far the change of their MIG layout has come.", ["pool", "phase"]
)
layout_changes: Final = Counter(
    "gpufleet_layout_changes_total", "Changes of a node's MIG layout that ended.", ["pool", "outcome"]
)

alarms: Final = Gauge("gpufleet_alarms", "Alarms that stand, by kind; docs/runbook.md has them all.", ["kind"])
reloads: Final = Counter("gpufleet_reloads_total", "Configurations that were taken over while running.")
relists: Final = Counter("gpufleet_watch_relists_total", "Times a watch ended.", ["resource"])
errors: Final = Counter("gpufleet_errors_total", "Errors by kind of runtime.errors.", ["kind"])
last_tick: Final = Gauge("gpufleet_last_tick_timestamp_seconds", "When the loop last completed, in real time.")
is_leader: Final = Gauge("gpufleet_is_leader", "1 while this replica leads.")
ledger_up: Final = Gauge("gpufleet_ledger_up", "1 while the ledger can be read and written.")
corrupt_entries: Final = Gauge("gpufleet_ledger_corrupt_entries", "Entries of the ledger that cannot be read.")


def publish_jobs(jobs: Iterable[Job], config: AgentConfig) -> None:
    """Set the gauges that follow from the jobs."""
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


def publish_money(found: Summary, reached: Iterable[Reached], config: AgentConfig) -> None:
    """Set the gauges of money; nobody calls it while the ledger is down, so they keep their value."""
    for scope, summary in found.scopes():
        for period, standing in summary.standings():
            labels = {"scope": scope, "period": period}
            spent_usd.labels(**labels).set(float(standing.spent))
            committed_usd.labels(**labels).set(float(standing.committed))
            if standing.limit is None:
                limit_usd.remove_by_labels(labels)
                topped_up_usd.remove_by_labels(labels)
            else:
                limit_usd.labels(**labels).set(float(standing.limit))
                topped_up_usd.labels(**labels).set(float(standing.topped_up))
    standing_now = {(one.scope, one.period, one.threshold) for one in reached}
    threshold_reached.clear()
    for scope, budget in budgets(config).items():
        for period, limit in (("day", budget.daily), ("week", budget.weekly), ("month", budget.monthly)):
            for threshold in budget.thresholds if limit is not None else ():
                labels = {"scope": scope, "period": period, "threshold": f"{threshold:.0%}"}
                threshold_reached.labels(**labels).set((scope, period, threshold) in standing_now)


def count_loss(loss: Loss) -> None:
    """Count one eviction that was recorded in the ledger; the caller says each once."""
    labels = {"team": loss.team, "job_class": loss.job_class, "kind": loss.kind}
    evictions.labels(**labels, answered=str(loss.answered).lower()).inc()
    lost_gpu_seconds.labels(**labels).inc(loss.lost_gpu_seconds)
    notice_to_stopped_seconds.labels(kind=loss.kind).observe(loss.stopped_at - loss.noticed_at)


def publish_alarms(standing: Collection[Alarm]) -> None:
    """Set how many alarms of each kind stand."""
    found = Tally(alarm.kind for alarm in standing)
    for kind in AlarmKind:
        alarms.labels(kind=kind.value).set(found[kind])


def stand_down() -> None:
    """Take away what only the leader knows, so that two replicas never tell different numbers of one fleet."""
    money = (spent_usd, committed_usd, limit_usd, topped_up_usd, threshold_reached)
    for gauge in (jobs_by_stage, jobs_by_code, *money, layout_nodes):
        gauge.clear()


def forget_absent(before: AgentConfig, now: AgentConfig) -> None:
    """Take away the series of teams, projects and flavors that the new configuration does not have."""
    gone = [{"team": team} for team in before.teams.keys() - now.teams.keys()]
    gone += [{"scope": team_scope(team)} for team in before.teams.keys() - now.teams.keys()]
    gone += [{"scope": project_scope(project)} for project in before.projects.keys() - now.projects.keys()]
    gone += [{"flavor": flavor} for flavor in before.flavors.keys() - now.flavors.keys()]
    for labels in gone:
        for metric in _LABELLED:
            if labels.keys() <= set(metric._labelnames):
                metric.remove_by_labels(labels)


_LABELLED: Final[list[Counter | Gauge | Histogram]] = [
    metric for metric in list(globals().values()) if isinstance(metric, Counter | Gauge | Histogram)
]
