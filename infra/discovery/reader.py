"""Reads from a cluster what `find` needs, with the caller's own rights.

Kinds that are not installed are read as empty; kinds that may not be read are said and left out. Nothing is changed,
and no Secret is read.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import yaml
from lightkube.config.client_adapter import AsyncClient, ConnectionParams
from lightkube.config.kubeconfig import KubeConfig
from lightkube.core.exceptions import ConfigError

from infra.discovery.objects import ClusterObjects, Raw, at
from infra.local.errors import LocalError
from runtime.errors import Forbidden, NotFound
from runtime.kube import NAMESPACES, REQUEST_TIMEOUT, Kube, Resource
from stacks.labels import AGENT_NAME, SYSTEM_NAMESPACE

_USUAL: Final = "~/.kube/config"
_KUEUE: Final = ("kueue.x-k8s.io/v1beta2", "kueue.x-k8s.io/v1beta1")
_COHORTS: Final = (*_KUEUE, "kueue.x-k8s.io/v1alpha1")
_KARPENTER: Final = ("karpenter.sh/v1", "karpenter.sh/v1beta1")

_LISTS: Final[Mapping[str, tuple[tuple[str, ...], str]]] = {
    "namespaces": ((NAMESPACES.version,), NAMESPACES.plural),
    "cluster_queues": (_KUEUE, "clusterqueues"),
    "local_queues": (_KUEUE, "localqueues"),
    "resource_flavors": (_KUEUE, "resourceflavors"),
    "priority_classes": (_KUEUE, "workloadpriorityclasses"),
    "cohorts": (_COHORTS, "cohorts"),
    "node_pools": (_KARPENTER, "nodepools"),
}
"""What is read, with the versions of its API to try, the newest first."""


class ClusterError(LocalError):
    """The cluster cannot be reached with this kubeconfig, or may not be read."""


def connect(context: str | None, environment: Mapping[str, str] = os.environ) -> tuple[Kube, str]:
    """Connect with a context of KUBECONFIG (default ~/.kube/config); also return the context's name.

    Raises:
        ClusterError: there is no such context, or the file cannot be used.
    """
    files = [entry for entry in environment.get("KUBECONFIG", "").split(os.pathsep) if entry]
    if not files and not Path(_USUAL).expanduser().is_file():
        raise ClusterError(
            f"no kubeconfig: KUBECONFIG is not set and {_USUAL} does not exist; set KUBECONFIG to a kubeconfig, "
            "or read an embedded stack by --stack NAME"
        )
    files = files or [_USUAL]
    tried = []
    for file in files:
        try:
            config = KubeConfig.from_file(file).get(context)
            if config is None or config.user is None:
                raise ConfigError("the context names no user")
            return Kube(AsyncClient(config, ConnectionParams(timeout=REQUEST_TIMEOUT))), config.context_name
        except (ConfigError, OSError, KeyError, TypeError, ValueError, AttributeError, yaml.YAMLError) as error:
            # lightkube lets the errors of the YAML reader through, and reads attributes of whatever the file holds.
            tried.append(str(error) if isinstance(error, ConfigError) else "it is no kubeconfig")
    known = "; --context names another context, --stack an embedded stack" if context is None else ""
    raise ClusterError(f"KUBECONFIG={os.pathsep.join(files)}: {'; '.join(tried)}{known}")


async def read(kube: Kube) -> ClusterObjects:
    """Everything there is to find.

    Raises:
        ClusterError: nodes may not be listed, without which there is nothing to find.
        KubeError: the cluster does not answer.
    """
    try:
        nodes = tuple(await kube.list(Resource("v1", "nodes")))
    except Forbidden as error:
        raise ClusterError(f"nodes cannot be listed: {error}; ask for the right to list nodes") from None
    notes: list[str] = []
    lists = {field: await _list(kube, versions, plural, notes) for field, (versions, plural) in _LISTS.items()}
    config_map = await _get(kube, Resource("v1", "configmaps"), notes)
    data = at(config_map, "data")
    texts = list(data.values()) if isinstance(data, Mapping) else []
    return ClusterObjects(
        nodes=nodes,
        agent_config=texts[0] if len(texts) == 1 and isinstance(texts[0], str) else None,
        agent_deployment=await _get(kube, Resource("apps/v1", "deployments"), notes) if config_map else None,
        notes=tuple(notes),
        **lists,
    )


async def _list(kube: Kube, versions: tuple[str, ...], plural: str, notes: list[str]) -> tuple[dict[str, Any], ...]:
    for version in versions:
        try:
            return tuple(await kube.list(Resource(version, plural)))
        except NotFound:
            continue
        except Forbidden:
            notes.append(f"Not read, for want of rights: {plural} ({version}).")
            return ()
    return ()


async def _get(kube: Kube, resource: Resource, notes: list[str]) -> Raw | None:
    """One of the objects of a gpufleet agent that may be there."""
    try:
        return await kube.get(resource, AGENT_NAME, SYSTEM_NAMESPACE)
    except NotFound:
        return None
    except Forbidden:
        notes.append(f"Not read, for want of rights: {resource.plural} of {SYSTEM_NAMESPACE}.")
        return None
