"""What stands in a cluster beside jobs: the queues, flavors, check and ConfigMaps of a fleet, as Pulumi leaves them."""

from __future__ import annotations

from typing import Any

from runtime.kube import ADMISSION_CHECKS, CONFIG_MAPS, LOCAL_QUEUES, RESOURCE_FLAVORS
from runtime.settings import CONFIG_KEY
from stacks.agent_config import AgentConfig, dump
from stacks.labels import AGENT_NAME, FORECAST_NAME, GATE_CONTROLLER, TOP_UPS_NAME
from tests.fakes.cluster import FakeCluster

Raw = dict[str, Any]


def furnish(cluster: FakeCluster, config: AgentConfig, namespace: str = "system") -> None:
    """Put everything there that the configuration speaks of."""
    for flavor in config.flavors:
        cluster.put(RESOURCE_FLAVORS, {"metadata": {"name": flavor}, "spec": {}})
    for team in config.teams.values():
        for queue in (team.queue, *team.burst_queues.values(), *team.window_queues.values()):
            cluster.put(LOCAL_QUEUES, a_local_queue(queue, team.namespace))
        cluster.put(CONFIG_MAPS, {"metadata": {"name": FORECAST_NAME, "namespace": team.namespace}})
    cluster.put(CONFIG_MAPS, {"metadata": {"name": TOP_UPS_NAME, "namespace": namespace}})
    put_config(cluster, dump(config), namespace)


def put_config(cluster: FakeCluster, text: str, namespace: str = "system") -> None:
    """Write the agent's ConfigMap."""
    metadata = {"name": AGENT_NAME, "namespace": namespace, "uid": "config"}
    cluster.put(CONFIG_MAPS, {"metadata": metadata, "data": {CONFIG_KEY: text}})


def a_local_queue(name: str, namespace: str = "vision", *, active: bool = True, stop_policy: str = "None") -> Raw:
    """A LocalQueue as Kueue keeps it."""
    status = {"conditions": [{"type": "Active", "status": str(active)}]}
    return {
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"clusterQueue": name, "stopPolicy": stop_policy},
        "status": status,
    }


def put_check(cluster: FakeCluster, name: str) -> None:
    """Write the AdmissionCheck, which nobody has answered yet."""
    metadata = {"name": name, "generation": 1}
    cluster.put(ADMISSION_CHECKS, {"metadata": metadata, "spec": {"controllerName": GATE_CONTROLLER}})
