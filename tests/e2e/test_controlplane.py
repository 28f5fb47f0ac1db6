"""The embedded control plane, for real: etcd, API server, scheduler, Kueue, KWOK and the pod runner.

Needs the binaries in the tool cache or on PATH; nothing is downloaded or built here.
"""

from __future__ import annotations

import io
import json
import os
import signal
import socket
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import pytest
import yaml
from rich.console import Console

from infra.local import components, ports, processes, procfs, toolchain
from infra.local.controlplane import ControlPlane
from infra.local.errors import KubeError, LockedError, ProcessError, ToolchainError
from infra.local.kubeclient import KubeClient, Manifest
from infra.local.kwok import KwokPool
from infra.local.state import State
from infra.local.toolchain import Toolchain

T = TypeVar("T")

POOLS = (KwokPool("rack", ("rack-0", "rack-1"), {"gpu": "h100"}),)
# Seven seconds on an idle two-core machine; a machine shared with other work takes several times that.
START_LIMIT_SECONDS = 120.0
NAMESPACE = "gpufleet-system"


@pytest.fixture(scope="module")
def tools() -> Toolchain:
    try:
        return toolchain.resolve(components.BINARIES, console=Console(file=io.StringIO()), only_present=True)
    except ToolchainError as error:
        pytest.skip(f"run `gpufleet tools` (or `make up`) once to fill the cache: {str(error).splitlines()[0]}")


@pytest.fixture(scope="module")
def plane(tools: Toolchain, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[ControlPlane, State]]:
    state = State.at(tmp_path_factory.mktemp("plane"), "local")
    running = ControlPlane(state, tools)
    seconds = running.start(POOLS, console=Console(file=io.StringIO()))
    assert seconds < START_LIMIT_SECONDS
    yield running, state
    running.stop()
    assert processes.find(state) == {}


@pytest.fixture
def client(plane: tuple[ControlPlane, State]) -> Iterator[KubeClient]:
    with KubeClient(plane[0].kubeconfig) as opened:
        yield opened


def eventually(look: Callable[[], T], seconds: float = 60.0) -> T:
    """Return the first true answer; a refusal on the way is no answer."""
    deadline = time.monotonic() + seconds
    while True:
        try:
            if answer := look():
                return answer
        except KubeError:
            if time.monotonic() > deadline:
                raise
        assert time.monotonic() < deadline, "did not become true in time"
        time.sleep(0.1)


def quotas() -> list[Manifest]:
    api = "kueue.x-k8s.io/v1beta2"
    flavor = {"name": "rack", "resources": [{"name": "nvidia.com/gpu", "nominalQuota": 16}]}
    group = {"coveredResources": ["nvidia.com/gpu"], "flavors": [flavor]}
    return [
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "ml"}},
        {
            "apiVersion": api,
            "kind": "ResourceFlavor",
            "metadata": {"name": "rack"},
            "spec": {"nodeLabels": {"gpu": "h100"}},
        },
        {
            "apiVersion": api,
            "kind": "ClusterQueue",
            "metadata": {"name": "team"},
            "spec": {"namespaceSelector": {}, "resourceGroups": [group]},
        },
        {
            "apiVersion": api,
            "kind": "LocalQueue",
            "metadata": {"name": "team", "namespace": "ml"},
            "spec": {"clusterQueue": "team"},
        },
    ]


def job(name: str, **annotations: str) -> Manifest:
    container = {"name": "train", "image": "train", "resources": {"limits": {"nvidia.com/gpu": "8"}}}
    template = {
        "metadata": {"annotations": {f"gpufleet.dev/{k.replace('_', '-')}": v for k, v in annotations.items()}},
        "spec": {"restartPolicy": "Never", "containers": [container]},
    }
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "namespace": "ml", "labels": {"kueue.x-k8s.io/queue-name": "team"}},
        "spec": {"backoffLimit": 0, "template": template},
    }


def condition(client: KubeClient, name: str, kind: str) -> bool:
    status = client.get("batch/v1", "Job", name, "ml").get("status", {})
    return any(c["type"] == kind and c["status"] == "True" for c in status.get("conditions", []))


def pids(state: State) -> dict[str, list[int]]:
    return {name: found for name, found in processes.find(state).items() if name in components.NAMES}


