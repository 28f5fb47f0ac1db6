"""The agent's image, as far as it can be tried without a container runtime: its steps, its files, and nothing else.

The Dockerfile's own instructions are read and carried out in an empty directory, then the agent starts from there
against the real control plane.
"""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from infra.local.kubeclient import KubeClient
from stacks.agent_config import agent_config, dump
from stacks.labels import SYSTEM_NAMESPACE
from stacks.load import load_file
from tests.conftest import ROOT, Plane

UV = shutil.which("uv") or shutil.which("uv", path=str(Path.home() / ".cache/gpufleet/uv/bin"))


def instructions(kind: str) -> list[str]:
    """The arguments of all instructions of a kind, in order, without those that copy between stages."""
    text = (ROOT / "Dockerfile").read_text()
    return [line for line in re.findall(rf"^{kind} (.+)$", text, re.MULTILINE) if not line.startswith("--from")]


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The image's /app."""
    if UV is None:
        pytest.skip("uv is not on PATH, and the image is built with it")
    app = tmp_path_factory.mktemp("app")
    for line in instructions("COPY"):
        *sources, target = shlex.split(line)
        for source in sources:
            if (ROOT / source).is_dir():
                ignored = shutil.ignore_patterns("__pycache__")
                shutil.copytree(ROOT / source, app / target.removeprefix("/app/"), ignore=ignored)
            else:
                shutil.copy(ROOT / source, app / source)
    for line in instructions("RUN"):
        if line.startswith("uv "):
            command = [UV, *shlex.split(line)[1:]]
            if command[1] == "sync":
                command += ["--python", sys.executable]
            environment = {"PATH": "/usr/bin:/bin", "HOME": str(Path.home()), "UV_PYTHON_DOWNLOADS": "never"}
            subprocess.run(command, cwd=app, env=environment, check=True, capture_output=True, timeout=300)
    return app


@contextmanager
def started(image: Path, plane: Plane, config: Path, ledger: Path) -> Iterator[str]:
    """The agent, as the image's CMD starts it; yields its address."""
    [command] = [json.loads(line) for line in instructions("CMD")]
    arguments = ["--config", str(config), "--ledger", ledger.as_uri(), "--health-port", "0"]
    environment = {
        "PATH": f"{image}/.venv/bin:/usr/bin:/bin",
        "KUBECONFIG": str(plane.kubeconfig),
        "POD_NAMESPACE": SYSTEM_NAMESPACE,
        "POD_NAME": "image-test",
        "GPUFLEET_BIND": "127.0.0.1",
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    command[0] = str(image / ".venv" / "bin" / command[0])
    process = subprocess.Popen([*command, *arguments], cwd=image, env=environment, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    try:
        for line in process.stderr:
            if json.loads(line).get("msg") == "started":
                yield f"http://127.0.0.1:{json.loads(line)['health_port']}"
                break
        else:
            pytest.fail("the agent ended before it had started")
    finally:
        process.terminate()
        process.stderr.read()
        assert process.wait(60) == 0
        process.stderr.close()


def test_the_image_holds_the_agent_and_the_contract_and_nothing_that_deploys(image: Path) -> None:
    packages = {path.name for path in image.iterdir() if path.is_dir()}
    assert packages == {".venv", "stacks", "runtime"}
    installed = {path.name for path in (image / ".venv/lib").glob("python*/site-packages/*")}
    assert not installed & {"pulumi", "pytest", "cryptography", "infra", "components"}


def test_the_bill_of_materials_names_what_is_installed(image: Path) -> None:
    bill = json.loads((image / "sbom.cdx.json").read_text())
    named = {component["name"] for component in bill["components"]}
    found = (image / ".venv/lib").glob("python*/site-packages/*.dist-info")
    installed = {path.name.partition("-")[0].replace("_", "-").lower() for path in found}
    assert bill["bomFormat"] == "CycloneDX"
    assert installed <= {name.lower() for name in named}


def test_the_agent_starts_from_the_images_files_alone(image: Path, plane: Plane, tmp_path: Path) -> None:
    config = tmp_path / "config.yaml"
    config.write_text(dump(agent_config(load_file(ROOT / "stacks" / "Pulumi.local.yaml"))))
    with KubeClient(plane.kubeconfig) as kube:
        kube.ensure({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": SYSTEM_NAMESPACE}})
    with started(image, plane, config, tmp_path / "ledger") as address:
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            try:
                with urllib.request.urlopen(f"{address}/readyz", timeout=2) as answer:
                    assert answer.read() == b"ok\n"
                    break
            except OSError:
                time.sleep(0.2)
        else:
            pytest.fail("the agent was not ready within 15 s")
        with urllib.request.urlopen(f"{address}/metrics", timeout=2) as answer:
            assert b"gpufleet_is_leader" in answer.read()


def test_the_image_runs_as_a_user_without_rights_and_compiles_beforehand() -> None:
    [user] = instructions("USER")
    assert user == "65532:65532"
    assert any("compileall" in line for line in instructions("RUN"))
