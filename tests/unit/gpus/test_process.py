"""The part that reads GPUs as a process: its settings, its start, and what it needs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from runtime.eviction.notice import Certainty, Notice, NoticeKind, notices_to_json
from runtime.node.settings import SettingsError, load
from stacks.labels import GPU_CONDITION, NOTICES_ANNOTATION
from tests.conftest import ROOT
from tests.fakes.nodeserver import NodeServer
from tests.fakes.probing import get, resident_mebibytes
from tests.nvml.scenario import VARIABLE, Card, Mig, Scenario

IN_POD = {"NODE_NAME": "gpu-1", "KUBERNETES_SERVICE_HOST": "10.0.0.1"}
MOST_MEBIBYTES = 64
"""What its pod may have; it takes about 30, and with grpcio for the kubelet some 20 more."""


def wait_for(what: Callable[[], object], seconds: float = 60.0) -> None:
    ends_at = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < ends_at, "it did not happen in time"
        time.sleep(0.01)


@pytest.mark.parametrize("mode", ["only", "on"])
def test_it_reads_gpus_and_leaves_notices_of_others_alone(
    mode: str, scenario: Scenario, nvml_library: Path, tmp_path: Path
) -> None:
    scenario.cards = [Card("h100-sxm-80gb", mig=True, instances=[Mig(2, 9, "3g.40gb")])]
    scenario.write()
    (tmp_path / "token").write_text("secret")
    environment = {
        "NODE_NAME": "gpu-1",
        "GPUFLEET_SERVICE_ACCOUNT_DIR": str(tmp_path),
        "GPUFLEET_BIND": "127.0.0.1",
        "PATH": os.environ["PATH"],
        "LD_LIBRARY_PATH": str(nvml_library.parent),
        VARIABLE: str(scenario.path),
    }
    with NodeServer() as server:
        noted = notices_to_json([Notice("x", NoticeKind.REPAIR, "operators", Certainty.LIKELY, 1.0, None, "")])
        server.edit(lambda node: node["metadata"]["annotations"].update({NOTICES_ANNOTATION: noted}))
        arguments = ["--gpus", mode, "--provider", "none", "--api-server", server.url, "--port", "0"]
        process = subprocess.Popen(
            [sys.executable, "-m", "runtime.node", *arguments, "--pod-resources", str(tmp_path / "nobody.sock")],
            env=environment,
            cwd=ROOT,
            stderr=subprocess.PIPE,
            text=True,
        )
        try:
            assert process.stderr is not None
            lines = (json.loads(line) for line in process.stderr)
            port = next(line["port"] for line in lines if line["msg"] == "started")
            wait_for(lambda: server.condition(GPU_CONDITION))
            wait_for(lambda: 'profile="3g.40gb"' in get(port, "/metrics")[1])
            assert get(port, "/healthz") == (200, "ok\n")
            assert ("gpufleet_node_writes_total" in get(port, "/metrics")[1]) is (mode == "on")
            assert NOTICES_ANNOTATION in server.annotations
            assert resident_mebibytes(process.pid) < MOST_MEBIBYTES
        finally:
            process.kill()
            process.communicate()


def test_gpus_are_off_unless_asked_for() -> None:
    settings = load([], IN_POD)
    assert (settings.gpus, settings.gpu_exporter, settings.pod_resources) == ("off", None, None)
    found = load([], IN_POD | {"GPUFLEET_GPUS": "only", "GPUFLEET_POD_RESOURCES": "/a.sock"})
    assert (found.gpus, found.pod_resources) == ("only", "/a.sock")
    with pytest.raises(SettingsError, match="gpus 'yes': must be one of off, on, only"):
        load(["--gpus", "yes"], IN_POD)


def test_without_gpus_nothing_of_it_is_loaded_and_with_them_the_standard_library_is_enough() -> None:
    code = (
        "import sys; sys.path.insert(0, '.'); import runtime.node.__main__;"
        "assert not [m for m in sys.modules if m.startswith(('runtime.gpus', 'runtime.node.gpus'))];"
        "import runtime.node.gpus; ours = {'runtime', 'stacks', '__main__'};"
        "print(*sorted({m.partition('.')[0] for m in sys.modules} - set(sys.stdlib_module_names) - ours))"
    )
    ran = subprocess.run([sys.executable, "-I", "-S", "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert ran.stdout.split() == []