def test_kueue_admits_a_job_and_a_simulated_node_runs_it(client: KubeClient, plane: tuple[ControlPlane, State]) -> None:
    for manifest in quotas():
        client.apply(manifest)
    created = client.create(job("good", sim_run_seconds="1"))
    assert created["spec"]["suspend"] is True  # Kueue's webhook, not luck
    eventually(lambda: condition(client, "good", "Complete"))
    client.create(job("bad", sim_run_seconds="1", sim_exit_code="3"))
    eventually(lambda: condition(client, "bad", "Failed"))

    entries = [json.loads(line) for line in plane[1].audit_log.read_text().splitlines()]
    bindings = [entry for entry in entries if entry["objectRef"].get("subresource") == "binding"]
    assert {entry["requestObject"]["target"]["name"] for entry in bindings} <= {"rack-0", "rack-1"}
    assert len(bindings) == 2
    assert any(entry["objectRef"].get("subresource") == "status" and "responseObject" in entry for entry in entries)
    assert not {entry["verb"] for entry in entries} & {"get", "list", "watch"}
    assert not {entry["objectRef"]["resource"] for entry in entries} & {"events", "leases", "secrets"}


def test_a_wrong_queue_is_refused_by_kueues_webhook(client: KubeClient) -> None:
    wrong = quotas()[2]
    wrong["metadata"] = {"name": "wrong"}
    wrong["spec"]["resourceGroups"][0]["flavors"][0]["resources"][0]["nominalQuota"] = -1
    with pytest.raises(KubeError, match="denied the request"):
        client.create(wrong)


def test_starting_a_running_plane_only_changes_its_nodes(plane: tuple[ControlPlane, State], client: KubeClient) -> None:
    before = pids(plane[1])
    pools = (*POOLS, KwokPool("burst", ("burst-0",), gpus_per_node=4))
    assert plane[0].start(pools, console=Console(file=io.StringIO())) < START_LIMIT_SECONDS
    assert pids(plane[1]) == before
    assert client.get("v1", "Node", "burst-0")["status"]["allocatable"]["nvidia.com/gpu"] == "4"
    plane[0].start((*POOLS, KwokPool("burst", ("burst-0",), gpus_per_node=2)), console=Console(file=io.StringIO()))
    assert client.get("v1", "Node", "burst-0")["status"]["allocatable"]["nvidia.com/gpu"] == "2"
    plane[0].start(POOLS, console=Console(file=io.StringIO()))
    assert client.find("v1", "Node", "burst-0") is None


def test_a_second_command_is_refused_while_one_changes_the_stack(plane: tuple[ControlPlane, State]) -> None:
    again = State.at(plane[1].root, "local")
    with (
        plane[1].lock("starts something"),
        pytest.raises(LockedError, match=f"pid {os.getpid()} which starts something"),
    ):
        ControlPlane(again, Toolchain({}, Path())).stop()


AGENT = textwrap.dedent(
    """
    import http.server, json, os, ssl, sys, urllib.error, urllib.request
    directory = os.environ["GPUFLEET_SERVICE_ACCOUNT_DIR"]
    base = f"https://{os.environ['KUBERNETES_SERVICE_HOST']}:{os.environ['KUBERNETES_SERVICE_PORT']}/api/v1/namespaces/"
    context = ssl.create_default_context(cafile=directory + "/ca.crt")
    def status(path):
        token = open(directory + "/token").read()
        request = urllib.request.Request(base + path, headers={"Authorization": "Bearer " + token})
        try:
            return urllib.request.urlopen(request, context=context).status
        except urllib.error.HTTPError as error:
            return error.code
    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(200); self.end_headers()
            self.wfile.write(open(sys.argv[1]).read().encode())
        def log_message(self, *_): pass
    own = open(directory + "/namespace").read()
    found = {"configmaps": status(own + "/configmaps"), "secrets": status(own + "/secrets"), "elsewhere": status("ml/pods")}
    open(os.environ["RESULT"], "w").write(json.dumps(found))
    address = ("127.0.0.1", int(os.environ["GPUFLEET_PORT_HEALTH"]))
    http.server.HTTPServer(address, Handler).serve_forever()
    """
)


