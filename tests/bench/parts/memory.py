"""Memory of the agent's process against a fake API server on loopback, with objects as large as real ones.

The fake stands in the benchmark's own process; the agent is `python -m runtime` as in its image. Peak memory counts:
a list of everything is when it is highest, and what a container limit must allow.
"""

from __future__ import annotations

import asyncio
import os
import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

from runtime.clock import format_time
from runtime.kube import NAMESPACES, NODES, PODS, WORKLOADS
from stacks.agent_config import AgentConfig, dump
from stacks.labels import FLAVOR_LABEL, GATE_NAME, SYSTEM_NAMESPACE
from tests.builders import LOCAL, SPOT, a_config, a_flavor
from tests.conftest import ROOT
from tests.fakes.cluster import FakeCluster
from tests.fakes.furniture import furnish, put_check
from tests.fakes.served import ServedCluster
from tests.fakes.workloads import a_workload, condition, reserve

WORKLOAD_BYTES: Final = 4_350
"""Of one in a list: 2,000 were 8.7 MB on a real API server."""

POD_BYTES: Final = 5_000
GPUS_PER_NODE: Final = 8
_SETTLE_SECONDS: Final = 12.0
_START_SECONDS: Final = 60.0
_WATCHES: Final = 6  # runtime.watching: once each of its collections is listed it is watched

Raw = dict[str, Any]


def peak_mib(pending: int, running: int) -> tuple[float, float]:
    """Peak and settled resident memory of the agent, in MiB, with so many waiting jobs and so many that run."""
    return asyncio.run(_measured(pending, running))


async def _measured(pending: int, running: int) -> tuple[float, float]:
    cluster = FakeCluster()
    config = _config(running)
    _fill(cluster, config, pending, running)
    async with ServedCluster(cluster) as served, _agent(served, config) as process:
        deadline = asyncio.get_running_loop().time() + _START_SECONDS
        while cluster.watching < _WATCHES or not any(method == "PATCH" for method, _, _ in cluster.requests):
            if process.returncode is not None or asyncio.get_running_loop().time() > deadline:
                raise RuntimeError("the agent did not begin to work; its log is above")
            await asyncio.sleep(0.2)
        await asyncio.sleep(_SETTLE_SECONDS)
        return _memory_mib(process.pid, "VmHWM"), _memory_mib(process.pid, "VmRSS")


@asynccontextmanager
async def _agent(served: ServedCluster, config: AgentConfig) -> AsyncIterator[asyncio.subprocess.Process]:
    with tempfile.TemporaryDirectory(prefix="gpufleet-bench-") as directory:
        folder = Path(directory)
        (folder / "config.yaml").write_text(dump(config))
        (folder / "ledger").mkdir()
        own = {name: value for name, value in os.environ.items() if not name.startswith(("KUBERNETES_", "GPUFLEET_"))}
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            *("-m", "runtime", f"--config={folder / 'config.yaml'}", f"--ledger=file://{folder / 'ledger'}"),
            *("--health-port=0", "--log-level=ERROR"),
            cwd=ROOT,
            env=own | {"KUBECONFIG": str(served.kubeconfig(folder / "kubeconfig")), "GPUFLEET_BIND": "127.0.0.1"},
        )
        try:
            yield process
        finally:
            if process.returncode is None:
                process.terminate()
            await process.wait()


def _config(running: int) -> AgentConfig:
    local = a_flavor("onprem", running + GPUS_PER_NODE, "0")
    flavors = {LOCAL: local, SPOT: a_flavor("spot", 64, "2"), "h100-on-demand": a_flavor("on-demand", 16, "4")}
    return a_config(flavors=flavors)


def _fill(cluster: FakeCluster, config: AgentConfig, pending: int, running: int) -> None:
    furnish(cluster, config, SYSTEM_NAMESPACE)
    put_check(cluster, GATE_NAME)
    for name in (SYSTEM_NAMESPACE, "kube-system", *(team.namespace for team in config.teams.values())):
        metadata = {"name": name, "creationTimestamp": format_time(0.0), "uid": f"uid-{name}"}
        cluster.put(NAMESPACES, {"metadata": metadata})
    for number in range(pending):
        raw = a_workload(f"train-{number:05d}", created_at=_NOW - number % 1_500)
        cluster.put(WORKLOADS, _padded(raw, WORKLOAD_BYTES))
    for number in range(running):
        raw = condition(reserve(a_workload(f"run-{number:05d}"), LOCAL), "Admitted")
        cluster.put(WORKLOADS, _padded(raw, WORKLOAD_BYTES))
        cluster.put(PODS, _padded(_pod(number), POD_BYTES))
        if number % GPUS_PER_NODE == 0:
            cluster.put(NODES, _padded(_node(number // GPUS_PER_NODE), POD_BYTES))


_NOW: Final = 1_795_262_400.0


def _pod(number: int) -> Raw:
    metadata = {
        "name": f"run-{number:05d}-abcde",
        "namespace": "vision",
        "uid": f"pod-{number}",
        "labels": {"kueue.x-k8s.io/podset": "main"},
        "ownerReferences": [{"kind": "Job", "name": f"run-{number:05d}", "uid": f"owner-{number}", "controller": True}],
    }
    spec = {"nodeSelector": {FLAVOR_LABEL: LOCAL}, "nodeName": f"rack-{number // GPUS_PER_NODE}"}
    return {"metadata": metadata, "spec": spec, "status": {"phase": "Running"}}


def _node(number: int) -> Raw:
    status = {
        "conditions": [{"type": "Ready", "status": "True"}],
        "allocatable": {"nvidia.com/gpu": str(GPUS_PER_NODE)},
    }
    return {"metadata": {"name": f"rack-{number}", "labels": {FLAVOR_LABEL: LOCAL}}, "spec": {}, "status": status}


def _padded(raw: Raw, size: int) -> Raw:
    """As large as a real one, by what real ones are full of and the agent does not read."""
    missing = size - len(str(raw))
    fields = [
        {"manager": "kueue", "operation": "Apply", "fieldsV1": {f"f:field-{n}": {}}} for n in range(missing // 75)
    ]
    raw["metadata"]["managedFields"] = fields
    return raw


def _memory_mib(pid: int, name: str) -> float:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1]) / 1_024
    return float("nan")
