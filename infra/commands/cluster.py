"""What `queue` and `explain` read from a cluster: the agent's configuration, its clock, and the jobs it sees.

They read with the caller's own kubeconfig and rights. On a machine with an embedded stack and no KUBECONFIG, they
read that stack.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from yaml import YAMLError

from infra.commands.places import checkout
from infra.commands.project import open_state
from infra.local.errors import LocalError
from infra.local.state import State
from runtime import kube
from runtime.clock import Clock, parse_time
from runtime.errors import KubeError, NotFound, SettingsError
from runtime.routing.observe import Observer
from runtime.routing.snapshot import Job
from stacks.agent_config import AgentConfig, parse
from stacks.labels import AGENT_NAME, SYSTEM_NAMESPACE

CONFIG_MAPS = kube.Resource("v1", "configmaps")


class NotDeployedError(LocalError):
    """The cluster has no gpufleet, or the caller may not see it."""


@dataclass(frozen=True)
class SeenJob:
    """A job as the agent sees it, with the Workload it was read from."""

    job: Job
    workload: dict[str, Any]


@dataclass(frozen=True)
class Cluster:
    """A connection, with what is needed to read Workloads as the agent does."""

    kube: kube.Kube
    config: AgentConfig
    clock: Clock

    async def jobs(self, namespace: str | None = None) -> list[SeenJob]:
        """Every job that is the fleet's; Workloads that cannot be read are left out."""
        observer = Observer(self.config, self.clock, lambda _reason, _raw, _sentence: None)
        seen = []
        async for page, _version in self.kube.pages(kube.WORKLOADS, namespace):
            for raw in page:
                try:
                    job = observer.reduce(raw)
                except ValueError:
                    continue
                if job is not None:
                    seen.append(SeenJob(job, raw))
        return seen


def connect(stack: str) -> kube.Kube:
    """Connect as the caller's KUBECONFIG says, else to the embedded stack of this checkout, else to ~/.kube/config.

    Raises:
        NotRunningError: there is none of them.
        NotDeployedError: the kubeconfig cannot be used.
    """
    environment = dict(os.environ)
    if not environment.get("KUBECONFIG"):
        usual = Path("~/.kube/config").expanduser()
        started = (State.directory(checkout(), stack) / "kubeconfig").is_file()
        environment["KUBECONFIG"] = str(usual if usual.is_file() and not started else open_state(stack).kubeconfig)
    try:
        return kube.connect(environment)
    except (SettingsError, AttributeError, YAMLError) as error:
        # lightkube lets the errors of the YAML reader through, and reads attributes of whatever the file holds.
        cause = str(error) if isinstance(error, SettingsError) else "it is no kubeconfig"
        raise NotDeployedError(f"KUBECONFIG={environment['KUBECONFIG']}: {cause}") from None


async def read_cluster(connection: kube.Kube) -> Cluster:
    """Read the agent's configuration and clock.

    Raises:
        NotDeployedError: they are not there, or may not be read.
    """
    try:
        config_map = await connection.get(CONFIG_MAPS, AGENT_NAME, SYSTEM_NAMESPACE)
        namespace = await connection.get(kube.NAMESPACES, SYSTEM_NAMESPACE)
    except NotFound:
        raise NotDeployedError(
            f"this cluster has no ConfigMap {SYSTEM_NAMESPACE}/{AGENT_NAME}; is gpufleet deployed here (make up)?"
        ) from None
    except KubeError as error:
        raise NotDeployedError(f"cannot read the cluster: {error}; does the stack run (gpufleet status)?") from None
    try:
        [text] = config_map["data"].values()
        config = parse(text)
    except (KeyError, ValueError, AttributeError, YAMLError) as error:
        raise NotDeployedError(
            f"ConfigMap {SYSTEM_NAMESPACE}/{AGENT_NAME} is none that this version can read: {error}; "
            "deploy this version (make up)"
        ) from None
    origin = parse_time(namespace["metadata"]["creationTimestamp"])
    return Cluster(connection, config, Clock(origin, config.replay_speed))
