"""Kueue objects: flavors, the queue tree with its burst twins, classes, and the gate.

Layout (docs/architecture.md says why): the organisation's Cohort holds the cloud caps; each team's Cohort below holds
the team's local quota; in it stand ClusterQueues with nominal quota 0: the team's own, which offers local flavors and
knows no check of ours, and for each cloud flavor a burst twin, which offers local flavors first and then that one,
behind the gate. Because the quota stands in the Cohort and not in a queue, the oldest job wins freed local GPUs
whichever of them it waits in. LocalQueues of windows lead to the team's own ClusterQueue.

It does not install Kueue, and sets no field that Kueue or the agent writes.
"""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from typing import Any, Final

import pulumi

from components.base import Component, keeps_data
from components.kubernetes import forecasts
from components.kubernetes.gpu import topology
from components.kubernetes.namespaces import local_queues, namespace_of
from components.kubernetes.quotas import quota, resource_groups, team_quota
from components.names import KUEUE_API, Manifest, cohort_of, manifest, team_cohort_of
from stacks.flavors import Flavor
from stacks.fleet import Fleet
from stacks.labels import BURST_TAINT, GATE_CONTROLLER, GATE_NAME, TEAM_LABEL, burst_queue

GATE_TIMEOUT_SECONDS: Final = 300
"""How long `pulumi up` waits for the agent to declare the gate Active: image pull and first list of a large cluster."""


class Queues(Component):
    """The queue tree of the fleet, with the gate. `gate` is the AdmissionCheck, Active when the twins refer to it."""

    def __init__(
        self,
        name: str,
        fleet: Fleet,
        *,
        agent: Sequence[pulumi.Resource],
        opts: pulumi.ResourceOptions | None = None,
    ) -> None:
        super().__init__(name, opts)
        self.kubernetes_all(priority_classes(fleet))
        shared = self.kubernetes_all(resource_flavors(fleet))
        organization = self.kubernetes("organization", organization_cohort(fleet), depends_on=shared)
        self.gate = self.kubernetes("gate", admission_check(), depends_on=list(agent))
        for team in fleet.teams:
            self._team(fleet, team, organization)
        self.register_outputs({})

    def _team(self, fleet: Fleet, team: str, organization: pulumi.Resource) -> None:
        cohort = self.kubernetes(f"cohort-{team}", team_cohort(fleet, team), depends_on=[organization])
        queue = self.kubernetes(f"queue-{team}", cluster_queue(fleet, team), depends_on=[cohort])
        targets = {team: queue}
        for twin, one in burst_cluster_queues(fleet, team).items():
            targets[twin] = self.kubernetes(f"queue-{twin}", one, depends_on=[cohort, self.gate])
        # Pulumi deletes layer by layer; without the gate here the namespace would go a layer after the twins, which
        # Kueue keeps until the jobs in the namespace are gone. For the same reason what stands in the namespace hangs
        # on it directly, and never one object on another.
        namespace = self.kubernetes(
            f"namespace-{team}", namespace_of(fleet, team), depends_on=[queue, self.gate], **keeps_data(fleet)
        )
        for role, one in local_queues(fleet, team).items():
            self.kubernetes(role, one, depends_on=[namespace, targets[one["spec"]["clusterQueue"]]])
        inside = {**forecasts.manifests(fleet, team), **topology.manifests(fleet, team)}
        self.kubernetes_all(inside, depends_on=[namespace])


def manifests(fleet: Fleet) -> dict[str, Manifest]:
    """Every object of the queue tree by role, in the order of creation."""
    objects = {f"namespace-{team}": namespace_of(fleet, team) for team in fleet.teams}
    objects |= {**priority_classes(fleet), **resource_flavors(fleet)}
    objects |= {"organization": organization_cohort(fleet), "gate": admission_check()}
    for team in fleet.teams:
        objects[f"cohort-{team}"] = team_cohort(fleet, team)
        objects[f"queue-{team}"] = cluster_queue(fleet, team)
        objects |= {f"queue-{twin}": one for twin, one in burst_cluster_queues(fleet, team).items()}
        objects |= local_queues(fleet, team)
        objects |= {**forecasts.manifests(fleet, team), **topology.manifests(fleet, team)}
    return objects


def priority_classes(fleet: Fleet) -> dict[str, Manifest]:
    """One WorkloadPriorityClass per job class."""
    return {
        f"class-{name.lower()}": manifest(
            KUEUE_API,
            "WorkloadPriorityClass",
            name.lower(),
            value=job_class.priority,
            description=f"Jobs of class {name}; a job asks for it with the label kueue.x-k8s.io/priority-class.",
        )
        for name, job_class in fleet.classes.items()
    }


