"""The proof from the audit log: every way around the gate that we can think of must be counted."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from infra.replay.audit import AGENT_USER, AuditReport, facts, read_audit
from infra.replay.errors import EvidenceError
from infra.replay.gate import GateProof, prove_gate
from tests.unit.replay.scenario import KUEUE, LOCAL, ON_DEMAND, SPOT, START, USER, Job, Log, local_fleet

NODES = {"spot-0": SPOT, "od-0": ON_DEMAND}
TWIN = "vision-burst-h100-aws-spot"


def proof(log: Log, since: float = 0.0) -> GateProof:
    return prove_gate(log.histories(), local_fleet(), NODES, START + since)


def reasons(log: Log) -> list[str]:
    return [violation.reason for violation in proof(log).unproven]


def misroutes(log: Log) -> list[str]:
    return [violation.reason for violation in proof(log).misroutes]


def untold(log: Log) -> int:
    return len(proof(log).untold)


def test_a_lawful_burst_is_proven() -> None:
    log = Log()
    Job(log).submitted().burst(3)
    assert proof(log) == GateProof(pods=1, jobs=1, unproven=(), forged=())


def test_local_pods_need_no_proof() -> None:
    log = Log()
    Job(log).submitted().local(1)
    assert proof(log).pods == 0


def test_a_pod_without_any_answer_of_the_gate_is_counted() -> None:
    log = Log()
    Job(log).submitted().released(1).reserved(2, SPOT).admitted(3).pod(4, SPOT)
    assert reasons(log) == ["the agent had not set the gate to Ready since the quota was reserved"]


def test_a_ready_forged_by_a_user_is_counted_twice_as_forged_and_as_unproven() -> None:
    log = Log()
    Job(log).submitted().released(1).reserved(2, SPOT).ready(3, user=USER).admitted(4).pod(5, SPOT)
    found = proof(log)
    assert [one.reason for one in found.unproven] == [f"{USER} set the gate to Ready, not the agent"]
    assert [one.reason for one in found.forged] == [f"by {USER}"]


def test_an_impersonator_is_not_the_agent() -> None:
    log = Log()
    Job(log).submitted().released(1).reserved(2, SPOT).ready(3, AGENT_USER, impersonated=AGENT_USER).admitted(4).pod(
        5, SPOT
    )
    assert len(proof(log).unproven) == 1


def test_a_masquerading_administrator_is_not_the_agent() -> None:
    log = Log()
    Job(log).submitted().released(1).reserved(2, SPOT).ready(3, "admin", impersonated=AGENT_USER).admitted(4).pod(
        5, SPOT
    )
    assert len(proof(log).unproven) == len(proof(log).forged) == 1


def test_a_ready_that_the_server_refused_proves_nothing() -> None:
    log = Log()
    job = Job(log).submitted().released(1).reserved(2, SPOT)
    before = dict(job.status)
    job.ready(3, code=409)
    job.status = before
    job.admitted(4).pod(5, SPOT)
    assert len(reasons(log)) == 1


def test_a_dry_run_neither_proves_nor_forges_anything() -> None:
    log = Log()
    job = Job(log).submitted().released(1).reserved(2, SPOT)
    before = dict(job.status)
    job.ready(3, user=USER)
    log.lines[-1] = json.dumps({**json.loads(log.lines[-1]), "requestURI": "/apis?force=true&dryRun=All"}) + "\n"
    job.status = before
    assert proof(log) == GateProof(pods=0, jobs=0, unproven=(), forged=())


def test_a_workload_whose_answer_is_metadata_alone_is_passed_over() -> None:
    log = Log()
    job = Job(log).submitted().burst(1)
    reference = {"apiGroup": "kueue.x-k8s.io", "resource": "workloads", "namespace": "vision", "name": job.name}
    answer = {"kind": "PartialObjectMetadata", "metadata": {"name": job.name, "resourceVersion": "999"}}
    log.write(9, "system:kube-controller-manager", "patch", reference, response=answer)
    assert proof(log) == GateProof(pods=1, jobs=1, unproven=(), forged=())


def test_a_ready_of_an_agent_that_was_killed_before_the_answer_is_proven_by_what_others_see() -> None:
    log = Log()
    Job(log).submitted().released(1).reserved(2, SPOT).ready(3, code=504).admitted(4).pod(5, SPOT)
    assert proof(log) == GateProof(pods=1, jobs=1, unproven=(), forged=())


def test_a_ready_that_was_never_seen_proves_nothing_even_if_the_agent_asked_for_it() -> None:
    log = Log()
    job = Job(log).submitted().released(1).reserved(2, SPOT)
    before = dict(job.status)
    job.ready(3, code=504)
    job.status = before
    job.admitted(4).pod(5, SPOT)
    assert len(reasons(log)) == 1


def test_a_user_who_is_cut_off_is_not_the_agent() -> None:
    log = Log()
    Job(log).submitted().released(1).reserved(2, SPOT).ready(3, user=USER, code=504).admitted(4).pod(5, SPOT)
    assert len(proof(log).forged) == 1


def test_a_release_by_an_agent_that_was_killed_before_the_answer_counts() -> None:
    log = Log()
    Job(log).submitted().released(1, code=504).reserved(2, SPOT).ready(3).admitted(4).pod(5, SPOT)
    assert proof(log).holds


def test_a_ready_from_before_the_reservation_does_not_count() -> None:
    log = Log()
    job = Job(log).submitted().released(1).ready(2)
    job.status.pop("admissionChecks")
    job.reserved(3, SPOT).admitted(4).pod(5, SPOT)
    assert reasons(log) == ["the agent had not set the gate to Ready since the quota was reserved"]


def test_a_ready_of_an_earlier_reservation_does_not_count_for_the_next() -> None:
    log = Log()
    job = Job(log).submitted().burst(1).evicted(10)
    job.reserved(11, SPOT).admitted(12).pod(13, SPOT)
    assert len(reasons(log)) == 1


def test_a_job_that_was_evicted_and_cleared_again_is_proven() -> None:
    log = Log()
    Job(log).submitted().burst(1).evicted(10).reserved(11, SPOT).ready(12).admitted(13).pod(14, SPOT)
    assert proof(log).pods == 2
    assert not proof(log).unproven


def test_a_pod_created_before_the_ready_is_counted() -> None:
    log = Log()
    Job(log).submitted().released(1).reserved(2, SPOT).pod(2.5, SPOT).ready(3).admitted(4)
    assert len(reasons(log)) == 1


def test_kueue_repeating_the_ready_of_the_agent_forges_nothing() -> None:
    log = Log()
    job = Job(log).submitted().burst(1)
    job.admitted(3)
    assert not proof(log).forged


def test_a_job_that_nobody_released_is_counted() -> None:
    log = Log()
    Job(log).submitted().reserved(2, SPOT).ready(3).admitted(4).pod(5, SPOT)
    assert misroutes(log) == ["the job was in the queue vision, not released to h100-aws-spot"]


def test_a_job_that_its_owner_released_is_counted() -> None:
    log = Log()
    Job(log).submitted().released(1, user=USER).reserved(2, SPOT).ready(3).admitted(4).pod(5, SPOT)
    assert misroutes(log) == [f"alice put the job into {TWIN}, not the agent"]


def test_a_job_created_in_the_burst_queue_is_counted() -> None:
    log = Log()
    job = Job(log)
    request = {"metadata": {"name": job.name, "labels": {"kueue.x-k8s.io/queue-name": TWIN}}}
    reference = {"apiGroup": "batch", "resource": "jobs", "namespace": "vision"}
    log.write(0, USER, "create", reference, request=request, code=201)
    job.queue = TWIN
    job.reserved(2, SPOT).ready(3).admitted(4).pod(5, SPOT)
    assert misroutes(log) == [f"alice put the job into {TWIN}, not the agent"]


def test_a_full_write_by_kueue_that_repeats_the_queue_moves_nothing() -> None:
    log = Log()
    job = Job(log).submitted().released(1)
    whole = {"metadata": {"name": job.name, "labels": {"kueue.x-k8s.io/queue-name": TWIN}}}
    reference = {"apiGroup": "batch", "resource": "jobs", "namespace": "vision", "name": job.name}
    log.write(1.5, "kueue", "update", reference, request=whole)
    job.reserved(2, SPOT).ready(3).admitted(4).pod(5, SPOT)
    assert proof(log).holds


def test_a_recalled_job_is_no_longer_released() -> None:
    log = Log()
    job = Job(log).submitted().released(1)
    patch = [{"op": "replace", "path": "/metadata/labels/kueue.x-k8s.io~1queue-name", "value": "vision"}]
    reference = {"apiGroup": "batch", "resource": "jobs", "namespace": "vision", "name": job.name}
    log.write(1.5, AGENT_USER, "patch", reference, request=patch)
    job.reserved(2, SPOT).ready(3).admitted(4).pod(5, SPOT)
    assert misroutes(log) == ["the job was in the queue vision, not released to h100-aws-spot"]


def test_a_pod_that_no_job_owns_is_counted() -> None:
    log = Log()
    pod = {"metadata": {"name": "loose"}, "spec": {"nodeSelector": {"gpufleet.dev/flavor": SPOT}}}
    log.write(1, USER, "create", {"resource": "pods", "namespace": "vision"}, request=pod, code=201)
    assert reasons(log) == ["no Job owns the pod"]


def test_a_pod_for_another_flavor_than_was_reserved_is_counted() -> None:
    log = Log()
    Job(log).submitted().released(1).reserved(2, SPOT).ready(3).admitted(4).pod(5, ON_DEMAND, "od-0")
    assert "but the quota was reserved on h100-aws-spot" in reasons(log)[0]
    assert misroutes(log) == [f"the job was in the queue {TWIN}, not released to {ON_DEMAND}"]


def test_a_pod_bound_to_a_cloud_node_without_asking_for_it_is_counted() -> None:
    log = Log()
    Job(log).submitted().reserved(1, LOCAL).admitted(2).pod(3, LOCAL, node="spot-0")
    assert "was bound to spot-0" in misroutes(log)[0]


def test_starts_before_the_replay_are_not_counted() -> None:
    log = Log()
    Job(log, "old-r0").submitted().reserved(2, SPOT).admitted(3).pod(4, SPOT)
    Job(log, "new-r1").submitted(10).burst(11)
    assert proof(log, since=10).pods == 1
    assert not proof(log, since=10).unproven


def test_requests_that_were_refused_or_not_answered_yet_are_no_facts() -> None:
    log = Log()
    pod = {"metadata": {"name": "loose"}, "spec": {"nodeSelector": {"gpufleet.dev/flavor": SPOT}}}
    log.write(1, USER, "create", {"resource": "pods", "namespace": "vision"}, request=pod, code=403)
    log.write(1, USER, "create", {"resource": "pods", "namespace": "vision"}, request=pod, stage="ResponseStarted")
    assert proof(log).pods == 0


@pytest.mark.parametrize("line", ["not json\n", "{}\n", "[]\n", "null\n", '{"stage": "ResponseComplete"}\n', "\x00\n"])
def test_a_line_that_is_no_event_is_a_hole_in_the_evidence(line: str) -> None:
    report = AuditReport()
    assert list(facts([line], report)) == []
    assert report.unreadable == 1


def test_a_last_line_still_in_the_writing_is_no_hole() -> None:
    report = AuditReport()
    log = Log()
    Job(log).submitted()
    found = list(facts([*log.lines, log.lines[-1][:40]], report))
    assert len(found) == 2
    assert report.unreadable == 0


def test_rotated_logs_are_read_too(tmp_path: Path) -> None:
    log = Log()
    Job(log).submitted().burst(1)
    half = len(log.lines) // 2
    (tmp_path / "audit-2026-11-21T12-00-00.000.log").write_text("".join(log.lines[:half]))
    (tmp_path / "audit.log").write_text("".join(log.lines[half:]))
    report = AuditReport()
    assert len(list(read_audit(tmp_path / "audit.log", report))) == len(log.lines)


def test_a_missing_log_is_a_plain_error(tmp_path: Path) -> None:
    with pytest.raises(EvidenceError, match="nothing can be proved"):
        list(read_audit(tmp_path / "audit.log", AuditReport()))


def test_lines_in_any_order_prove_the_same() -> None:
    log = Log()
    Job(log).submitted().burst(1).finished(20)
    shuffled = Log(lines=sorted(log.lines, key=hash_of))
    assert proof(shuffled) == proof(log)


def hash_of(line: str) -> str:
    event: dict[str, Any] = json.loads(line)
    return str(event["requestReceivedTimestamp"])[::-1]


def test_a_job_that_was_released_to_another_flavor_than_it_ran_on_is_a_misroute() -> None:
    log = Log()
    job = Job(log).submitted().released(1, target=ON_DEMAND)
    job.reserved(2, SPOT).ready(3).admitted(4).pod(5, SPOT)
    assert misroutes(log) == [f"the job was in the queue vision-burst-{ON_DEMAND}, not released to {SPOT}"]
    assert not reasons(log)


def test_a_job_that_changed_its_flavor_while_it_waited_is_no_misroute() -> None:
    log = Log()
    Job(log).submitted().released(1, target=ON_DEMAND).released(2).reserved(3, SPOT).ready(4).admitted(5).pod(6, SPOT)
    assert proof(log).holds


def test_a_cloud_start_without_a_verdict_is_counted() -> None:
    log = Log()
    Job(log).submitted().released(1, told=False).reserved(2, SPOT).ready(3).admitted(4).pod(5, SPOT)
    assert untold(log) == 1
    assert not misroutes(log)


def test_a_verdict_that_somebody_else_wrote_does_not_count() -> None:
    log = Log()
    job = Job(log).submitted().said(0.5, "released", user=USER).released(1, told=False)
    job.reserved(2, SPOT).ready(3).admitted(4).pod(5, SPOT)
    assert untold(log) == 1


def test_a_verdict_of_an_agent_that_was_killed_before_the_answer_counts() -> None:
    log = Log()
    job = Job(log).submitted().said(0.5, "released", answer=504).released(1, told=False)
    job.reserved(2, SPOT).ready(3).admitted(4).pod(5, SPOT)
    assert untold(log) == 0


def test_the_verdict_of_an_earlier_release_does_not_count_after_the_job_was_taken_back() -> None:
    log = Log()
    job = Job(log).submitted().released(1).moved(2, "vision", user=USER).released(3, told=False)
    job.reserved(4, SPOT).ready(5).admitted(6).pod(7, SPOT)
    assert untold(log) == 1


def test_a_full_write_by_kueue_that_repeats_the_verdict_forges_nothing() -> None:
    log = Log()
    job = Job(log).submitted().burst(1)
    job.moved(3, TWIN, user=KUEUE).evicted(4).reserved(5, SPOT).ready(6).admitted(7).pod(8, SPOT)
    assert proof(log).holds
