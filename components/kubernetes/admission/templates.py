"""Where each kind of object keeps the specs of its pods.

Beside the kinds that gpufleet moves stand those that only lead to them or to pods: their controllers make jobs and pods
under their own name, which no policy about users sees.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from components.kubernetes.admission.expressions import Spec, rules, variables

PodSpecs = Callable[[str], str]
"""From the name of a variable to an expression: a list of lists of pod specs (CEL cannot flatten lists)."""


@dataclass(frozen=True, slots=True)
class Templates:
    """One kind and where its pod specs are."""

    group: str
    kind: str
    plural: str
    pods: PodSpecs


def _one(path: str) -> PodSpecs:
    return lambda subject: f"[[{subject}.{_optional(path)}.orValue({{}})]]"


def _each(path: str, within: str) -> PodSpecs:
    return lambda subject: f"[{subject}.{_optional(path)}.orValue([]).map(e, e.{_optional(within)}.orValue({{}}))]"


def _replicas(field: str) -> PodSpecs:
    def pods(subject: str) -> str:
        replicas = f"{subject}.?spec.?{field}.orValue({{}})"
        return f"[{replicas}.map(k, {replicas}[k].?template.?spec.orValue({{}}))]"

    return pods


def _ray(path: str) -> PodSpecs:
    head, workers = _one(f"{path}.headGroupSpec.template.spec"), _each(f"{path}.workerGroupSpecs", "template.spec")
    return lambda subject: f"{head(subject)} + {workers(subject)}"


def _train_job(subject: str) -> str:
    # runtimePatches since Trainer 2.2, podTemplateOverrides before.
    patched = f"e.?trainingRuntimeSpec.{_optional('template.spec.replicatedJobs')}.orValue([])"
    patches = f"{subject}.?spec.?runtimePatches.orValue([])"
    return (
        f"{patches}.map(e, {patched}.map(j, j.{_optional(_REPLICATED)}.orValue({{}})))"
        f" + {_each('spec.podTemplateOverrides', 'spec')(subject)}"
    )


def _optional(path: str) -> str:
    return ".".join(f"?{part}" for part in path.split("."))


_REPLICATED: Final = "template.spec.template.spec"
_RAY_JOB: Final = (_ray("spec.rayClusterSpec"), _one("spec.submitterPodTemplate.spec"))

TEMPLATES: Final = (
    Templates("batch", "Job", "jobs", _one("spec.template.spec")),
    Templates("batch", "CronJob", "cronjobs", _one("spec.jobTemplate.spec.template.spec")),
    Templates("jobset.x-k8s.io", "JobSet", "jobsets", _each("spec.replicatedJobs", _REPLICATED)),
    Templates("trainer.kubeflow.org", "TrainJob", "trainjobs", _train_job),
    Templates(
        "trainer.kubeflow.org",
        "TrainingRuntime",
        "trainingruntimes",
        _each("spec.template.spec.replicatedJobs", _REPLICATED),
    ),
    Templates("kubeflow.org", "PyTorchJob", "pytorchjobs", _replicas("pytorchReplicaSpecs")),
    Templates("kubeflow.org", "MPIJob", "mpijobs", _replicas("mpiReplicaSpecs")),
    Templates("kubeflow.org", "TFJob", "tfjobs", _replicas("tfReplicaSpecs")),
    Templates("kubeflow.org", "XGBoostJob", "xgboostjobs", _replicas("xgbReplicaSpecs")),
    Templates("kubeflow.org", "PaddleJob", "paddlejobs", _replicas("paddleReplicaSpecs")),
    Templates("kubeflow.org", "JAXJob", "jaxjobs", _replicas("jaxReplicaSpecs")),
    Templates("ray.io", "RayJob", "rayjobs", lambda subject: " + ".join(part(subject) for part in _RAY_JOB)),
    Templates("ray.io", "RayCluster", "rayclusters", _ray("spec")),
    Templates("ray.io", "RayService", "rayservices", _ray("spec.rayClusterConfig")),
)
"""Every kind whose pods an exempt controller makes."""


def template_rules(operations: list[str]) -> Spec:
    """Match these operations on everything that holds templates."""
    groups: dict[str, list[str]] = {}
    for one in TEMPLATES:
        groups.setdefault(one.group, []).append(one.plural)
    return rules(*groups.items(), operations=operations)


def template_pods() -> list[dict[str, str]]:
    """Variables `pods` and `oldPods`: lists of lists of pod specs."""

    def pods(subject: str) -> str:
        return " : ".join([f"request.kind.kind == '{one.kind}' ? {one.pods(subject)}" for one in TEMPLATES] + ["[]"])

    return variables(pods=pods("dyn(object)"), oldPods=f"oldObject == null ? [] : {pods('dyn(oldObject)')}")
