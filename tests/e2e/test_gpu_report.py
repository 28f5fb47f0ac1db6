"""What the reader of GPUs writes on its Node, taken by the real API server with just the rights that it needs."""

from __future__ import annotations

from pathlib import Path

import pytest

from infra.local.kubeclient import KubeClient
from runtime.gpus.health import Fault, judge
from runtime.gpus.reader import Health
from runtime.gpus.report import Report
from runtime.node.kube import NodeClient
from stacks.labels import GPU_CONDITION, GPU_FAILED_TAINT, GPU_FAULTS_ANNOTATION
from tests.conftest import Plane

NODE = "gpu-report-0"
ACCOUNT = "gpu-report"
RULES = [
    {"apiGroups": [""], "resources": ["nodes"], "verbs": ["get", "patch"]},
    {"apiGroups": [""], "resources": ["nodes/status"], "verbs": ["patch"]},
]
OTHERS = {"type": "example.com/Other", "status": "False", "reason": "Other", "message": "of others"}
WELL = (Health("GPU-0", recovery="none"),)


@pytest.fixture
def client(plane: Plane, tmp_path: Path) -> NodeClient:
    """A client with the rights of `RULES`, and nothing else."""
    rbac = "rbac.authorization.k8s.io"
    with KubeClient(plane.kubeconfig) as kube:
        kube.ensure(
            {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": ACCOUNT, "namespace": "default"}}
        )
        kube.ensure({"apiVersion": f"{rbac}/v1", "kind": "ClusterRole", "metadata": {"name": ACCOUNT}, "rules": RULES})
        kube.ensure(
            {
                "apiVersion": f"{rbac}/v1",
                "kind": "ClusterRoleBinding",
                "metadata": {"name": ACCOUNT},
                "roleRef": {"apiGroup": rbac, "kind": "ClusterRole", "name": ACCOUNT},
                "subjects": [{"kind": "ServiceAccount", "name": ACCOUNT, "namespace": "default"}],
            }
        )
        path = kube.path("v1", "ServiceAccount", ACCOUNT, "default")
        body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"expirationSeconds": 3_600}}
        (tmp_path / "token").write_text(kube.request("POST", f"{path}/token", body)["status"]["token"])
        (tmp_path / "ca.crt").write_bytes((plane.state.pki / "ca.crt").read_bytes())
        return NodeClient(kube.server, NODE, tmp_path)


def test_condition_taint_and_faults_come_and_go_and_others_stay(plane: Plane, client: NodeClient) -> None:
    with KubeClient(plane.kubeconfig) as kube:
        node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": NODE}}
        kube.create(node | {"spec": {"taints": [{"key": "nvidia.com/gpu", "effect": "NoSchedule"}]}})
        try:
            kube.patch_status(node, {"conditions": [OTHERS]})
            report, fault = Report(client), Fault("GPU-0", 79, 1_000.0, "boot-1")
            for faults in ((fault,), ()):
                report.known(())
                report.publish(judge(WELL, faults, {}), faults)
                raw = kube.get("v1", "Node", NODE)
                conditions = {entry["type"]: entry for entry in raw["status"]["conditions"]}
                taints = {taint["key"]: taint.get("value") for taint in raw["spec"]["taints"]}
                assert conditions[GPU_CONDITION]["status"] == str(not faults)
                assert conditions["example.com/Other"]["message"] == "of others"
                assert taints.get(GPU_FAILED_TAINT) == ("Xid79" if faults else None)
                assert "nvidia.com/gpu" in taints
                assert (GPU_FAULTS_ANNOTATION in raw["metadata"].get("annotations", {})) is bool(faults)
            assert report.failures == 0
        finally:
            kube.delete("v1", "Node", NODE)
