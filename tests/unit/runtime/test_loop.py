from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from runtime import cache as cache_module
from runtime import forecasting, metrics, treasury
from runtime import lease as lease_module
from runtime import loop as loop_module
from runtime.clock import Clock, format_time
from runtime.cost.ledger import TopUp
from runtime.cost.topups import to_text
from runtime.kube import (
    ADMISSION_CHECKS,
    CONFIG_MAPS,
    JOBS,
    LEASES,
    LOCAL_QUEUES,
    NAMESPACES,
    RESOURCE_FLAVORS,
    WORKLOADS,
)
from runtime.loop import Agent
from runtime.origin import read_cluster
from runtime.routing.act import PARALLEL_ACTIONS
from runtime.routing.decide import decide
from runtime.settings import Settings
from runtime.simulation.text import from_data
from runtime.store import Owner
from stacks.agent_config import dump
from stacks.labels import (
    AGENT_NAME,
    EXPECTED_RUNTIME_ANNOTATION,
    FORECAST_NAME,
    GATE_CONTROLLER,
    GATE_NAME,
    QUEUE_LABEL,
    TOP_UPS_NAME,
    burst_queue,
)
from tests.builders import HOUR, LOCAL, ON_DEMAND, SPOT, a_config, a_flavor, a_team
from tests.fakes import kueue
from tests.fakes.cluster import Denied, FakeCluster
from tests.fakes.furniture import furnish, put_check, put_config
from tests.fakes.workloads import a_batch_job, a_pod_template, a_workload

