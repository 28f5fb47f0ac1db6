from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from runtime import loop as loop_module
from runtime.clock import Clock, format_time
from runtime.kube import ADMISSION_CHECKS, JOBS, LEASES, NAMESPACES, WORKLOADS
from runtime.loop import Agent, read_cluster
from runtime.routing.decide import decide
from runtime.settings import Settings
from runtime.store import Owner
from stacks.labels import AGENT_NAME, EXPECTED_RUNTIME_ANNOTATION, GATE_CONTROLLER, GATE_NAME, QUEUE_LABEL
from tests.builders import HOUR, a_config
from tests.fakes import kueue
from tests.fakes.cluster import FakeCluster
from tests.fakes.workloads import a_batch_job, a_pod_template, a_workload

Raw = dict[str, Any]
PATIENCE_SECONDS = 5.0


@pytest.fixture
def cluster() -> FakeCluster:
    return FakeCluster()


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings(
        config=a_config(interval="100ms"),
        ledger=(tmp_path / "ledger").as_uri(),
        namespace="system",
        identity="pod-1",
        health_port=0,
        bind="127.0.0.1",
        lease_seconds=1,
        log_level="INFO",
    )


def submit(cluster: FakeCluster, name: str = "job-1", **spec: Any) -> None:
    cluster.put(JOBS, a_batch_job(name))
    cluster.put(WORKLOADS, a_workload(name, created_at=time.time() - HOUR, **spec))


def a_check() -> Raw:
    return {"metadata": {"name": GATE_NAME, "generation": 1}, "spec": {"controllerName": GATE_CONTROLLER}}


@asynccontextmanager
async def running(cluster: FakeCluster, settings: Settings) -> AsyncIterator[Agent]:
    agent = Agent(settings, cluster.kube(), Clock(), Owner("u-0", 1.0))
    task = asyncio.create_task(agent.run())
    try:
        yield agent
        agent.stop()
        await asyncio.wait_for(task, PATIENCE_SECONDS)
    finally:
        task.cancel()


async def until(happened: Callable[[], object], what: str) -> None:
    deadline = asyncio.get_running_loop().time() + PATIENCE_SECONDS
    while not happened():
        assert asyncio.get_running_loop().time() < deadline, f"never: {what}"
        await asyncio.sleep(0.02)


def queue_of(cluster: FakeCluster, name: str = "job-1") -> str:
    return str(cluster.get(JOBS, name, "vision")["metadata"]["labels"][QUEUE_LABEL])


def is_ready(cluster: FakeCluster) -> bool:
    kueue.step(cluster, time.time())
    checks = cluster.get(WORKLOADS, "job-job-1", "vision")["status"].get("admissionChecks", [])
    return any(check["state"] == "Ready" for check in checks)


def test_a_waiting_job_is_released_and_cleared_and_the_agent_stops_in_good_order(
    cluster: FakeCluster, settings: Settings
) -> None:
    async def story() -> None:
        submit(cluster)
        async with running(cluster, settings) as agent:
            await until(lambda: is_ready(cluster), "ready")
            assert agent.healthy() is None
            assert agent.ready() is None
        assert cluster.get(LEASES, AGENT_NAME, "system")["spec"]["holderIdentity"] == ""

    asyncio.run(story())


def test_a_check_that_appears_late_is_activated_and_one_of_others_left_alone(
    cluster: FakeCluster, settings: Settings
) -> None:
    async def story() -> None:
        async with running(cluster, settings) as agent:
            await until(lambda: agent.ready() is None, "ready")
            foreign = a_check() | {"spec": {"controllerName": "example.com/other"}}
            foreign["metadata"]["name"] = "other"
            cluster.put(ADMISSION_CHECKS, foreign)
            cluster.put(ADMISSION_CHECKS, a_check())
            await until(lambda: "status" in cluster.get(ADMISSION_CHECKS, GATE_NAME), "active")
            assert "status" not in cluster.get(ADMISSION_CHECKS, "other")
            await asyncio.sleep(0.5)
            assert len([path for path in cluster.writes() if "admissionchecks" in path]) == 1

    asyncio.run(story())


