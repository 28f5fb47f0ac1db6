"""The node agent as a process: its settings, its start, its end, and what it needs."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

import pytest

from runtime.node import health
from runtime.node.provider import probe, provider_of
from runtime.node.settings import EVERYWHERE, SettingsError, load
from stacks.labels import CORDONED_ANNOTATION, LOCATION_LABEL, NOTICES_ANNOTATION
from tests.fakes.metadata import SPOT, FakeMetadata
from tests.fakes.nodeserver import NodeServer
from tests.fakes.probing import get, resident_mebibytes

IN_POD = {"NODE_NAME": "gpu-1", "KUBERNETES_SERVICE_HOST": "10.0.0.1"}
MOST_MEBIBYTES = 32
"""The aim is 25; the rest is what other builds of Python take more."""


def wait_for(what: Callable[[], object], seconds: float = 10.0) -> None:
    ends_at = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < ends_at, "it did not happen in time"
        time.sleep(0.005)


@contextmanager
def running(*arguments: str, account: Path) -> Iterator[subprocess.Popen[str]]:
    environment = {"NODE_NAME": "gpu-1", "GPUFLEET_SERVICE_ACCOUNT_DIR": str(account), "PATH": os.environ["PATH"]}
    process = subprocess.Popen(
        [sys.executable, "-m", "runtime.node", *arguments],
        env=environment | {"GPUFLEET_BIND": "127.0.0.1"},
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


@pytest.fixture
def account(tmp_path: Path) -> Path:
    (tmp_path / "token").write_text("secret")
    return tmp_path


def test_from_a_spot_notice_to_a_cordoned_node_and_back(account: Path) -> None:
    with FakeMetadata() as metadata, NodeServer() as server:
        arguments = ("--metadata-url", metadata.url, "--api-server", server.url, "--port", "0")
        with running(*arguments, account=account) as process:
            wait_for(lambda: metadata.count(f"GET {SPOT}"))
            soon = datetime.fromtimestamp(time.time() + 120, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
            metadata.aws[SPOT] = json.dumps({"action": "terminate", "time": soon})
            wait_for(lambda: server.cordoned)
            assert {NOTICES_ANNOTATION, CORDONED_ANNOTATION} == set(server.annotations)
            del metadata.aws[SPOT]
            wait_for(lambda: not server.cordoned)
            assert server.annotations == {}
            assert resident_mebibytes(process.pid) < MOST_MEBIBYTES
            began = time.monotonic()
            process.send_signal(signal.SIGTERM)
            assert process.wait(5) == 0
            assert time.monotonic() - began < 1


def test_a_notice_that_comes_while_the_api_server_is_away_is_said_when_it_is_back(account: Path) -> None:
    with NodeServer(away=True) as server:
        file = account / "notices.json"
        file.write_text(json.dumps([{"id": "drill-1", "kind": "maintenance"}]))
        arguments = ("--provider", "none", "--notices-url", str(file), "--api-server", server.url, "--port", "0")
        with running(*arguments, account=account) as process:
            assert process.stderr is not None
            lines = (json.loads(line) for line in process.stderr)
            port = next(line["port"] for line in lines if line["msg"] == "started")
            next(line for line in lines if "could not write" in line["msg"])
            server.away = False
            wait_for(lambda: server.cordoned)
            assert get(port, "/healthz") == (200, "ok\n")
            status, text = get(port, "/metrics")
            assert status == 200
            assert 'gpufleet_node_source_up{source="file"} 1\n' in text
            assert get(port, "/else")[0] == 404


def has_ipv6() -> bool:
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        return False
    return True


@pytest.mark.parametrize(
    ("bind", "answer", "silent"),
    [
        pytest.param(EVERYWHERE, ["127.0.0.1", "::1"], [], id="every address"),
        pytest.param("127.0.0.1", ["127.0.0.1"], ["::1"], id="loopback alone"),
        pytest.param("::1", ["::1"], ["127.0.0.1"], id="loopback of IPv6 alone"),
    ],
)
@pytest.mark.skipif(not has_ipv6(), reason="this machine has no IPv6 on loopback")
def test_health_is_told_over_ipv4_and_ipv6(bind: str, answer: list[str], silent: list[str]) -> None:
    port = health.serve(bind, 0, {"/healthz": lambda: (200, "ok\n")})
    assert [get(port, "/healthz", host) for host in answer] == [(200, "ok\n")] * len(answer)
    for host in silent:
        with pytest.raises(ConnectionRefusedError):
            get(port, "/healthz", host)


def test_a_host_without_ipv6_is_asked_over_ipv4(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket, "has_dualstack_ipv6", lambda: False)
    port = health.serve(EVERYWHERE, 0, {"/healthz": lambda: (200, "ok\n")})
    assert get(port, "/healthz") == (200, "ok\n")


def test_it_needs_nothing_but_the_standard_library() -> None:
    code = (
        "import sys, runtime.node.__main__, runtime.eviction.sources.aws, runtime.eviction.sources.gcp, "
        "runtime.eviction.sources.azure, runtime.eviction.sources.file, runtime.eviction.sources.nodes;"
        "ours = {'runtime', 'stacks', '__main__'};"
        "print(*sorted({m.partition('.')[0] for m in sys.modules} - set(sys.stdlib_module_names) - ours))"
    )
    ran = subprocess.run(
        [sys.executable, "-I", "-S", "-c", f"import sys; sys.path.insert(0, '.'); {code}"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert ran.stdout.split() == []


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--provider", "moon"], "provider 'moon': must be one of auto, aws"),
        (["--gcp-notice-seconds", "soon"], "--gcp-notice-seconds 'soon'"),
        (["--maintenance-lead-seconds", "-1"], "--maintenance-lead-seconds '-1'"),
        (["--port", "70000"], "port '70000'"),
        (["--port", "²"], "port '²'"),
    ],
)
def test_a_setting_that_cannot_be_used_is_named(arguments: list[str], said: str) -> None:
    with pytest.raises(SettingsError) as caught:
        load([f"{arguments[0]}={arguments[1]}"], IN_POD)
    assert said in str(caught.value)


def test_without_a_node_or_a_cluster_it_does_not_start() -> None:
    with pytest.raises(SettingsError, match=r"spec\.nodeName"):
        load([], {})
    with pytest.raises(SettingsError, match="no API server"):
        load([], {"NODE_NAME": "a"})


def test_the_environment_says_what_arguments_do_not() -> None:
    settings = load(["--provider", "gcp"], IN_POD | {"GPUFLEET_PROVIDER": "aws", "GPUFLEET_GCP_NOTICE_SECONDS": "120s"})
    assert (settings.provider, settings.gcp_notice_seconds, settings.server) == ("gcp", 120.0, "https://10.0.0.1:443")
    assert load([], IN_POD | {"KUBERNETES_SERVICE_HOST": "fd00::1"}).server == "https://[fd00::1]:443"
    assert (load([], IN_POD).bind, load([], IN_POD | {"GPUFLEET_BIND": "10.0.0.7"}).bind) == (EVERYWHERE, "10.0.0.7")
    assert load(["--port", "off"], IN_POD).port is None
    local = load([], IN_POD | {"GPUFLEET_PORT_HEALTH": "1234"})
    assert (local.port, local.bind) == (1234, "127.0.0.1")


def test_the_provider_is_read_from_the_node() -> None:
    def by(spec: dict[str, str], **labels: str) -> str:
        return provider_of({"spec": spec, "metadata": {"labels": labels}})

    assert by({"providerID": "aws:///eu-1a/i-1"}) == "aws"
    assert by({"providerID": "gce://project/zone/vm"}) == "gcp"
    assert by({"providerID": "azure:///subscriptions/1"}) == "azure"
    assert by({"providerID": "kwok://a"}) == "none"
    assert by({}, **{LOCATION_LABEL: "aws"}) == "aws"
    assert by({}, **{LOCATION_LABEL: "onprem"}) == "none"
    assert provider_of({}) == "none"


def test_the_provider_is_found_by_what_answers() -> None:
    with FakeMetadata() as fake:
        fake.gcp["id"] = "7"
        assert probe(fake.url) == "gcp"
        del fake.gcp["id"]
        assert probe(fake.url) == "aws"
        fake.token_status = 404
        assert probe(fake.url) is None