def resource_flavors(fleet: Fleet) -> dict[str, Manifest]:
    """One ResourceFlavor per flavor; only cloud flavors tolerate the burst taint."""
    return {f"flavor-{flavor.name}": _resource_flavor(flavor) for flavor in fleet.flavors.values()}


def _resource_flavor(flavor: Flavor) -> Manifest:
    spec: dict[str, Any] = {"nodeLabels": flavor.node_labels}
    if flavor.cloud:
        spec["tolerations"] = [{"key": BURST_TAINT, "operator": "Exists", "effect": "NoSchedule"}]
    return manifest(KUEUE_API, "ResourceFlavor", flavor.name, spec=spec)


def admission_check() -> Manifest:
    """The gate; Pulumi waits until the agent has declared it Active."""
    annotations = {
        "pulumi.com/waitFor": "condition=Active",
        "pulumi.com/timeoutSeconds": str(GATE_TIMEOUT_SECONDS),
    }
    spec = {"controllerName": GATE_CONTROLLER}
    return manifest(KUEUE_API, "AdmissionCheck", GATE_NAME, annotations=annotations, spec=spec)


def organization_cohort(fleet: Fleet) -> Manifest:
    """The root: the cloud caps. Local quota stands with the teams, so that changing one team's changes one Cohort."""
    caps = [quota(fleet, flavor, flavor.gpus) for flavor in fleet.queued_flavors if flavor.cloud]
    spec = {"resourceGroups": resource_groups(fleet, caps)}
    return manifest(KUEUE_API, "Cohort", cohort_of(fleet.organization), spec=spec)


def team_cohort(fleet: Fleet, name: str) -> Manifest:
    """A team's share: its local quota, what it may borrow and lends, and how much of the cloud it may hold.

    Kueue limits borrowing flavor by flavor, so `max_burst_gpus` stands at each cloud flavor; that all of them together
    stay within it is the agent's to see to, before it clears the gate.
    """
    team = fleet.teams[name]
    owned = [team_quota(fleet, name, flavor) for flavor in fleet.queued_flavors]
    spec = {
        "parentName": cohort_of(fleet.organization),
        "fairSharing": {"weight": f"{Decimal(repr(team.weight)).normalize():f}"},
        "resourceGroups": resource_groups(fleet, owned),
    }
    return manifest(KUEUE_API, "Cohort", team_cohort_of(fleet.organization, name), labels={TEAM_LABEL: name}, spec=spec)


def cluster_queue(fleet: Fleet, team: str) -> Manifest:
    """The team's own queue: local flavors, no check of ours, so that local work never depends on the agent."""
    spec = _queue_spec(fleet, team, [flavor for flavor in fleet.queued_flavors if not flavor.cloud])
    spec["preemption"] = {
        "withinClusterQueue": "LowerPriority",
        "reclaimWithinCohort": "Any",
        "borrowWithinCohort": {"policy": "LowerPriority"},
    }
    return manifest(KUEUE_API, "ClusterQueue", team, labels={TEAM_LABEL: team}, spec=spec)


def burst_cluster_queues(fleet: Fleet, team: str) -> dict[str, Manifest]:
    """The team's burst twins by name, in the order in which the cloud is tried."""
    return {burst_queue(team, cloud.name): burst_cluster_queue(fleet, team, cloud) for cloud in fleet.burst_flavors}


def burst_cluster_queue(fleet: Fleet, team: str, cloud: Flavor) -> Manifest:
    """A burst twin: local flavors first, then one cloud flavor behind the gate; it preempts nobody."""
    local = [flavor for flavor in fleet.queued_flavors if not flavor.cloud]
    spec = _queue_spec(fleet, team, [*local, cloud])
    spec["preemption"] = {"withinClusterQueue": "Never", "reclaimWithinCohort": "Never"}
    spec["admissionChecksStrategy"] = {"admissionChecks": [{"name": GATE_NAME, "onFlavors": [cloud.name]}]}
    return manifest(KUEUE_API, "ClusterQueue", burst_queue(team, cloud.name), labels={TEAM_LABEL: team}, spec=spec)


def _queue_spec(fleet: Fleet, team: str, flavors: Sequence[Flavor]) -> dict[str, Any]:
    spec = {
        "cohortName": team_cohort_of(fleet.organization, team),
        "namespaceSelector": {"matchLabels": {TEAM_LABEL: team}},
        "queueingStrategy": "BestEffortFIFO",
        "flavorFungibility": {"whenCanBorrow": "MayStopSearch", "whenCanPreempt": "TryNextFlavor"},
        "resourceGroups": resource_groups(fleet, [quota(fleet, flavor, 0) for flavor in flavors]),
    }
    return {field: value for field, value in spec.items() if value}
