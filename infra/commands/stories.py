"""What `queue` and `explain` say of a job: its place, how long it waits, when it starts, and why it is where it is.

The reason is what was recorded on the Workload, by the agent or by Kueue; nothing is decided again here. Only the time
waited so far is brought up to date, because the agent records a verdict when it changes and not as time goes by. Where
the annotation cannot be read, the agent's condition on the Workload says the same in words.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from infra.commands.cluster import Cluster, SeenJob
from infra.commands.eviction_stories import NEVER_EVICTED, Evicted, losses_row
from infra.commands.outlook import Outlook, start_sentence
from runtime.routing.explain import RecordedVerdict, sentence, verdict_from_json
from runtime.routing.snapshot import WAITING_STAGES, Job, Stage
from runtime.routing.verdict import Code, Verdict
from stacks.labels import VERDICT_ANNOTATION, VERDICT_CONDITION

_OF_A_MOVE = (Code.MOVING, Code.MOVE_WAITS, Code.MOVE_REFUSED)


def in_order(seen: Sequence[SeenJob]) -> list[SeenJob]:
    """By team; those that wait first, in the order in which Kueue tries them: by priority, then by age."""
    return sorted(seen, key=_order)


def rows(seen: Sequence[SeenJob], cluster: Cluster, outlook: Outlook) -> list[dict[str, Any]]:
    """One row for each job that waits or runs, in order."""
    return [_row(one, cluster, outlook) for one in in_order(seen) if one.job.stage is not Stage.FINISHED]


def stories(
    found: Sequence[SeenJob], cluster: Cluster, outlook: Outlook, evicted: Mapping[str, Evicted] | None = None
) -> list[dict[str, Any]]:
    """All that is known of some jobs; `evicted` has what is known of their evictions, by Workload UID."""
    return [_story(one, cluster, outlook, (evicted or {}).get(one.job.uid, NEVER_EVICTED)) for one in found]


def _order(seen: SeenJob) -> tuple[str, bool, int, float]:
    job = seen.job
    return job.team, job.stage not in WAITING_STAGES, -job.priority, job.created_at


def _row(seen: SeenJob, cluster: Cluster, outlook: Outlook) -> dict[str, Any]:
    job = seen.job
    return {
        "job": f"{job.namespace}/{job.owner_name}",
        "kind": job.owner_kind,
        "team": job.team,
        "project": job.project or None,
        "class": job.job_class,
        "gpus": job.gpus,
        "queue": job.queue,
        "place": outlook.places.get(job.uid),
        "place_source": outlook.sources.get(job.uid),
        "waited_seconds": round(_waited(job, cluster)),
        "state": job.stage.value,
        "target": job.target,
        "flavor": job.flavor,
        "why": _why(seen, cluster),
        **_start(job, cluster, outlook),
    }


def _start(job: Job, cluster: Cluster, outlook: Outlook) -> dict[str, Any]:
    """When the job is expected to start, where it has yet to."""
    told = outlook.forecasts.get(job.uid) if job.stage in WAITING_STAGES else None
    at = None if told is None else told.start_at
    return {
        "starts_at": None if at is None else _moment(at),
        "starts_in_seconds": None if at is None else max(0, round(at - cluster.clock.now())),
        "starts_on": None if told is None else told.flavor,
        "start": None if told is None else start_sentence(told, cluster.clock.now()),
    }


def _story(seen: SeenJob, cluster: Cluster, outlook: Outlook, evicted: Evicted) -> dict[str, Any]:
    recorded = _recorded(seen)
    job = seen.job
    age = outlook.ages.get(job.team)
    return {
        **_row(seen, cluster, outlook),
        "workload": f"{job.namespace}/{job.name}",
        "priority": job.priority,
        "created": _moment(job.created_at),
        "verdict": recorded.verdict.code.value if recorded else None,
        "decision": recorded.decision_id if recorded else None,
        "decided": _moment(recorded.at) if recorded else None,
        "facts": dict(recorded.verdict.facts) if recorded else {},
        "forecast_age_seconds": None if age is None else round(age),
        "no_forecast": outlook.stale or None,
        "left_usd": outlook.left_usd.get(job.team, {}),
        "evicted": evicted.sentence or None,
        "evictions": losses_row(evicted.losses),
    }


def _waited(job: Job, cluster: Cluster) -> float:
    """Seconds of fleet time from when its wait began to its last reservation, its end, or now."""
    ended = job.released_quota_at if job.stage in (Stage.FINISHED, Stage.STOPPED) else None
    until = next((moment for moment in (job.reserved_at, ended) if moment is not None), cluster.clock.now())
    return max(0.0, until - job.waits_since)


def _why(seen: SeenJob, cluster: Cluster) -> str:
    job = seen.job
    match job.stage:
        case Stage.RUNNING_LOCAL:
            return f"runs on local GPUs of {job.flavor}"
        case Stage.STOPPED:
            evicted = _condition(seen, "Evicted").get("message")
            return f"was stopped: {evicted}" if evicted else "was deactivated, and nobody recorded why"
        case Stage.FINISHED:
            end = _condition(seen, "Finished")
            return f"has ended: {end.get('message') or end.get('reason') or 'nobody recorded how'}"
        case Stage.AT_GATE | Stage.RUNNING_CLOUD if not _is_wanted_elsewhere(seen):
            checks = (seen.workload.get("status") or {}).get("admissionChecks") or []
            answer = next((check.get("message") for check in checks if check.get("name") == cluster.config.gate), None)
            if answer:
                return str(answer)
    recorded = _recorded(seen)
    if recorded is None:
        told = _told(seen)
        return str(told) if told else "no decision recorded yet; the agent decides at its next look"
    verdict = recorded.verdict
    if verdict.code is Code.WAITING:
        verdict = Verdict(verdict.code, {**verdict.facts, "waited_s": round(_waited(job, cluster))})
    return sentence(verdict)


def _is_wanted_elsewhere(seen: SeenJob) -> bool:
    """Whether the agent has said something of a move since it let the job through the gate."""
    recorded = _recorded(seen)
    return recorded is not None and recorded.verdict.code in _OF_A_MOVE


def _recorded(seen: SeenJob) -> RecordedVerdict | None:
    return verdict_from_json((seen.workload["metadata"].get("annotations") or {}).get(VERDICT_ANNOTATION))


def _told(seen: SeenJob) -> object:
    """The message of the agent's own condition, whatever its status."""
    conditions = (seen.workload.get("status") or {}).get("conditions") or []
    return next((one.get("message") for one in conditions if one["type"] == VERDICT_CONDITION), None)


def _condition(seen: SeenJob, name: str) -> dict[str, Any]:
    conditions = (seen.workload.get("status") or {}).get("conditions") or []
    return next((one for one in conditions if one["type"] == name and one["status"] == "True"), {})


def _moment(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M:%S fleet time")
