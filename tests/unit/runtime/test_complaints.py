from __future__ import annotations

import asyncio
from typing import Any

import pytest

from runtime import complaints as complaints_module
from runtime import gatekeeper, origin
from runtime.clock import Clock
from runtime.complaints import MOST_TOLD_AT_ONCE, Complaints
from runtime.gatekeeper import Check, Gatekeeper
from runtime.kube import NAMESPACES
from runtime.origin import read_cluster
from runtime.routing.observe import MALFORMED
from runtime.routing.wishes import BAD_DATA_SIZE, BAD_EXPECTED_RUNTIME
from runtime.settings import Settings
from runtime.store import Owner
from tests.builders import a_config, a_job
from tests.fakes.cluster import Denied, FakeCluster
from tests.fakes.workloads import a_workload

SETTINGS = Settings(a_config(), "memory:///", "system", "pod-1", 0, "127.0.0.1", 4, "INFO")


def test_a_complaint_is_logged_and_told_once_however_often_a_workload_is_read(
    caplog: pytest.LogCaptureFixture,
) -> None:
    complaints = Complaints()
    for _ in range(3):
        complaints.report(BAD_EXPECTED_RUNTIME, a_workload(), "cannot be read")
        complaints.report(BAD_DATA_SIZE, a_workload(), "cannot be read either")
        complaints.report(MALFORMED, a_workload("other"), "what is this")
    assert len(caplog.records) == 3
    told = complaints.for_users([a_job(), a_job("other")])
    assert sorted(event.reason for event in told) == ["DataSizeIgnored", "ExpectedRuntimeIgnored"]
    assert complaints.for_users([a_job()]) == []


def test_a_thousand_wrong_annotations_are_told_of_bit_by_bit_and_none_is_forgotten() -> None:
    complaints, jobs = Complaints(), [a_job(str(number)) for number in range(1_000)]
    for job in jobs:
        complaints.report(BAD_EXPECTED_RUNTIME, a_workload(job.uid), "cannot be read")
    told: list[str] = []
    while batch := complaints.for_users(jobs):
        assert len(batch) <= MOST_TOLD_AT_ONCE, "each is a request, and decisions wait for them"
        told += [event.related.uid for event in batch if event.related]
    assert sorted(told) == sorted(job.uid for job in jobs)


def test_what_is_about_no_job_of_ours_is_told_to_nobody() -> None:
    complaints = Complaints()
    complaints.report(BAD_EXPECTED_RUNTIME, a_workload("stranger"), "cannot be read")
    assert complaints.for_users([a_job()]) == []


@pytest.mark.parametrize("raw", [{}, {"metadata": None}, {"metadata": 5}, {"metadata": {"uid": {}}}])
def test_a_complaint_about_something_without_a_name_is_one_all_the_same(raw: dict[str, Any]) -> None:
    Complaints().report(MALFORMED, raw, "what is this")


def test_the_memory_of_complaints_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(complaints_module, "COMPLAINTS_LIMIT", 3)
    complaints = Complaints()
    for number in range(10):
        complaints.report(BAD_EXPECTED_RUNTIME, a_workload(str(number)), "cannot be read")
    assert len(complaints._known) <= 3
    assert len(complaints._untold) <= 3


def test_a_check_that_may_not_be_activated_is_complained_of_once_and_tried_at_leisure(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story() -> None:
        cluster = FakeCluster()
        keeper = Gatekeeper(cluster.kube(), lambda: 0.0)
        for _ in range(10):
            await keeper.activate([Check("gate", 1, False)])
        assert len(cluster.requests) == 1
        monkeypatch.setattr(gatekeeper, "RETRY_SECONDS", 0.0)
        keeper._retry_at = 0.0
        for _ in range(3):
            await keeper.activate([Check("gate", 1, False)])
        assert len(cluster.requests) == 4

    asyncio.run(story())
    assert [record.levelname for record in caplog.records] == ["ERROR"]


def test_a_check_is_inactive_since_it_was_first_seen_so() -> None:
    async def story() -> None:
        keeper = Gatekeeper(FakeCluster().kube(), lambda: 0.0)
        inactive, active = Check("gate", 1, False), Check("gate", 1, True)
        assert keeper.state([active]).inactive_seconds == 0
        keeper.state([inactive])
        await asyncio.sleep(0.02)
        assert keeper.state([inactive]).inactive_seconds >= 0.02
        assert keeper.state([active]).inactive_seconds == 0
        assert keeper.state([inactive]).inactive_seconds == 0
        assert keeper.state([]).exists is False
        await keeper.activate([inactive])

    asyncio.run(story())


@pytest.mark.parametrize("answer", ["down", "denied", "something else"])
def test_the_origin_is_waited_for_until_the_answer_is_one(answer: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(origin, "FIRST_RETRY_SECONDS", 0.01)
    cluster = FakeCluster()
    for name in ("system", "kube-system"):
        metadata = {"name": name, "uid": f"u-{name}", "creationTimestamp": "2026-11-21T08:00:00Z"}
        cluster.put(NAMESPACES, {"metadata": metadata})
    good, refused = dict(cluster.objects), 0

    def disturb(method: str, path: str, body: Any) -> None:
        nonlocal refused
        refused += 1
        cluster.objects = dict(good)
        if refused > 3:
            return
        if answer == "something else":
            cluster.objects = {key: {"kind": "Namespace", "metadata": {}} for key in good}
        else:
            raise Denied(503 if answer == "down" else 403)

    cluster.rule = disturb
    clock, owner = asyncio.run(read_cluster(cluster.kube(), SETTINGS))
    assert (clock, owner) == (Clock(1_795_248_000.0), Owner("u-kube-system", 1.0))
    assert refused > 3
