"""The GPU layer on a real API server: every object is taken as it is, and jobs find slices where queues count them.

No operator and no device plugin runs here: nodes are pretended with what `stacks.devices` says that they offer, so what
is shown is that names and numbers agree between file, nodes and queues, and that the API server takes every field.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest

from components.kubernetes import admission, gpu
from components.kubernetes.gpu import readings
from infra.local.errors import KubeError
from infra.local.kubeclient import Manifest
from stacks.labels import (
    GPU_CONDITION,
    GPU_FAILED_TAINT,
    GPU_FAULTS_ANNOTATION,
    GPU_READER_NAME,
    MAX_EXEC_LABEL,
    POOL_LABEL,
    PRIORITY_CLASS_LABEL,
    QUEUE_LABEL,
    SYSTEM_NAMESPACE,
)
from stacks.layouts import MIG_CONFIG_LABEL, PLUGIN_CONFIG_LABEL
from tests.e2e.conftest import FLEET_FILE, Stack, condition, wait_for
from tests.e2e.kinds import established
from tests.fakes.crds import crd
from tests.mocks.gpu_fleets import gpu_fleet

OPERATOR = "gpu-operator"
SLICE = "nvidia.com/mig-1g.10gb"
CRDS = (
    "gpu-operator-26.7.0/nvidia.com_nvidiadrivers.yaml",
    "karpenter-aws-1.14.1/karpenter.sh_nodeoverlays.yaml",
    "network-attachment-definition-client/networks-crd.yaml",
)
OK, REFUSED = 200, {403, 422}
UNCHECKED = {"NicClusterPolicy", "IPPool"}
"""Kinds whose CRDs nobody gave us."""

SLICES = """\
      slices: {cluster: lab, location: onprem, gpu: h100-sxm-80gb, gpus_per_node: 8, nodes: 1, node_names: [slices-0], usd_per_gpu_hour: 1,
               mig: {layout: {"0-6": [7x1g.10gb]}}}
"""
SLICED_FLEET_FILE = FLEET_FILE.replace("      spot:", f"{SLICES}      spot:").replace(
    "red: {quota: {h100-onprem: 8}", "red: {quota: {h100-onprem: 8, h100-mig-onprem: 8}"
)


@pytest.fixture(scope="module")
def served(stack: Stack) -> Stack:
    """The stack with the CRDs of the GPU layer, and the namespace that an operator would be in."""
    for name in CRDS:
        definition = crd(name)
        stack.kube.ensure(definition)
        served = definition["metadata"]["name"]
        wait_for(f"{served} to be served", partial(established, stack.kube, served))
    stack.kube.ensure({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": OPERATOR}})
    return stack


@pytest.fixture(scope="module")
def sliced(served: Stack) -> Iterator[Stack]:
    """The stack with a pool of slices beside its racks."""
    served.reshape(SLICED_FLEET_FILE)
    yield served
    served.reshape(FLEET_FILE)


def strictly(stack: Stack, manifest: Manifest) -> Manifest:
    """Have the server take an object or say what is wrong with it, an unknown field included; nothing is kept."""
    path = stack.kube.path_of(manifest, with_name=False)
    parameters = {"dryRun": "All", "fieldValidation": "Strict"}
    return dict(stack.kube.request("POST", path, manifest, parameters=parameters))


def objects() -> list[Manifest]:
    """Every object of a fleet with all of the GPU layer, in namespaces that are there."""
    layer = "    gpu_layer: {readings: true, network_operator: {}, operator: {namespace: gpu-operator}}\n"
    manifests = [one for one in gpu.manifests(gpu_fleet(layer)).values() if one["kind"] not in UNCHECKED]
    return [one for one in manifests if one["kind"] != "Namespace" or one["metadata"]["name"] != OPERATOR]


@pytest.mark.parametrize("manifest", objects(), ids=lambda one: f"{one['kind']}-{one['metadata']['name']}")
def test_the_api_server_takes_every_object_as_it_is(served: Stack, manifest: Manifest) -> None:
    taken = strictly(served, manifest)
    for field in ("spec", "data", "rules"):
        assert contains(taken.get(field), manifest.get(field))


def contains(larger: Any, smaller: Any) -> bool:
    """Whether nothing was dropped or changed; defaults may have been added."""
    if isinstance(smaller, dict):
        return isinstance(larger, dict) and all(contains(larger.get(key), value) for key, value in smaller.items())
    if isinstance(smaller, list):
        return len(larger) == len(smaller) and all(map(contains, larger, smaller))
    return bool(smaller is None or larger == smaller)


def test_the_rules_that_only_a_server_knows_are_in_force(served: Stack) -> None:
    by_kind = {one["kind"]: one for one in objects()}
    driver, overlay = by_kind["NVIDIADriver"], by_kind["NodeOverlay"]
    with pytest.raises(KubeError, match="must not use nodeSelector"):
        strictly(served, {**driver, "spec": {**driver["spec"], "default": True}})
    with pytest.raises(KubeError, match="invalid resource restricted"):
        strictly(served, {**overlay, "spec": {**overlay["spec"], "capacity": {"cpu": "8"}}})
    with pytest.raises(KubeError, match="unknown field"):
        strictly(served, {**driver, "spec": {**driver["spec"], "mig": "all-1g.10gb"}})


def test_a_job_finds_slices_on_a_node_that_knows_its_layout(sliced: Stack) -> None:
    kube, name = sliced.kube, "slices-find"
    labels = kube.get("v1", "Node", "slices-0")["metadata"]["labels"]
    layouts = kube.get("v1", "ConfigMap", "gpufleet-mig-layouts", OPERATOR)["data"]["config.yaml"]
    plugin = kube.get("v1", "ConfigMap", "gpufleet-device-plugin", OPERATOR)["data"]
    assert labels[MIG_CONFIG_LABEL] in layouts
    assert labels[PLUGIN_CONFIG_LABEL] in plugin

    kube.create(job(name, {SLICE: "7"}))
    wait_for("its admission", lambda: condition(sliced.workload("red", name), "Admitted"))
    assignment = sliced.workload("red", name)["status"]["admission"]["podSetAssignments"][0]
    assert assignment["flavors"][SLICE] == "h100-mig-onprem"
    pods = wait_for("its pod on a node", lambda: [one for one in of_job(sliced, name) if one["spec"].get("nodeName")])
    assert pods[0]["spec"]["nodeName"] == "slices-0"
    assert kube.get("v1", "Node", "slices-0")["metadata"]["labels"][POOL_LABEL] == "slices"

    kube.create(job(f"{name}-not", {"nvidia.com/mig-2g.20gb": "1"}))
    wait_for("its Workload", lambda: sliced.workload("red", f"{name}-not"))
    wait_for("the reason", lambda: "2g.20gb" in said(sliced.workload("red", f"{name}-not")))
    assert sliced.changes(sliced.up()) == {}, "a second up changes nothing"
    sliced.clear("red")


READER = f"system:serviceaccount:{SYSTEM_NAMESPACE}:{GPU_READER_NAME}"
NODE = "rack-0"
MAY: dict[str, tuple[dict[str, Any], str]] = {
    "faults": ({"metadata": {"annotations": {GPU_FAULTS_ANNOTATION: "[]"}}}, ""),
    "taint": ({"spec": {"taints": [{"key": GPU_FAILED_TAINT, "effect": "NoSchedule"}]}}, ""),
    "condition": ({"status": {"conditions": [{"type": GPU_CONDITION, "status": "False"}]}}, "/status"),
}
MAY_NOT: dict[str, tuple[dict[str, Any], str]] = {
    "another annotation": ({"metadata": {"annotations": {"example.com/other": "1"}}}, ""),
    "a label": ({"metadata": {"labels": {POOL_LABEL: "other"}}}, ""),
    "another taint": ({"spec": {"taints": [{"key": "example.com/other", "effect": "NoSchedule"}]}}, ""),
    "its taint with another effect": ({"spec": {"taints": [{"key": GPU_FAILED_TAINT, "effect": "NoExecute"}]}}, ""),
    "a cordon": ({"spec": {"unschedulable": True}}, ""),
    "another condition": ({"status": {"conditions": [{"type": "Ready", "status": "False"}]}}, "/status"),
    "what the node has": ({"status": {"capacity": {"nvidia.com/gpu": "9"}}}, "/status"),
}


@pytest.fixture(scope="module")
def reader(served: Stack) -> Iterator[Stack]:
    """The stack with the reader's rights and the policy that narrows them."""
    fleet = gpu_fleet("    gpu_layer: {readings: true}\n")
    made = [one for role, one in admission.manifests(fleet).items() if role.startswith("gpu-readers")]
    made += [one for one in readings.manifests(fleet).values() if one["kind"].startswith("ClusterRole")]
    for one in made:
        served.kube.ensure(one)
    body, part = MAY_NOT["a label"]
    wait_for("the rights", lambda: writes(served, *MAY["faults"]) == OK)
    wait_for("the policy", lambda: writes(served, body, part) != OK)
    yield served
    for one in made:
        served.kube.delete(one["apiVersion"], one["kind"], one["metadata"]["name"])


