"""What must be true after a storm of evictions, from the audit log, the ledger, and what jobs know of their checkpoints.

The audit log says how often each Workload was stopped and let go again, whoever did it; the ledger what was lost.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Final

from infra.replay.audit import AuditReport, WorkloadWritten, facts
from infra.replay.books import LedgerReader, highest_exposure
from runtime.clock import Clock, parse_time
from runtime.cost.entries import loss_from_dict
from runtime.cost.losses import Loss
from runtime.eviction.marker import marker_from_json
from runtime.eviction.notice import NoticeKind
from runtime.eviction.timing import DEFAULT_TERMS
from stacks.labels import EVICTING_TAINT, EVICTION_ANNOTATION, NOTICES_ANNOTATION, QUEUE_LABEL, SYSTEM_NAMESPACE
from tests.e2e.conftest import Stack, condition
from tests.e2e.storm import THRIFTY, Job, Storm
from tests.e2e.storming import Trainers
from tests.e2e.test_chaos import ledger_directory

THRIFTY_LIMIT_USD, FLEET_LIMIT_USD = Decimal(1_760), Decimal(500_000)
SPARE_SECONDS: Final = 5.0
"""Beyond the reserve of a deadline: a job that saved is told of by polling, and two cores do all this."""


@dataclass(frozen=True)
class Stop:
    """One stop of a job, and what came of it, as the audit log has it; real times."""

    at: float
    requeued_at: float | None = None
    ready_at: float | None = None


def stops_in_audit(storm: Storm) -> dict[str, list[Stop]]:
    """Every time that `spec.active` went to false, by the UID of the Workload."""
    report = AuditReport()
    with storm.stack.plane.state.audit_log.open("rb") as log:
        log.seek(storm.audit_from)
        lines = log.read().decode().splitlines(keepends=True)
    written = [one for one in facts(lines, report) if isinstance(one, WorkloadWritten)]
    assert report.unreadable == 0
    found: defaultdict[str, list[Stop]] = defaultdict(list)
    active: dict[str, bool] = {}
    for one in sorted(written, key=lambda one: one.version):
        uid, now_active = one.workload["metadata"]["uid"], one.workload["spec"].get("active") is not False
        if now_active != active.get(uid, True):
            if now_active:
                last = found[uid].pop()
                found[uid].append(Stop(last.at, one.at))
            else:
                found[uid].append(Stop(one.at))
        active[uid] = now_active
        if found[uid] and (last := found[uid][-1]).requeued_at is not None and last.ready_at is None:
            conditions = one.workload.get("status", {}).get("conditions", [])
            ready = next((c for c in conditions if c["type"] == "PodsReady" and c["status"] == "True"), None)
            if ready is not None and parse_time(ready["lastTransitionTime"]) >= last.at:
                found[uid][-1] = Stop(last.at, last.requeued_at, one.at)
    return found


def losses(stack: Stack) -> dict[str, list[Loss]]:
    """The losses in the ledger by the UID of the Workload, in order."""
    found: defaultdict[str, list[Loss]] = defaultdict(list)
    for path in ledger_directory(stack).glob("v1/losses/*/*/*.json"):
        loss = loss_from_dict(json.loads(path.read_text()))
        found[loss.workload_uid].append(loss)
    return {uid: sorted(all_of, key=lambda loss: loss.number) for uid, all_of in found.items()}


def nobody_is_lost(storm: Storm) -> None:
    """Every job is there, untouched in its place, has spent no try, and runs, or waits where it cannot pay."""
    workloads = storm.workloads()
    for job in sorted(storm.jobs):
        live = storm.stack.kube.get("batch/v1", "Job", job[1], job[0])
        assert int(live.get("status", {}).get("failed") or 0) == 0, job
        workload = workloads[job]
        assert not condition(workload, "Finished"), job
        assert (workload["metadata"]["uid"], workload["metadata"]["creationTimestamp"]) == (
            storm.uids[job],
            storm.created[job],
        )
        assert live["metadata"]["labels"][QUEUE_LABEL] == workload["spec"]["queueName"]
    assert storm.resting() == storm.jobs


def each_stop_is_answered_once(storm: Storm) -> dict[Job, list[Stop]]:
    """As many requeues as stops, as many losses as stops and preemptions, and the marker counts them too."""
    stopped, lost, found = stops_in_audit(storm), losses(storm.stack), {}
    for job, workload in storm.workloads().items():
        stops, uid = stopped.get(storm.uids[job], []), storm.uids[job]
        text = workload["metadata"].get("annotations", {}).get(EVICTION_ANNOTATION)
        counted = marker_from_json(text).attempts if text else 0
        assert all(stop.requeued_at is not None for stop in stops), job
        of_job = lost.get(uid, [])
        assert [loss.number for loss in of_job] == list(range(1, counted + 1)), job
        assert sum(loss.kind != NoticeKind.PREEMPTION for loss in of_job) == len(stops), job
        found[job] = stops
    return found


def lost_work(storm: Storm, trainers: Trainers) -> list[tuple[Loss, float]]:
    """Each loss of the jobs that honour the contract with its real seconds, none beyond its bound.

    It is bounded by the time since the last checkpoint that the job itself knows of, and the reserve.
    """
    created = storm.stack.kube.get("v1", "Namespace", SYSTEM_NAMESPACE)["metadata"]["creationTimestamp"]
    clock = Clock(parse_time(created), storm.stack.fleet.agent.replay_speed)
    lost, found = losses(storm.stack), []
    for job in sorted(storm.honest):
        for loss in lost.get(storm.uids[job], []):
            seconds = loss.lost_gpu_seconds / loss.gpus / clock.speed
            stopped_at = clock.to_real(loss.stopped_at)
            saved = max((at for at in trainers.saves[job] if at <= stopped_at), default=None)
            assert saved is not None, (job, loss)
            assert seconds <= stopped_at - saved + DEFAULT_TERMS.reserve_seconds, (job, loss)
            if loss.answered:
                assert seconds <= DEFAULT_TERMS.reserve_seconds + SPARE_SECONDS, (job, loss)
            found.append((loss, seconds))
    return found


def money_and_nodes_are_in_order(storm: Storm) -> None:
    """No budget was exceeded at any moment, and no node keeps a trace."""
    books = LedgerReader(ledger_directory(storm.stack)).read().books
    speed = storm.stack.fleet.agent.replay_speed
    assert highest_exposure(books, THRIFTY, speed) <= THRIFTY_LIMIT_USD
    assert highest_exposure(books, None, speed) <= FLEET_LIMIT_USD
    for node in storm.stack.kube.list("v1", "Node")[0]:
        name, spec = node["metadata"]["name"], node["spec"]
        assert not spec.get("unschedulable"), name
        assert EVICTING_TAINT not in {taint["key"] for taint in spec.get("taints", [])}, name
        assert NOTICES_ANNOTATION not in node["metadata"].get("annotations", {}), name


def report(
    storm: Storm, stopped: Mapping[Job, Sequence[Stop]], lost: Sequence[tuple[Loss, float]], began: float
) -> None:
    """What people want to know of a storm; a job that cannot pay runs again whenever it can."""
    stops = [stop for all_of in stopped.values() for stop in all_of]
    paid = [stop for job, all_of in stopped.items() if job not in storm.thrifty for stop in all_of]
    requeued = sorted(stop.requeued_at - stop.at for stop in stops if stop.requeued_at is not None)
    ready = sorted(stop.ready_at - stop.at for stop in paid if stop.ready_at is not None)
    answered = sorted(seconds for loss, seconds in lost if loss.answered)
    others = sorted(seconds for loss, seconds in lost if not loss.answered)
    lines = [
        f"{len(stops)} evictions in {time.time() - began:.0f} s, {storm.cloud.losses} machines lost, "
        f"{storm.kills} kills of the agent",
        f"stopped -> requeued {_told(requeued)}; stopped -> running {_told(ready)}",
        f"seconds lost by jobs that honour the contract: answered {_told(answered)}; not answered {_told(others)}",
    ]
    sys.stdout.write("\n".join(lines) + "\n")


def _told(seconds: Sequence[float]) -> str:
    if not seconds:
        return "(none)"
    return f"median {statistics.median(seconds):.1f} s, most {seconds[-1]:.1f} s of {len(seconds)}"


def all_is_well(storm: Storm, trainers: Trainers, began: float) -> int:
    """Every check after a storm; returns how many evictions there were."""
    nobody_is_lost(storm)
    stopped = each_stop_is_answered_once(storm)
    lost = lost_work(storm, trainers)
    money_and_nodes_are_in_order(storm)
    report(storm, stopped, lost, began)
    return sum(map(len, stopped.values()))
