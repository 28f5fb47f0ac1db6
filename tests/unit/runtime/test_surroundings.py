from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from runtime.routing.runs import REFRESH_SECONDS, REMEMBERED, Runs
from runtime.routing.snapshot import Stage
from runtime.routing.surroundings import CloudPod, LocalNode, Queue, Surroundings, Surveyor
from stacks.labels import DRAIN_TAINT, FLAVOR_LABEL, burst_queue
from tests.builders import LOCAL, NOON, ON_DEMAND, SPOT, a_config, a_job, a_team
from tests.fakes.furniture import a_local_queue

Raw = dict[str, Any]


def surveyor() -> Surveyor:
    team = a_team("vision", window_queues={"p2": "vision-window-p2"})
    return Surveyor(a_config(teams={"vision": team, "nlp": a_team("nlp")}))


def a_node(flavor: str = LOCAL, gpus: object = "8", *, ready: str = "True", **spec: Any) -> Raw:
    return {
        "metadata": {"name": "n", "labels": {FLAVOR_LABEL: flavor}},
        "spec": spec,
        "status": {"allocatable": {"nvidia.com/gpu": gpus}, "conditions": [{"type": "Ready", "status": ready}]},
    }


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        (a_node(), LocalNode(LOCAL, 8)),
        (a_node(ready="False"), LocalNode(LOCAL, 0)),
        (a_node(ready="Unknown"), LocalNode(LOCAL, 0)),
        (a_node(unschedulable=True), LocalNode(LOCAL, 0)),
        (a_node(taints=[{"key": DRAIN_TAINT, "effect": "NoSchedule"}]), LocalNode(LOCAL, 0)),
        (a_node(taints=[{"key": "example.com/own", "effect": "NoSchedule"}]), LocalNode(LOCAL, 8)),
        (a_node(gpus="many"), LocalNode(LOCAL, 0)),
        (a_node(gpus=None), LocalNode(LOCAL, 0)),
        (a_node(SPOT), None),
        (a_node("unheard-of"), None),
        ({"metadata": {"name": "control-plane"}}, None),
        ({}, None),
    ],
)
def test_only_ready_nodes_of_local_flavors_count(raw: Raw, expected: LocalNode | None) -> None:
    assert surveyor().node(raw) == expected


def survey(**seen: Any) -> Surroundings:
    return surveyor().survey(seen.pop("jobs", ()), **{"nodes": (), "queues": (), "pods": ()} | seen)


def test_capacity_adds_up_by_flavor_and_knows_nothing_of_flavors_without_a_node() -> None:
    assert survey(nodes=[LocalNode(LOCAL, 8), LocalNode(LOCAL, 0), LocalNode(LOCAL, 4)]).capacity == {LOCAL: 12}
    assert survey(nodes=[LocalNode(LOCAL, 0)]).capacity == {LOCAL: 0}, "every node is down"
    assert survey().capacity == survey(nodes=None).capacity == {}


TWINS = {burst_queue(team, flavor) for team in ("vision", "nlp") for flavor in (SPOT, ON_DEMAND)}


def test_a_twin_is_broken_if_it_is_missing_or_not_active() -> None:
    seen = [Queue(name, active=True, held=False) for name in sorted(TWINS)]
    assert survey(queues=seen).broken_queues == frozenset()
    assert survey(queues=seen[1:]).broken_queues == {seen[0].name}
    assert survey(queues=[*seen[1:], Queue(seen[0].name, active=False, held=False)]).broken_queues == {seen[0].name}
    assert survey(queues=()).broken_queues == TWINS
    assert survey(queues=None).broken_queues == frozenset(), "what cannot be read is not held against a job"


def test_queues_of_ours_are_told_from_others_of_the_same_name() -> None:
    read, window = surveyor().queue, "vision-window-p2"
    assert read(a_local_queue(window, stop_policy="Hold")) == Queue(window, active=True, held=True)
    assert read(a_local_queue(window, stop_policy="HoldAndDrain", active=False)) == Queue(window, False, True)
    assert read(a_local_queue(burst_queue("vision", SPOT), "nlp")) is None
    assert read(a_local_queue("vision")) is None
    assert read({"metadata": None}) is None
    queues = [Queue(window, active=False, held=True), Queue(burst_queue("nlp", SPOT), active=False, held=True)]
    assert survey(queues=queues).held_queues == {window}


