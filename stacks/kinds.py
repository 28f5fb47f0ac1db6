"""The kinds of job that can be sent to the cloud: where they live, and how they are suspended.

A release moves a job's queue label. Kueue lets the label of these kinds change while they are suspended; it never does
for plain pods, pod groups, Deployments, StatefulSets and LeaderWorkerSets, so those stay local.
Source: jobframework and the integrations' webhooks of Kueue 0.19.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class JobKind:
    """One kind of job. `suspend` is the path of the field that holds it back; `framework` is its name in Kueue."""

    kind: str
    group: str
    version: str
    plural: str
    suspend: tuple[str, ...]
    framework: str

    @property
    def api_version(self) -> str:
        """Group and version as an object carries them, e.g. `batch/v1`."""
        return f"{self.group}/{self.version}"


JOB_KINDS: Final = (
    JobKind("Job", "batch", "v1", "jobs", ("spec", "suspend"), "batch/job"),
    JobKind("JobSet", "jobset.x-k8s.io", "v1alpha2", "jobsets", ("spec", "suspend"), "jobset.x-k8s.io/jobset"),
    JobKind(
        "TrainJob",
        "trainer.kubeflow.org",
        "v1alpha1",
        "trainjobs",
        ("spec", "suspend"),
        "trainer.kubeflow.org/trainjob",
    ),
    JobKind(
        "PyTorchJob", "kubeflow.org", "v1", "pytorchjobs", ("spec", "runPolicy", "suspend"), "kubeflow.org/pytorchjob"
    ),
    JobKind("MPIJob", "kubeflow.org", "v2beta1", "mpijobs", ("spec", "runPolicy", "suspend"), "kubeflow.org/mpijob"),
    JobKind("RayJob", "ray.io", "v1", "rayjobs", ("spec", "suspend"), "ray.io/rayjob"),
)
"""Every kind that the agent moves, in the order of the documentation."""

LONGEST_GRACE_SECONDS: Final = 300
"""Longest terminationGracePeriodSeconds of a job in a team's namespace: long enough to write a checkpoint of hundreds
of gigabytes to an object store. Quota is given back when pods are told to end; until they have ended they cost."""

_BY_NAME: Final = {(kind.group, kind.kind): kind for kind in JOB_KINDS}


def job_kind(api_version: str, kind: str) -> JobKind | None:
    """The kind of an owner reference, whatever its version; None for one that stays local."""
    return _BY_NAME.get((api_version.partition("/")[0], kind))
