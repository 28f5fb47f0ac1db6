"""The command line and configuration of each process of the control plane.

It starts nothing. Each flag is there because the plane does not work, or not as an unprivileged user, without it.
"""

from __future__ import annotations

import base64
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from infra.files import write_atomically
from infra.local import audit, kueue, kwok
from infra.local.pki import Pki
from infra.local.state import State

PORT_NAMES = ("etcd", "etcd-peer", "apiserver", "kueue-webhook", "kueue-metrics", "kueue-health")
# In order of start; stopped in the opposite order.
CORE = ("etcd", "apiserver", "controller-manager", "scheduler", "kwok", "kueue")
NAMES = (*CORE, "podrunner")
BINARIES = ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kwok", "kueue")

_ISSUER = "https://kubernetes.default.svc"
_SERVICE_RANGE = "10.0.0.0/24"
# Client-side limits of the controllers: high enough never to be what a test measures.
_REQUESTS_PER_SECOND = 2000
_CONCURRENT_JOB_SYNCS = 40
_CONTROLLERS = (
    "job-controller",
    "garbage-collector-controller",
    "namespace-controller",
    "persistentvolumeclaim-protection-controller",  # or a deleted claim keeps its finalizer for ever
    "pod-garbage-collector-controller",
    "ttl-after-finished-controller",
    "node-lifecycle-controller",  # taint-eviction alone logs index errors
    "taint-eviction-controller",
)
_SPARING_COLLECTION = {"GOGC": "250"}
"""For the two busiest processes, which spend a quarter of their time collecting garbage as Go is set (profiled with 500
jobs in six minutes); memory is cheaper than time where two cores run everything."""
_NO_HEARTBEATS = "87600h"  # ten years: simulated nodes send no heartbeats and must not be taken for lost


@dataclass(frozen=True)
class Component:
    """A process to start."""

    name: str
    command: tuple[str, ...]
    ports: Mapping[str, int] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)


def server_url(ports: Mapping[str, int]) -> str:
    """Return the address of the API server."""
    return f"https://127.0.0.1:{ports['apiserver']}"


def write_configuration(
    state: State, pki: Pki, ports: Mapping[str, int], options: kueue.KueueOptions = kueue.DEFAULT_OPTIONS
) -> None:
    """Write every file the commands of `build` refer to."""
    for user in ("controller-manager", "scheduler", "kwok", "kueue"):
        write_atomically(_kubeconfig_path(state, user), kubeconfig(server_url(ports), pki, user))
    write_atomically(state.kubeconfig, kubeconfig(server_url(ports), pki, "admin", context=f"gpufleet-{state.stack}"))
    _write_yaml(state, "audit-policy", [audit.policy()])
    _write_yaml(state, "scheduler", [_scheduler_configuration(state)])
    _write_yaml(state, "kwok", kwok.configuration())
    _write_yaml(state, "kueue", [kueue.configuration(ports, pki, options)])


def build(state: State, pki: Pki, ports: Mapping[str, int], binaries: Mapping[str, Path]) -> dict[str, Component]:
    """Return the components by name."""
    kueue_ports = {name: port for name, port in ports.items() if name.startswith("kueue-")}
    components = [
        _etcd(state, pki, ports, binaries["etcd"]),
        _apiserver(state, pki, ports, binaries["kube-apiserver"]),
        _controller_manager(state, binaries["kube-controller-manager"]),
        Component(
            "scheduler", (str(binaries["kube-scheduler"]), f"--config={_yaml(state, 'scheduler')}", "--secure-port=0")
        ),
        Component(
            "kwok",
            (
                str(binaries["kwok"]),
                f"--kubeconfig={_kubeconfig_path(state, 'kwok')}",
                f"--config={_yaml(state, 'kwok')}",
            ),
        ),
        Component(
            "kueue",
            (
                str(binaries["kueue"]),
                f"--kubeconfig={_kubeconfig_path(state, 'kueue')}",
                f"--config={_yaml(state, 'kueue')}",
                "--zap-log-level=1",
            ),
            kueue_ports,
            _SPARING_COLLECTION,
        ),
        podrunner(state),
    ]
    return {component.name: component for component in components}