def a_pod(flavor: str = SPOT, phase: str = "Running", namespace: str = "vision", **annotations: str) -> Raw:
    owners = [{"kind": "Node", "uid": "not-it"}, {"kind": "Job", "uid": "child", "controller": True}]
    metadata = {"name": "p", "namespace": namespace, "ownerReferences": owners, "annotations": annotations}
    return {"metadata": metadata, "spec": {"nodeSelector": {FLAVOR_LABEL: flavor}}, "status": {"phase": phase}}


@pytest.mark.parametrize(
    ("raw", "counts"),
    [
        (a_pod(), True),
        (a_pod(phase="Pending"), True),
        (a_pod("a-flavor-that-left"), True),
        (a_pod(LOCAL), False),
        (a_pod(phase="Succeeded"), False),
        (a_pod(phase="Failed"), False),
        (a_pod(namespace="kube-system"), False),
        ({"metadata": {"namespace": "vision"}, "spec": {}}, False),
        ({"spec": {"nodeSelector": []}}, False),
    ],
)
def test_pods_linger_while_they_may_take_a_cloud_node(raw: Raw, counts: bool) -> None:
    assert (surveyor().pod(raw) is not None) is counts


def test_a_pod_of_a_child_leads_to_the_job_by_its_workload() -> None:
    pod = surveyor().pod(a_pod(**{"kueue.x-k8s.io/workload": "job-job-1"}))
    assert pod == CloudPod("child", "vision", "job-job-1")
    found = survey(pods=[pod], jobs=[a_job(), a_job("other")])
    assert found.lingering == {"child", "owner-job-1"}
    assert survey(pods=[CloudPod("", "vision", "gone")], jobs=[a_job()]).lingering == frozenset()


def test_cloud_flavors_that_kueue_lacks_are_missing_and_unknown_ones_are_not() -> None:
    assert surveyor().missing_flavors([SPOT]) == {ON_DEMAND}
    assert surveyor().missing_flavors(None) == frozenset()
    assert surveyor().flavor({"metadata": {"name": SPOT}}) == SPOT
    assert surveyor().flavor({"metadata": {"name": LOCAL}}) is None


ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=2)
        | st.dictionaries(
            st.sampled_from(["metadata", "spec", "status", "labels", "conditions", "nodeSelector", "name", "type"]),
            inner,
        )
    ),
    max_leaves=6,
)


@settings(max_examples=60)
@given(st.dictionaries(st.sampled_from(["metadata", "spec", "status"]), ANYTHING))
def test_objects_nobody_can_read_count_as_not_there(raw: Raw) -> None:
    read = surveyor()
    for reduce in (read.node, read.queue, read.flavor, read.pod):
        assert reduce(raw) is None


def finished(uid: str, seconds: float | None, ended_at: float = NOON) -> Any:
    return a_job(uid, owner_name=f"train-{uid}", stage=Stage.FINISHED, ran_seconds=seconds, released_quota_at=ended_at)


def test_what_ran_is_remembered_when_its_workload_is_gone_and_counts_once() -> None:
    runs = Runs()
    jobs = [finished(str(number), 600.0 + number) for number in range(3)]
    estimate = runs.history([*jobs, a_job()], 0).estimate("vision", "train-99", "p1")
    assert estimate is not None
    assert estimate.seconds == 601
    assert runs.history(jobs, REFRESH_SECONDS + 1) is runs.history([], 2 * REFRESH_SECONDS + 2), "nothing new"
    again = runs.history([finished("9", 9_000.0, NOON + 1)], 3 * REFRESH_SECONDS + 3)
    assert "4 runs" in str(again.estimate("vision", "train-99", "p1"))


def test_a_history_is_not_made_anew_for_every_tick() -> None:
    runs = Runs()
    empty = runs.history([], 0)
    assert runs.history([finished(str(number), 600.0) for number in range(3)], REFRESH_SECONDS - 1) is empty


def test_runs_that_failed_or_never_were_are_no_history_and_the_memory_is_bounded() -> None:
    runs = Runs()
    assert runs.history([finished("a", None), a_job(ran_seconds=5.0)], 0).by_class == {}
    many = [finished(str(number), 60.0, NOON + number) for number in range(REMEMBERED + 10)]
    runs.history(many, REFRESH_SECONDS + 1)
    assert len(runs._runs) == REMEMBERED
    assert "0" not in runs._runs
