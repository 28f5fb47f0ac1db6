from __future__ import annotations

import re
import shutil
import sys
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from infra.local.engine import Engine, EngineResult
from infra.local.plugins.kubernetes import kubeconfig
from infra.local.plugins.kubernetes.client import KubeClient
from infra.local.plugins.kubernetes.discovery import Discovery
from infra.local.plugins.kubernetes.objects import Objects
from infra.local.toolchain import Toolchain
from tests.conftest import Plane


@dataclass(frozen=True)
class ControlPlane:
    kubeconfig: Path
    client: KubeClient
    objects: Objects

    def get(self, api_version: str, kind: str, name: str, namespace: str | None = "default") -> Any:
        return self.objects.read(api_version, kind, namespace, name)

    def apply(self, manifest: dict[str, Any], manager: str = "somebody") -> Any:
        path = self.objects.locate(manifest)[1]
        return self.objects.apply(path, manifest, force=True, manager=manager).body

    def patch_status(self, manifest: dict[str, Any]) -> None:
        path = self.objects.locate(manifest)[1] + "/status"
        self.objects.apply(path, manifest, force=True, manager="a-controller")


@pytest.fixture(scope="session")
def control_plane(plane: Plane) -> Iterator[ControlPlane]:
    """The embedded control plane, seen through the client of the provider under test."""
    client = KubeClient(kubeconfig.load(str(plane.kubeconfig), None, None))
    yield ControlPlane(plane.kubeconfig, client, Objects(client, Discovery(client), "default"))
    client.close()


# The programs under test declare plain objects: importing the generated SDK costs 1-2 s per command.
PROGRAM_HEADER = """
import pulumi

class Object(pulumi.CustomResource):
    metadata: pulumi.Output[dict]

    def __init__(self, name, manifest, opts=None, suffix=""):
        group = manifest["apiVersion"] if "/" in manifest["apiVersion"] else "core/" + manifest["apiVersion"]
        here = pulumi.ResourceOptions(version="4.34.2")
        token = f"kubernetes:{group}:{manifest['kind']}{suffix}"
        super().__init__(token, name, manifest, pulumi.ResourceOptions.merge(here, opts))

def config_map(name, data, **metadata):
    return Object(name, {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, **metadata}, "data": data})

"""


class Stack:
    """A throw-away project with one stack, run by the engine under test."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine

    def write(self, program: str) -> None:
        (self.engine.project / "__main__.py").write_text(PROGRAM_HEADER + textwrap.dedent(program))

    def run(self, operation: str, program: str | None = None, *extra: str) -> EngineResult:
        if program is not None:
            self.write(program)
        command = getattr(self.engine, operation)
        result: EngineResult = command("test", *extra, capture=True)
        return result

    def up(self, program: str | None = None, *extra: str) -> dict[str, int]:
        """Deploy, and return how many resources had which fate."""
        result = self.run("up", program, *extra)
        assert result.succeeded, result.stdout + result.stderr
        return changes(result)

    def fail(self, operation: str, program: str | None = None, *extra: str) -> str:
        """Run a command that must fail, and return all it said."""
        result = self.run(operation, program, *extra)
        assert result.status not in {0, 2}, result.stdout + result.stderr  # 2: the engine panicked
        return result.stdout + result.stderr


def changes(result: EngineResult) -> dict[str, int]:
    """The summary that Pulumi ends with."""
    summary = result.stdout.partition("\nResources:\n")[2].partition("\n\n")[0]
    counts = {name: int(number) for number, name in re.findall(r"(\d+) (?:to )?(\w+)", summary)}
    counts.pop("changes", None)
    return counts


@pytest.fixture(scope="session")
def initialised(tools: Toolchain, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project with an empty stack, made once and copied for each test."""
    folder = tmp_path_factory.mktemp("initialised")
    (folder / "project").mkdir()
    project = {
        "name": "trial",
        "runtime": {"name": "python", "options": {"toolchain": "pip", "virtualenv": sys.prefix}},
    }
    (folder / "project" / "Pulumi.yaml").write_text(yaml.safe_dump(project))
    engine = Engine(tools.path("pulumi"), folder / "project", folder / "state", Path(sys.executable))
    engine.install()
    engine.select_or_init("test")
    return folder


@pytest.fixture
def engine(tools: Toolchain, initialised: Path, tmp_path: Path) -> Engine:
    shutil.copytree(initialised, tmp_path, dirs_exist_ok=True)
    return Engine(tools.path("pulumi"), tmp_path / "project", tmp_path / "state", Path(sys.executable))


@pytest.fixture
def stack(engine: Engine, control_plane: ControlPlane) -> Stack:
    engine.kubeconfig = control_plane.kubeconfig
    return Stack(engine)
