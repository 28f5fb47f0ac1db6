"""The job kinds besides Job: their CRDs, and the smallest suspended object of each that asks for GPUs.

CRDs are other projects' and not shipped with this one. Those that lie beside the checkout are used as they are; for
MPIJob v2beta1 and RayJob, which do not, a CRD that takes any spec stands in, so that what is proven for them is Kueue's
integration and ours, not their schema. No operator runs for any kind: nobody makes pods, and a job ends when its status
is patched.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
import yaml

from infra.local.kubeclient import KubeClient, Manifest
from stacks.kinds import JOB_KINDS, JobKind
from stacks.labels import EXPECTED_RUNTIME_ANNOTATION, GPU_RESOURCE, MAX_EXEC_LABEL, PRIORITY_CLASS_LABEL, QUEUE_LABEL
from tests.conftest import ROOT
from tests.e2e.conftest import wait_for

CRDS = ROOT.parent / "shared" / "crds"
FILES = {
    "JobSet": ["jobset-0.12.0/jobset.x-k8s.io_jobsets.yaml"],
    "TrainJob": [  # the others first: Kueue sets up TrainJob once its CRD appears, and never again if they are not there
        "jobset-0.12.0/jobset.x-k8s.io_jobsets.yaml",
        "kubeflow-trainer-2.3.0/trainer.kubeflow.org_trainingruntimes.yaml",
        "kubeflow-trainer-2.3.0/trainer.kubeflow.org_clustertrainingruntimes.yaml",
        "kubeflow-trainer-2.3.0/trainer.kubeflow.org_trainjobs.yaml",
    ],
    "PyTorchJob": ["training-operator-1.9.4/kubeflow.org_pytorchjobs.yaml"],
}
KINDS = {kind.kind: kind for kind in JOB_KINDS}
CHILDREN = {"RayJob": [replace(KINDS["RayJob"], kind="RayCluster", plural="rayclusters")]}  # Kueue watches these too
RUNTIME = "torch-test"


def crds(kind: JobKind) -> list[Manifest]:
    """The CRDs that a kind needs; the test is skipped where they are not at hand."""
    files = FILES.get(kind.kind)
    if kind.kind == "Job":
        return []
    if files is None:
        return [stand_in(one) for one in (kind, *CHILDREN.get(kind.kind, ()))]
    missing = [name for name in files if not (CRDS / name).exists()]
    if missing:
        pytest.skip(f"the CRDs of {kind.kind} are not beside the checkout: {', '.join(missing)}")
    return [yaml.load((CRDS / name).read_text(), Loader=_Loader) for name in files]


def stand_in(kind: JobKind) -> Manifest:
    """A CRD that takes anything."""
    open_object = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    version = {
        "name": kind.version,
        "served": True,
        "storage": True,
        "subresources": {"status": {}},
        "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": open_object, "status": open_object}}},
    }
    names = {"kind": kind.kind, "plural": kind.plural, "singular": kind.kind.lower(), "listKind": f"{kind.kind}List"}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{kind.plural}.{kind.group}"},
        "spec": {"group": kind.group, "scope": "Namespaced", "names": names, "versions": [version]},
    }


def install(kube: KubeClient, kind: JobKind) -> None:
    """Apply the CRDs of a kind, and what it cannot do without, and wait until they are served."""
    for crd in crds(kind):
        kube.ensure(crd)
        name = crd["metadata"]["name"]
        wait_for(f"{name} to be served", partial(established, kube, name))
    if kind.kind == "TrainJob":
        kube.ensure(training_runtime())


def established(kube: KubeClient, name: str) -> bool:
    found = kube.get("apiextensions.k8s.io/v1", "CustomResourceDefinition", name)
    conditions = found.get("status", {}).get("conditions") or []
    return any(one["type"] == "Established" and one["status"] == "True" for one in conditions)


def job_of(kind: JobKind, name: str, namespace: str, gpus: int, *, job_class: str = "normal") -> Manifest:
    """A suspended job of the kind in its team's queue, with the labels a user writes."""
    labels = {QUEUE_LABEL: namespace, PRIORITY_CLASS_LABEL: job_class, MAX_EXEC_LABEL: "40"}
    metadata = {"name": name, "namespace": namespace, "labels": labels}
    return {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": metadata, "spec": SPECS[kind.kind](gpus)}


def template(gpus: int) -> dict[str, Any]:
    requests = {"cpu": "1", "memory": "1Gi"} | ({GPU_RESOURCE: str(gpus)} if gpus else {})
    limits = {GPU_RESOURCE: str(gpus)} if gpus else {}
    container = {"name": "main", "image": "train", "resources": {"requests": requests, "limits": limits}}
    return {
        "metadata": {"annotations": {EXPECTED_RUNTIME_ANNOTATION: "10m"}},
        "spec": {"restartPolicy": "Never", "containers": [container]},
    }


def batch_job(gpus: int) -> dict[str, Any]:
    return {"suspend": True, "parallelism": 1, "completions": 1, "backoffLimit": 0, "template": template(gpus)}


def job_set(gpus: int) -> dict[str, Any]:
    job = {"template": {"spec": {key: value for key, value in batch_job(gpus).items() if key != "suspend"}}}
    return {"suspend": True, "replicatedJobs": [{"name": "workers", "replicas": 1, **job}]}


def train_job(gpus: int) -> dict[str, Any]:
    resources = {"limits": {GPU_RESOURCE: str(gpus)}, "requests": {GPU_RESOURCE: str(gpus)}}
    reference = {"apiGroup": "trainer.kubeflow.org", "kind": "ClusterTrainingRuntime", "name": RUNTIME}
    trainer = {"numNodes": 1, "resourcesPerNode": resources}
    return {"suspend": True, "runtimeRef": reference, "trainer": trainer}


def training_runtime() -> Manifest:
    pod = {"containers": [{"name": "node", "image": "train"}]}
    job = {
        "metadata": {"labels": {"trainer.kubeflow.org/trainjob-ancestor-step": "trainer"}},
        "spec": {"template": {"spec": pod}},
    }
    return {
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "kind": "ClusterTrainingRuntime",
        "metadata": {"name": RUNTIME},
        "spec": {
            "mlPolicy": {"numNodes": 1},
            "template": {"spec": {"replicatedJobs": [{"name": "node", "replicas": 1, "template": job}]}},
        },
    }


def pytorch_job(gpus: int) -> dict[str, Any]:
    pod = _restartable(template(gpus))
    pod["spec"]["containers"][0]["name"] = "pytorch"
    replicas = {"Master": {"replicas": 1, "restartPolicy": "Never", "template": pod}}
    return {"runPolicy": {"suspend": True}, "pytorchReplicaSpecs": replicas}


def mpi_job(gpus: int) -> dict[str, Any]:
    replicas = {
        "Launcher": {"replicas": 1, "restartPolicy": "Never", "template": template(0)},  # drives, without a GPU
        "Worker": {"replicas": 1, "restartPolicy": "Never", "template": template(gpus)},
    }
    return {"runPolicy": {"suspend": True}, "mpiReplicaSpecs": replicas}


def ray_job(gpus: int) -> dict[str, Any]:
    group = {"groupName": "gpu", "replicas": 1, "minReplicas": 1, "maxReplicas": 1, "rayStartParams": {}}
    head = {"rayStartParams": {}, "template": _restartable(template(0))}
    cluster = {"headGroupSpec": head, "workerGroupSpecs": [{**group, "template": _restartable(template(gpus))}]}
    return {"suspend": True, "shutdownAfterJobFinishes": True, "entrypoint": "train", "rayClusterSpec": cluster}


def _restartable(pod: dict[str, Any]) -> dict[str, Any]:
    """Without a restart policy, which the kind decides itself."""
    return {**pod, "spec": {key: value for key, value in pod["spec"].items() if key != "restartPolicy"}}


SPECS = {
    "Job": batch_job,
    "JobSet": job_set,
    "TrainJob": train_job,
    "PyTorchJob": pytorch_job,
    "MPIJob": mpi_job,
    "RayJob": ray_job,
}


def at(manifest: Manifest, path: tuple[str, ...]) -> Any:
    value: Any = manifest
    for key in path:
        value = value.get(key) if isinstance(value, dict) else None
    return value


def selectors(value: Any) -> Iterator[dict[str, str]]:
    """Every node selector of an object, wherever its kind keeps pod templates."""
    if isinstance(value, dict):
        if isinstance(value.get("nodeSelector"), dict):
            yield value["nodeSelector"]
        for key, inner in value.items():
            if key != "nodeSelector":
                yield from selectors(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from selectors(inner)


_Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # megabytes of YAML: seconds for the Python parser
