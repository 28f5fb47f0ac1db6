"""Runs aws-node-termination-handler for a simulated node: a process of its own, with the rights that its chart gives it.

It looks for its service account at the place where a kubelet mounts one and nowhere else, so it gets a mount namespace
with such a place: outside of it nothing is written, and no root is needed where users may make namespaces.

It is set up as its chart does it, but for scheduled events: the mock answers 404 there, which it takes for a fault and
ends; its own end-to-end tests turn them off, too.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from infra.local.kubeclient import KubeClient, Manifest

TOOL: Final = "node-termination-handler"
NAMESPACE, NAME = "kube-system", "aws-node-termination-handler"

_ENTER: Final = 'mount -t tmpfs tmpfs /var/run && mkdir -p "$1" && cp "$0"/* "$1" && shift && exec "$@"'
_NAMESPACE: Final = ("unshare", "--map-root-user", "--mount")
_ACCOUNT: Final = "/var/run/secrets/kubernetes.io/serviceaccount"
"""Of client-go's rest.InClusterConfig."""

_API_GROUP: Final = "rbac.authorization.k8s.io"
_RULES: Final = (
    {"apiGroups": [""], "resources": ["nodes"], "verbs": ["get", "list", "patch", "update"]},
    {"apiGroups": [""], "resources": ["pods"], "verbs": ["list", "get"]},
    {"apiGroups": [""], "resources": ["pods/eviction"], "verbs": ["create"]},
    {"apiGroups": ["apps"], "resources": ["daemonsets"], "verbs": ["get"]},
)
"""Those of config/helm/aws-node-termination-handler/templates/clusterrole.yaml."""


def why_not() -> str:
    """Why it cannot run on this machine; empty where it can."""
    try:
        done = subprocess.run([*_NAMESPACE, "true"], capture_output=True, text=True, check=False)
    except OSError as error:
        return str(error)
    return done.stderr.strip() if done.returncode else ""


def manifests() -> list[Manifest]:
    """Its service account and rights."""
    role = {"apiGroup": _API_GROUP, "kind": "ClusterRole", "name": NAME}
    subject = {"kind": "ServiceAccount", "name": NAME, "namespace": NAMESPACE}
    api_version = f"{_API_GROUP}/v1"
    return [
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": NAME, "namespace": NAMESPACE}},
        {"apiVersion": api_version, "kind": "ClusterRole", "metadata": {"name": NAME}, "rules": list(_RULES)},
        {
            "apiVersion": api_version,
            "kind": "ClusterRoleBinding",
            "metadata": {"name": NAME},
            "roleRef": role,
            "subjects": [subject],
        },
    ]


@contextmanager
def handler(binary: Path, node: str, kube: KubeClient, account: Path, url: str) -> Iterator[subprocess.Popen[bytes]]:
    """Run it in IMDS mode; `account` is a directory with its token and the authority, `url` the metadata service."""
    server = urlsplit(kube.server)
    with (account.parent / f"{TOOL}.log").open("ab") as log:
        process = subprocess.Popen(
            [*_NAMESPACE, "sh", "-c", _ENTER, str(account), _ACCOUNT, str(binary)],
            env={
                "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
                "NODE_NAME": node,
                "POD_NAME": f"{NAME}-{node}",
                "NAMESPACE": NAMESPACE,
                "KUBERNETES_SERVICE_HOST": str(server.hostname),
                "KUBERNETES_SERVICE_PORT": str(server.port),
                "INSTANCE_METADATA_URL": url,
                "ENABLE_SPOT_INTERRUPTION_DRAINING": "true",
                "ENABLE_ASG_LIFECYCLE_DRAINING": "true",
                "ENABLE_SCHEDULED_EVENT_DRAINING": "false",
            },
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
        )
        try:
            yield process
        finally:
            process.kill()  # SIGTERM it notes, and runs on
            process.wait()
