"""`gpufleet init --from-cluster` on a real API server; what it writes is checked and previewed without an edit."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml
from rich.console import Console
from typer.testing import CliRunner

from infra.commands.init import init
from infra.discovery.reader import ClusterError
from infra.local.controlplane import ControlPlane
from infra.local.engine import Engine
from infra.local.kubeclient import KubeClient
from infra.local.kwok import KwokPool
from infra.local.state import State
from infra.local.toolchain import Toolchain
from stacks.fleet import Fleet
from stacks.load import read_file
from tests.conftest import ROOT, Plane
from tests.e2e.conftest import FLEET_FILE, KUEUE, Stack

Init = Callable[..., Fleet]


@pytest.fixture
def from_cluster(plane: Plane, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Init:
    """Runs the command against the session's plane or the caller's KUBECONFIG, and reads what it wrote as `gpufleet check` does."""
    monkeypatch.setenv("KUBECONFIG", str(plane.kubeconfig))
    app = typer.Typer()
    app.command()(init)

    def run(*options: str) -> Fleet:
        file = tmp_path / "Pulumi.found.yaml"
        ended = CliRunner().invoke(app, ["found", "--from-cluster", "--yes", "--to", str(file), *options])
        assert ended.exit_code == 0, ended.output or ended.exception
        return read_file(file).fleet

    return run


GFD = {
    "nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3",
    "nvidia.com/gpu.count": "8",
    "nvidia.com/gpu.memory": "81559",
    "nvidia.com/mig.strategy": "mixed",
}
SPOT = {
    "karpenter.sh/nodepool": "gpu-spot",
    "karpenter.sh/capacity-type": "spot",
    "karpenter.k8s.aws/instance-gpu-name": "l4",
    "node.kubernetes.io/instance-type": "g6.12xlarge",
    "topology.kubernetes.io/region": "us-east-1",
}
NODES = (
    KwokPool("rack", ("gpu01", "gpu02", "gpu03"), labels=GFD, cpus_per_node=190, memory_gib_per_node=2000),
    KwokPool("spot", ("ip-10-0-1-7", "ip-10-0-1-9"), labels=SPOT, gpus_per_node=4, cpus_per_node=47),
    KwokPool("cpu", ("web-1",), gpus_per_node=0),
)


@pytest.fixture
def bare(tools: Toolchain, tmp_path: Path) -> Iterator[Plane]:
    """A control plane of its own, with Kueue, nodes as real labels describe them, and nothing of gpufleet."""
    state = State.at(tmp_path / "state", "bare")
    control = ControlPlane(state, tools)
    control.start(NODES, console=Console(quiet=True))
    yield Plane(control, state)
    control.stop()


def somebody_elses_queues() -> list[dict[str, Any]]:
    """What a company has that has used Kueue for a while."""
    quota = [{"name": "nvidia.com/gpu", "nominalQuota": 16, "borrowingLimit": 8}]
    group = {"coveredResources": ["nvidia.com/gpu"], "flavors": [{"name": "h100", "resources": quota}]}
    product = {"nvidia.com/gpu.product": GFD["nvidia.com/gpu.product"]}
    queue = {"cohortName": "acme.com", "namespaceSelector": {}, "resourceGroups": [group]}
    objects: tuple[tuple[str, str, dict[str, str], dict[str, Any]], ...] = (
        ("v1", "Namespace", {"name": "vision"}, {}),
        (KUEUE, "ResourceFlavor", {"name": "h100"}, {"spec": {"nodeLabels": product}}),
        (KUEUE, "WorkloadPriorityClass", {"name": "prod"}, {"value": 1000}),
        (KUEUE, "WorkloadPriorityClass", {"name": "normal"}, {"value": 0}),
        (KUEUE, "ClusterQueue", {"name": "vision-cq"}, {"spec": queue}),
        (KUEUE, "LocalQueue", {"name": "main", "namespace": "vision"}, {"spec": {"clusterQueue": "vision-cq"}}),
    )
    return [{"apiVersion": api, "kind": kind, "metadata": metadata, **body} for api, kind, metadata, body in objects]


def preview(stack: Stack, file: Path) -> dict[str, int]:
    """What `pulumi preview` of a file would do to the deployed stack, by kind of change."""
    result = stack.engine.preview("local", "--config-file", str(file), as_json=True)
    assert result.succeeded, result.stdout + result.stderr
    return dict(result.document()["changeSummary"])


def test_a_deployed_fleet_folds_back_into_the_file_it_came_from(
    stack: Stack, from_cluster: Init, tmp_path: Path
) -> None:
    stack.up(FLEET_FILE)
    original, found = stack.fleet, from_cluster()

    assert found.organization == original.organization
    assert set(found.pools) == set(original.pools)
    assert found.pools["rack"].model_dump() | {"cluster": "lab"} == original.pools["rack"].model_dump() | {
        "cpus_per_node": 96,
        "memory_per_node": "1Ti",
    }
    assert found.cloud_pools["spot"].gpus == original.cloud_pools["spot"].gpus
    assert found.cloud_pools["spot"].price == original.cloud_pools["spot"].price
    assert found.teams == original.teams
    assert found.classes == original.classes
    assert found.burst == original.burst
    assert found.agent == original.agent


def test_the_preview_of_what_was_found_changes_nothing_that_is_deployed(
    stack: Stack, from_cluster: Init, tmp_path: Path
) -> None:
    stack.up(FLEET_FILE)
    from_cluster("--cluster", "lab")
    changes = preview(stack, tmp_path / "Pulumi.found.yaml")
    assert set(changes) == {"same"}, changes


def test_what_is_found_in_a_cluster_that_never_saw_gpufleet_is_previewed_without_an_edit(
    bare: Plane, tools: Toolchain, from_cluster: Init, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KUBECONFIG", str(bare.kubeconfig))
    with KubeClient(bare.kubeconfig) as kube:
        for manifest in somebody_elses_queues():
            kube.apply(manifest)
    fleet = from_cluster()

    assert (fleet.organization, set(fleet.teams)) == ("acme-com", {"vision"})
    assert set(fleet.classes) == {"fleet-prod", "fleet-normal"}, "names that are taken could not be previewed"
    rack = fleet.onprem_pools["h100"]
    assert (rack.gpu, rack.gpus, rack.node_names) == ("h100-sxm-80gb", 24, ("gpu01", "gpu02", "gpu03"))
    spot = fleet.cloud_pools["gpu-spot"]
    assert (spot.market, spot.gpu, spot.gpus) == ("spot", "l4-24gb", 8)
    vision = fleet.teams["vision"]
    assert (vision.namespace, vision.quota, vision.borrow) == ("fleet-vision", {"h100-onprem": 16}, {"h100-onprem": 8})

    engine = Engine(tools.path("pulumi"), ROOT, tmp_path / "pulumi", Path(sys.executable), bare.kubeconfig)
    engine.install()
    engine.select_or_init("local")
    result = engine.preview("local", "--config-file", str(tmp_path / "Pulumi.found.yaml"), as_json=True)
    assert result.succeeded, result.stdout + result.stderr
    assert set(result.document()["changeSummary"]) == {"create"}


def test_a_cluster_that_may_not_be_read_is_said(plane: Plane, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = yaml.safe_load(plane.kubeconfig.read_text())
    config["users"][0]["user"] = {"token": "nobody"}
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text(yaml.safe_dump(config))
    monkeypatch.setenv("KUBECONFIG", str(kubeconfig))
    app = typer.Typer()
    app.command()(init)
    ended = CliRunner().invoke(app, ["found", "--from-cluster", "--yes", "--to", str(tmp_path / "none.yaml")])
    assert isinstance(ended.exception, ClusterError)
    assert "nodes cannot be listed" in str(ended.exception)
    assert not (tmp_path / "none.yaml").exists()


def test_an_embedded_stack_is_read_by_its_name(
    plane: Plane, from_cluster: Init, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("KUBECONFIG")
    monkeypatch.setenv("GPUFLEET_STATE", str(plane.state.root))
    assert from_cluster("--stack", "local").pools
