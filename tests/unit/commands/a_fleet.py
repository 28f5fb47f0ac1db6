"""A cluster in memory with two teams, for the commands that read jobs."""

from __future__ import annotations

import time
from typing import Any

import pytest

from infra.commands import jobs, recall
from runtime import kube
from runtime.clock import format_time
from runtime.simulation.text import TeamForecast, to_data
from stacks.agent_config import dump
from stacks.labels import AGENT_NAME, FORECAST_NAME, SYSTEM_NAMESPACE
from tests.builders import a_config
from tests.fakes.cluster import Denied, FakeCluster

Raw = dict[str, Any]


def a_fleet(monkeypatch: pytest.MonkeyPatch, *workloads: Raw) -> FakeCluster:
    """A cluster with gpufleet and these Workloads, that the commands connect to."""
    cluster = FakeCluster()
    cluster.put(kube.NAMESPACES, {"metadata": {"name": SYSTEM_NAMESPACE, "creationTimestamp": format_time(0)}})
    put_config_map(cluster, AGENT_NAME, SYSTEM_NAMESPACE, {"config.yaml": dump(a_config())})
    for raw in workloads:
        cluster.put(kube.WORKLOADS, raw)
    for command in (jobs, recall):
        monkeypatch.setattr(command, "connect", lambda _stack: cluster.kube())
    return cluster


def put_config_map(cluster: FakeCluster, name: str, namespace: str, data: dict[str, str]) -> None:
    cluster.put(kube.CONFIG_MAPS, {"metadata": {"name": name, "namespace": namespace}, "data": data})


def put_forecast(cluster: FakeCluster, *, age: float = 10.0, **changes: Any) -> None:
    """The agent wrote a forecast for team vision."""
    now = time.time() - age
    values: dict[str, Any] = {"team": "vision", "at": now, "real_at": now}
    put_config_map(cluster, FORECAST_NAME, "vision", to_data(TeamForecast(**(values | changes))))


def only_in_namespace(cluster: FakeCluster, namespace: str = "vision") -> None:
    """From now on the caller may read what is in one namespace, and nothing else."""

    def rule(method: str, path: str, body: Any) -> None:
        if f"/namespaces/{namespace}/" not in path:
            raise Denied(403, f"forbidden: {path}")

    cluster.rule = rule