def agent_objects() -> list[Manifest]:
    meta = {"name": "agent", "namespace": NAMESPACE}
    rbac = "rbac.authorization.k8s.io"
    container: dict[str, Any] = {
        "name": "agent",
        "image": "agent",
        "command": ["python", "-c", AGENT],
        "args": ["/etc/fleet/greeting"],
        "env": [{"name": "RESULT", "value": "/var/lib/agent/result.json"}],
        "ports": [{"name": "health", "containerPort": 8080}],
        "readinessProbe": {"httpGet": {"path": "/", "port": "health"}},
        "volumeMounts": [
            {"name": "policy", "mountPath": "/etc/fleet"},
            {"name": "data", "mountPath": "/var/lib/agent"},
        ],
    }
    template = {
        "metadata": {"labels": {"app": "agent"}},
        "spec": {
            "serviceAccountName": "agent",
            "terminationGracePeriodSeconds": 5,
            "containers": [container],
            "volumes": [
                {"name": "policy", "configMap": {"name": "agent"}},
                {"name": "data", "persistentVolumeClaim": {"claimName": "agent"}},
            ],
        },
    }
    return [
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}},
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": meta},
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": {"greeting": "one"}},
        {
            "apiVersion": f"{rbac}/v1",
            "kind": "Role",
            "metadata": meta,
            "rules": [{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["list"]}],
        },
        {
            "apiVersion": f"{rbac}/v1",
            "kind": "RoleBinding",
            "metadata": meta,
            "roleRef": {"apiGroup": rbac, "kind": "Role", "name": "agent"},
            "subjects": [{"kind": "ServiceAccount", "name": "agent", "namespace": NAMESPACE}],
        },
        {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": {**meta, "labels": {"app.kubernetes.io/managed-by": "gpufleet"}},
            "spec": {"replicas": 1, "selector": {"matchLabels": {"app": "agent"}}, "template": template},
        },
    ]


def test_the_pod_runner_runs_a_deployment_with_the_rights_of_its_service_account(
    plane: tuple[ControlPlane, State], client: KubeClient
) -> None:
    state = plane[1]
    for manifest in agent_objects():
        client.apply(manifest)

    def available() -> bool:
        return bool(client.get("apps/v1", "Deployment", "agent", NAMESPACE).get("status", {}).get("availableReplicas"))

    eventually(available)
    result = json.loads((state.root / "volumes" / NAMESPACE / "agent" / "result.json").read_text())
    assert result == {"configmaps": 200, "secrets": 403, "elsewhere": 403}

    first = processes.records(state)["pod.agent.0"]
    (mounted,) = (state.root / "pods").glob("*/*/volumes/policy/greeting")
    config = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "agent", "namespace": NAMESPACE}}
    client.apply({**config, "data": {"greeting": "two"}})
    eventually(lambda: mounted.read_text() == "two")
    assert processes.records(state)["pod.agent.0"].pid == first.pid

    os.kill(first.pid or 0, signal.SIGKILL)
    eventually(lambda: processes.records(state).get("pod.agent.0", first).pid not in (first.pid, None))
    eventually(available)

    second = processes.records(state)["pod.agent.0"]
    runner = processes.records(state)["podrunner"]
    os.kill(runner.pid or 0, signal.SIGKILL)
    eventually(lambda: procfs.start_ticks(runner.pid or 0) is None)
    assert second.pid in processes.find(state)["pod.agent.0"]  # not lost: the registry and its mark still lead to it
    plane[0].start(POOLS, console=Console(file=io.StringIO()))
    eventually(lambda: processes.records(state).get("pod.agent.0", second).pid not in (second.pid, None))
    assert procfs.start_ticks(second.pid or 0) is None

    scaled = agent_objects()[-1]
    scaled["spec"]["replicas"] = 0
    client.apply(scaled)
    eventually(lambda: "pod.agent.0" not in processes.find(state))
    eventually(lambda: not available())
    client.delete("apps/v1", "Deployment", "agent", NAMESPACE)


def test_a_template_that_cannot_be_carried_out_says_so_in_its_status(client: KubeClient) -> None:
    wrong = agent_objects()[-1]
    wrong["metadata"] = {**wrong["metadata"], "name": "wrong"}
    wrong["spec"]["template"]["spec"]["volumes"].append({"name": "s", "secret": {"secretName": "s"}})
    client.apply(wrong)

    def message() -> str:
        status = client.get("apps/v1", "Deployment", "wrong", NAMESPACE).get("status", {})
        return next((c["message"] for c in status.get("conditions", []) if c["type"] == "Progressing"), "")

    assert "volumes[s]: secret is not supported" in eventually(message)
    client.delete("apps/v1", "Deployment", "wrong", NAMESPACE)


