"""What `queue` and `explain` say of a job: its place, how long it waits, and why it is where it is.

The reason is what was recorded on the Workload, by the agent or by Kueue; nothing is decided again here. Only the time
waited so far is brought up to date, because the agent records a verdict when it changes and not as time goes by.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from infra.commands.cluster import Cluster, SeenJob
from runtime.routing.explain import RecordedVerdict, sentence, verdict_from_json
from runtime.routing.snapshot import Job, Stage
from runtime.routing.verdict import Code, Verdict
from stacks.labels import VERDICT_ANNOTATION

_WAITING = (Stage.QUEUED, Stage.RELEASED, Stage.AT_GATE, Stage.RECALLING)


def in_order(seen: Sequence[SeenJob]) -> list[SeenJob]:
    """By team; those that wait first, in the order in which Kueue tries them: by priority, then by age."""
    return sorted(seen, key=_order)


def rows(seen: Sequence[SeenJob], cluster: Cluster) -> list[dict[str, Any]]:
    """One row for each job that waits or runs, in order."""
    places = _places(seen)
    return [_row(one, cluster, places) for one in in_order(seen) if one.job.stage is not Stage.FINISHED]


def stories(found: Sequence[SeenJob], seen: Sequence[SeenJob], cluster: Cluster) -> list[dict[str, Any]]:
    """All that is known of some jobs among all those seen."""
    places = _places(seen)
    return [_story(one, cluster, places) for one in found]


def _order(seen: SeenJob) -> tuple[str, bool, int, float]:
    job = seen.job
    return job.team, job.stage not in _WAITING, -job.priority, job.created_at


def _places(seen: Sequence[SeenJob]) -> dict[str, int]:
    places: dict[str, int] = {}
    counts: dict[str, int] = {}
    for one in in_order(seen):
        if one.job.stage in _WAITING:
            counts[one.job.team] = places[one.job.uid] = counts.get(one.job.team, 0) + 1
    return places


def _row(seen: SeenJob, cluster: Cluster, places: dict[str, int]) -> dict[str, Any]:
    job = seen.job
    return {
        "job": f"{job.namespace}/{job.owner_name}",
        "team": job.team,
        "class": job.job_class,
        "gpus": job.gpus,
        "place": places.get(job.uid),
        "waited_seconds": round(_waited(job, cluster)),
        "state": job.stage.value,
        "flavor": job.flavor,
        "why": _why(seen, cluster),
    }


def _story(seen: SeenJob, cluster: Cluster, places: dict[str, int]) -> dict[str, Any]:
    recorded = _recorded(seen)
    return {
        **_row(seen, cluster, places),
        "workload": f"{seen.job.namespace}/{seen.job.name}",
        "priority": seen.job.priority,
        "created": _moment(seen.job.created_at),
        "verdict": recorded.verdict.code.value if recorded else None,
        "decision": recorded.decision_id if recorded else None,
        "decided": _moment(recorded.at) if recorded else None,
        "facts": dict(recorded.verdict.facts) if recorded else {},
    }


def _waited(job: Job, cluster: Cluster) -> float:
    """Seconds of fleet time from its creation to its last reservation, its end, or now."""
    ended = job.released_quota_at if job.stage in (Stage.FINISHED, Stage.STOPPED) else None
    until = next((moment for moment in (job.reserved_at, ended) if moment is not None), cluster.clock.now())
    return max(0.0, until - job.created_at)


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
        case Stage.AT_GATE | Stage.RUNNING_CLOUD:
            checks = (seen.workload.get("status") or {}).get("admissionChecks") or []
            answer = next((check.get("message") for check in checks if check.get("name") == cluster.config.gate), None)
            if answer:
                return str(answer)
    recorded = _recorded(seen)
    if recorded is None:
        return "no decision recorded yet; the agent decides at its next look"
    verdict = recorded.verdict
    if verdict.code is Code.WAITING:
        verdict = Verdict(verdict.code, {**verdict.facts, "waited_s": round(_waited(job, cluster))})
    return sentence(verdict)


def _recorded(seen: SeenJob) -> RecordedVerdict | None:
    return verdict_from_json((seen.workload["metadata"].get("annotations") or {}).get(VERDICT_ANNOTATION))


def _condition(seen: SeenJob, name: str) -> dict[str, Any]:
    conditions = (seen.workload.get("status") or {}).get("conditions") or []
    return next((one for one in conditions if one["type"] == name and one["status"] == "True"), {})


def _moment(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M:%S fleet time")
