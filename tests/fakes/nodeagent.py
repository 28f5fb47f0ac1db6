"""Starts a node agent for a simulated node: its own process and service account, a real API server, a fake machine."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, Final

from infra.local.kubeclient import KubeClient
from infra.local.state import State
from stacks.labels import NODE_AGENT_NAME, SYSTEM_NAMESPACE
from tests.conftest import ROOT

_TOKEN_SECONDS: Final = 3_600
_GRACE_SECONDS: Final = 5.0


def write_account(
    kube: KubeClient,
    state: State,
    directory: Path,
    *,
    node: str | None = None,
    name: str = NODE_AGENT_NAME,
    namespace: str = SYSTEM_NAMESPACE,
) -> Path:
    """What a pod of the node agent finds at the usual place: the token of its service account, and the authority.

    A token that is bound to a node says so with every request, as that of a pod there does; policies ask for it.
    """
    directory.mkdir(parents=True, exist_ok=True)
    path = kube.path("v1", "ServiceAccount", name, namespace)
    spec: dict[str, Any] = {"expirationSeconds": _TOKEN_SECONDS}
    if node is not None:
        uid = kube.get("v1", "Node", node)["metadata"]["uid"]
        spec["boundObjectRef"] = {"apiVersion": "v1", "kind": "Node", "name": node, "uid": uid}
    body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec}
    answer = kube.request("POST", f"{path}/token", body)
    (directory / "token").write_text(answer["status"]["token"])
    (directory / "ca.crt").write_bytes((state.pki / "ca.crt").read_bytes())
    return directory


@contextmanager
def node_agent(
    node: str,
    *,
    server: str,
    account: Path,
    arguments: tuple[str, ...],
    log: IO[bytes] | None = None,
) -> Iterator[subprocess.Popen[bytes]]:
    """Run a node agent; `arguments` say whom it asks, e.g. ("--provider", "aws", "--metadata-url", URL)."""
    own = {name: value for name, value in os.environ.items() if not name.startswith(("KUBERNETES_", "GPUFLEET_"))}
    own |= {"NODE_NAME": node, "GPUFLEET_BIND": "127.0.0.1", "GPUFLEET_SERVICE_ACCOUNT_DIR": str(account)}
    own["GPUFLEET_API_SERVER"] = server
    process = subprocess.Popen(
        [sys.executable, "-m", "runtime.node", "--port", "off", *arguments],
        cwd=ROOT,
        env=own,
        stdin=subprocess.DEVNULL,
        stderr=log,
    )
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.wait(_GRACE_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