Raw = dict[str, Any]
PATIENCE_SECONDS = 30.0
SOME_ON_DEMAND = a_flavor("on-demand", 8, "4")
TWIN = burst_queue("vision", SPOT)


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Everything is as in production but ten times as fast."""
    for module, names in (
        (loop_module, ("SHORTEST_TICK_SECONDS", "FIRST_RETRY_SECONDS")),
        (cache_module, ("FIRST_PAUSE_SECONDS", "LONGEST_PAUSE_SECONDS")),
        (treasury, ("LEDGER_RETRY_SECONDS", "MONEY_SECONDS")),
        (lease_module, ("RETRY_SHARE",)),
    ):
        for name in names:
            monkeypatch.setattr(module, name, getattr(module, name) / 10)


@pytest.fixture
def cluster() -> FakeCluster:
    cluster = FakeCluster()
    furnish(cluster, a_config(interval="20ms"))
    return cluster


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings(
        config=a_config(interval="20ms"),
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
            await asyncio.sleep(0.1)
            assert len([path for path in cluster.writes() if "admissionchecks" in path]) == 1

    asyncio.run(story())


def test_a_check_is_not_activated_while_the_ledger_cannot_be_read(
    cluster: FakeCluster, settings: Settings, tmp_path: Path
) -> None:
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
            await until(lambda: queue_of(cluster) == TWIN, "released once the ledger is back")
            await until(lambda: "status" in cluster.get(ADMISSION_CHECKS, GATE_NAME), "active")

    asyncio.run(story())


def test_of_two_replicas_one_writes_and_the_other_follows_when_it_stops(
    cluster: FakeCluster, settings: Settings
) -> None:
    async def story() -> None:
        async with running(cluster, settings) as first:
            await until(lambda: first.ready() is None, "ready")
            async with running(cluster, replace(settings, identity="pod-2")) as second:
                await asyncio.sleep(0.1)
                assert first._lease.held
                assert not second._lease.held
                first.stop()
                await until(lambda: second._lease.held, "the second leads")
                submit(cluster)
                await until(lambda: queue_of(cluster) == TWIN, "released by the second")

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

    async def story() -> None:
        submit(cluster)
        async with running(cluster, settings):
            await until(lambda: queue_of(cluster) == TWIN, "released in the end")
        assert failures > 2

    asyncio.run(story())


def test_an_agent_whose_every_tick_fails_is_not_restarted_for_it(
    cluster: FakeCluster, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    failures = 0

    def fail(*arguments: Any) -> Any:
        nonlocal failures
        failures += 1
        if failures > 1:
            raise ZeroDivisionError("a bug")
        return decide(*arguments)

    monkeypatch.setattr(loop_module, "decide", fail)
    monkeypatch.setattr(loop_module, "HEALTHY_SECONDS", 0.3)
    monkeypatch.setattr(loop_module, "LONGEST_PAUSE_SECONDS", 0.1)

    async def story() -> None:
        async with running(cluster, settings) as agent:
            await until(lambda: failures > 9, "failures")
            assert agent.healthy() is None

    asyncio.run(story())


def test_a_stop_while_very_much_is_to_be_done_finishes_what_has_begun_and_hands_the_lease_over(
    cluster: FakeCluster, settings: Settings
) -> None:
    for number in range(300):
        submit(cluster, f"job-{number}")
    flavors = {LOCAL: a_flavor("onprem", 16, "0"), SPOT: a_flavor("spot", 1_000, "2"), ON_DEMAND: SOME_ON_DEMAND}
    config = a_config(interval="20ms", flavors=flavors)
    put_config(cluster, dump(config))

    async def story() -> None:
        async with running(cluster, replace(settings, config=config)) as agent:

            def stop_at_once(method: str, path: str, body: Any) -> None:
                if method == "PATCH" and "/jobs/" in path:
                    agent.stop()

            cluster.rule = stop_at_once
            await until(agent._stopping.is_set, "the first release")
        assert 0 < sum("/jobs/" in path for path in cluster.writes()) <= PARALLEL_ACTIONS
        assert cluster.get(LEASES, AGENT_NAME, "system")["spec"]["holderIdentity"] == ""

    asyncio.run(story())


def test_an_api_server_that_goes_away_for_a_while_does_not_end_the_agent(
    cluster: FakeCluster, settings: Settings
) -> None:
    async def story() -> None:
        async with running(cluster, settings) as agent:
            await until(lambda: agent.ready() is None, "ready")
            with cluster.refusing():
                cluster.end_watches()
                await until(lambda: not agent._lease.held, "the lease is lost")
            submit(cluster)
            await until(lambda: queue_of(cluster) == TWIN, "released after the outage")

    asyncio.run(story())


def test_a_run_time_nobody_can_read_is_told_to_its_user_once(cluster: FakeCluster, settings: Settings) -> None:
    async def story() -> None:
        template = a_pod_template(**{EXPECTED_RUNTIME_ANNOTATION: "soon"})
        submit(cluster, podSets=[{"name": "main", "count": 1, "template": template}])
        async with running(cluster, settings):
            await until(lambda: queue_of(cluster) == TWIN, "released all the same")
            await asyncio.sleep(0.1)
        reasons = [raw["reason"] for key, raw in cluster.objects.items() if key[0].endswith("/events")]
        assert reasons.count("ExpectedRuntimeIgnored") == 1

    asyncio.run(story())


def test_a_stop_before_the_cluster_ever_answered_is_quick(cluster: FakeCluster, settings: Settings) -> None:
    async def story() -> None:
        with cluster.refusing():
            async with running(cluster, settings) as agent:
                await asyncio.sleep(0.1)
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


def events_of(cluster: FakeCluster) -> list[str]:
    return [raw["reason"] for key, raw in cluster.objects.items() if key[0].endswith("/events")]


def alarms() -> dict[str, float]:
    samples = next(iter(metrics.alarms.collect())).samples
    return {sample.labels["kind"]: sample.value for sample in samples if sample.value}


def test_a_changed_configuration_takes_effect_without_a_restart_and_lists_anew(
    cluster: FakeCluster, settings: Settings
) -> None:
    grown = a_config(interval="20ms", teams={"vision": a_team("vision"), "biology": a_team("biology")})

    async def story() -> None:
        async with running(cluster, settings) as agent:
            await until(lambda: agent.ready() is None, "ready")
            raw, job = a_workload("job-2", queue="biology", created_at=time.time() - HOUR), a_batch_job("job-2")
            for each in (raw, job):
                each["metadata"]["namespace"] = "biology"
            cluster.put(JOBS, job)
            cluster.put(WORKLOADS, raw)
            await asyncio.sleep(0.1)
            assert all("biology" not in path for path in cluster.writes()), "not ours yet"
            furnish(cluster, grown)
            twin = burst_queue("biology", SPOT)
            await until(lambda: label_of(cluster, "job-2", "biology") == twin, "released under the new configuration")
            assert agent.config == grown
            assert agent.healthy() is None

    asyncio.run(story())


def label_of(cluster: FakeCluster, name: str, namespace: str) -> str:
    return str(cluster.get(JOBS, name, namespace)["metadata"]["labels"][QUEUE_LABEL])


def test_a_bad_configuration_is_refused_the_old_one_kept_and_an_alarm_stands_until_it_is_mended(
    cluster: FakeCluster, settings: Settings
) -> None:
    async def story() -> None:
        async with running(cluster, settings) as agent:
            await until(lambda: agent.ready() is None, "ready")
            put_config(cluster, "x" * 1_048_576)
            await until(lambda: "configuration-refused" in alarms(), "an alarm")
            submit(cluster)
            await until(lambda: queue_of(cluster) == TWIN, "released under the old configuration")
            put_config(cluster, dump(settings.config))
            await until(lambda: "configuration-refused" not in alarms(), "mended")
            assert agent.config == settings.config

    asyncio.run(story())


def test_of_two_changes_in_a_row_the_last_one_counts(cluster: FakeCluster, settings: Settings) -> None:
    async def story() -> None:
        async with running(cluster, settings) as agent:
            await until(lambda: agent.ready() is None, "ready")
            for interval in ("200ms", "300ms", "150ms"):
                put_config(cluster, dump(a_config(interval=interval)))
                await asyncio.sleep(0.01)
            await until(lambda: agent.config == a_config(interval="150ms"), "the last one")
            await until(lambda: len(caches()) == 8, "no former cache goes on")

    asyncio.run(story())


def caches() -> list[object]:
    """The caches that are being kept."""
    return [task for task in asyncio.all_tasks() if getattr(task.get_coro(), "__qualname__", "") == "Cache.run"]


def test_a_dry_run_decides_and_writes_nothing_but_its_lease(
    cluster: FakeCluster, settings: Settings, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    rehearsing = replace(settings, config=a_config(interval="20ms", dry_run=True))
    furnish(cluster, rehearsing.config)

    async def story() -> None:
        submit(cluster)
        put_check(cluster, GATE_NAME)
        put_top_up(cluster)
        async with running(cluster, rehearsing):
            await until(lambda: any("would act" in record.message for record in caplog.records), "a decision")
            await asyncio.sleep(0.1)
        assert cluster.writes() == []
        assert events_of(cluster) == []
        assert len([record for record in caplog.records if "would act" in record.message]) == 1

    asyncio.run(story())


def put_top_up(cluster: FakeCluster, **entries: str) -> None:
    now = time.time()
    top_up = TopUp("t-1", "fleet", Decimal(500), "a paper", "ann", now, now + HOUR)
    metadata = {"name": TOP_UPS_NAME, "namespace": "system"}
    cluster.put(CONFIG_MAPS, {"metadata": metadata, "data": {"t-1": to_text(top_up), **entries}})


def test_top_ups_are_recorded_once_and_what_is_none_is_counted(
    cluster: FakeCluster, settings: Settings, tmp_path: Path
) -> None:
    budgeted = replace(settings, config=a_config(interval="20ms", budget={"monthly": "1 USD"}))
    furnish(cluster, budgeted.config)

    async def story() -> None:
        stranger = to_text(TopUp("t-2", "team nobody", Decimal(5), "r", "ann", time.time(), time.time() + HOUR))
        put_top_up(cluster, garbage="x" * 1_000_000, number="5", stranger=stranger)
        for _ in range(2):
            async with running(cluster, budgeted):
                await until(lambda: list((tmp_path / "ledger/v1/top-ups").glob("*")), "recorded")
                await until(lambda: metrics.bad_top_ups._value.get() == 3, "counted")
                await until(lambda: metrics.topped_up_usd.labels("fleet", "month")._value.get() == 500, "it counts")
                await until(lambda: "BudgetToppedUp" in events_of(cluster), "told")
        assert [path.name for path in (tmp_path / "ledger/v1/top-ups").glob("*")] == ["t-1.json"]
        assert events_of(cluster).count("BudgetToppedUp") == 1

    asyncio.run(story())


def test_a_threshold_is_told_once_whoever_leads(cluster: FakeCluster, settings: Settings) -> None:
    small = a_team("vision", budget={"monthly": "3 USD", "thresholds": ["1%", "100%"]})
    budgeted = replace(settings, config=a_config(interval="20ms", teams={"vision": small}))
    furnish(cluster, budgeted.config)

    async def story() -> None:
        submit(cluster)
        async with running(cluster, budgeted):
            await until(lambda: is_ready(cluster), "ready")
        for identity in ("pod-1", "pod-2"):
            async with running(cluster, replace(budgeted, identity=identity)) as agent:
                await until(lambda: "BudgetThresholdReached" in events_of(cluster), "told")
                await until(lambda: agent.ready() is None and agent._lease.held, "leading")
                await asyncio.sleep(0.1)
        assert events_of(cluster).count("BudgetThresholdReached") == 1

    asyncio.run(story())


def test_each_team_reads_its_forecast_in_its_own_namespace(cluster: FakeCluster, settings: Settings) -> None:
    async def story() -> None:
        cluster.put(JOBS, a_batch_job())
        cluster.put(WORKLOADS, a_workload(created_at=time.time()))
        async with running(cluster, settings):
            await until(lambda: "data" in cluster.get(CONFIG_MAPS, FORECAST_NAME, "vision"), "a forecast")
            await until(lambda: "data" in cluster.get(CONFIG_MAPS, FORECAST_NAME, "nlp"), "for every team")
        said = from_data(cluster.get(CONFIG_MAPS, FORECAST_NAME, "vision")["data"])
        assert said is not None
        assert said.jobs["job-job-1"].position == 1
        other = from_data(cluster.get(CONFIG_MAPS, FORECAST_NAME, "nlp")["data"])
        assert other is not None
        assert other.jobs == {}

    asyncio.run(story())


def test_a_forecast_that_fails_costs_nothing_but_itself(
    cluster: FakeCluster, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*arguments: Any) -> None:
        raise ZeroDivisionError("a bug")

    monkeypatch.setattr(forecasting, "forecast", fail)

    async def story() -> None:
        submit(cluster)
        async with running(cluster, settings):
            await until(lambda: queue_of(cluster) == TWIN, "released all the same")

    asyncio.run(story())


def test_what_is_wrong_with_the_cluster_is_an_alarm_until_it_is_mended(
    cluster: FakeCluster, settings: Settings
) -> None:
    async def story() -> None:
        cluster.remove(LOCAL_QUEUES, TWIN, "vision")
        cluster.remove(RESOURCE_FLAVORS, SPOT)
        async with running(cluster, settings):
            await until(lambda: {"check-missing", "twin-broken", "flavor-missing"} <= alarms().keys(), "alarms")
            put_check(cluster, GATE_NAME)
            furnish(cluster, settings.config)
            await until(lambda: not alarms(), "mended")

    asyncio.run(story())


def test_a_flavor_that_leaves_the_fleet_while_jobs_wait_and_run_on_it_stops_nothing(
    cluster: FakeCluster, settings: Settings
) -> None:
    smaller = a_config(interval="20ms", burst_order=(ON_DEMAND,), teams={"vision": a_team("vision")})
    smaller = smaller.model_copy(
        update={
            "flavors": {name: flavor for name, flavor in smaller.flavors.items() if name != SPOT},
            "teams": {
                "vision": smaller.teams["vision"].model_copy(
                    update={"burst_queues": {ON_DEMAND: burst_queue("vision", ON_DEMAND)}}
                )
            },
        }
    )

    async def story() -> None:
        submit(cluster)
        async with running(cluster, settings) as agent:
            await until(lambda: is_ready(cluster), "it runs on spot")
            cluster.put(JOBS, a_batch_job("pending", TWIN))
            cluster.put(WORKLOADS, a_workload("pending", queue=TWIN, created_at=time.time() - HOUR))
            put_config(cluster, dump(smaller))
            await until(lambda: agent.config == smaller, "in force")
            submit(cluster, "job-3")
            on_demand = burst_queue("vision", ON_DEMAND)
            await until(lambda: label_of(cluster, "job-3", "vision") == on_demand, "others go on")
            assert agent.healthy() is None
            assert not failed_ticks(agent)

    asyncio.run(story())


def failed_ticks(agent: Agent) -> bool:
    """Whether the last tick was long ago, by the measure of these tests."""
    return agent._ticked_at is None or asyncio.get_running_loop().time() - agent._ticked_at > 1


@pytest.mark.parametrize("code", [409, 429, 500, 503])
def test_a_storm_of_refused_writes_ends_and_the_job_is_released(
    cluster: FakeCluster, settings: Settings, code: int
) -> None:
    left = 5

    def storm(method: str, path: str, body: Any) -> None:
        nonlocal left
        if method == "PATCH" and "/jobs/" in path and left:
            left -= 1
            raise Denied(code)

    cluster.rule = storm

    async def story() -> None:
        submit(cluster)
        async with running(cluster, settings):
            await until(lambda: queue_of(cluster) == TWIN, "released in the end")
        assert left == 0

    asyncio.run(story())


@pytest.mark.parametrize("jump", [-30 * 86_400, -3_600, 86_400])
def test_a_clock_that_jumps_neither_stops_the_loop_nor_makes_time_negative(
    cluster: FakeCluster, settings: Settings, jump: float
) -> None:
    off = 0.0

    async def story() -> None:
        nonlocal off
        submit(cluster)
        agent = Agent(settings, cluster.kube(), Clock(real_now=lambda: time.time() + off), Owner("u-0", 1.0))
        task = asyncio.create_task(agent.run())
        await until(lambda: is_ready(cluster), "ready")
        off = jump
        submit(cluster, "job-2")
        await asyncio.sleep(0.1)
        assert not failed_ticks(agent)
        off = 0.0
        await until(lambda: label_of(cluster, "job-2", "vision") != "vision", "released when the clock is right again")
        agent.stop()
        await asyncio.wait_for(task, PATIENCE_SECONDS)

    asyncio.run(story())


def test_workloads_nobody_can_read_keep_nobody_else_from_leaving(cluster: FakeCluster, settings: Settings) -> None:
    broken: list[Raw] = [
        {"spec": None},
        {"spec": {"queueName": "vision", "podSets": "x"}},
        {"spec": {"queueName": {}, "podSets": []}},
        {"status": {"conditions": [{"type": {}}]}},
        {"status": {"conditions": 5}},
    ]

    async def story() -> None:
        for number, change in enumerate(broken):
            raw = a_workload(f"broken-{number}")
            raw |= change if "status" in change else {"spec": change["spec"]}
            cluster.put(WORKLOADS, raw)
        submit(cluster)
        async with running(cluster, settings):
            await until(lambda: queue_of(cluster) == TWIN, "released")

    asyncio.run(story())


def test_a_fleet_without_teams_and_a_cluster_without_anything_is_a_quiet_place(settings: Settings) -> None:
    empty = replace(settings, config=a_config(interval="20ms", teams={}))

    async def story() -> None:
        cluster = FakeCluster()
        async with running(cluster, empty) as agent:
            await until(lambda: agent.ready() is None and agent._lease.held, "ready")
            await asyncio.sleep(0.1)
            assert not failed_ticks(agent)
        assert cluster.writes() == []

    asyncio.run(story())
