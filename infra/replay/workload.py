"""One Workload of Kueue as plain values: what the histories and the live table read from it.

It keeps no history and talks to nobody. Conditions carry whole seconds, as the API server stores them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from infra.replay.audit import gate_state
from runtime.clock import parse_time
from runtime.routing.explain import sentence, verdict_from_json
from runtime.routing.requests import gpus_of
from runtime.routing.verdict import Code
from runtime.routing.wishes import expected_seconds
from stacks.labels import GPU_RESOURCE, VERDICT_ANNOTATION

Raw = Mapping[str, Any]

_WAITING = frozenset({Code.WAITING, Code.RELEASED})


@dataclass(frozen=True, slots=True)
class Said:
    """The last verdict written on a Workload: its code, its sentence for people, and when, in fleet time.

    `limit_seconds` is how long the job waits, in fleet time, where the verdict says so.
    """

    code: Code
    text: str
    at: float
    limit_seconds: float | None = None


@dataclass(frozen=True, slots=True)
class Workload:
    """A Workload at one moment; times are real seconds since the epoch, None where the condition is not True."""

    uid: str
    namespace: str
    name: str
    job: str | None
    job_uid: str | None
    queue: str
    job_class: str
    priority: int
    gpus: int
    active: bool
    created_at: float
    flavor: str | None
    reserved_at: float | None
    unreserved_at: float | None
    admitted_at: float | None
    finished_at: float | None
    finish_reason: str | None
    gone: bool
    gate: str | None
    verdict: Said | None
    expected_seconds: float | None
    max_real_seconds: float | None


def workload_of(raw: Raw) -> Workload:
    """Read a Workload of kueue.x-k8s.io/v1beta2.

    Raises:
        KeyError, TypeError, ValueError: when it is none.
    """
    metadata, spec, status = raw["metadata"], raw["spec"], raw.get("status") or {}
    owner: Raw = next((one for one in metadata.get("ownerReferences") or [] if one.get("kind") == "Job"), {})
    conditions = {one["type"]: one for one in status.get("conditions") or []}
    flavor, assigned = _assignment(status.get("admission") or {})
    finished = conditions.get("Finished") or {}
    return Workload(
        uid=metadata["uid"],
        namespace=metadata["namespace"],
        name=metadata["name"],
        job=owner.get("name"),
        job_uid=owner.get("uid"),
        queue=spec.get("queueName") or "",
        job_class=(spec.get("priorityClassRef") or {}).get("name") or "",
        priority=spec.get("priority") or 0,
        gpus=assigned or gpus_of(spec),
        active=spec.get("active", True),
        created_at=parse_time(metadata["creationTimestamp"]),
        flavor=flavor,
        reserved_at=_since(conditions, "QuotaReserved", "True"),
        unreserved_at=_since(conditions, "QuotaReserved", "False"),
        admitted_at=_since(conditions, "Admitted", "True"),
        finished_at=_since(conditions, "Finished", "True"),
        finish_reason=finished.get("reason") if finished.get("status") == "True" else None,
        gone="deletionTimestamp" in metadata and not metadata.get("finalizers"),
        gate=gate_state(raw),
        verdict=_verdict((metadata.get("annotations") or {}).get(VERDICT_ANNOTATION)),
        expected_seconds=expected_seconds(spec, _ignore),
        max_real_seconds=spec.get("maximumExecutionTimeSeconds"),
    )


def _assignment(admission: Raw) -> tuple[str | None, int]:
    flavor, gpus = None, 0
    for assignment in admission.get("podSetAssignments") or []:
        flavor = flavor or (assignment.get("flavors") or {}).get(GPU_RESOURCE)
        gpus += int((assignment.get("resourceUsage") or {}).get(GPU_RESOURCE) or 0)
    return flavor, gpus


def _since(conditions: Mapping[str, Raw], kind: str, status: str) -> float | None:
    condition = conditions.get(kind)
    return parse_time(condition["lastTransitionTime"]) if condition and condition["status"] == status else None


def _verdict(text: str | None) -> Said | None:
    recorded = verdict_from_json(text)
    if recorded is None:
        return None
    verdict, limit = recorded.verdict, recorded.verdict.facts.get("limit_s")
    waits = limit if verdict.code in _WAITING and isinstance(limit, int | float) else None
    return Said(verdict.code, sentence(verdict), recorded.at, waits)


def _ignore(reason: str, text: str) -> None:
    """The agent tells users what it cannot read on their jobs."""
