"""What is seen of nodes and pods, whatever users and machines wrote on them."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from typing import Any

import pytest

from runtime import metrics
from runtime.clock import Clock, format_time
from runtime.eviction import observe
from runtime.eviction.marker import answer_to_json, marker_to_json
from runtime.eviction.notice import Certainty, Notice, NoticeKind, notices_to_json
from runtime.eviction.observe import Scout, evictions_under_way
from runtime.eviction.pods import PODSET_LABEL, WORKLOAD_ANNOTATION, SeenPod
from runtime.eviction.sources.nodes import LOSS_GRACE_SECONDS
from runtime.eviction.view import Answer, Marker, NodeView, Phase
from runtime.kube import NODES, PODS
from runtime.routing.snapshot import Job, Stage
from runtime.routing.workload import marker_of
from runtime.watching import Watching
from stacks.labels import (
    CHECKPOINT_ANSWER_ANNOTATION,
    CHECKPOINT_HOOK_ANNOTATION,
    CHECKPOINT_REQUEST_ANNOTATION,
    EVICTION_ANNOTATION,
    FLAVOR_LABEL,
    NOTICES_ANNOTATION,
)
from tests.builders import LOCAL, NOON, SPOT, a_config, a_job
from tests.fakes.cluster import FakeCluster

Raw = dict[str, Any]
ANSWER = Answer("spot-1", 1_200, "s3://b/1200", NOON - 5)
SILENT_TAINT = {"key": "node.kubernetes.io/unreachable", "effect": "NoExecute", "timeAdded": format_time(NOON)}


class Time:
    def __init__(self) -> None:
        self.now = NOON

    def scout(self) -> Scout:
        return Scout(a_config(), Clock(real_now=lambda: self.now))


def a_pod(
    name: str = "job-1-0", *, workload: str | None = "job-job-1", owner: str = "owner-job-1", **annotations: str
) -> Raw:
    """A running one-GPU pod of a Job, on node n1, which Kueue let start."""
    labels = {PODSET_LABEL: "main"}
    named = {} if workload is None else {WORKLOAD_ANNOTATION: workload}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": "vision",
            "uid": f"uid-{name}",
            "labels": labels,
            "annotations": named | annotations,
            "ownerReferences": [{"kind": "Job", "name": "job-1", "uid": owner, "controller": True}],
        },
        "spec": {
            "nodeName": "n1",
            "terminationGracePeriodSeconds": 60,
            "containers": [{"name": "main", "resources": {"requests": {"nvidia.com/gpu": "1"}}}],
        },
        "status": {"phase": "Running", "podIP": "10.0.0.7"},
    }


def a_node(name: str = "n1", *, taints: list[Raw] | None = None, notices: str = "[]") -> Raw:
    annotations = {NOTICES_ANNOTATION: notices}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"annotations": annotations, "name": name, "uid": f"uid-{name}", "labels": {FLAVOR_LABEL: SPOT}},
        "spec": {"taints": taints or []},
        "status": {"conditions": [{"type": "Ready", "status": "True"}]},
    }


def seen(scout: Scout, raw: Raw) -> SeenPod:
    pod = scout.pod(raw)
    assert pod is not None
    return pod


def said(raw: Raw, text: str, state: str = "state") -> Raw:
    """The container ended with these last words."""
    raw["status"]["containerStatuses"] = [{"name": "main", state: {"terminated": {"exitCode": 143, "message": text}}}]
    return raw


def running(**changes: Any) -> Job:
    return a_job(stage=Stage.RUNNING_CLOUD, flavor=SPOT, ready_at=NOON - 600, **changes)


# Whose a pod is


@pytest.mark.parametrize("workload", [pytest.param("job-job-1", id="named"), pytest.param(None, id="by its owner")])
def test_a_pod_of_a_job_leads_to_its_workload_with_and_without_kueues_annotation(workload: str | None) -> None:
    scout = Time().scout()
    view = scout.view([], [seen(scout, a_pod(workload=workload))], [running()])
    assert [(pod.workload, pod.gpus, pod.node, pod.managed) for pod in view.pods] == [("job-job-1", 1, "n1", True)]


def test_a_pod_of_an_unknown_owner_is_nobodys() -> None:
    scout = Time().scout()
    view = scout.view([], [seen(scout, a_pod(workload=None, owner="another"))], [running()])
    assert [pod.workload for pod in view.pods] == [""]


def test_a_pod_that_kueue_did_not_let_start_is_no_workloads_whatever_its_annotation_says() -> None:
    raw = a_pod()
    raw["metadata"]["labels"] = {}
    assert seen(Time().scout(), raw).view.workload == ""


def test_a_pod_of_another_namespace_is_not_ours_to_touch() -> None:
    raw = a_pod()
    raw["metadata"]["namespace"] = "elsewhere"
    assert seen(Time().scout(), raw).view.managed is False


def test_pods_of_daemon_sets_are_told_apart() -> None:
    raw = a_pod()
    raw["metadata"]["ownerReferences"][0]["kind"] = "DaemonSet"
    assert seen(Time().scout(), raw).view.daemon


def test_a_pod_that_is_bound_to_no_node_is_not_seen() -> None:
    raw = a_pod()
    del raw["spec"]["nodeName"]
    assert Time().scout().pod(raw) is None


# What a pod says


def test_an_answer_is_read_from_the_annotation_and_from_last_words_and_the_newest_counts() -> None:
    older = Answer("spot-1", 1_100, "s3://b/1100", NOON - 50)
    raw = said(a_pod(**{CHECKPOINT_ANSWER_ANNOTATION: answer_to_json(older)}), answer_to_json(ANSWER))
    assert seen(Time().scout(), raw).view.answer == ANSWER


def test_last_words_of_a_container_that_was_restarted_count() -> None:
    assert seen(Time().scout(), said(a_pod(), answer_to_json(ANSWER), "lastState")).view.answer == ANSWER


def test_a_pod_that_ended_is_seen_for_what_it_says_and_else_not_at_all() -> None:
    raw = a_pod()
    raw["status"]["phase"] = "Failed"
    assert Time().scout().pod(raw) is None
    view = seen(Time().scout(), said(raw, answer_to_json(ANSWER))).view
    assert (view.ended, view.running, view.answer) == (True, False, ANSWER)


@pytest.mark.parametrize(
    "text",
    ["", "Killed", "{}", "[" * 4_000, '{"at": 1e400}', '{"at": -1}', '{"at": "now"}', '{"at": NaN}', "null", "\x00",
     "x" * 100_000, json.dumps({"at": NOON, "url": "u" * 5_000}), json.dumps({"at": NOON, "step": 1.5})],
)  # fmt: skip
def test_what_is_no_answer_is_as_if_nothing_was_said(text: str) -> None:
    raw = said(a_pod(**{CHECKPOINT_ANSWER_ANNOTATION: text, CHECKPOINT_REQUEST_ANNOTATION: text}), text)
    view = seen(Time().scout(), raw).view
    assert (view.answer, view.asked) == (None, "")


def test_the_last_answer_outlives_its_pod() -> None:
    scout = Time().scout()
    seen(scout, said(a_pod(workload=None), answer_to_json(ANSWER)))
    [workload] = scout.view([], [], [running()]).workloads
    assert workload.last_checkpoint_at == ANSWER.at


def test_an_older_answer_of_another_pod_does_not_replace_a_newer_one() -> None:
    scout = Time().scout()
    older = Answer("spot-1", 1, "", NOON - 500)
    for name, answer in (("a", ANSWER), ("b", older)):
        seen(scout, a_pod(name, **{CHECKPOINT_ANSWER_ANNOTATION: answer_to_json(answer)}))
    [workload] = scout.view([], [], [running()]).workloads
    assert workload.last_checkpoint_at == ANSWER.at


def test_pods_of_others_cannot_crowd_out_what_is_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(observe, "MOST_REMEMBERED", 3)
    scout = Time().scout()
    text = answer_to_json(ANSWER)
    seen(scout, a_pod(**{CHECKPOINT_ANSWER_ANNOTATION: text}))
    for number in range(9):
        other = a_pod(f"other-{number}", workload=f"other-{number}", **{CHECKPOINT_ANSWER_ANNOTATION: text})
        other["metadata"]["namespace"] = "elsewhere"
        seen(scout, other)
        orphan = a_pod(f"orphan-{number}", workload=None, **{CHECKPOINT_ANSWER_ANNOTATION: text})
        orphan["metadata"]["ownerReferences"] = []
        seen(scout, orphan)
    [workload] = scout.view([], [], [running()]).workloads
    assert workload.last_checkpoint_at == ANSWER.at
    assert len(scout._answers) == 1


def test_what_is_remembered_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(observe, "MOST_REMEMBERED", 3)
    scout = Time().scout()
    for number in range(9):
        seen(scout, a_pod(workload=f"w-{number}", **{CHECKPOINT_ANSWER_ANNOTATION: answer_to_json(ANSWER)}))
    assert [key for _, key in scout._answers] == ["w-6", "w-7", "w-8"]


# Where a pod listens


@pytest.mark.parametrize(
    ("declared", "address"),
    [
        ("http://:8080", "http://10.0.0.7:8080/"),
        ("http://:8080/save", "http://10.0.0.7:8080/save"),
        ("http://:65535/a?b=c#d", "http://10.0.0.7:65535/a?b=c#d"),
        ("http://:8080/@evil.example/", "http://10.0.0.7:8080/@evil.example/"),
        ("http://:65536/", ""),
        ("http://:0/", ""),
        ("http://:08080/", ""),
        ("http://169.254.169.254:80/latest/meta-data", ""),
        ("http://kubernetes.default:443/", ""),
        ("http://user:password@:8080/", ""),
        ("http://:8080@evil.example/", ""),
        ("http://:8080.evil.example/", ""),
        ("https://:8080/", ""),
        ("file:///etc/passwd", ""),
        ("http://:8080/a b", ""),
        ("http://:8080/\r\nHost: evil", ""),
        ("http://:8080/\n", ""),
        ("http://:8080/" + "x" * 513, ""),
        ("http://:٨٠٨٠/", ""),
        ("", ""),
        ("x" * 200_000, ""),
    ],
)
def test_a_hook_is_on_the_pods_own_address_whatever_its_annotation_says(declared: str, address: str) -> None:
    assert seen(Time().scout(), a_pod(**{CHECKPOINT_HOOK_ANNOTATION: declared})).view.hook == address


@pytest.mark.parametrize(
    ("ip", "address"),
    [("fd00::7", "http://[fd00::7]:80/"), ("", ""), ("evil.example", ""), ("10.0.0.7/x", ""), (None, ""), (7, "")],
)
def test_a_hook_needs_an_address(ip: object, address: str) -> None:
    raw = a_pod(**{CHECKPOINT_HOOK_ANNOTATION: "http://:80"})
    raw["status"]["podIP"] = ip
    assert seen(Time().scout(), raw).view.hook == address


# How long a pod may take to end


@pytest.mark.parametrize(
    ("spec", "metadata", "seconds"),
    [
        ({"terminationGracePeriodSeconds": 300}, {}, 300.0),
        ({"terminationGracePeriodSeconds": 0}, {}, 0.0),
        ({}, {}, 30.0),
        ({"terminationGracePeriodSeconds": 300}, {"deletionGracePeriodSeconds": 5}, 5.0),
        ({"terminationGracePeriodSeconds": -1}, {}, 30.0),
        ({"terminationGracePeriodSeconds": "soon"}, {}, 30.0),
    ],
)
def test_the_grace_is_that_of_the_deletion_under_way_else_that_of_the_pod(
    spec: Raw, metadata: Raw, seconds: float
) -> None:
    raw = a_pod()
    del raw["spec"]["terminationGracePeriodSeconds"]
    raw["spec"] |= spec
    raw["metadata"] |= metadata
    assert seen(Time().scout(), raw).view.grace_seconds == seconds


def test_a_pod_under_deletion_is_leaving_and_one_that_karpenter_must_not_drain_is_shielded() -> None:
    raw = a_pod(**{"karpenter.sh/do-not-disrupt": "true"})
    raw["metadata"]["deletionTimestamp"] = format_time(NOON)
    view = seen(Time().scout(), raw).view
    assert (view.leaving, view.shielded) == (True, True)


# Nodes


def test_a_node_that_falls_silent_becomes_lost_by_the_passing_of_time_alone() -> None:
    time = Time()
    scout = time.scout()
    node = scout.node(a_node(taints=[SILENT_TAINT]))
    assert node is not None
    assert not evictions_under_way([scout.present(node)], [])
    time.now += LOSS_GRACE_SECONDS - 0.1
    assert scout.present(node).notices == ()
    time.now += 0.1
    [notice] = scout.present(node).notices
    assert (notice.kind, notice.certainty) == (NoticeKind.LOSS, Certainty.CERTAIN)
    assert evictions_under_way([scout.present(node)], [])


@pytest.mark.parametrize(
    ("marker", "busy"),
    [
        (Marker("n", NoticeKind.REBALANCE, (), Phase.ASKED), False),
        (Marker("n", NoticeKind.SPOT, (), Phase.STOPPED, attempts=1), False),
        (Marker("n", NoticeKind.SPOT, (), Phase.STOPPED, attempts=1, gone_at=NOON), True),
        (Marker("n", NoticeKind.PREEMPTION, (), Phase.DONE, attempts=1), True),
        (Marker("n", NoticeKind.SPOT, (), Phase.DONE, attempts=1, accounted=True), False),
    ],
)
def test_a_job_that_has_ended_keeps_the_agent_busy_only_until_its_loss_is_accounted(marker: Marker, busy: bool) -> None:
    job = a_job(stage=Stage.FINISHED, eviction=marker)
    assert evictions_under_way((), [job]) is busy
    assert evictions_under_way((), [replace(job, stage=Stage.RUNNING_CLOUD)]) is not marker.accounted


def test_a_node_that_speaks_again_is_not_lost() -> None:
    time = Time()
    scout = time.scout()
    time.now += 600
    node = scout.node(a_node())
    assert node is not None
    assert (scout.present(node).notices, scout.present(node).ready) == ((), True)


def test_the_notices_of_our_node_agent_are_seen_and_what_is_none_is_not() -> None:
    scout = Time().scout()
    notice = Notice("spot-1", NoticeKind.SPOT, "aws", Certainty.CERTAIN, NOON, NOON + 120)
    node = scout.node(a_node(notices=notices_to_json([notice])))
    assert node is not None
    assert node.view.notices == (notice,)
    broken = scout.node(a_node(notices="[{"))
    assert broken is not None
    assert broken.view.notices == ()


@pytest.mark.parametrize("raw", [{}, {"metadata": {}}, {"metadata": {"name": "n1"}}, {"metadata": {"labels": None}}])
def test_a_node_that_is_not_the_fleets_is_not_seen(raw: Raw) -> None:
    assert Time().scout().node(raw) is None


def test_nodes_that_are_surely_gone_are_in_the_view_unless_they_are_back() -> None:
    scout = Time().scout()
    there = NodeView("n1", (), present=True, ready=True, flavor=SPOT)
    view = scout.view([there], [], [], gone=["n1", "n2"])
    assert {name: node.present for name, node in view.nodes.items()} == {"n1": True, "n2": False}


# Jobs


STOPPED = Marker("n-1", NoticeKind.SPOT, ("n1",), Phase.STOPPED, stopped_at=NOON)


@pytest.mark.parametrize(
    ("job", "in_view"),
    [
        (a_job(), False),
        (running(), True),
        (a_job(stage=Stage.RUNNING_LOCAL, flavor=LOCAL), True),
        (a_job(stage=Stage.AT_GATE, flavor=SPOT), False),
        (a_job(stage=Stage.EVICTED, eviction=STOPPED), True),
        (a_job(stage=Stage.FINISHED, eviction=STOPPED), False),
        (a_job(stage=Stage.FINISHED, eviction=replace(STOPPED, attempts=1, gone_at=NOON)), True),
        (a_job(eviction=Marker("n", NoticeKind.SPOT, (), Phase.DONE, accounted=True)), False),
        (a_job(eviction=Marker("n", NoticeKind.SPOT, (), Phase.DONE)), True),
    ],
)
def test_jobs_that_run_or_have_an_eviction_that_is_not_over_are_in_the_view(job: Job, in_view: bool) -> None:
    scout = Time().scout()
    assert bool(scout.view([], [], [job]).workloads) is in_view


def test_times_of_jobs_are_real_ones_also_in_a_replay() -> None:
    clock = Clock(speed=60.0, origin=NOON - 3_600, real_now=lambda: NOON)
    scout = Scout(a_config(replay_speed=60.0), clock)
    started_at = clock.to_fleet(NOON - 60)
    [workload] = scout.view([], [], [a_job(stage=Stage.RUNNING_CLOUD, flavor=SPOT, ready_at=started_at)]).workloads
    assert workload.started_at == pytest.approx(NOON - 60)


def test_the_caches_keep_what_routing_or_evictions_need_and_nothing_else() -> None:
    cluster = FakeCluster()
    foreign, odd = a_pod("foreign"), a_pod("odd")
    foreign["metadata"]["labels"] = {}
    odd["spec"]["containers"][0]["resources"]["requests"]["nvidia.com/gpu"] = "1Ki"
    unbound = a_pod("unbound")
    del unbound["spec"]["nodeName"]
    for raw in (a_pod(), foreign, odd, unbound):
        cluster.put(PODS, raw)
    other = a_node("other")
    other["metadata"]["labels"] = {}
    for raw in (a_node(), other):
        cluster.put(NODES, raw)

    async def story() -> Watching:
        watching = Watching(cluster.kube(), a_config(), Clock(), lambda *_: None, asyncio.Event())
        task = asyncio.create_task(watching.run())
        async with asyncio.timeout(2):
            while not watching.complete:  # noqa: ASYNC110
                await asyncio.sleep(0)
        task.cancel()
        return watching

    watching = asyncio.run(story())
    assert [node.name for node in watching.nodes] == ["n1"]
    assert [pod.view.name for pod in watching.pods] == ["job-1-0"]


def test_a_marker_on_a_workload_is_read_and_what_is_none_is_not_ours() -> None:
    text = marker_to_json(STOPPED)
    assert marker_of({"annotations": {EVICTION_ANNOTATION: text}}) == STOPPED
    for broken in (text[:-1], "", "[" * 4_000, 7, None, '{"phase":"stopped","kind":"no such kind"}', "x" * 100_000):
        assert marker_of({"annotations": {EVICTION_ANNOTATION: broken}}) is None
    assert marker_of({"annotations": None}) is marker_of({}) is None


# Notices that cannot be read


def test_notices_that_cannot_be_read_are_counted_and_said_once_until_they_change(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def counted() -> float:
        return next(
            s.value for m in metrics.unreadable_notices.collect() for s in m.samples if s.name.endswith("total")
        )

    before, scout = counted(), Time().scout()
    for text in ("nonsense", "nonsense", "[]", "nonsense", "[1]"):
        node = scout.node(a_node(notices=text))
        assert node is not None
        assert node.view.notices == ()
    scout.node(a_node("n2", notices="nonsense"))
    assert counted() - before == 4
    said = [(record.__dict__["node"], record.levelname) for record in caplog.records]
    assert said == [("n1", "WARNING")] * 3 + [("n2", "WARNING")]
    assert "is not JSON" in caplog.records[0].__dict__["error"]
