"""Where the kinds of object live that the agent and the command line touch: group, version and plural, and the path.

It makes no request; runtime.kube does, and offers all of these under its own name too.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final
from urllib.parse import quote

from stacks.kinds import job_kind


@dataclass(frozen=True, slots=True)
class Resource:
    """Where a kind of object lives: `batch/v1` `jobs`, or `v1` `namespaces`."""

    version: str
    plural: str

    def path(self, namespace: str | None = None, name: str | None = None, subresource: str | None = None) -> str:
        """The URL path of one object, or of the collection where `name` is None."""
        parts = ["apis" if "/" in self.version else "api", *self.version.split("/")]
        if namespace is not None:
            parts += ["namespaces", namespace]
        parts += [part for part in (self.plural, name, subresource) if part is not None]
        return "/" + "/".join(quote(part, safe="") for part in parts)


NAMESPACES: Final = Resource("v1", "namespaces")
NODES: Final = Resource("v1", "nodes")
PODS: Final = Resource("v1", "pods")
CONFIG_MAPS: Final = Resource("v1", "configmaps")
JOBS: Final = Resource("batch/v1", "jobs")
WORKLOADS: Final = Resource("kueue.x-k8s.io/v1beta2", "workloads")
LOCAL_QUEUES: Final = Resource("kueue.x-k8s.io/v1beta2", "localqueues")
CLUSTER_QUEUES: Final = Resource("kueue.x-k8s.io/v1beta2", "clusterqueues")
RESOURCE_FLAVORS: Final = Resource("kueue.x-k8s.io/v1beta2", "resourceflavors")
ADMISSION_CHECKS: Final = Resource("kueue.x-k8s.io/v1beta2", "admissionchecks")
LEASES: Final = Resource("coordination.k8s.io/v1", "leases")
EVENTS: Final = Resource("events.k8s.io/v1", "events")


def job_resource(api_version: str, kind: str) -> Resource | None:
    """Where a job's owner lives, in its own version; None for a kind that stays local."""
    found = job_kind(api_version, kind)
    return None if found is None else Resource(api_version, found.plural)
