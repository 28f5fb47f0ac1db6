"""Turns Workloads of Kueue (v1beta2), as the API server sent them, into the jobs that decisions are made from.

A Workload is ours if it stands in a team's namespace and in one of the team's queues (its own, those of windows, the
burst twins), asks for GPUs, and belongs to a kind of job that can be moved (stacks.kinds); every other is left alone.
Whatever a stage needs is in the Workload, so nothing is remembered and no second object is read. What does not
parse is reported; text of users that does not parse is ignored.

Invariants: a job's attempt and flavor are set exactly while it holds quota, and stay on one that finished holding it;
RECALLING and EVICTED need both an inactive Workload and our own mark on it; every text of a job is a string.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Final

from runtime.clock import Clock, parse_time
from runtime.cost.ledger import Books
from runtime.eviction.view import Marker, Phase
from runtime.eviction.wish import MoveWish
from runtime.routing import wishes
from runtime.routing.explain import RecordedVerdict, verdict_from_json
from runtime.routing.history import NO_HISTORY, History
from runtime.routing.queues import Queues, TeamQueue
from runtime.routing.requests import GPU_RESOURCES, asks_for_gpus, gpus_of, largest_pod_of
from runtime.routing.snapshot import Job, Snapshot, Stage
from runtime.routing.surroundings import Surroundings
from runtime.routing.verdict import Code
from runtime.routing.workload import (
    Raw,
    class_name,
    conditions_of,
    is_true,
    job_owner,
    marker_of,
    move_wish,
    only_run_began,
    preempted_since,
    recall_reason,
    returns,
    since,
    string,
    when_answered,
)
from stacks.agent_config import AgentConfig
from stacks.labels import GPU_RESOURCE, VERDICT_ANNOTATION

Report = Callable[[str, Raw, str], None]
"""Called with a short reason, the Workload, and a sentence for people."""

MALFORMED: Final = "malformed"

_SUCCEEDED: Final = "Succeeded"
_FAILED: Final = "Failed"
_PODS_READY_TIMEOUT: Final = "PodsReadyTimeout"
"""Reasons of the conditions Finished and Evicted (Kueue v1beta2)."""

_LONGEST_MESSAGE: Final = 200


class Observer:
    """Reduces Workloads for one fleet; `reduce` is pure apart from what it reports."""

    def __init__(self, config: AgentConfig, clock: Clock, report: Report) -> None:
        self._config = config
        self._clock = clock
        self._report = report
        self._queues = Queues(config)
        # Equal texts of many jobs are kept once.
        self._classes = {name: name for name in config.classes}
        self._flavors = {name: name for name in config.flavors}

    def reduce(self, raw: Raw) -> Job | None:
        """The job of a Workload, or None for one that is not ours.

        Raises:
            ValueError: when it cannot be read; what was known of it before should stand.
        """
        return self._guarded(raw, parts=False)

    def reduce_any(self, raw: Raw) -> Job | None:
        """As `reduce`, and also the job of a Workload that asks for parts of GPUs alone: one with no whole GPU.

        Kueue queues those without us, so no decision is made about them; but they leave nodes that go.

        Raises:
            ValueError: when it cannot be read; what was known of it before should stand.
        """
        return self._guarded(raw, parts=True)

    def _guarded(self, raw: Raw, *, parts: bool) -> Job | None:
        try:
            job = self._reduce(raw, parts)
            return job if job is None or job.gpus else _of_parts(job)
        except (KeyError, TypeError, ValueError, AttributeError, ArithmeticError) as error:
            message = f"a Workload cannot be read: {type(error).__name__}: {str(error)[:_LONGEST_MESSAGE]}"
            self._report(MALFORMED, raw, message)
            raise ValueError(message) from error

    def _reduce(self, raw: Raw, parts: bool) -> Job | None:
        metadata, spec, status = raw["metadata"], raw["spec"], raw.get("status") or {}
        queue = self._queues.of(metadata["namespace"], spec.get("queueName"))
        owner = job_owner(metadata)
        if queue is None or owner is None or not (gpus_of(spec) or (parts and asks_for_gpus(spec))):
            return None
        gpus = gpus_of(spec)
        conditions = conditions_of(status)
        holds = is_true(conditions, "QuotaReserved")
        flavor = self._flavor(status) if holds else None
        recorded = verdict_from_json((metadata.get("annotations") or {}).get(VERDICT_ANNOTATION))
        verdict_code = recorded.verdict.code.value if recorded else None
        eviction = marker_of(metadata)
        answered_at = when_answered(status, self._config.gate)
        started_at = since(conditions, "Admitted") or answered_at
        reserved_at = parse_time(conditions["QuotaReserved"]["lastTransitionTime"]) if holds else None
        limit = spec.get("maximumExecutionTimeSeconds")
        job_class = class_name(spec)
        preempted_at = preempted_since(conditions)
        began_at = None if preempted_at is None else only_run_began(status)

        def complain(reason: str, message: str) -> None:
            self._report(reason, raw, message)

        return Job(
            uid=string(metadata["uid"]),
            namespace=queue.namespace,
            name=string(metadata["name"]),
            owner_kind=string(owner["kind"]),
            owner_name=string(owner["name"]),
            owner_uid=string(owner["uid"]),
            team=queue.team,
            job_class=self._classes.get(job_class, self._config.default_class),
            priority=int(spec.get("priority") or 0),
            gpus=gpus,
            created_at=self._fleet_time(metadata["creationTimestamp"]),
            stage=self._stage(spec, conditions, queue, flavor, answered_at, _stage_of_inactive(eviction, verdict_code)),
            expected_seconds=wishes.expected_seconds(spec, complain),
            max_seconds=None if limit is None else self._clock.duration_to_fleet(int(limit)),
            flavor=flavor,
            reserved_at=None if reserved_at is None else self._clock.to_fleet(reserved_at),
            ready_at=None if started_at is None else self._fleet_time(started_at),
            released_quota_at=self._released_quota_at(conditions),
            verdict_code=verdict_code,
            verdict_at=recorded.at if recorded else None,
            pod_gpus=largest_pod_of(spec),
            attempt=None if reserved_at is None else int(reserved_at),
            ever_admitted="Admitted" in conditions,
            owner_version=string(owner["apiVersion"]),
            queue=queue.name,
            target=queue.target,
            waiting_since=self._waiting_since(conditions),
            project=wishes.project(spec, complain),
            gpu=wishes.gpu(spec),
            data_bytes=wishes.data_bytes(spec, complain),
            returns=returns(recorded),
            never_ready=is_true(conditions, "Evicted") and conditions["Evicted"].get("reason") == _PODS_READY_TIMEOUT,
            recall_reason=recall_reason(metadata),
            ran_seconds=self._ran_seconds(conditions),
            pods_ready_at=None if (at := since(conditions, "PodsReady")) is None else self._fleet_time(at),
            eviction=eviction,
            failed=is_true(conditions, "Finished") and conditions["Finished"].get("reason") == _FAILED,
            move=self._move(metadata, recorded),
            preempted_at=None if preempted_at is None else self._fleet_time(preempted_at),
            run_began_at=None if began_at is None else self._clock.to_fleet(began_at),
        )

    def _move(self, metadata: Raw, recorded: RecordedVerdict | None) -> MoveWish | None:
        wish = move_wish(metadata)
        if wish is None or wish.problem:
            return wish
        told = str(recorded.verdict.facts.get("cause", "")) if recorded else ""
        asked_at, until = self._clock.to_fleet(wish.asked_at), self._clock.to_fleet(wish.until)
        return replace(wish, asked_at=asked_at, until=until, told=told)

    def _stage(
        self,
        spec: Raw,
        conditions: Mapping[str, Raw],
        queue: TeamQueue,
        flavor: str | None,
        answered_at: str | None,
        if_inactive: Stage,
    ) -> Stage:
        if is_true(conditions, "Finished"):
            return Stage.FINISHED
        if spec.get("active") is False:
            return if_inactive
        if flavor is None:
            return Stage.QUEUED if queue.target is None else Stage.RELEASED
        configured = self._config.flavors.get(flavor)
        if configured is not None and not configured.cloud:
            return Stage.RUNNING_LOCAL
        # Kueue resets our check when it evicts; until the quota is gone the pods may still run, and cost.
        started = answered_at is not None or is_true(conditions, "Admitted")
        return Stage.RUNNING_CLOUD if started else Stage.AT_GATE

    def _flavor(self, status: Raw) -> str | None:
        """The GPU flavor of the reservation; a cloud one if any pod set has one, since that one costs money."""
        assignments = [
            pod_set.get("flavors") or {} for pod_set in (status.get("admission") or {}).get("podSetAssignments") or ()
        ]
        assigned = [string(flavors[GPU_RESOURCE]) for flavors in assignments if GPU_RESOURCE in flavors] or [
            string(flavor) for flavors in assignments for name, flavor in flavors.items() if GPU_RESOURCES.match(name)
        ]
        flavors = self._config.flavors
        cloud = [name for name in assigned if name not in flavors or flavors[name].cloud]
        found = next(iter(cloud or assigned), None)
        return None if found is None else self._flavors.get(found, found)

    def _released_quota_at(self, conditions: Mapping[str, Raw]) -> float | None:
        if is_true(conditions, "Finished"):
            return self._fleet_time(conditions["Finished"]["lastTransitionTime"])
        reserved = conditions.get("QuotaReserved")
        if "Evicted" not in conditions or reserved is None or reserved["status"] != "False":
            return None
        return self._fleet_time(reserved["lastTransitionTime"])

    def _waiting_since(self, conditions: Mapping[str, Raw]) -> float | None:
        """When it last stopped running, None if it never ran or runs: time at the gate, unlike a run, is still a wait.

        Kueue turns Admitted to False in the write that takes the quota.
        """
        admitted = conditions.get("Admitted")
        if admitted is None or admitted["status"] != "False":
            return None
        return self._fleet_time(admitted["lastTransitionTime"])

    def _ran_seconds(self, conditions: Mapping[str, Raw]) -> float | None:
        admitted_at, finished_at = since(conditions, "Admitted"), since(conditions, "Finished")
        if admitted_at is None or finished_at is None or conditions["Finished"].get("reason") != _SUCCEEDED:
            return None
        ran = self._clock.duration_to_fleet(parse_time(finished_at) - parse_time(admitted_at))
        return ran if ran > 0 else None

    def _fleet_time(self, text: str) -> float:
        return self._clock.to_fleet(parse_time(text))


def _of_parts(job: Job) -> Job:
    """A job without whole GPUs: what is decided about others does not concern it."""
    stage = Stage.RUNNING_LOCAL if job.stage in (Stage.RUNNING_CLOUD, Stage.AT_GATE) else job.stage
    return replace(job, stage=stage, move=None, preempted_at=None, run_began_at=None)


def _stage_of_inactive(eviction: Marker | None, verdict_code: str | None) -> Stage:
    """Where a deactivated job stands: whose mark it carries says who deactivated it."""
    if eviction is not None and eviction.phase is Phase.STOPPED:
        return Stage.EVICTED
    return Stage.RECALLING if verdict_code == Code.RECALLED else Stage.STOPPED


def snapshot(
    jobs: Iterable[Job],
    books: Books | None,
    history: History = NO_HISTORY,
    around: Surroundings | None = None,
) -> Snapshot:
    """Everything one decision is made from, as it is at this moment."""
    if around is None:
        return Snapshot(jobs=tuple(jobs), books=books, history=history)
    return Snapshot(
        jobs=tuple(jobs),
        books=books,
        history=history,
        capacity=around.capacity,
        broken_queues=around.broken_queues,
        held_queues=around.held_queues,
        lingering=around.lingering,
    )


def attempt_at_gate(raw: Raw, gate: str) -> int | None:
    """The attempt of a Workload that waits for our answer, or None if an answer would be wrong, or came already.

    An answer is right only while quota is reserved, nothing ended the Workload, and our check is listed and unanswered.
    """
    status, spec = raw.get("status") or {}, raw.get("spec") or {}
    conditions = conditions_of(status)
    over = any(conditions.get(name, {}).get("status") == "True" for name in ("Evicted", "Finished"))
    reserved = conditions.get("QuotaReserved", {})
    if over or reserved.get("status") != "True" or spec.get("active") is False:
        return None
    waiting = any(
        check.get("name") == gate and check.get("state") == "Pending" for check in status.get("admissionChecks") or ()
    )
    return int(parse_time(reserved["lastTransitionTime"])) if waiting else None
