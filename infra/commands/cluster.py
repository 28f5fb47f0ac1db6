"""What `queue`, `explain` and `recall` read from a cluster: the jobs as the agent sees them, and its clock.

They read with the caller's own kubeconfig and rights. On a machine with an embedded stack and no KUBECONFIG, they read
that stack. Whoever may read the agent's configuration can ask about the whole fleet. A team's user may not, and needs
not: with a namespace, what is in that namespace is enough. Then a flavor counts as cloud where our gate stands before
it, and fleet time is what the team's forecast says it is.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Final

from yaml import YAMLError

from infra.commands.places import checkout
from infra.commands.project import open_state
from infra.local.errors import LocalError
from infra.local.state import State
from runtime import kube
from runtime.clock import Clock, parse_time
from runtime.errors import Forbidden, KubeError, NotFound, SettingsError
from runtime.routing.observe import Observer
from runtime.routing.snapshot import Job, Stage
from runtime.simulation.text import TeamForecast, from_data
from stacks.agent_config import AgentConfig, parse
from stacks.labels import AGENT_NAME, FORECAST_NAME, GATE_NAME, SYSTEM_NAMESPACE, TEAM_LABEL

UNKNOWN_CLASS: Final = "default"
"""Shown for a job that names no class, where the fleet's default class is not known."""

_LOCAL: Final = {Stage.AT_GATE: Stage.RUNNING_LOCAL, Stage.RUNNING_CLOUD: Stage.RUNNING_LOCAL}


class NotDeployedError(LocalError):
    """The cluster has no gpufleet, or the caller may not see it."""


@dataclass(frozen=True)
class SeenJob:
    """A job as the agent sees it, with the Workload it was read from."""

    job: Job
    workload: dict[str, Any]


@dataclass(frozen=True)
class Cluster:
    """A connection, with what is needed to read Workloads as the agent does.

    `known` says whether the configuration is the agent's; otherwise it stands for one namespace that the caller may
    read.
    """

    kube: kube.Kube
    config: AgentConfig
    clock: Clock
    known: bool = True

    async def jobs(self, namespace: str | None = None) -> list[SeenJob]:
        """Every job that is the fleet's; Workloads that cannot be read are left out.

        Raises:
            NotDeployedError: they may not be listed.
        """
        try:
            pages = [page async for page, _version in self.kube.pages(kube.WORKLOADS, namespace)]
        except Forbidden as error:
            raise _denied(error, namespace) from None
        return [seen for page in pages for raw in page if (seen := self.read(raw)) is not None]

    def read(self, raw: dict[str, Any]) -> SeenJob | None:
        """The job of a Workload; None where it is not the fleet's, or cannot be read."""
        try:
            job = self._observer.reduce(raw)
        except ValueError:
            return None
        if job is None:
            return None
        return SeenJob(job if self.known else _without_configuration(job, raw), raw)

    @cached_property
    def _observer(self) -> Observer:
        return Observer(self.config, self.clock, lambda _reason, _raw, _sentence: None)


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


async def read_cluster(connection: kube.Kube, namespace: str | None = None) -> Cluster:
    """Read the agent's configuration and its clock; of a namespace whatever stands for them, where it may not be read.

    Raises:
        NotDeployedError: they are not there, or may not be read.
    """
    try:
        config = await _configuration(connection)
        clock = await _clock(connection, config)
    except Forbidden as error:
        if namespace is None:
            raise _denied(error, None) from None
        forecasts, _ = await read_forecasts(connection, namespace)
        told = forecasts.get(namespace)
        clock = Clock() if told is None else Clock(_origin(told), told.speed)
        config = await _stand_in(connection, namespace, told)
        return Cluster(connection, config, clock, known=False)
    except KubeError as error:
        kubeconfig = os.environ.get("KUBECONFIG")
        hint = f"is KUBECONFIG={kubeconfig} the right one" if kubeconfig else "does the stack run (gpufleet status)"
        raise NotDeployedError(f"cannot read the cluster: {error}; {hint}?") from None
    return Cluster(connection, config, clock)


def _denied(error: Forbidden, namespace: str | None) -> NotDeployedError:
    if namespace is None:
        return NotDeployedError(
            f"you may not read the whole fleet ({error}); "
            "a team's user names her namespace: gpufleet queue -n NAMESPACE"
        )
    return NotDeployedError(
        f"you may not list the jobs of namespace {namespace} ({error}); ask for the right to get and list "
        "workloads.kueue.x-k8s.io there (Kueue's ClusterRole kueue-batch-user-role has it)"
    )


