"""From a card to the Node's condition: the whole way, with the test NVML and an API server of one Node."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from runtime.eviction.sources import SourceDown
from runtime.gpus.events import NvmlEvents
from runtime.gpus.exporter import Key
from runtime.gpus.idle import Limits
from runtime.gpus.metrics import metrics
from runtime.gpus.monitor import RESTART_SECONDS, Monitor
from runtime.gpus.nvml import Nvml
from runtime.gpus.podresources import Holding, PodsUnknown
from runtime.gpus.reader import Usage
from runtime.gpus.report import RESYNC_SECONDS, Report
from runtime.gpus.survey import Survey
from runtime.node.gpus import pages
from runtime.node.kube import NodeClient
from stacks.labels import GPU_CONDITION, GPU_FAILED_TAINT, GPU_FAULTS_ANNOTATION
from tests.fakes.nodeserver import NodeServer
from tests.nvml.scenario import DRIVER_NOT_LOADED, NO_PERMISSION, VERSION_MISMATCH, Card, Mig, Scenario, gpu_uuid

KEPT = {"type": "Ready", "status": "True"}


@dataclass
class Clock:
    at: float = 1_000.0

    def __call__(self) -> float:
        return self.at


@dataclass
class Pods:
    found: tuple[Holding, ...] = ()
    error: str = ""

    def holdings(self) -> tuple[Holding, ...]:
        if self.error:
            raise PodsUnknown(self.error)
        return self.found


@dataclass
class Told:
    found: Mapping[Key, Usage] = field(default_factory=dict)
    asked: int = 0

    def read(self) -> Mapping[Key, Usage]:
        self.asked += 1
        if not self.found:
            raise SourceDown("nobody there")
        return self.found


Make = Callable[..., Monitor]


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def server(tmp_path: Path) -> NodeServer:
    (tmp_path / "token").write_text("secret")
    found = NodeServer()
    found.node["status"]["conditions"] = [KEPT]
    return found


@pytest.fixture
def make(reader: Nvml, events: NvmlEvents, server: NodeServer, clock: Clock, tmp_path: Path) -> Make:
    def made(boot: str = "boot-1", **options: Any) -> Monitor:
        report = Report(NodeClient(server.url, "gpu-1", tmp_path), now=clock, monotonic=clock)
        return Monitor(Survey(reader, **options), events, report, boot=boot, now=clock, monotonic=clock)

    return made


def text_of(monitor: Monitor) -> str:
    return "".join(metrics(monitor))


def test_an_xid_makes_the_node_unhealthy_and_keeps_jobs_off_until_the_next_boot(
    scenario: Scenario, server: NodeServer, make: Make, clock: Clock
) -> None:
    with server:
        monitor = make()
        monitor.step()
        assert server.condition(GPU_CONDITION)["status"] == "True"
        assert server.condition("Ready") == KEPT
        assert server.taints == []
        writes = len(server.patches)
        monitor.step()
        assert len(server.patches) == writes  # nothing changed
        monitor._events.events(0)  # listens from here on
        scenario.report(0, 8, 31)
        scenario.report(0, 8, 79)
        monitor.listen()
        monitor.step()
        assert (server.condition(GPU_CONDITION)["status"], server.condition(GPU_CONDITION)["reason"]) == (
            "False",
            "Xid79",
        )
        assert [(taint["key"], taint["value"]) for taint in server.taints] == [(GPU_FAILED_TAINT, "Xid79")]
        assert f'gpufleet_node_gpu_xid_events_total{{uuid="{gpu_uuid(0)}",xid="31"}} 1\n' in text_of(monitor)
        assert f'gpufleet_node_gpu_health{{uuid="{gpu_uuid(0)}",state="failed"}} 1\n' in text_of(monitor)
        again = make()  # the agent starts anew, and has heard of nothing
        again.step()
        assert server.condition(GPU_CONDITION)["reason"] == "Xid79"
        rebooted = make(boot="boot-2")
        rebooted.step()
        assert server.condition(GPU_CONDITION)["status"] == "True"
        assert (server.taints, server.annotations) == ([], {})


def test_an_administrator_who_removes_the_faults_is_believed(
    scenario: Scenario, server: NodeServer, make: Make, clock: Clock
) -> None:
    with server:
        monitor = make()
        monitor.step()
        monitor._events.events(0)
        scenario.report(0, 8, 79)
        monitor.listen()
        monitor.step()
        server.edit(lambda node: node["metadata"]["annotations"].pop(GPU_FAULTS_ANNOTATION))
        clock.at += RESYNC_SECONDS
        monitor.step()
        assert server.condition(GPU_CONDITION)["status"] == "True"
        assert server.taints == []


def test_a_taint_that_somebody_took_away_is_set_again(
    scenario: Scenario, server: NodeServer, make: Make, clock: Clock
) -> None:
    scenario.cards[0].settings = {"remap_failed": 1}
    scenario.write()
    with server:
        monitor = make()
        monitor.step()
        server.edit(lambda node: node["spec"].pop("taints"))
        clock.at += RESYNC_SECONDS
        monitor.step()
        assert [taint["key"] for taint in server.taints] == [GPU_FAILED_TAINT]


def test_what_cannot_be_written_is_written_when_the_api_server_is_back(
    scenario: Scenario, server: NodeServer, make: Make
) -> None:
    scenario.cards[0].settings = {"remap_failed": 1}
    scenario.write()
    with server:
        monitor = make()
        server.away = True
        monitor.step()
        server.away = False
        server.answers = [200, 200, 409, 200, 500]  # read twice; a conflict, for which it reads again; a refusal
        monitor.step()
        assert server.patches == []
        assert server.answers == []
        monitor.step()
        assert server.condition(GPU_CONDITION)["reason"] == "RowRemapFailed"
        assert [taint["key"] for taint in server.taints] == [GPU_FAILED_TAINT]


def test_a_node_without_a_driver_says_nothing_and_one_that_had_it_says_unknown(
    scenario: Scenario, server: NodeServer, make: Make, clock: Clock
) -> None:
    scenario.down = DRIVER_NOT_LOADED
    scenario.write()
    with server:
        monitor = make()
        monitor.step()
        assert server.patches == []
        assert monitor.problem() is None
        assert 'gpufleet_node_gpu_reader_up{part="nvml"} 0\n' in text_of(monitor)
        scenario.down = 0
        scenario.write()
        monitor.step()
        scenario.down = VERSION_MISMATCH
        scenario.write()
        monitor.step()
        assert server.condition(GPU_CONDITION)["status"] == "Unknown"
        served = pages(monitor, {})
        assert served["/healthz"]() == (200, "ok\n")
        clock.at += RESTART_SECONDS
        assert served["/healthz"]()[0] == 503
        scenario.down = 0
        scenario.write()
        monitor.step()
        assert served["/healthz"]()[0] == 200


def test_a_pod_that_wastes_its_gpu_is_told_what_would_do(
    scenario: Scenario, server: NodeServer, make: Make, clock: Clock
) -> None:
    scenario.cards = [Card("h100-sxm-80gb", mig=False, gpm={1: 9.0, 2: 4.0}, settings={"used": 6_000})]
    scenario.write()
    pods = Pods((Holding("ml", 'odd"name', "main", "nvidia.com/gpu", gpu_uuid(0)),))
    with server:
        monitor = make(pods=pods, limits=Limits(window_seconds=600.0))
        for _ in range(42):
            monitor.step()
            clock.at += 15
        (finding,) = monitor.snapshot.wastes.values()
        assert (finding.waste, finding.fits) == ("underused", "1g.10gb")
        text = text_of(monitor)
        assert f'gpufleet_node_gpu_wasted{{uuid="{gpu_uuid(0)}",kind="underused",fits="1g.10gb"}} 1\n' in text
        assert r'namespace="ml",pod="odd\"name",container="main"' in text
        pods.found = ()
        monitor.step()
        assert monitor.snapshot.wastes == {}


def test_without_a_kubelet_a_process_is_a_holder(
    scenario: Scenario, server: NodeServer, make: Make, clock: Clock
) -> None:
    scenario.cards = [Card("h100-sxm-80gb", mig=False, gpm={1: 0.0}, processes=[(7, None, None)])]
    scenario.errors = [("nvmlDeviceGetGpuInstancePossiblePlacements_v2", NO_PERMISSION, -1)]
    scenario.write()
    with server:
        monitor = make(pods=Pods(error="no socket"), limits=Limits(window_seconds=600.0))
        for _ in range(42):
            monitor.step()
            clock.at += 15
        (finding,) = monitor.snapshot.wastes.values()
        assert finding.waste == "idle"
        assert monitor.answering.up["pods"] is False


def test_the_exporter_is_asked_only_where_nvml_is_silent(scenario: Scenario, server: NodeServer, make: Make) -> None:
    told = Told({(gpu_uuid(0), 7): Usage("", 1, 0.5, None, 0.25, None, None)})
    with server:
        scenario.cards = [Card("a100-sxm-80gb", mig=True, instances=[Mig(0, 7, "1g.10gb", used=77)])]
        scenario.write()
        monitor = make(exported=told)
        monitor.step()
        (usage,) = monitor.snapshot.usage.values()
        assert (usage.active, usage.tensor_active, usage.memory_used_mib) == (0.5, 0.25, 77)
        assert 'profile="1g.10gb"} 0.5\n' in text_of(monitor)
        told.found = {}
        monitor.step()
        assert monitor.answering.up["exporter"] is False
        assert "gpufleet_node_gpu_active_ratio{" not in text_of(monitor)
        asked = told.asked
        scenario.cards = [Card("t4-16gb", settings={"util": 0})]
        scenario.write()
        monitor.step()
        assert told.asked == asked


def test_a_cut_of_clocks_counts_when_it_stays(scenario: Scenario, server: NodeServer, make: Make) -> None:
    scenario.cards[0].settings = {"reasons": 0x40}
    scenario.write()
    with server:
        monitor = make()
        states = []
        for _ in range(3):
            monitor.step()
            assert monitor.snapshot.verdict is not None
            states.append(monitor.snapshot.verdict.reason)
        assert states == ["Healthy", "Healthy", "ThermalSlowdown"]
        scenario.cards[0].settings = {}
        scenario.write()
        monitor.step()
        assert server.condition(GPU_CONDITION)["status"] == "True"


def test_metrics_stand_beside_those_of_the_notices(scenario: Scenario, server: NodeServer, make: Make) -> None:
    with server:
        monitor = make()
        monitor.step()
        served = pages(monitor, {"/healthz": lambda: (503, "the desk\n"), "/metrics": lambda: (200, "others 1\n")})
        assert served["/healthz"]() == (503, "the desk\n")
        status, text = served["/metrics"]()
        assert status == 200
        assert text.startswith("others 1\n# HELP gpufleet_node_gpu_reader_up")
        names = [line.split()[2] for line in text.splitlines() if line.startswith("# TYPE")]
        assert len(names) == len(set(names))
