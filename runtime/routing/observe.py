"""Turns Workloads of Kueue (v1beta2), as the API server sent them, into the jobs that decisions are made from.

A Workload is ours if it stands in a team's namespace and in one of the team's two queues, asks for GPUs, and belongs to
a batch/v1 Job; every other is left alone. Whatever a stage needs is in the Workload, so nothing is remembered and no
second object is read. What does not parse is reported; text of users that does not parse is ignored.

Invariants: a job's attempt and flavor are set exactly while it holds quota, and stay on one that finished holding it;
RECALLING needs both an inactive Workload and our own mark on it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from runtime.clock import Clock, parse_time
from runtime.cost.ledger import Books
from runtime.routing.explain import verdict_from_json
from runtime.routing.requests import gpus_of, largest_pod_of
from runtime.routing.snapshot import Job, Snapshot, Stage
from runtime.routing.verdict import Code
from stacks.agent_config import AgentConfig
from stacks.labels import EXPECTED_RUNTIME_ANNOTATION, GPU_RESOURCE, VERDICT_ANNOTATION
from stacks.quantities import parse_duration

Raw = Mapping[str, Any]
Report = Callable[[str, Raw, str], None]
"""Called with a short reason, the Workload, and a sentence for people."""

MALFORMED: Final = "malformed"
BAD_EXPECTED_RUNTIME: Final = "bad-expected-runtime"

_KUEUE_GROUP: Final = "kueue.x-k8s.io"
_READY: Final = "Ready"


@dataclass(frozen=True, slots=True)
class _Queue:
    team: str
    burst: bool


class Observer:
    """Reduces Workloads for one fleet; `reduce` is pure apart from what it reports."""

    def __init__(self, config: AgentConfig, clock: Clock, report: Report) -> None:
        self._config = config
        self._clock = clock
        self._report = report
        self._queues = {
            (team.namespace, queue): _Queue(name, burst)
            for name, team in config.teams.items()
            for queue, burst in ((team.queue, False), (team.burst_queue, True))
        }

    def reduce(self, raw: Raw) -> Job | None:
        """The job of a Workload, or None for one that is not ours.

        Raises:
            ValueError: when it cannot be read; what was known of it before should stand.
        """
        try:
            return self._reduce(raw)
        except (KeyError, TypeError, ValueError, AttributeError, ArithmeticError) as error:
            message = f"a Workload cannot be read: {type(error).__name__}: {error}"
            self._report(MALFORMED, raw, message)
            raise ValueError(message) from error

    def _reduce(self, raw: Raw) -> Job | None:
        metadata, spec, status = raw["metadata"], raw["spec"], raw.get("status") or {}
        queue = self._queues.get((metadata["namespace"], spec.get("queueName")))
        owner = _job_owner(metadata)
        if queue is None or owner is None or not (gpus := gpus_of(spec)):
            return None
        conditions = _conditions(status)
        reserved = conditions.get("QuotaReserved")
        holds = reserved is not None and reserved["status"] == "True"
        flavor = self._flavor(status) if holds else None
        ready_at = _ready_at(status, self._config.gate)
        recorded = verdict_from_json((metadata.get("annotations") or {}).get(VERDICT_ANNOTATION))
        verdict_code = recorded.verdict.code.value if recorded else None
        finished = conditions.get("Finished", {}).get("status") == "True"
        reserved_at = parse_time(reserved["lastTransitionTime"]) if holds and reserved else None
        limit = spec.get("maximumExecutionTimeSeconds")
        job_class = _class_name(spec)
        return Job(
            uid=metadata["uid"],
            namespace=metadata["namespace"],
            name=metadata["name"],
            owner_kind=owner["kind"],
            owner_name=owner["name"],
            owner_uid=owner["uid"],
            team=queue.team,
            job_class=job_class if job_class in self._config.classes else self._config.default_class,
            priority=int(spec.get("priority") or 0),
            gpus=gpus,
            created_at=self._fleet_time(metadata["creationTimestamp"]),
            stage=self._stage(raw, conditions, queue, flavor, ready_at, verdict_code),
            expected_seconds=self._expected_seconds(raw),
            max_seconds=None if limit is None else self._clock.duration_to_fleet(int(limit)),
            flavor=flavor,
            reserved_at=None if reserved_at is None else self._clock.to_fleet(reserved_at),
            ready_at=None if (started := _admitted_at(conditions) or ready_at) is None else self._fleet_time(started),
            released_quota_at=self._released_quota_at(conditions, finished),
            verdict_code=verdict_code,
            verdict_at=recorded.at if recorded else None,
            pod_gpus=largest_pod_of(spec),
            attempt=None if reserved_at is None else int(reserved_at),
            ever_admitted="Admitted" in conditions,
        )

    def _stage(
        self,
        raw: Raw,
        conditions: Mapping[str, Raw],
        queue: _Queue,
        flavor: str | None,
        ready_at: str | None,
        verdict_code: str | None,
    ) -> Stage:
        if conditions.get("Finished", {}).get("status") == "True":
            return Stage.FINISHED
        if raw["spec"].get("active") is False:
            return Stage.RECALLING if verdict_code == Code.RECALLED else Stage.STOPPED
        if flavor is None:
            return Stage.RELEASED if queue.burst else Stage.QUEUED
        configured = self._config.flavors.get(flavor)
        if configured is not None and not configured.cloud:
            return Stage.RUNNING_LOCAL
        # Kueue resets our check when it evicts; until the quota is gone the pods may still run, and cost.
        admitted = conditions.get("Admitted", {}).get("status") == "True"
        return Stage.RUNNING_CLOUD if ready_at is not None or admitted else Stage.AT_GATE

    def _flavor(self, status: Raw) -> str | None:
        """The GPU flavor of the reservation; a cloud one if any pod set has one, since that one costs money."""
        assigned = [
            pod_set["flavors"][GPU_RESOURCE]
            for pod_set in (status.get("admission") or {}).get("podSetAssignments") or ()
            if GPU_RESOURCE in (pod_set.get("flavors") or {})
        ]
        flavors = self._config.flavors
        cloud = [name for name in assigned if name not in flavors or flavors[name].cloud]
        return next(iter(cloud or assigned), None)

    def _released_quota_at(self, conditions: Mapping[str, Raw], finished: bool) -> float | None:
        if finished:
            return self._fleet_time(conditions["Finished"]["lastTransitionTime"])
        reserved = conditions.get("QuotaReserved")
        if "Evicted" not in conditions or reserved is None or reserved["status"] != "False":
            return None
        return self._fleet_time(reserved["lastTransitionTime"])

    def _expected_seconds(self, raw: Raw) -> float | None:
        """The longest run time that the user wrote on any pod template."""
        expected = []
        for pod_set in raw["spec"]["podSets"]:
            annotations = (pod_set["template"].get("metadata") or {}).get("annotations") or {}
            if (text := annotations.get(EXPECTED_RUNTIME_ANNOTATION)) is None:
                continue
            try:
                expected.append(parse_duration(text).total_seconds())
            except ValueError as error:
                message = f"{EXPECTED_RUNTIME_ANNOTATION}: {error} (got {str(text)[:80]!r}); ignored"
                self._report(BAD_EXPECTED_RUNTIME, raw, message)
        return max(expected, default=None)

    def _fleet_time(self, text: str) -> float:
        return self._clock.to_fleet(parse_time(text))


def snapshot(jobs: Iterable[Job], books: Books | None) -> Snapshot:
    """Everything one decision is made from, as it is at this moment."""
    return Snapshot(jobs=tuple(jobs), books=books)


def attempt_at_gate(raw: Raw, gate: str) -> int | None:
    """The attempt of a Workload that waits for our answer, or None if an answer would be wrong, or came already.

    An answer is right only while quota is reserved, nothing ended the Workload, and our check is listed and unanswered.
    """
    status, spec = raw.get("status") or {}, raw.get("spec") or {}
    conditions = _conditions(status)
    over = any(conditions.get(name, {}).get("status") == "True" for name in ("Evicted", "Finished"))
    reserved = conditions.get("QuotaReserved", {})
    if over or reserved.get("status") != "True" or spec.get("active") is False:
        return None
    waiting = any(
        check.get("name") == gate and check.get("state") == "Pending" for check in status.get("admissionChecks") or ()
    )
    return int(parse_time(reserved["lastTransitionTime"])) if waiting else None


def _job_owner(metadata: Raw) -> Raw | None:
    for owner in metadata.get("ownerReferences") or ():
        if owner.get("controller") and owner["kind"] == "Job" and owner["apiVersion"] == "batch/v1":
            checked: Raw = owner
            return checked
    return None


def _conditions(status: Raw) -> dict[str, Raw]:
    return {condition["type"]: condition for condition in status.get("conditions") or ()}


def _admitted_at(conditions: Mapping[str, Raw]) -> str | None:
    """When Kueue let it run, by Kueue's clock, which also stamps the end."""
    admitted = conditions.get("Admitted", {})
    return str(admitted["lastTransitionTime"]) if admitted.get("status") == "True" else None


def _ready_at(status: Raw, gate: str) -> str | None:
    for check in status.get("admissionChecks") or ():
        if check["name"] == gate and check["state"] == _READY:
            return str(check["lastTransitionTime"])
    return None


def _class_name(spec: Raw) -> str:
    reference = spec.get("priorityClassRef") or {}
    return str(reference.get("name")) if reference.get("group") == _KUEUE_GROUP else ""