async def _configuration(connection: kube.Kube) -> AgentConfig:
    try:
        config_map = await connection.get(kube.CONFIG_MAPS, AGENT_NAME, SYSTEM_NAMESPACE)
    except NotFound:
        raise NotDeployedError(
            f"this cluster has no ConfigMap {SYSTEM_NAMESPACE}/{AGENT_NAME}; is gpufleet deployed here (make up)?"
        ) from None
    try:
        [text] = config_map["data"].values()
        return parse(text)
    except (KeyError, ValueError, AttributeError, YAMLError) as error:
        raise NotDeployedError(
            f"ConfigMap {SYSTEM_NAMESPACE}/{AGENT_NAME} is none that this version can read: {error}; "
            "deploy this version (make up)"
        ) from None


async def _clock(connection: kube.Kube, config: AgentConfig) -> Clock:
    """The fleet's clock; where it is everybody's, nothing more is read."""
    if config.replay_speed == 1:
        return Clock()
    namespace = await connection.get(kube.NAMESPACES, SYSTEM_NAMESPACE)
    return Clock(parse_time(namespace["metadata"]["creationTimestamp"]), config.replay_speed)


def _origin(told: TeamForecast) -> float:
    """When fleet time and real time were one."""
    return told.real_at if told.speed == 1 else (told.at - told.real_at * told.speed) / (1 - told.speed)


async def read_forecasts(connection: kube.Kube, namespace: str | None) -> tuple[dict[str, TeamForecast], str]:
    """What the agent forecasts by namespace; or why that cannot be known."""
    try:
        if namespace is not None:
            found = [await connection.get(kube.CONFIG_MAPS, FORECAST_NAME, namespace)]
        else:
            found = await connection.list(kube.CONFIG_MAPS, fields=f"metadata.name={FORECAST_NAME}")
    except NotFound:
        found = []
    except KubeError as error:
        return {}, f"ConfigMap {FORECAST_NAME} cannot be read ({error})"
    told = {
        one["metadata"]["namespace"]: forecast
        for one in found
        if one["metadata"]["name"] == FORECAST_NAME and (forecast := from_data(one.get("data"))) is not None
    }
    where = f"namespace {namespace}" if namespace else "any team's namespace"
    return told, "" if told else f"the agent has written no ConfigMap {FORECAST_NAME} in {where} yet"


async def _stand_in(connection: kube.Kube, namespace: str, told: TeamForecast | None) -> AgentConfig:
    """A configuration that names the team of one namespace and its queue, and nothing else."""
    team = told.team if told is not None else await _team_of(connection, namespace)
    return AgentConfig.model_validate(
        {
            "organization": "",
            "gate": GATE_NAME,
            "flavors": {},
            "burst_order": (),
            "teams": {team: {"namespace": namespace, "queue": team, "burst_queues": {}}},
            "classes": {UNKNOWN_CLASS: {"burst": "allowed", "expected_runtime": "1h"}},
            "default_class": UNKNOWN_CLASS,
            "policy": {"kind": "never"},
            "interval": "5s",
            "ledger": {"kind": "volume"},
        }
    )


async def _team_of(connection: kube.Kube, namespace: str) -> str:
    """The team whose queues are in the namespace; unless the fleet file says otherwise, both have one name."""
    try:
        queues = await connection.list(kube.LOCAL_QUEUES, namespace)
    except KubeError:
        return namespace
    labels = [queue["metadata"].get("labels") or {} for queue in queues]
    return next((str(one[TEAM_LABEL]) for one in labels if TEAM_LABEL in one), namespace)


def _without_configuration(job: Job, raw: dict[str, Any]) -> Job:
    """Correct what the stand-in could not know: which flavors are local, and the names of classes."""
    checks = (raw.get("status") or {}).get("admissionChecks") or []
    gated = any(check.get("name") == GATE_NAME for check in checks)
    named = (raw["spec"].get("priorityClassRef") or {}).get("name")
    stage = job.stage if gated else _LOCAL.get(job.stage, job.stage)
    return replace(job, stage=stage, job_class=str(named or job.job_class))