def writes(stack: Stack, body: dict[str, Any], part: str = "", node: str = NODE) -> int:
    """What the API server answers the reader of a node; nothing is kept."""
    path = f"{stack.kube.path('v1', 'Node', NODE)}{part}?dryRun=All"
    strategic = "application/strategic-merge-patch+json"
    return stack.request_as(READER, "PATCH", path, body, strategic, node=node).status_code


@pytest.mark.parametrize("what", MAY)
def test_the_reader_of_gpus_says_what_it_is_there_for_and_of_its_own_node_only(reader: Stack, what: str) -> None:
    assert writes(reader, *MAY[what]) == OK
    assert writes(reader, *MAY[what], node="rack-1") in REFUSED
    assert writes(reader, *MAY[what], node="") in REFUSED


@pytest.mark.parametrize("what", MAY_NOT)
def test_the_reader_of_gpus_changes_nothing_else_of_a_node(reader: Stack, what: str) -> None:
    assert writes(reader, *MAY_NOT[what]) in REFUSED


def of_job(stack: Stack, name: str) -> list[Manifest]:
    return stack.kube.list("v1", "Pod", "red", label_selector=f"batch.kubernetes.io/job-name={name}")[0]


def said(workload: dict[str, Any]) -> str:
    return " ".join(one["message"] for one in workload.get("status", {}).get("conditions", []))


def job(name: str, devices: dict[str, str]) -> Manifest:
    """A job of team red that asks for devices by their names."""
    container = {
        "name": "main",
        "image": "train",
        "resources": {"requests": {"cpu": "1", "memory": "1Gi", **devices}, "limits": dict(devices)},
    }
    pod = {"restartPolicy": "Never", "containers": [container]}
    labels = {QUEUE_LABEL: "red", PRIORITY_CLASS_LABEL: "normal", MAX_EXEC_LABEL: "600"}
    spec = {"suspend": True, "parallelism": 1, "completions": 1, "template": {"spec": pod}}
    metadata = {"name": name, "namespace": "red", "labels": labels}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": spec}