def test_a_crashed_part_is_repaired_by_the_next_start_on_the_same_data(plane: tuple[ControlPlane, State]) -> None:
    control, state = plane
    before, server = pids(state), yaml.safe_load(control.kubeconfig.read_text())["clusters"][0]["cluster"]["server"]
    with KubeClient(control.kubeconfig) as client:
        client.apply({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "kept", "namespace": "default"}})
    os.kill(before["apiserver"][0], signal.SIGKILL)
    text = io.StringIO()
    control.start(POOLS, console=Console(file=text, width=200))
    assert "only partly up" in text.getvalue()
    assert set(pids(state)) == set(components.NAMES)
    assert yaml.safe_load(control.kubeconfig.read_text())["clusters"][0]["cluster"]["server"] == server
    with KubeClient(control.kubeconfig) as client:
        assert client.get("v1", "ConfigMap", "kept", "default")


def test_a_second_plane_whose_parent_is_killed_is_found_and_stopped(
    plane: tuple[ControlPlane, State], tools: Toolchain, tmp_path: Path
) -> None:
    program = textwrap.dedent(
        f"""
        from pathlib import Path
        from infra.local import components, toolchain
        from infra.local.controlplane import ControlPlane
        from infra.local.state import State
        from rich.console import Console
        console = Console(stderr=True)
        tools = toolchain.resolve(components.BINARIES, console=console, only_present=True)
        ControlPlane(State.at(Path({str(tmp_path)!r}), "other"), tools).start(console=console)
        """
    )
    state = State.at(tmp_path, "other")
    parent = subprocess.Popen([sys.executable, "-c", program], stderr=subprocess.DEVNULL)
    eventually(lambda: "controller-manager" in processes.find(state), START_LIMIT_SECONDS)
    parent.kill()
    parent.wait()
    assert set(processes.find(state)) >= {"etcd", "apiserver", "controller-manager"}
    second = ControlPlane(state, tools)
    text = io.StringIO()
    second.start((KwokPool("own", ("own-0",)),), console=Console(file=text, width=200))
    assert "only partly up" in text.getvalue()
    with KubeClient(second.kubeconfig) as other, KubeClient(plane[0].kubeconfig) as mine:
        assert [node["metadata"]["name"] for node in other.list("v1", "Node")[0]] == ["own-0"]
        assert [node["metadata"]["name"] for node in mine.list("v1", "Node")[0]] == ["rack-0", "rack-1"]
    second.stop()
    assert processes.find(state) == {}
    assert processes.records(state) == {}
    assert set(pids(plane[1])) == set(components.NAMES)


def test_a_port_stolen_before_its_server_listens_is_replaced(
    tools: Toolchain, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    honest = ports.claim
    thieves: list[socket.socket] = []

    def stolen_once(state: State, names: Iterable[str]) -> dict[str, int]:
        chosen = honest(state, names)
        if not thieves:
            thieves.append(socket.create_server((ports.LOOPBACK, chosen["etcd"])))
        return chosen

    monkeypatch.setattr(ports, "claim", stolen_once)
    state, text = State.at(tmp_path, "local"), io.StringIO()
    control = ControlPlane(state, tools)
    control.start(console=Console(file=text, width=200))
    assert "etcd found its port taken" in text.getvalue()
    assert "trying again with other ports" in text.getvalue()
    control.stop()
    assert processes.find(state) == {}
    thieves[0].close()


def test_a_part_that_cannot_start_is_one_error_and_leaves_nothing(tools: Toolchain, tmp_path: Path) -> None:
    broken = Toolchain({**tools.paths, "kube-apiserver": Path("/bin/false")}, tools.kueue_manifests)
    state = State.at(tmp_path, "local")
    with pytest.raises(ProcessError, match=r"apiserver ended while starting; the end of .*apiserver\.log"):
        ControlPlane(state, broken).start(console=Console(file=io.StringIO()))
    assert processes.find(state) == {}


def test_status_names_every_part_with_its_log(plane: tuple[ControlPlane, State]) -> None:
    found = {status.name: status for status in plane[0].status()}
    assert [name for name in components.NAMES if not found[name].running] == []
    assert found["apiserver"].memory_mib > 50
    assert found["apiserver"].ports
    assert all(found[name].log.exists() for name in components.NAMES)