def test_a_check_is_not_activated_while_the_ledger_cannot_be_read(
    cluster: FakeCluster, settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loop_module, "LEDGER_RETRY_SECONDS", 0.2)

    async def story() -> None:
        (tmp_path / "ledger").write_text("in the way")
        submit(cluster)
        cluster.put(ADMISSION_CHECKS, a_check())
        async with running(cluster, settings) as agent:
            await until(lambda: any("workloads/job-job-1" in path for path in cluster.writes()), "a verdict")
            assert agent.ready() is not None
            assert "status" not in cluster.get(ADMISSION_CHECKS, GATE_NAME)
            assert queue_of(cluster) == "vision"
            (tmp_path / "ledger").unlink()
            await until(lambda: queue_of(cluster) == "vision-burst", "released once the ledger is back")
            await until(lambda: "status" in cluster.get(ADMISSION_CHECKS, GATE_NAME), "active")

    asyncio.run(story())


def test_of_two_replicas_one_writes_and_the_other_follows_when_it_stops(
    cluster: FakeCluster, settings: Settings
) -> None:
    async def story() -> None:
        async with running(cluster, settings) as first:
            await until(lambda: first.ready() is None, "ready")
            async with running(cluster, replace(settings, identity="pod-2")) as second:
                await asyncio.sleep(0.3)
                assert first._lease.held
                assert not second._lease.held
                first.stop()
                await until(lambda: second._lease.held, "the second leads")
                submit(cluster)
                await until(lambda: queue_of(cluster) == "vision-burst", "released by the second")

    asyncio.run(story())


def test_a_tick_that_fails_is_tried_again_and_the_agent_lives(
    cluster: FakeCluster, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    failures = 0

    def fail_twice(*arguments: Any) -> Any:
        nonlocal failures
        failures += 1
        if failures <= 2:
            raise ZeroDivisionError("a bug")
        return decide(*arguments)

    monkeypatch.setattr(loop_module, "decide", fail_twice)
    monkeypatch.setattr(loop_module, "FIRST_RETRY_SECONDS", 0.05)

    async def story() -> None:
        submit(cluster)
        async with running(cluster, settings):
            await until(lambda: queue_of(cluster) == "vision-burst", "released in the end")
        assert failures > 2

    asyncio.run(story())


def test_an_api_server_that_goes_away_for_a_while_does_not_end_the_agent(
    cluster: FakeCluster, settings: Settings
) -> None:
    async def story() -> None:
        async with running(cluster, settings) as agent:
            await until(lambda: agent.ready() is None, "ready")
            with cluster.refusing():
                cluster.end_watches()
                await asyncio.sleep(1)
                assert not agent._lease.held
            submit(cluster)
            await until(lambda: queue_of(cluster) == "vision-burst", "released after the outage")

    asyncio.run(story())


def test_a_run_time_nobody_can_read_is_told_to_its_user_once(cluster: FakeCluster, settings: Settings) -> None:
    async def story() -> None:
        template = a_pod_template(**{EXPECTED_RUNTIME_ANNOTATION: "soon"})
        submit(cluster, podSets=[{"name": "main", "count": 1, "template": template}])
        async with running(cluster, settings):
            await until(lambda: queue_of(cluster) == "vision-burst", "released all the same")
            await asyncio.sleep(0.3)
        reasons = [raw["reason"] for key, raw in cluster.objects.items() if key[0].endswith("/events")]
        assert reasons.count("ExpectedRuntimeIgnored") == 1

    asyncio.run(story())


def test_a_stop_before_the_cluster_ever_answered_is_quick(cluster: FakeCluster, settings: Settings) -> None:
    async def story() -> None:
        with cluster.refusing():
            async with running(cluster, settings) as agent:
                await asyncio.sleep(0.2)
                assert agent.ready() == "workloads are not listed yet"
                assert agent.healthy() is None

    started = time.monotonic()
    asyncio.run(story())
    assert time.monotonic() - started < 2


def test_the_origin_of_fleet_time_is_the_same_after_a_restart(cluster: FakeCluster, settings: Settings) -> None:
    fast = replace(settings, config=a_config(replay_speed=60.0))
    for name, uid in (("system", "u-1"), ("kube-system", "u-0")):
        metadata = {"name": name, "uid": uid, "creationTimestamp": format_time(1_000_000)}
        cluster.put(NAMESPACES, {"metadata": metadata})
    first = asyncio.run(read_cluster(cluster.kube(), fast))
    second = asyncio.run(read_cluster(cluster.kube(), fast))
    assert first == second == (Clock(1_000_000, 60.0), Owner("u-0", 60.0))
    assert asyncio.run(read_cluster(cluster.kube(), settings))[0].speed == 1
