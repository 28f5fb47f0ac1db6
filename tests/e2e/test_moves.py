"""Planned work and preemption on the real control plane: jobs go the same way as from machines that are taken away.

The move of a job to another cloud flavor is with the other routes, in test_routes.
"""

from __future__ import annotations

import time

from runtime.clock import parse_time
from runtime.cost.losses import Loss
from runtime.eviction.notice import NoticeKind
from runtime.eviction.view import Phase
from stacks.labels import DRAIN_TAINT
from tests.e2e.aftermath import losses
from tests.e2e.conftest import Stack, condition, wait_for
from tests.e2e.evicting import LOCAL, answer, gpufleet, marker, node_of, phase, requests
from tests.e2e.test_evictions import cloud_job

WORKED_SECONDS = 3.0
"""Kueue's times are whole seconds; what ran for less may count as nothing."""


def lost(stack: Stack, uid: str) -> list[Loss]:
    return losses(stack).get(uid, [])


def worked(stack: Stack, team: str, job: str) -> bool:
    """Whether its pods have been ready for a while."""
    conditions = stack.workload(team, job)["status"]["conditions"]
    ready = next((one for one in conditions if one["type"] == "PodsReady" and one["status"] == "True"), None)
    return ready is not None and time.time() - parse_time(ready["lastTransitionTime"]) > WORKED_SECONDS


def test_a_drained_node_is_left_and_takes_no_job_until_that_is_undone(stack: Stack, team: str) -> None:
    job = cloud_job(stack, team)
    node, uid = node_of(stack, team, job), stack.workload(team, job)["metadata"]["uid"]
    assert node is not None
    try:
        [done] = gpufleet(stack, "drain", node, "--for", "driver-upgrade", "--within", "5m", "--yes")["nodes"]
        assert done["jobs"] == [f"{team}/{job}"]
        wait_for("the question", lambda: phase(stack, team, job))
        wait_for("the request on the pod", lambda: requests(stack, team, job))
        answer(stack, team, job, 7)
        wait_for("a pod on another node", lambda: node_of(stack, team, job) not in (None, node))
        [loss] = wait_for("its loss in the ledger", lambda: lost(stack, uid))
        assert (loss.kind, loss.nodes, loss.step) == ("driver-upgrade", (node,), 7)
    finally:
        gpufleet(stack, "drain", node, "--undo")
    taints = stack.kube.get("v1", "Node", node)["spec"].get("taints", [])
    assert DRAIN_TAINT not in [taint["key"] for taint in taints]


def test_a_preemption_by_kueue_is_in_the_ledger_once_and_the_job_is_kueues(stack: Stack, team: str) -> None:
    job = stack.submit(team, 8, job_class="local", run=300, longest=320)
    wait_for("a local start", lambda: stack.flavor(team, job) == LOCAL)
    wait_for("it to work", lambda: condition(stack.workload(team, job), "PodsReady") and worked(stack, team, job))
    uid = stack.workload(team, job)["metadata"]["uid"]
    urgent = stack.submit(team, 8, job_class="urgent", run=300, longest=320)
    wait_for("the urgent job", lambda: stack.flavor(team, urgent) == LOCAL)
    [loss] = wait_for("the loss in the ledger", lambda: lost(stack, uid))
    assert (loss.kind, loss.flavor, loss.answered, loss.gpus, loss.number) == ("preemption", LOCAL, False, 8, 1)
    assert loss.lost_gpu_seconds > 0
    wait_for("the record", lambda: (found := marker(stack, team, job)) is not None and found.accounted)
    found = marker(stack, team, job)
    assert found is not None
    assert (found.kind, found.phase, found.attempts, found.planned) == (NoticeKind.PREEMPTION, Phase.DONE, 1, 1)
    workload = stack.workload(team, job)
    assert workload["spec"].get("active") is not False
    assert [
        job for job in workload["status"]["conditions"] if job["type"] == "Evicted" and job["reason"] == "Preempted"
    ]
    [told] = gpufleet(stack, "explain", f"{team}/{job}")
    assert "evicted once" in told["evicted"]