def _etcd(state: State, pki: Pki, ports: Mapping[str, int], binary: Path) -> Component:
    client, peer = f"https://127.0.0.1:{ports['etcd']}", f"https://127.0.0.1:{ports['etcd-peer']}"
    certificate, key, authority = pki.certificate("server"), pki.key("server"), pki.authority
    command = (
        str(binary),
        "--name=e0",
        f"--data-dir={state.root / 'etcd'}",
        f"--listen-client-urls={client}",
        f"--advertise-client-urls={client}",
        f"--listen-peer-urls={peer}",
        f"--initial-advertise-peer-urls={peer}",
        f"--initial-cluster=e0={peer}",
        # Secrets lie in etcd: without client certificates every user of the machine could read them.
        f"--cert-file={certificate}",
        f"--key-file={key}",
        "--client-cert-auth",
        f"--trusted-ca-file={authority}",
        f"--peer-cert-file={certificate}",
        f"--peer-key-file={key}",
        "--peer-client-cert-auth",
        f"--peer-trusted-ca-file={authority}",
        "--unsafe-no-fsync",  # survives a killed process, not a power cut: right for a test bed, four times faster
        "--log-level=warn",
    )
    return Component("etcd", command, {name: ports[name] for name in ("etcd", "etcd-peer")})


def _apiserver(state: State, pki: Pki, ports: Mapping[str, int], binary: Path) -> Component:
    command = (
        str(binary),
        f"--etcd-servers=https://127.0.0.1:{ports['etcd']}",
        f"--etcd-cafile={pki.authority}",
        f"--etcd-certfile={pki.certificate('etcd-client')}",
        f"--etcd-keyfile={pki.key('etcd-client')}",
        "--bind-address=127.0.0.1",
        "--advertise-address=127.0.0.1",
        "--endpoint-reconciler-type=none",
        f"--secure-port={ports['apiserver']}",
        f"--tls-cert-file={pki.certificate('server')}",
        f"--tls-private-key-file={pki.key('server')}",
        f"--client-ca-file={pki.authority}",
        "--authorization-mode=RBAC",
        f"--service-cluster-ip-range={_SERVICE_RANGE}",
        f"--service-account-issuer={_ISSUER}",
        f"--service-account-key-file={pki.root / 'service-account.pub'}",
        f"--service-account-signing-key-file={pki.root / 'service-account.key'}",
        # Pods need no token on simulated nodes, and those nodes are Ready a moment after they exist.
        "--disable-admission-plugins=ServiceAccount,TaintNodesByCondition",
        *audit.flags(_yaml(state, "audit-policy"), state.audit_log),
    )
    return Component("apiserver", command, {"apiserver": ports["apiserver"]}, _SPARING_COLLECTION)


def _controller_manager(state: State, binary: Path) -> Component:
    command = (
        str(binary),
        f"--kubeconfig={_kubeconfig_path(state, 'controller-manager')}",
        "--leader-elect=false",
        "--secure-port=0",
        f"--controllers={','.join(_CONTROLLERS)}",
        f"--node-monitor-grace-period={_NO_HEARTBEATS}",
        f"--kube-api-qps={_REQUESTS_PER_SECOND}",
        f"--kube-api-burst={2 * _REQUESTS_PER_SECOND}",
        f"--concurrent-job-syncs={_CONCURRENT_JOB_SYNCS}",
    )
    return Component("controller-manager", command)


def podrunner(state: State) -> Component:
    """Return the process that plays the kubelet for our agent."""
    command = (
        sys.executable,
        "-m",
        "infra.local.podrunner",
        f"--kubeconfig={state.kubeconfig}",
        f"--state={state.root}",
        f"--stack={state.stack}",
    )
    checkout = Path(__file__).resolve().parents[2]
    return Component("podrunner", command, environment={"PYTHONPATH": str(checkout)})


def kubeconfig(server: str, pki: Pki, user: str, *, context: str = "local") -> str:
    """Return a self-contained kubeconfig for one of the client certificates."""

    def encoded(path: Path) -> str:
        return base64.b64encode(path.read_bytes()).decode()

    cluster = {"server": server, "certificate-authority-data": encoded(pki.authority)}
    credentials = {
        "client-certificate-data": encoded(pki.certificate(user)),
        "client-key-data": encoded(pki.key(user)),
    }
    content: dict[str, Any] = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": context, "cluster": cluster}],
        "users": [{"name": context, "user": credentials}],
        "contexts": [{"name": context, "context": {"cluster": context, "user": context}}],
        "current-context": context,
    }
    return yaml.safe_dump(content, sort_keys=False)


def _scheduler_configuration(state: State) -> dict[str, Any]:
    return {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "leaderElection": {"leaderElect": False},
        "clientConnection": {
            "kubeconfig": str(_kubeconfig_path(state, "scheduler")),
            "qps": _REQUESTS_PER_SECOND,
            "burst": 2 * _REQUESTS_PER_SECOND,
        },
    }


def _kubeconfig_path(state: State, user: str) -> Path:
    return state.config / f"{user}.kubeconfig"


def _yaml(state: State, name: str) -> Path:
    return state.config / f"{name}.yaml"


def _write_yaml(state: State, name: str, documents: Sequence[Mapping[str, Any]]) -> None:
    write_atomically(_yaml(state, name), yaml.safe_dump_all(documents, sort_keys=False))
